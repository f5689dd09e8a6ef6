"""Whole jobs that crash and go on, under one seed: workers, markers, commits, crashes, other plans, stale attempts.

The seed decides all that `workers.py` lets it decide, and when epochs begin, in which order workers hear of them, when
what they hand over arrives, when everything dies, and with how many workers and under which plan the next attempt goes
on from the last committed epoch. What an attempt that was given up had handed over may arrive after its end. Checked:
the rows of committed epochs are those that the input gives when computed directly, none lost, none twice; no row
overtakes another; credit is whole at every moment; the job ends.

    python -m penstock_lab.simulate.survival 17    # one seed, with its events
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.model.task_id import operator_of, tasks_of_operator
from penstock.run.columns.unwritten import in_bytes
from penstock.run.engine.epochs import Restored, TaskSnapshot
from penstock_lab.simulate.network import History
from penstock_lab.simulate.random_jobs import RandomJob, random_job
from penstock_lab.simulate.workers import START_US, Simulation

CRASHES_MAX = 4
PAUSE_US = 5_000


@dataclass(frozen=True, slots=True)
class Handed:
    """What one worker handed over, on its way to the driver."""

    attempt: int
    worker: int
    epoch: int | None  # None: it has ended
    snapshots: Sequence[TaskSnapshot]


@dataclass
class Driver:
    """Which epoch is committed, and what the workers of the attempt under way have handed over."""

    committed: int = 0
    tasks: dict[str, TaskSnapshot] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)  # paths, once each
    attempt: int = 0
    begun: int = 0  # the epoch under way; as `committed` where there is none
    parts: dict[int, Sequence[TaskSnapshot]] = field(default_factory=dict)
    ended: dict[int, Sequence[TaskSnapshot]] = field(default_factory=dict)
    is_over: bool = False

    def next_attempt(self) -> None:
        """Everything that is not committed is void."""
        self.attempt += 1
        self.begun = self.committed
        self.parts, self.ended = {}, {}

    def takes(self, handed: Handed, workers: int) -> bool:
        """Note what a worker hands over; whether that was the last part of an epoch, which is committed now."""
        if handed.attempt != self.attempt:
            return False
        if handed.epoch is None:
            self.ended[handed.worker] = handed.snapshots
            if len(self.ended) == workers and self.begun == self.committed:
                self.begun += 1
        elif handed.epoch == self.begun > self.committed:
            self.parts[handed.worker] = handed.snapshots
        whole = self.begun > self.committed and {*self.parts, *self.ended} == {*range(workers)}
        if whole:
            self._commit(workers)
        return whole

    def _commit(self, workers: int) -> None:
        parts = {**self.ended, **self.parts}
        snapshots = [snapshot for part in parts.values() for snapshot in part]
        self.committed = self.begun
        self.tasks = {snapshot.task: snapshot for snapshot in snapshots}
        self.published += [staged.finish().path for snapshot in snapshots for staged in snapshot.staged]
        for w in self.ended.keys() - self.parts.keys():  # their files have been published: not again with the next
            self.ended[w] = [TaskSnapshot(s.task, s.finished, s.state) for s in self.ended[w]]
        self.parts = {}
        self.is_over = len(self.ended) == workers and all(s.finished for s in snapshots)


class SimulatedEpochs:
    """One worker's port (`Epochs`)."""

    def __init__(self, survival: Survival, worker: int) -> None:
        self._survival, self._worker = survival, worker
        self._attempt, self._from = survival.driver.attempt, dict(survival.driver.tasks)
        self.first = survival.driver.committed + 1

    def restored(self, operator: str) -> Restored | None:
        """What the last committed epoch holds of an operator."""
        count = sum(operator_of(task) == operator for task in self._from)
        if not count:
            return None
        found = [self._from[name] for name in tasks_of_operator(operator, count)]
        return Restored([each.finished for each in found], [in_bytes(each.state) for each in found])

    def completed(self, epoch: int, snapshots: Sequence[TaskSnapshot]) -> None:
        """On its way to the driver."""
        self._survival.on_the_way.append(Handed(self._attempt, self._worker, epoch, snapshots))

    def ended(self, snapshots: Sequence[TaskSnapshot]) -> None:
        """Likewise."""
        self._survival.on_the_way.append(Handed(self._attempt, self._worker, None, snapshots))


class Survival:
    """The job of one seed, through its crashes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)  # noqa: S311 - a simulation
        self.job: RandomJob = random_job(self._random)
        self.history, self.now_us = History(), START_US
        self.driver = Driver()
        self.on_the_way: list[Handed] = []
        self.rows: dict[str, list[pa.RecordBatch]] = {}  # by path, published or not
        self.crashes_left = self._random.randint(0, CRASHES_MAX)
        self._crash_chance = self._random.choice((0.0005, 0.003, 0.02))
        self._epoch_chance = self._random.choice((0.002, 0.02, 0.2, 1.0))

    def run(self) -> int:
        """Until the job is over; SimulationFailed where anything is not as it should be. Answers the epochs."""
        while not self.driver.is_over:
            self._attempt()
        return self.driver.committed

    def _attempt(self) -> None:
        driver = self.driver
        driver.next_attempt()
        simulation = Simulation(
            self.seed,
            self._random,
            self.job,
            lambda w: SimulatedEpochs(self, w),
            self.history,
            self.now_us + PAUSE_US,
        )
        self.history.note(simulation.now_us, -1, f"attempt   {driver.attempt} goes on from epoch {driver.committed}")
        unheard: list[int] = []
        with simulation.told(), simulation.open_workers():
            while not driver.is_over:
                if not simulation.is_over:
                    simulation.step()
                elif not self.on_the_way:
                    simulation.fail("all workers have ended, and the last epoch is not committed")
                if driver.begun == driver.committed and self._random.random() < self._epoch_chance:
                    driver.begun += 1
                    unheard = self._random.sample(range(len(simulation.workers)), len(simulation.workers))
                while unheard and self._random.random() < 0.5:
                    simulation.begin_epoch(unheard.pop(), driver.begun)
                while self.on_the_way and (simulation.is_over or self._random.random() < 0.3):
                    self._arrives(simulation, self._next_on_the_way())
                if self.crashes_left and self._random.random() < self._crash_chance:
                    self.crashes_left -= 1
                    self.history.note(simulation.now_us, -1, "crash     of everything")
                    break
            self.now_us = simulation.now_us
            self.rows = {**self.rows, **simulation.rows}
            if driver.is_over:
                for wrong in self.job.wrong({"out": [b for path in driver.published for b in self.rows[path]]}):
                    simulation.fail(wrong)

    def _next_on_the_way(self) -> Handed:
        """What one worker of one attempt hands over arrives in order, and in no order with what others do."""
        line = self._random.choice([(handed.attempt, handed.worker) for handed in self.on_the_way])
        at = next(i for i, handed in enumerate(self.on_the_way) if (handed.attempt, handed.worker) == line)
        return self.on_the_way.pop(at)

    def _arrives(self, simulation: Simulation, handed: Handed) -> None:
        what = "its end" if handed.epoch is None else f"epoch {handed.epoch}"
        self.history.note(simulation.now_us, handed.worker, f"handed    {what} of attempt {handed.attempt}")
        if self.driver.takes(handed, len(simulation.workers)):
            self.history.note(simulation.now_us, -1, f"committed {self.driver.committed}")


def survive_seed(seed: int) -> int:
    """Run the job of a seed through its crashes, with all checks."""
    return Survival(seed).run()


if __name__ == "__main__":
    for given in sys.argv[1:]:
        survival = Survival(int(given))
        print(survival.run(), "epochs,", survival.driver.attempt, "attempts,", survival.job.text)
