"""The shell around `penstock.adapt`: looks at a running job every interval, asks what to do, and does it.

All that is decided is decided in `adapt`, from one look and what the look before left. Here a thread measures, carries
moves out as `job.replan(apply=True)` does, and writes each decision, taken or not, into the job's metric log (table
`decisions`) and `job.decisions`, once it is known what came of it. After a move that failed the job rests, for twice as
long each time in a row, since each attempt at one makes it stand. A look comes a whole interval after the job's tasks
were placed, by whomever: a window of measurements that spans two placements says nothing of either, and after a
recovery or a user's own move there is a rest, and what was proposed before is forgotten.
Decisions: docs/decisions/0045-when-to-move.md, 0046-moves.md.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.adapt.candidate import candidates
from penstock.adapt.contract import AdaptSettings, Decision, Look, Memory, Offer
from penstock.adapt.decide import decide
from penstock.deploy.adapting.looks import Looks
from penstock.deploy.attempt.crossing import Crossing
from penstock.deploy.line.messages import Hello
from penstock.deploy.metrics.metric_log import MetricLog
from penstock.deploy.metrics.sums import NotMeasuredYet
from penstock.errors import InvalidInput, PenstockError
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.run.engine.meters import DECISION_COLUMNS

if TYPE_CHECKING:
    from penstock.deploy.attempt.epochs import DriverEpochs
    from penstock.deploy.driver.job import Job

log = logging.getLogger(__name__)
JOIN_SECONDS = 5.0
STEP_SECONDS = 1.0  # within which another placement is noticed
FAILURES_MAX = 6  # in a row, that make the rest longer: 2^5 times as long
DECISIONS_MAX = 1_000  # that a job remembers; the metric log has all

Go = Callable[[Plan, Profile, Plan | None], object]
Placement = tuple[int, Sequence[Hello], Plan | None]  # the attempt, its workers, its plan: others, or the same objects
DRIVER = -1  # whose rows they are, where workers have numbers


class Adapter:
    """Looks at one job until it is closed."""

    def __init__(self, job: Job, settings: AdaptSettings, go: Go, metrics: MetricLog, looks: Looks) -> None:
        """`go` has the job follow a plan, if it still follows the one that is given last."""
        self._job, self._settings, self._go, self._log, self._looks = job, settings, go, metrics, looks
        self._memory = Memory()
        self._failures = 0  # of moves, in a row
        self._placement: Placement = (0, (), None)
        self._since = 0.0  # when that was noticed, or the last look began
        self._told = ""  # why a look came to nothing, the last time that it did
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"penstock-{job.id}-adapt", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more; a move that is under way is told that the job has ended."""
        self._over.set()
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        interval_s = self._settings.interval_s
        while not self._over.wait(min(STEP_SECONDS, interval_s / 4)):
            now = time.monotonic()
            if self._job.status == "running" and not self._is_elsewhere(now) and now >= self._since + interval_s:
                self._since = now
                self._try_to_look(now)

    def _is_elsewhere(self, now: float) -> bool:
        """Whether tasks have been placed anew since the last time; then what was known does not count any more."""
        placement = self._now_placed()
        if _is_same(placement, self._placement):
            return False
        if self._placement[1]:  # else these are its first workers, who need no rest
            rested_from = max(now, self._memory.moved_at_s or now)
            self._memory = Memory(moved_at_s=rested_from)
        self._placement, self._since = placement, now
        return True

    def _now_placed(self) -> Placement:
        return self._job.attempt, self._job.workers, self._job.plan

    def _try_to_look(self, now: float) -> None:
        try:
            self._look()
        except NotMeasuredYet:
            return
        except PenstockError as error:
            self._came_to_nothing(now, f"a look came to nothing: {error}")
        except Exception as error:  # a mistake of ours must not end a job that runs well
            if self._came_to_nothing(now, f"a look failed: {error!r:.300}; please report this"):
                log.exception("job %r: a look at it failed; please report this", self._job.name)
        else:
            self._told = ""

    def _came_to_nothing(self, now: float, words: str) -> bool:
        """Tell it, once for the looks in a row for which it is so."""
        if words == self._told:
            return False
        self._told = words
        plan = self._job.plan
        self._tell(Decision(now, False, words, {} if plan is None else plan.assignment, {}))
        log.warning("job %r: %s", self._job.name, words)
        return True

    def _look(self) -> None:
        look = self._seen()
        if look is None:
            return
        rests = self._memory.rests_s(look.now_s, self._settings) > 0
        offer = Offer() if rests else candidates(look, self._settings)
        decision, memory = decide(look, offer, self._memory, self._settings)
        if self._over.is_set() or not _is_same(self._now_placed(), self._placement):
            return  # it is about tasks that are elsewhere by now
        self._memory = memory
        self._tell(decision if decision.plan is None else self._carried_out(decision, decision.plan, look))

    def _carried_out(self, decision: Decision, plan: Plan, look: Look) -> Decision:
        """A decision to move, as it turned out."""
        try:
            self._go(plan, look.profile, self._placement[2])
        except Exception as error:
            if isinstance(error, InvalidInput):  # nobody stood for it: somebody else changes the job, or has just now
                return _undone(decision, f"nothing moved: {error}", look)
            if not isinstance(error, PenstockError):
                log.exception("job %r: a move of its own failed; please report this", self._job.name)
            self._failures = min(self._failures + 1, FAILURES_MAX)
            rest_s = max(self._settings.rest_s, self._settings.interval_s)
            longer_s = 2 ** (self._failures - 1) * rest_s
            self._memory = Memory(moved_at_s=time.monotonic() + longer_s - self._settings.rest_s)
            why = f"nothing moved, and the job rests for {longer_s:.0f} s: {error or type(error).__name__}"
            return _undone(decision, why, look)
        self._failures = 0
        return decision

    def _seen(self) -> Look | None:
        return self._looks.at(self._job, self._placement[1], self._log)

    def _tell(self, decision: Decision) -> None:
        """Keep a decision where users look."""
        self._job.decisions.append(decision)
        if decision.taken:
            log.info("job %r: %s", self._job.name, decision.words)
        row = {
            "time_us": time.time_ns() // 1000,
            "taken": decision.taken,
            "moves": len(decision.moves),
            "tasks": ", ".join(move.task for move in decision.moves),
            "words": decision.words,
            "figures": json.dumps(dict(decision.figures)),
        }
        self._log.take(DRIVER, "decisions", pa.RecordBatch.from_pylist([row], DECISION_COLUMNS))


def adapting(
    job: Job,
    settings: AdaptSettings | None,
    go: Go,
    metrics: MetricLog,
    crossings: Sequence[Crossing],
    epochs: DriverEpochs | None,
) -> list[Adapter]:
    """The one that looks at a job, where it is to adapt; `crossings` grows as the job does that."""
    if settings is None:
        return []
    looks = Looks(settings, crossings, {} if epochs is None else epochs.state_bytes)
    return [Adapter(job, settings, go, metrics, looks)]


def _is_same(one: Placement, other: Placement) -> bool:
    return one[0] == other[0] and one[1] is other[1] and one[2] is other[2]


def _undone(decision: Decision, why: str, look: Look) -> Decision:
    """A decision to move of which nothing has come."""
    words = f"{why} (what was to be done: {decision.words})"
    return replace(decision, taken=False, words=words, target=look.assignment, moves=(), plan=None, cluster=None)
