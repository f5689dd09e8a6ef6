"""Live moves: the shell around `moving.py`, a thread that carries one move of a running attempt through.

It hears what workers say of the move and what the attempt's epochs come to, and tells workers what the decision says.
It is a thread of its own because who asked for the move may be interrupted, and a move that has begun must not be left.
What goes wrong behind the marker fails the attempt, which is followed by another one under the plan that the job had.
Decision: docs/decisions/0046-moves.md.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.contract import Report
from penstock.deploy.attempt.attempt import Attempt, named_workers
from penstock.deploy.attempt.epoch_thread import AttemptEpochs, Committed, Event, Held
from penstock.deploy.attempt.moving import BeginEpoch, LiveMove, Phase, Step
from penstock.deploy.driver.rendezvous import wait_in_steps
from penstock.deploy.line.messages import Fault
from penstock.errors import JobFailed, PenstockError
from penstock.model.task_id import operator_of
from penstock.run.dataflow import Dataflow
from penstock.run.engine.pace import pace_groups

LOOK_SECONDS = 0.1
TASKS_MAX = 1_000  # in one move; more go over all together
MOVES_MAX = 2_000  # in one attempt: workers have a limit of 10,000 commands, and a move takes up to four
LIMIT_SECONDS = {  # for workers to say that they are past a phase; an epoch takes as long as it takes
    Phase.WAITING: 60.0,
    Phase.PREPARING: 30.0,
    Phase.DROPPING: 60.0,
    Phase.LANDING: 120.0,
}


@dataclass(frozen=True, slots=True)
class Said:
    """A worker's word of a move."""

    worker: int
    number: int
    phase: str
    why: str


@dataclass(frozen=True, slots=True)
class Landed:
    """A move that is over."""

    epoch: int
    seconds: float  # from the word that the epoch begins until all tasks are at work where they have gone


@dataclass(frozen=True, slots=True)
class Declined:
    """A move that changed nothing, and whether the workers might go over all together instead."""

    why: str
    may_cross: bool


def why_not_live(dataflow: Dataflow, before: Mapping[str, int], after: Mapping[str, int], moves: int) -> str | None:
    """Why tasks cannot move while the others go on; None: they can."""
    moved = {operator_of(task) for task, worker in after.items() if before.get(task) != worker}
    tasks = sum(before.get(task) != worker for task, worker in after.items())
    if before.keys() != after.keys():
        return "operators would have other numbers of tasks"
    if any(operator.region is not None for operator in dataflow.operators):
        return "the job has a parallel region"
    if tasks > TASKS_MAX:
        return f"{tasks:,} tasks move at once, and {TASKS_MAX:,} can"
    if moves >= MOVES_MAX:
        return f"there have been {moves:,} moves since workers last went over all together"
    for operator in dataflow.operators:
        if operator.name in moved and operator.one_per_worker:
            return f"operator {operator.name!r} reads what Spark hands to each worker"
        if operator.name in moved and operator.name in pace_groups(dataflow):
            return f"source {operator.name!r} keeps pace with others"
    return None


class LiveMover:
    """One move of one attempt."""

    def __init__(
        self,
        number: int,
        attempt: Attempt,
        epochs: AttemptEpochs,
        after: Mapping[str, int],
        landed: Callable[[Landed], None],
    ) -> None:
        """`landed` is told when the plan counts, before who waits for the move is."""
        before = {} if attempt.deployment is None else attempt.deployment.worker_of
        to = {task: worker for task, worker in after.items() if before[task] != worker}
        self._attempt, self._epochs, self._after, self._landed = attempt, epochs, dict(after), landed
        self._move = LiveMove(number, to, before, len(attempt.hellos))
        self._events: queue.SimpleQueue[Event | Said] = queue.SimpleQueue()
        self._began_s = self._phase_s = time.monotonic()
        self._known_parted: set[int] = set()  # workers that have said goodbye
        self._found: Landed | Declined | PenstockError | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-move", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def outcome(self) -> Landed | Declined:
        """Wait for what comes of it; raises what failed."""
        wait_in_steps(self._is_over.wait, None)
        if isinstance(self._found, Landed | Declined):
            return self._found
        raise self._found or AssertionError

    @property
    def is_over(self) -> bool:
        """Whether it is known what came of it."""
        return self._is_over.is_set()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        move, roll = self._move, self._attempt.roll
        try:
            roll.moves = self._hear
            self._epochs.follow(self._events.put)
            while move.phase not in {Phase.OVER, Phase.REFUSED}:
                self._turn()
            if move.phase is Phase.OVER:
                self._found = Landed(move.epoch, self._phase_s - self._began_s)
                self._landed(self._found)
            else:
                self._found = Declined(move.why, move.is_late)
        except Exception as error:
            self._found = error if isinstance(error, PenstockError) else JobFailed(f"a move of tasks failed: {error}")
            if move.phase not in {Phase.WAITING, Phase.OVER, Phase.REFUSED} and not roll.ending:
                worker = next(iter(move.awaited), 0)  # nobody could say what the workers make of it
                roll.fault(Fault(worker, "worker", str(self._found)))
        finally:
            self._epochs.leave(self._after if move.phase is Phase.OVER else None)
            self._is_over.set()

    def _hear(self, worker: int, said: Mapping[str, Any]) -> None:
        self._events.put(Said(worker, int(said["number"]), str(said["phase"]), str(said["why"])))

    def _turn(self) -> None:
        """The next event, and what follows from it."""
        before = self._move.phase
        try:
            steps = self._decided(self._events.get(timeout=LOOK_SECONDS))
        except queue.Empty:
            steps = self._looked()
        for step in steps:
            if isinstance(step, BeginEpoch):
                self._began_s = time.monotonic()
                self._epochs.begin_one()
            else:
                self._attempt.roll.command(step.command)
        if self._move.phase is not before:
            self._phase_s = time.monotonic()

    def _decided(self, event: Event | Said) -> Sequence[Step]:
        match event:
            case Held(epoch=epoch):
                return [*self._parted(), *self._move.held(epoch)]
            case Committed(epoch=epoch):
                return self._move.committed(epoch)
            case Report(epoch=kept, part=part) if event.attempt == self._attempt.number:
                told = {"worker": part.worker, "path": part.path, "size": part.size, "checksum": part.checksum}
                return self._move.kept(part.worker, kept, told)
            case Said():
                return self._move.said(event.worker, event.number, event.phase, event.why)
        return ()

    def _looked(self) -> Sequence[Step]:
        """Nothing has come for a moment: whether the attempt is still there, and the time is not over."""
        move, attempt = self._move, self._attempt
        if not attempt.is_at_work or self._epochs.ends():
            msg = (
                f"attempt {attempt.number} has ended while tasks were moving ({move.phase.value}); "
                "ask again when the job is at work"
            )
            raise JobFailed(msg)
        if steps := self._parted():
            return steps
        limit_s = LIMIT_SECONDS.get(move.phase)
        is_epoch_alone = move.phase is Phase.LANDING and not move.awaited
        if limit_s is None or is_epoch_alone or time.monotonic() - self._phase_s < limit_s:
            return ()
        if move.phase is Phase.WAITING:
            return move.give_up(f"the epoch before it took over {limit_s:g} s; ask again when that is committed")
        who = f"{named_workers(move.awaited)} took over {limit_s:g} s"
        if move.phase is Phase.PREPARING:
            return move.give_up(f"{who} to make tasks and connections for it; ask again when the job has less to do")
        msg = (
            f"{who} to be past a move of tasks ({move.phase.value}); see in that worker's log "
            "what held it up, and ask again when the job is at work"
        )
        raise JobFailed(msg)

    def _parted(self) -> list[Step]:
        """What follows from workers that have said goodbye, of which some may not have heard of the move."""
        with self._attempt.roll.changed:
            parted = self._attempt.roll.statuses.keys() - self._known_parted
        self._known_parted |= parted
        return [step for worker in sorted(parted) for step in self._move.parted(worker)]
