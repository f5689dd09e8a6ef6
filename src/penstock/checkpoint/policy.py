"""Whether a failed attempt is followed by another, and after how long.

It is pure: time is given. A job that has committed an epoch since its last failure goes forward, however often workers
die; without one, failures are counted, each waits longer, and after a number of them the job is given up. The first is
tried again at once: most often a worker died. An error of a task that comes three times is a row that the user's
function cannot take, and ends the job; so do ten of workers with one error of their own: a full disk, or a state that
nobody can write. Epochs between do not excuse them: other tasks get on, or the row is reached late, in every attempt.
Epochs and a quiet time together do. Numbers are no part of an error, because a state grows; the values of the row are,
because a function that fails now and then fails with others. Rejected: to take another error between as an excuse, for
two such rows would take turns for ever; so many failures a minute, for a slow machine would be given up for less.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite

from penstock.errors import InvalidInput

# A task's error tells where the task ran and which row of its batch failed. Plans and batches are others next time.
_PLACE = re.compile(r"(?P<task>\(task \d+), worker \d+, node .*?\)(?= failed: )")
_ROW = re.compile(r"\brow \d+, ")
_ON_ROW = " on row, "  # behind it stands the row, in its own words
_WORKER = re.compile(r"\bworker \d+ \(node '[^']*'\)")
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")  # of an object that has no text of its own
_NUMBER = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d[\d,.:]*")  # tokens in hexadecimal digits too


@dataclass(frozen=True, slots=True)
class Policy:
    """How patient a job is."""

    failures_max: int = 10  # without a new epoch between them, or of workers with one error; the last ends the job
    same_max: int = 3  # of one task with one error; the last of them ends the job
    same_quiet_s: float = 300.0  # after which an error is forgotten, if epochs were committed meanwhile
    wait_first_s: float = 0.2  # before the second retry, and twice as long before each further one
    wait_max_s: float = 10.0

    def __post_init__(self) -> None:
        """InvalidInput where a limit is none."""
        faults = [
            f"{name} is {value!r}; it must be a whole number, at least 1 (1: the first failure counts as the last)"
            for name, value in (("failures_max", self.failures_max), ("same_max", self.same_max))
            if isinstance(value, bool) or not isinstance(value, int) or value < 1
        ]
        faults += [
            f"{name} is {value!r}; it must be a number of seconds, 0 or more"
            for name, value in self._seconds()
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0
        ]
        if faults:
            raise InvalidInput(faults)

    def _seconds(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in ("same_quiet_s", "wait_first_s", "wait_max_s")]

    def wait_s(self, failures: int) -> float:
        """How long to wait after so many failures without a new epoch, or of one kind."""
        if failures <= 1:
            return 0.0
        doublings = min(failures - 2, 64)  # enough for any limit, and no number grows out of bounds
        return float(min(self.wait_max_s, self.wait_first_s * 2**doublings))


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt failed."""

    kind: str  # task; worker: its own words; store: it failed the driver; lost: nobody has told of an error
    task: str  # empty where none is to blame
    message: str


@dataclass(frozen=True, slots=True)
class Again:
    """The job goes on from its last committed epoch."""

    after_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job ends with its last error."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Same:
    """One error of one task, or of workers."""

    times: int
    last_us: int
    committed: int  # the last epoch that was there then


class Failures:
    """The failures of one job."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._committed = -1  # the last epoch that was there at the failure before
        self._failures = 0  # since that epoch
        self._since_us = 0  # the first of them
        self._errors: dict[tuple[str, str], _Same] = {}  # by task and error

    def failed(self, now_us: int, cause: Cause, committed: int) -> Again | GiveUp:
        """An attempt failed; `committed` is the last epoch that is there, 0 for none."""
        if committed > self._committed:
            self._committed, self._since_us, self._failures = committed, now_us, 0
        self._failures += 1
        self._forget(now_us, committed)
        if not cause.task and cause.kind != "worker":
            return self._judged(now_us, cause, 0)
        error = cause.task, _essence(cause.message)
        before = self._errors.get(error)
        same = self._errors[error] = _Same(1 if before is None else before.times + 1, now_us, committed)
        return self._judged(now_us, cause, same.times)

    def _forget(self, now_us: int, committed: int) -> None:
        """What has not come for long, while epochs were committed, is no row that comes in every attempt."""
        oldest_us = now_us - self._policy.same_quiet_s * 1e6
        known = self._errors.items()
        self._errors = {error: s for error, s in known if s.last_us >= oldest_us or s.committed >= committed}

    def _judged(self, now_us: int, cause: Cause, same: int) -> Again | GiveUp:
        since = f"since epoch {self._committed}" if self._committed > 0 else "before the first epoch"
        count, most = self._failures, self._policy.failures_max
        if same >= (self._policy.same_max if cause.task else most):
            times = f"{same} times" if same > 1 else "once, which is the limit,"
            who = f"task {cause.task!r}" if cause.task else "a worker"
            return GiveUp(f"{who} failed {times} with the same error: {cause.message}")
        if count >= most:
            seconds = (now_us - self._since_us) / 1e6
            return GiveUp(
                f"{count} failures in {seconds:.1f} s {since}, which is the limit; the last one: {cause.message}"
            )
        after_s = self._policy.wait_s(max(count, same))  # the same error twice is a reason to wait, epochs or not
        when = f"in {after_s:g} s" if after_s else "at once"
        return Again(after_s, f"tried again {when} after failure {count} of at most {most} {since}: {cause.message}")


def _essence(message: str) -> str:
    """An error without where it happened this time, and how many there were."""
    place = _WORKER.sub("worker", _ROW.sub("row, ", _PLACE.sub(r"\g<task>)", message)))
    told, on, row = _ADDRESS.sub("0x", place).partition(_ON_ROW)
    return _NUMBER.sub("0", told) + on + row
