"""Every error that Penstock raises on purpose: one tree, a class for each situation that a caller handles differently.

    PenstockError
      UserError        the input is at fault; the command line prints one line and exits 2
        InvalidInput, Infeasible, NoPlanFound, UnhonouredConstraints, RowError, RowsLate, NotEnoughSlots,
        UnfitSession, StoreUnusable
      JobFailed        a job ended with an error; carries the user's traceback where a user's function raised
      JobCancelled     a job was cancelled before its end, so it has no result
      CheckpointDamaged, StaleAttempt   what a job keeps does not hold, or belongs to a later attempt at the job
      InternalError    our bug: an answer of ours failed its own certificate

Messages name the thing, the value, the limit and the next step.
"""

from __future__ import annotations

from collections.abc import Iterable

FAULTS_SHOWN_MAX = 6


class PenstockError(Exception):
    """The root; catch it to catch everything that Penstock raises on purpose."""

    exit_code = 1


class UserError(PenstockError):
    """Something that the caller gave is at fault, and the message says what to change."""

    exit_code = 2


class InvalidInput(UserError):
    """A file, shorthand or argument is malformed; `faults` holds one sentence for each fault."""

    def __init__(self, faults: Iterable[str] | str) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        shown = "; ".join(self.faults[:FAULTS_SHOWN_MAX])
        hidden = len(self.faults) - FAULTS_SHOWN_MAX
        super().__init__(shown if hidden <= 0 else f"{shown}; and {hidden} more faults (penstock check lists them all)")

    @classmethod
    def unknown_name(cls, kind: str, name: str, known: Iterable[str]) -> InvalidInput:
        """An unknown name, with the names that would have worked."""
        return cls(f"unknown {kind} {name!r}; known: {', '.join(known)}")


class NoSuchOperator(InvalidInput, AttributeError):
    """A stream was asked for an operator that it does not have; an AttributeError as well, as Python expects."""


class Infeasible(UserError):
    """No plan can exist: shown by arithmetic or by an exhausted search, not by a heuristic's failure."""


class NoPlanFound(UserError):
    """The scheduler gave up although nothing proves that no plan exists; another scheduler may succeed."""


class UnhonouredConstraints(UserError):
    """The scheduler does not look at some constraints and its plan breaks them; `faults` names each."""

    def __init__(
        self, scheduler: str, faults: Iterable[str], *, kind: str = "scheduler", better: str = "--scheduler best"
    ) -> None:
        self.faults = tuple(faults)
        super().__init__(
            f"{kind} {scheduler!r} does not honour constraints and its plan breaks {self.faults[0]}"
            + (f" (and {len(self.faults) - 1} more)" if len(self.faults) > 1 else "")
            + f"; try {better}, more nodes, or fewer constraints"
        )


class RowError(UserError):
    """A function of the user failed on one row; `__cause__` is what it raised, with its traceback."""

    def __init__(self, row: int, values: str, error: BaseException | str) -> None:
        self.row = row
        self.values = values
        self.defined = ""  # where the function is written; told where its result did not fit
        self.reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        super().__init__(row, values, self.reason)  # all arguments: copies of the error are made from them

    def __str__(self) -> str:
        notes = getattr(self.__cause__, "__notes__", ())
        return ". ".join([f"row {self.row}, {self.values}: {self.reason}", *notes])


class RowsLate(UserError):
    """Rows came behind the watermark, or without a time, at an operator with `on_late="error"`."""

    def __init__(self, operator: str, rows: int, time: str | None, watermark: str) -> None:
        self.operator, self.rows, self.time, self.watermark = operator, rows, time, watermark
        super().__init__(operator, rows, time, watermark)  # all arguments: copies of the error are made from them

    def __str__(self) -> str:
        if self.time is None:
            more = f" and {self.rows - 1} more late ones with it" if self.rows > 1 else ""
            return f"operator {self.operator!r}: a row has no time{more}; filter out rows without a time, or read .late"
        when = f"of {self.time}"
        more = f" and {self.rows - 1} more with it" if self.rows > 1 else ""
        return (
            f"operator {self.operator!r}: a row {when} is late{more}: the watermark is {self.watermark}; "
            f"allow more lateness in event_time, or read the rows from .late with on_late='side'"
        )


class NotEnoughSlots(UserError):
    """Spark offers fewer slots than the job's workers need; raised before anything is launched."""


class UnfitSession(UserError):
    """The Spark session's version, settings or machines cannot run a job; `faults` holds one sentence for each."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


class StoreUnusable(UserError):
    """The folder of a job's checkpoints cannot be reached, read or written."""


class JobFailed(PenstockError):
    """A job ended with an error: one error, whatever followed from it on other workers.

    `operator`, `task`, `worker` and `node` are None where no single one is to blame.
    """

    def __init__(
        self,
        message: str,
        *,
        operator: str | None = None,
        task: str | None = None,
        worker: int | None = None,
        node: str | None = None,
        user_traceback: str = "",
    ) -> None:
        self.operator, self.task, self.worker, self.node = operator, task, worker, node
        self.user_traceback = user_traceback
        super().__init__(message)


class JobCancelled(PenstockError):
    """The job was cancelled before its end, so it has no result."""


class CheckpointDamaged(PenstockError):
    """A file of a checkpoint does not hold what was written into it; `path` names it, `fault` says what is wrong."""

    def __init__(
        self, path: str, fault: str, advice: str = "`penstock checkpoint verify` says which epochs are sound"
    ) -> None:
        self.path, self.fault, self.advice = path, fault, advice
        super().__init__(path, fault, advice)  # all arguments: copies of the error are made from them

    def __str__(self) -> str:
        return f"{self.path} is damaged: {self.fault}; {self.advice}"


class StaleAttempt(PenstockError):
    """A later attempt at the job has taken its checkpoints over; this one must end and change nothing more."""


class InternalError(PenstockError):
    """A result of ours failed our own check: a bug to report, not a user's mistake."""
