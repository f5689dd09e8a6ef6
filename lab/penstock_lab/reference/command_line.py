"""The page of the command line: what `--help` prints for every verb, at one width, whatever the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from unittest import mock

from penstock.cli import run_command

WIDTH = "100"  # of the imagined terminal
HEAD = """\
# The command line

Made from the code by `make reference`; do not edit.

Every verb takes `--help`, and most take `--format json` for one JSON document on stdout. People get tables on stdout
and progress on stderr. Exit status: 0 success, 2 a mistake in the input or no plan (one line says what and where),
130 interrupted, 1 anything else, a job that failed among it. [errors.md](errors.md) has the errors behind it.

`bench` and `reproduce` are part of the package `penstock-lab`.
"""


def command_line_page() -> str:
    """The page."""
    top = _help()
    parts = [HEAD, _block("penstock", top)]
    for verb in _verbs(top):
        help_of = _help(verb)
        parts.append(_block(f"penstock {verb}", help_of))
        parts += [_block(f"penstock {verb} {part}", _help(verb, part)) for part in _verbs(help_of)]
    return "\n".join(parts)


def _verbs(top: str) -> list[str]:
    """The verbs that the help of the whole command lists."""
    listed = top.partition("Commands:\n")[2]
    return [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and not line.startswith("   ")]


def _help(*arguments: str) -> str:
    said = io.StringIO()
    with _as_the_console_script(*arguments, "--help"), contextlib.redirect_stdout(said):
        run_command()
    return said.getvalue()


@contextlib.contextmanager
def _as_the_console_script(*arguments: str) -> Iterator[None]:
    """The command line as `penstock` meets it in a terminal of a known width, whatever program and terminal this is."""
    main = sys.modules["__main__"]
    with (
        mock.patch.object(sys, "argv", ["penstock", *arguments]),
        mock.patch.object(main, "__package__", None),  # else help would name the module that Python was started with
        mock.patch.dict(os.environ, {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}),
    ):
        yield


def _block(title: str, text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return f"## {title}\n\n```text\n{lines}\n```\n"
