"""Attempts of simulated drivers: the driver's threads, the workers of each attempt, and what is between the two.

The driver runs the product's `DriverEpochs`, with its thread, its store and its publications, and follows failures as
the product's attempts do. A worker's keeper is the product's, and writes when its turn comes instead of in a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.checkpoint.contract import Manifest, Report
from penstock.checkpoint.policy import Cause, Failures, GiveUp
from penstock.deploy.attempt.crossing import COMMIT_SECONDS
from penstock.deploy.attempt.epochs import CheckpointOrder, DriverEpochs
from penstock.deploy.attempt.recovery import cause_of
from penstock.deploy.worker.keeper import Keeper
from penstock.errors import CheckpointDamaged, InvalidInput, JobFailed
from penstock.run.contract import SETTING_ATTEMPT, SETTING_STAGING, SETTING_STORE
from penstock.run.engine.epochs import TaskSnapshot
from penstock.run.engine.worker import Checkpoint
from penstock.run.operators.sinks.folder import STAGING
from penstock_lab.simulate.actors import Actor, Killed, Process
from penstock_lab.simulate.crossings import Wish
from penstock_lab.simulate.random_jobs import SETTING_ROWS
from penstock_lab.simulate.readers import SINK
from penstock_lab.simulate.workers import Layout, Simulation

if TYPE_CHECKING:
    from penstock_lab.simulate.survival import Survival

NOTICE_US = (0, 50, 3_000)  # after which a death is noticed


class Kept(Keeper):
    """One worker's keeper without its thread: what is handed over waits until its turn comes to be written."""

    def __init__(self, checkpoint: Checkpoint, worker: int, tell: Callable[[Report], None]) -> None:
        super().__init__(checkpoint, worker, tell, _complain, lambda: False)
        self.handed: deque[tuple[int | None, Sequence[TaskSnapshot]]] = deque()
        self._has_ended = False
        self.stalled_to = 0  # the step of the scheduler before which it writes nothing

    def completed(self, epoch: int, snapshots: Sequence[TaskSnapshot]) -> None:
        """To be written later; the product's thread ends with the worker's end and takes nothing behind it."""
        if self._has_ended:
            msg = f"worker {self._worker} hands over epoch {epoch} behind its end"
            raise AssertionError(msg)
        super().completed(epoch, snapshots)

    def ended(self, snapshots: Sequence[TaskSnapshot]) -> None:
        """The last thing that it hands over; others go on meanwhile, which is as good as waiting."""
        self._has_ended = True
        self._hand((None, snapshots))

    def _hand(self, entry: tuple[int | None, Sequence[TaskSnapshot]] | None) -> None:
        if entry is not None:
            self.handed.append(entry)

    def keep(self) -> None:
        """Write and tell what was handed over first."""
        self._keep(*self.handed[0])
        self.handed.popleft()


def _complain(why: str, refused: str) -> None:
    raise AssertionError(why)


class SimulatedAttempt:
    """The workers of one attempt; to the driver's epochs it is the roll of its workers."""

    def __init__(self, world: Survival, driver: Driver, checkpoint: Checkpoint, layout: Layout | None) -> None:
        """`layout`: the plan that was wished; None: any."""
        self.driver, self.number, self._world = driver, checkpoint.attempt, world
        facts, _ = world.job.dataflow.sinks()[SINK]
        staging = f"{world.root}/staged"
        rows = staging if facts.folder is None else f"{facts.folder}/{STAGING}"
        settings = {SETTING_STAGING: staging, SETTING_ATTEMPT: self.number, SETTING_ROWS: rows}
        settings |= {SETTING_STORE: checkpoint.token}
        self.ports: list[Kept] = []
        self.on_the_way: list[tuple[int, Report]] = []
        self.simulation = Simulation(
            world.seed,
            world.random,
            layout or driver.job,
            self._port(checkpoint),
            world.history,
            world.now_us,
            settings,
        )
        count = len(self.simulation.workers)
        self.processes = [Process(f"worker {w} of attempt {self.number}", w) for w in range(count)]
        self.unopened = world.random.sample(range(count), count)
        self.is_published = False
        self.unheard: list[tuple[int, int]] = []  # workers and epochs
        self.untold: list[int] = []  # workers that have yet to hear that they are to go over
        self.standing: set[int] = set()  # those that have, and stand still
        self.goodbyes: set[int] = set()
        self.is_cancelled = False
        self.cause: str | None = None  # why it fails
        self.noticed_us = 0  # when the driver hears of that
        self.steps_left: int | None = None  # once it was given up

    def _port(self, checkpoint: Checkpoint) -> Callable[[int], Kept]:
        def made(w: int) -> Kept:
            self.ports.append(Kept(checkpoint, w, lambda report: self.on_the_way.append((w, report))))
            return self.ports[-1]

        return made

    # -- what the driver's epochs ask of a roll ------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """Tell all workers that an epoch begins; they hear it in any order."""
        count = len(self.processes)
        self.unheard += [(w, epoch) for w in self._world.random.sample(range(count), count)]

    def over(self) -> None:
        """Tell all workers to stand still and go over to the next attempt."""
        self.untold = self._world.random.sample(range(len(self.processes)), len(self.processes))

    def stands(self, w: int) -> None:
        """A worker has heard it: it takes no more steps, and its keeper writes at most what it is at."""
        if w not in self.goodbyes and not self.processes[w].is_dead:
            self._world.note(w, f"stands    still in attempt {self.number}")
            self.standing.add(w)
            self.simulation.lose(w)
            self.unheard = [told for told in self.unheard if told[0] != w]
            for _ in range(len(self.ports[w].handed) - 1):
                self.ports[w].handed.pop()

    @property
    def are_over(self) -> bool:
        """Whether every worker stands still."""
        return len(self.standing) == len(self.processes)

    def cancel(self) -> None:
        """Epochs cannot go on."""
        self.is_cancelled = True

    # -- its end -------------------------------------------------------------------------------------------------------

    def fails(self, cause: str) -> None:
        """Something has ended it, which is noticed soon."""
        if self.cause is None:
            self.cause = cause
            self.noticed_us = self._world.now_us + self._world.random.choice(NOTICE_US)

    @property
    def is_ending(self) -> bool:
        """Whether the driver has heard that it ends, well or not."""
        is_noticed = self.cause is not None and self._world.now_us >= self.noticed_us
        return is_noticed or self.is_cancelled or self.has_finished

    @property
    def has_finished(self) -> bool:
        """Whether every worker has said goodbye."""
        return len(self.goodbyes) == len(self.processes)

    def lose(self, w: int) -> None:
        """A worker is dead."""
        self.processes[w].is_dead = True
        self.simulation.lose(w)
        self.unheard = [told for told in self.unheard if told[0] != w]
        for waiting in (self.unopened, self.untold):
            if w in waiting:
                waiting.remove(w)
        self.ports[w].handed.clear()
        if w not in self.goodbyes:
            self.fails(f"worker {w} died")

    def close(self) -> None:
        """Nothing is left of it."""
        for process, worker in zip(self.processes, self.simulation.workers, strict=True):
            with suppress(Killed, Exception), self._world.system.acting(process):
                worker.close()
            process.is_dead = True

    # -- what its workers hand over ------------------------------------------------------------------------------------

    def keeping(self) -> list[int]:
        """Workers whose keepers can write something now."""
        return [w for w, port in enumerate(self.ports) if port.handed and port.stalled_to <= self._world.steps]

    def arrives(self) -> None:
        """What one worker reports arrives in order, and in no order with what others do."""
        world = self._world
        w = world.random.choice(sorted({w for w, _ in self.on_the_way}))
        at = next(i for i, (by, _) in enumerate(self.on_the_way) if by == w)
        report = self.on_the_way.pop(at)[1]
        what = "its end" if report.epoch is None else f"epoch {report.epoch}"
        world.note(w, f"reports   {what} of attempt {report.attempt}")
        if report.epoch is None:
            self.goodbyes.add(w)
        others = [d for d in world.drivers if d is not self.driver and world.random.random() < 0.3]
        for driver in (self.driver, *others):  # another must not take it for its own
            if driver.epochs is not None and not driver.process.is_dead:
                driver.epochs.kept(w, report)

    @property
    def alive(self) -> list[int]:
        """Workers that live and have not said goodbye."""
        return [w for w, process in enumerate(self.processes) if not process.is_dead and w not in self.goodbyes]


class Driver:
    """A driver process: the same command with the same folder, begun anew."""

    def __init__(self, world: Survival, number: int, begins_at: Manifest | None = None) -> None:
        """`begins_at`: the savepoint that it is given."""
        self.begins_at, self.has_opened = begins_at, False
        self.process = Process(f"driver {number}", -number)
        self._world = world
        self.epochs: DriverEpochs | None = None
        self.attempt: SimulatedAttempt | None = None
        self.job = world.crossings.begun(world.job)
        self.wish: Wish | None = None  # for which it is time
        self.is_asked = False  # somebody waits for a plan to be followed: one at a time
        self.has_finished = False
        self.gave_up = ""  # why the job was given up
        self.main: Actor = world.actors.spawn(self.process, self.process.name, self._run)

    def _run(self) -> None:
        """What `deploy` does around the epochs of a job, from its start to its end."""
        world = self._world
        savepoint = None if self.begins_at is None else self.begins_at.name
        order = CheckpointOrder(world.root, world.interval_s, world.kept, savepoint)
        epochs = DriverEpochs(order, world.job.dataflow)
        self.epochs = epochs
        epochs.open()
        world.opened(self)
        failures, layout = Failures(world.policy), None
        while not epochs.is_over:
            attempt = self._at_work(epochs, layout)
            if (layout := self._gone_over(epochs, attempt)) is not None:
                continue
            if attempt.has_finished:
                epochs.end()
            if attempt.has_finished and epochs.error is None:
                break
            cause = Cause("lost", "", str(attempt.cause)) if epochs.error is None else cause_of(epochs.error, ())
            if cause is None:
                epochs.end()
                break
            decided = failures.failed(world.now_us, cause, epochs.last_epoch)
            if isinstance(decided, GiveUp):
                self.gave_up = decided.reason
                return
            world.give_up(attempt)
            epochs.end()
            if not epochs.is_over:
                world.actors.wait(lambda: False, decided.after_s)
                epochs.again()
        if not epochs.is_over:
            raise (
                epochs.stuck or epochs.error or JobFailed("all workers have ended, and the last epoch is not committed")
            )
        epochs.finish()
        self.has_finished = True

    def _at_work(self, epochs: DriverEpochs, layout: Layout | None) -> SimulatedAttempt:
        """Until the attempt ends, or is to go over to another plan."""
        world = self._world
        attempt = self.attempt = world.begin(self, epochs.checkpoint(), layout)
        epochs.begin(attempt, attempt.simulation.plan, len(attempt.processes))  # type: ignore[arg-type] # as a roll
        attempt.is_published = True
        world.actors.wait(lambda: attempt.is_ending or self.wish is not None, None)
        return attempt

    def _gone_over(self, epochs: DriverEpochs, attempt: SimulatedAttempt) -> Layout | None:
        """What the next attempt is to follow, once all stand still; None where nothing comes of a wish."""
        world, wish = self._world, self.wish
        if wish is None or attempt.is_ending:  # a wish outlasts a recovery
            return None
        self.wish, self.is_asked = None, False
        if not attempt.goodbyes:
            attempt.over()
            world.actors.wait(lambda: attempt.are_over or attempt.is_ending or bool(attempt.goodbyes), None)
        has_parted = bool(attempt.goodbyes) and not attempt.has_finished  # others go over, in new processes
        if not attempt.are_over and not (has_parted and attempt.cause is None and not attempt.is_cancelled):
            return None
        layout = wish.layout(self.job, len(attempt.processes))
        world.give_up(attempt, stands=attempt.are_over)
        epochs.end()
        if epochs.stuck is not None:
            raise epochs.stuck
        if not epochs.is_over:
            epochs.again()
        self.job = layout.job
        world.note(self.process.number, f"goes over to {layout.workers} workers, {dict(layout.plan)}")
        return layout

    def asks(self, name: str, what: str, body: Callable[[], object]) -> bool:
        """Whether a user of this driver could ask for something, in a thread of his own."""
        if self.epochs is None or self.attempt is None:
            return False
        self._world.note(self.process.number, f"asks      {what}")
        self._world.actors.spawn(self.process, name, body)
        return True

    def go_over(self, wish: Wish) -> None:
        """A user wants another plan, from an epoch that is committed now."""
        epochs = self.epochs
        if epochs is not None and not self.is_asked:
            self.is_asked = True
            try:
                epochs.commit("so its tasks stay where they are", COMMIT_SECONDS)
            except (InvalidInput, CheckpointDamaged) as error:
                self._world.note(self.process.number, f"refuses   to go over: {type(error).__name__}")
                self.is_asked = False
            else:
                self.wish = wish

    def savepoint(self, name: str) -> None:
        """A user asks for one; it may come to nothing, for reasons that are told."""
        epochs = self.epochs
        if epochs is not None:
            try:
                epochs.savepoint(name, self._world.interval_s * 4 + 0.01)
            except InvalidInput as error:
                self._world.note(self.process.number, f"refuses   savepoint {name}: {type(error).__name__}")
            except CheckpointDamaged as error:
                self._world.refused_savepoint(self, error)
