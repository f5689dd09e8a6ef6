"""Which Python the workers of a session run, and whether Penstock is there: one task is asked before the first job.

A session that was made outside an activated environment runs its workers under the `python3` of PATH. Spark then fails
inside the stage with a Java trace that is cut off before the reason. The question costs one small task for each session
and interpreter. The answer of a fit interpreter is remembered; an unfit one is asked again, for it may be mended.
Sessions of `local_session` on this machine run this process's own Python and are not asked.

The question is a local function, so that Spark's closure carries its code and not the name of a module that workers may
lack. Rejected: setting the workers' Python here, which would change a session that other code uses too.
"""

from __future__ import annotations

import secrets
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.deploy.driver.spark_words import missing_module, reason
from penstock.deploy.session.local import runs_here
from penstock.errors import UnfitSession

if TYPE_CHECKING:
    from pyspark import SparkContext

ANSWER_SECONDS = 60.0  # the first Python worker of a session on a busy machine takes many
OWN_DAEMON = "penstock.deploy.worker.daemon"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and the versions of our packages there; a version is empty where the package is not installed."""

    executable: str
    python: str
    pyarrow: str
    penstock: str
    missing: str = ""  # why `import penstock` failed there


_fit: weakref.WeakKeyDictionary[SparkContext, set[str]] = weakref.WeakKeyDictionary()


def require_interpreter(context: SparkContext) -> None:
    """Raise UnfitSession unless the session's workers can run Penstock, with the setting to write."""
    known = _fit.setdefault(context, set())
    if context.pythonExec in known:
        return
    here, near = Interpreter(*_question()(0)), runs_here(str(context.master))
    if not (near and _made_by_us(context)):
        try:
            there = Interpreter(*_asked(context))
        except Exception as error:  # py4j and pyspark raise many types; the text is Spark's
            raise UnfitSession([unanswered(str(error), context.pythonExec, here, near=near)]) from None
        if faults := interpreter_faults(here, there, near=near):
            raise UnfitSession(faults)
    known.add(context.pythonExec)


def interpreter_faults(here: Interpreter, there: Interpreter, *, near: bool) -> list[str]:
    """Every reason why workers under that Python cannot run this driver's job; `near` means the same machine."""
    runs, todo = f"workers run {there.executable} (Python {there.python})", advice(here, near=near)
    if there.missing:
        lacks = missing_module(there.missing)
        what = "has no penstock" if lacks == "penstock" else f"cannot import penstock ({there.missing})"
        return [f"{runs}, which {what}; {todo}"]
    versions = (("penstock", there.penstock, here.penstock), ("pyarrow", there.pyarrow, here.pyarrow))
    return [
        f"{runs}, which has {name} {version or 'of no version'} but the driver has {own}; {todo}"
        for name, version, own in versions
        if version != own
    ]


def unanswered(text: str, executable: str, here: Interpreter, *, near: bool) -> str:
    """The error where that Python did not answer the question."""
    lacks = (missing_module(text) or "").partition(".")[0]
    why = "it has no penstock" if lacks == "penstock" else reason(text)
    return f"workers are to run {executable} but {why}; {advice(here, near=near)}"


def advice(here: Interpreter, *, near: bool) -> str:
    """The setting to write, before a session is made and for an existing session."""
    path = here.executable if near else "PATH/TO/python"
    where = "" if near else f", a Python of the executors with penstock {here.penstock}"
    return (
        f"set PYSPARK_PYTHON={path} before the session is made, or spark.sparkContext.pythonExec = {path!r} in this "
        f"one{where}"
    )


def _made_by_us(context: SparkContext) -> bool:
    """Whether `local_session` made the session: then its daemon imports penstock before any worker is forked."""
    own = context.getConf().get("spark.python.daemon.module") == OWN_DAEMON
    return own and context.pythonExec == sys.executable


def _asked(context: SparkContext) -> tuple[str, str, str, str, str]:
    """What one task says of itself; Spark's error, or TimeoutError when no task was run in time."""
    from pyspark import InheritableThread

    group, answer, failed = f"penstock-{secrets.token_hex(6)}", [], []
    ended = threading.Event()

    def ask() -> None:
        try:
            context.setJobGroup(group, "Penstock asks which Python the workers run")
            answer.extend(context.parallelize([0], 1).map(_question()).collect())
        except Exception as error:  # raised again below, by the thread that waits
            failed.append(error)
        finally:
            ended.set()

    InheritableThread(target=ask, name=group, daemon=True).start()
    try:
        if not ended.wait(ANSWER_SECONDS):
            msg = f"no task was run within {ANSWER_SECONDS:g} s; other queries may hold the slots"
            raise TimeoutError(msg)
    finally:
        if not ended.is_set():
            context.cancelJobGroup(group)
    if failed:
        raise failed[0]
    return answer[0]


def _question() -> Callable[[int], tuple[str, str, str, str, str]]:
    """The function that Spark ships. It names nothing of this module, or the module would be shipped too."""

    def answer(_: int) -> tuple[str, str, str, str, str]:
        import platform
        import sys
        from importlib import import_module
        from importlib.metadata import PackageNotFoundError, version

        def installed(name: str) -> str:
            try:
                return version(name)
            except PackageNotFoundError:
                return ""

        missing = ""
        try:
            import_module("penstock.deploy.worker.main")
        except Exception as error:  # an import runs anything
            missing = f"{type(error).__name__}: {error}"
        return sys.executable, platform.python_version(), installed("pyarrow"), installed("penstock"), missing

    return answer
