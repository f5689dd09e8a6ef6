"""What an error of Spark comes down to, in one line for people. Pure.

Spark wraps the one line that matters, often Python's own, in a page of Java. Failures in a worker before any of our
code ran (a missing module, another Python, no Python at all) reach the driver in no other way. They are recognised
here, and each is told with what to do about it.
"""

from __future__ import annotations

import re

CHARACTERS_MAX = 600
_MODULE = re.compile(r"No module named '([\w.]+)'")
_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_MISMATCH = re.compile(r"\[PYTHON_VERSION_MISMATCH\]\D*([\d.]*\d)\D*([\d.]*\d)")
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(: .*)?")


def reason(text: str) -> str:
    """The line of Spark's error that says something, with the next step where there is a known one."""
    if (module := missing_module(text)) is not None:
        top = module.partition(".")[0]
        return (
            f"No module named {module!r} where the workers are; ship it with "
            f"spark.sparkContext.addPyFile('{top}.py') (a package as .zip), or install it there"
        )
    if (found := _PROGRAM.search(text)) is not None:
        return f"Spark cannot run {found[1]!r} where the workers are"
    if (found := _MISMATCH.search(text)) is not None:
        return f"workers run Python {found[1]} but the driver runs {found[2]}"
    return raised_in_python(text) or brief(text)


def missing_module(text: str) -> str | None:
    """The module that Python did not find, if that is what Spark tells of."""
    found = _MODULE.search(text)
    return None if found is None else found[1]


def raised_in_python(text: str) -> str | None:
    """The last line of the first Python traceback in Spark's text."""
    _, found, rest = text.partition(_TRACEBACK)
    for line in rest.splitlines()[1:] if found else ():
        if _RAISED.fullmatch(line):
            return line[:CHARACTERS_MAX]
    return None


def brief(text: str) -> str:
    """The lines of a Java error that say something."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    return " ".join(lines)[:CHARACTERS_MAX]
