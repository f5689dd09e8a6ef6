"""What follows a failed attempt, as far as it can be decided from what is known. Pure.

A job with checkpoints is tried again after most failures; `checkpoint/policy.py` counts them. A store or a sink's
folder that fails the driver counts like one that fails a worker. The job is not tried again after what another attempt
would meet as well: other software where the workers are, a checkpoint that is damaged or was taken over, a bug of ours,
the end of Spark's process, and what the user has asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checkpoint.policy import Cause
from penstock.deploy.driver.binding import Placing
from penstock.deploy.driver.given_plan import grouped
from penstock.deploy.driver.slots import Slots
from penstock.deploy.line.messages import Fault, Hello
from penstock.errors import JobFailed, PenstockError, StoreUnusable
from penstock.model.plan import Plan

REASON_CHARACTERS_MAX = 400
NOTES_MAX = 20  # recoveries of which a job tells
QUICK_THETA = 0.2  # seconds for the plan of a job that goes on: a better one can come later


@dataclass(frozen=True, slots=True)
class Recovery:
    """One time that a job went on after a failure."""

    attempt: int  # the one that goes on
    epoch: int  # from which; 0: from the beginning
    reason: str
    seconds: float  # from the failure's being noticed until the workers were at work again
    workers: int  # that it goes on with
    wanted: int  # that it was given at first

    @property
    def note(self) -> str:
        """A sentence for the job's user, who may not see the log."""
        return f"{self.outcome}: {self.reason}"

    @property
    def outcome(self) -> str:
        """The same for the log, where the reason stands a line above."""
        start = f"epoch {self.epoch}" if self.epoch else "the beginning"
        fewer = (
            ""
            if self.workers >= self.wanted
            else f", with {self.workers} of its {self.wanted} workers until it is started again or fails once more"
        )
        return f"the job went on from {start} after {self.seconds:.2f} s (attempt {self.attempt}){fewer}"


def found_note(epoch: int, root: str, *, is_over: bool) -> str:
    """From where a job goes on that is started again; where it is over, how to have it do something."""
    where = f"epoch {epoch} in {root}"
    if not is_over:
        return f"it went on from {where}"
    return (
        f"nothing was left to do: the job has ended, or was stopped, and its answer is that of {where}. To run it "
        "again from a savepoint of before, name that (from_savepoint, --from). Next time end it by cancel() or Ctrl-C "
        "instead of stop() or --duration, if it is to go on"
    )


def shortly(error: PenstockError, topology: str) -> str:
    """Why an attempt failed, for a note: without the topology's name, and without what Spark adds."""
    line = str(error).partition("\n")[0].removeprefix(f"topology {topology!r}: ").partition(". Spark says: ")[0]
    return line if len(line) <= REASON_CHARACTERS_MAX else f"{line[:REASON_CHARACTERS_MAX]} ..."


def cause_of(error: PenstockError, faults: Sequence[Fault]) -> Cause | None:
    """What another attempt may not meet again; None for what ends the job."""
    line = str(error).partition("\n")[0]
    if isinstance(error, StoreUnusable):
        return Cause("store", "", line)
    if not isinstance(error, JobFailed):
        return None
    first = next((fault for kind in ("task", "worker") for fault in faults if fault.kind == kind), None)
    kind = "lost" if first is None or first.lost is not None else first.kind  # others say that a worker is lost
    return Cause(kind, error.task or "", line)


def placing_again(placing: Placing, plan: Plan | None, hellos: Sequence[Hello]) -> tuple[Placing, ...]:
    """Ways to place the tasks once more, the first that works counts: as they were, in the same groups, or anew."""
    theta = QUICK_THETA if placing.theta is None else min(QUICK_THETA, placing.theta)
    quick = dataclasses.replace(placing, plan=None, theta=theta)
    if (followed := plan or placing.plan) is None:
        return (quick,)
    together = grouped(followed, Slots.of(hellos, placing.node))
    ways = (followed,) if together is None else (followed, together)
    return (*(dataclasses.replace(placing, plan=way) for way in ways), quick)
