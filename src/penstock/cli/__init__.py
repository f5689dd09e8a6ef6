"""`penstock`: thin verbs in road order. Each parses, opens one door of the package, and shows what came out.

People get tables on stdout and progress on stderr; programs get one JSON document with `--format json`. Exit status:
0 success, 2 a user's mistake (one line, no traceback), 1 anything else.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import Annotated

import typer

from penstock.errors import PenstockError

# Verbs that start processes elsewhere must clean up after Ctrl-C; the others may end where they are.
CLEANS_UP = frozenset({"run", "demo", "profile", "import", "bench", "calibrate"})


def main() -> None:
    """The console script."""
    from penstock.cli.answer_stream import keep_stdout_for_answers
    from penstock.cli.interrupt import exit_on_interrupt

    keep_stdout_for_answers()
    if not CLEANS_UP & set(sys.argv[1:2]):
        exit_on_interrupt()
    sys.exit(run_command())


def run_command() -> int:
    """Run the verb that the arguments name, and turn our errors into one line and an exit status."""
    from penstock.cli.interrupt import STATUS_INTERRUPTED

    try:
        status = command_line()(standalone_mode=False)
        sys.stdout.flush()
        if status == STATUS_INTERRUPTED:  # Typer's word for a KeyboardInterrupt that nobody has caught
            _complain("stopped", status)
    except PenstockError as error:
        sys.stderr.write(getattr(error, "user_traceback", ""))  # a user's own, in front as Python prints it
        status = _complain(str(error), error.exit_code)
    except typer.TyperException as error:
        status = _complain(error.format_message().replace("Value error, ", ""), 2)  # a word of the parser's own
    except (KeyboardInterrupt, typer.Abort):
        status = _complain("stopped", STATUS_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered has nowhere to go
        status = 1
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = _complain(f"cannot write the output: {error.strerror or error}", 1)
    return status if isinstance(status, int) else 0


def command_line() -> typer.Typer:
    """All verbs: ours, and then those of other packages."""
    from penstock.cli import (
        added,
        balance,
        calibrate,
        check,
        checkpoint,
        compare,
        fuse,
        imported,
        place,
        profile,
        run,
        topologies,
        tune,
    )
    from penstock.cli.running import jobs
    from penstock.cli.running.demo import verb as demo
    from penstock.cli.whole_help import WholeHelp

    app = typer.Typer(
        name="penstock",
        cls=WholeHelp,
        help="Decide where the tasks of a streaming topology run, and see how good the decision is.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_top)
    ours = (
        check,
        place,
        fuse,
        compare,
        run,
        demo,
        jobs,
        checkpoint,
        tune,
        profile,
        imported,
        calibrate,
        balance,
        topologies,
    )
    for verb in (*ours, added):
        verb.register(app)
    return app


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        typer.echo(f"penstock {importlib.metadata.version('penstock')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _complain(message: str, status: int) -> int:
    sys.stderr.write(f"penstock: {' '.join(message.split())}\n")
    return status
