"""What is told of a user's function that failed: the error, the user's line, the row, and the traceback without ours.

Frames of this package say nothing to the author of a function, and neither do our wrappers around its exception
(`RowError`, `SinkFailed`), so both are taken off. Causes, contexts, groups and notes of the user's own stay. The line
that is named is the last one of the user's code: an error inside `json` is told where the user calls `json`. A result
that does not fit the schema is raised by no line of the user's, so the line is where the function is defined.
"""

from __future__ import annotations

import functools
import linecache
import re
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from penstock.errors import PenstockError, RowError

ROW_CHARACTERS_MAX = 200
TRACE_LINES_MAX = 2_000
_PACKAGE = str(Path(__file__).resolve().parents[2])
_WRITTEN_AS_USERS_DO = (f"{_PACKAGE}/apps/",)
_LIBRARIES = tuple({f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
_FRAME = re.compile(r'^(\s*)File "([^"]+)", line (\d+), in ')


class SinkFailed(PenstockError):
    """A sink raised inside the task that produces its rows; says which one."""

    def __init__(self, sink: str, error: BaseException) -> None:
        self.sink = sink
        super().__init__(f"in sink {sink!r}: {told(error)}")


@dataclass(frozen=True, slots=True)
class UserFault:
    """One failure, as its author wants to read it."""

    error: str  # type and message
    where: str  # "words.py:12 in parse", or empty where no line of the user's is known
    row: str  # "row 7, Row(...)", shortened; empty where the error belongs to no row
    sink: str
    trace: str

    def __str__(self) -> str:
        sink = f"in sink {self.sink!r}: " if self.sink else ""
        where = f" ({self.where})" if self.where else ""
        return f"{sink}{self.error}{where}" + (f" on {self.row}" if self.row else "")


def user_fault(error: BaseException, function: object = None) -> UserFault:
    """What to tell of an exception; `function` is the user's, for errors that none of its lines raised."""
    sink = row = defined = ""
    while isinstance(error, RowError | SinkFailed) and error.__cause__ is not None:
        if isinstance(error, SinkFailed):
            sink = error.sink
        else:
            row, defined = f"row {error.row}, {_shortened(error.values)}", error.defined
        error = error.__cause__
    if not isinstance(error, Exception):  # an exit keeps its kind; its notes name the sink and the row
        row = _shortened(": ".join(reversed(getattr(error, "__notes__", ()))))
    summary = traceback.TracebackException.from_exception(error)
    _without_ours(summary)
    trace = "".join(summary.format()).splitlines(keepends=True)
    where = _place(summary.stack) or defined or ("" if sink else defined_at(function))
    return UserFault(told(error), where, row, sink, "".join(trace[-TRACE_LINES_MAX:]))


def told(error: BaseException) -> str:
    """Type and message, as the last line of a traceback has them."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def defined_at(function: object) -> str:
    """Where a function or class of the user's is written; empty for ours and for what has no Python source."""
    while isinstance(function, functools.partial):
        function = function.func
    candidates = (function, getattr(function, "on_row", None), function.__call__ if callable(function) else None)
    code = next((code for given in candidates if (code := getattr(given, "__code__", None)) is not None), None)
    if code is None or _is_ours(code.co_filename):
        return ""
    return _spelt(code.co_filename, code.co_firstlineno, code.co_name)


def with_source(trace: str, line_of: Callable[[str, int], str] = linecache.getline) -> str:
    """A traceback from elsewhere with lines of source that only this process has: those of a notebook's cells."""
    lines = trace.splitlines()
    shown: list[str] = []
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        shown.append(line)
        found = _FRAME.match(line)
        if found and not following.startswith(f"{found[1]}  ") and (source := line_of(found[2], int(found[3])).strip()):
            shown.append(f"{found[1]}  {source}")
    return "\n".join(shown) + ("\n" if trace.endswith("\n") else "")


def _without_ours(summary: traceback.TracebackException) -> None:
    """Take our frames off an exception and whatever it came from."""
    waiting, seen = [summary], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.stack = traceback.StackSummary.from_list([frame for frame in one.stack if not _is_ours(frame.filename)])
        related = (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ()))
        waiting += [other for other in related if other is not None]


def _place(stack: traceback.StackSummary) -> str:
    """The user's last line; in installed code the first line, which is the one that was called."""
    own = [
        frame
        for frame in stack
        if not frame.filename.startswith((*_LIBRARIES, "<frozen")) and not frame.filename.endswith((".pxi", ".pyx"))
    ]
    frame = own[-1] if own else stack[0] if stack else None
    return "" if frame is None else _spelt(frame.filename, frame.lineno or 0, frame.name)


def _spelt(filename: str, line: int, name: str) -> str:
    short = "notebook cell" if "/ipykernel_" in filename else Path(filename).name
    return f"{short}:{line} in {name}"


def _is_ours(filename: str) -> bool:
    return filename.startswith(f"{_PACKAGE}/") and not filename.startswith(_WRITTEN_AS_USERS_DO)


def _shortened(text: str) -> str:
    return text if len(text) <= ROW_CHARACTERS_MAX else f"{text[: ROW_CHARACTERS_MAX - 3]}..."
