"""`penstock`: thin verbs in road order. Each parses, opens one door of the package, and shows what came out.

People get tables on stdout and progress on stderr; programs get one JSON document with `--format json`. Exit status:
0 success, 2 a user's mistake (one line, no traceback), 1 anything else.
"""

from __future__ import annotations

import sys

import typer

from penstock.errors import PenstockError

app = typer.Typer(
    name="penstock",
    help="Decide where the tasks of a streaming topology run, and see how good the decision is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """The console script: run the verb, and turn our errors into one line and an exit status."""
    from penstock.cli import bench, check, compare, place, profile, reproduce, run, topologies

    for verb in (check, place, compare, run, profile, topologies, reproduce, bench):
        verb.register(app)
    try:
        status = app(standalone_mode=False)
    except PenstockError as error:
        status = _complain(str(error), error.exit_code)
    except typer.TyperException as error:
        status = _complain(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        status = _complain("stopped", 130)
    except BrokenPipeError:
        sys.stderr.close()
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


def _complain(message: str, status: int) -> int:
    sys.stderr.write(f"penstock: {' '.join(message.split())}\n")
    return status
