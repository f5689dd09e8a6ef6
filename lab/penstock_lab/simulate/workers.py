"""Whole workers under a seeded scheduler and virtual time: machine, steps and tasks of a job, no threads, no sockets.

One seed decides the dataflow (`random_jobs.py`), the plan, the sizes of batches and windows, which worker takes its
next step, when frames arrive and how far the clock moves. So a run can be repeated to the letter. Checked: the job
ends; its rows are those that its input gives when computed directly; no row overtakes another on its way; an ordered
region keeps its order; no credit is lost or made (a sender's outstanding bytes are held, on their way, or unreturned
at the receiver); nothing is left in a queue. What fails is told with the last events before it.

    python -m penstock_lab.simulate.workers 17    # one seed, with its events
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from penstock.run.engine.epochs import Epochs
from penstock.run.engine.worker import Deployment, Worker
from penstock.run.engine.worker_share import RunSettings, WorkerShare, share_of, task_ids
from penstock.run.machine.instructions import Done, Grant, Instruction, Run, Send, Wait
from penstock.run.transport.links import WorkerPlace
from penstock_lab.simulate.network import Ends, History, Network, SimulatedLinks
from penstock_lab.simulate.random_jobs import OutOfOrder, RandomJob, random_job

STEPS_MAX = 300_000
WORKERS_MAX = 4
START_US = 1_000_000
FAR_US = 1 << 60  # a worker that waits until then waits for frames alone
CHECK_EVERY = 8  # steps


class SimulationFailed(AssertionError):
    """A run went wrong; the seed repeats it, and the events say how it came to that."""

    def __init__(self, seed: int, why: str, job: str, history: object, module: str = "workers") -> None:
        self.seed = seed
        again = f"again: python -m penstock_lab.simulate.{module} {seed}"
        super().__init__(f"seed {seed}: {why}\n{job}\n{history}\n{again}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did: how many steps and events, the digest of all events, and when it ended."""

    steps: int
    events: int
    digest: int
    ended_us: int


EpochsOf = Callable[[int], Epochs]  # by worker


@dataclass(frozen=True, slots=True)
class Layout:
    """What one attempt at a job follows: its dataflow, which may have other numbers of tasks, and where they are."""

    job: RandomJob
    workers: int
    plan: Mapping[str, int]

    @classmethod
    def drawn(cls, job: RandomJob, workers: int, rng: random.Random) -> Layout:
        """Any plan for so many workers."""
        return cls(job, workers, {task: rng.randrange(workers) for task in task_ids(job.dataflow)})


class Simulation:
    """One job of one seed; or, where a job is given, one attempt at it."""

    def __init__(
        self,
        seed: int,
        rng: random.Random | None = None,
        job: RandomJob | Layout | None = None,
        epochs: EpochsOf | None = None,
        history: History | None = None,
        now_us: int = START_US,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """`settings` are those that tasks are told; of a job without a layout chance has one made."""
        self.seed, self._settings = seed, settings or {}
        self._random = rng = rng or random.Random(seed)  # noqa: S311 - a simulation
        given = job if isinstance(job, Layout) else None
        self.job: RandomJob = given.job if given is not None else job or random_job(rng)  # type: ignore[assignment]
        self._epochs, self.history = epochs, history or History()
        self.module = "workers" if epochs is None else "survival"  # by which people repeat it
        self.now_us = now_us
        workers = rng.randint(1, WORKERS_MAX) if given is None else given.workers
        self._ticks_us = rng.choice(((0,), (0, 1, 20), (0, 150, 4_000)))
        self._haste = [rng.choice((1, 1, 8)) for _ in range(workers)]  # how readily each worker gets its turn
        run_settings = RunSettings(
            rows_max=rng.choice((1, 3, 16, 64)),
            linger_ms=rng.choice((0.0, 0.0, 0.3, 5.0)),
            window_bytes=rng.choice((1, 300, 3_000, None)),
            metered=False,
            interval_s=FAR_US / 1e6,
        )
        self.plan = plan = (given or Layout.drawn(self.job, workers, rng)).plan
        self._shares = [share_of(self.job.dataflow, plan, w, run_settings) for w in range(workers)]
        delays_us = rng.choice(((0,), (0, 5, 300), (10, 2_000, 50_000)))
        self._network = Network(_ends(self._shares, plan), rng, delays_us, lambda: self.now_us, self.history)
        self.rows: dict[str, list[pa.RecordBatch]] = {}
        deployment = Deployment(
            "simulated", tuple(WorkerPlace(w, "n", "", 0) for w in range(workers)), plan, run_settings
        )
        self.workers = [self._worker(deployment, w) for w in range(workers)]
        self.steps = 0
        self._until_us: dict[int, int] = dict.fromkeys(range(workers), 0)  # workers that have not finished
        self._is_whole = True  # no worker was lost

    def _worker(self, deployment: Deployment, w: int) -> Worker:
        sink = {"job": "simulated", "deliver": lambda name, batch: self.rows.setdefault(name, []).append(batch)}
        sink |= self._settings
        links = SimulatedLinks(self._network, w)
        epochs = None if self._epochs is None else self._epochs(w)
        made = Worker(
            self.job.dataflow, deployment, w, None, sink, links=links, clock=lambda: self.now_us, epochs=epochs
        )
        made.machine.next = self._noted(w, made.machine.next)  # type: ignore[method-assign,assignment]
        return made

    def _noted(self, w: int, decide: Callable[[int], Instruction]) -> Callable[[int], Instruction]:
        def noted(now_us: int) -> Instruction:
            instruction = decide(now_us)
            self._network.history.note(now_us, w, _text(instruction, self.workers[w].share))
            return instruction

        return noted

    def run(self) -> Outcome:
        """Step until every worker is done; SimulationFailed where anything is not as it should be."""
        with self.told(), self.open_workers():
            while not self.is_over:
                self.step()
            self._check_end()
        return Outcome(self.steps, self.history.events, self.history.digest, self.now_us)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell whatever goes wrong with the seed and what was before it."""
        try:
            yield
        except SimulationFailed:
            raise
        except OutOfOrder as error:
            self.fail(str(error))
        except Exception as error:
            cause = error.__cause__ if isinstance(error.__cause__, OutOfOrder) else error
            self.fail(f"{type(cause).__name__}: {cause}")

    @contextmanager
    def open_workers(self) -> Iterator[None]:
        """The workers at work; closed whatever happens."""
        try:
            for worker in self.workers:
                worker.open()
            yield
        finally:
            for worker in self.workers:
                worker.close()

    @property
    def is_over(self) -> bool:
        """Whether every worker is done."""
        return not self._until_us

    def step(self) -> None:
        """One step of one worker; where none can take one, time goes on until one can."""
        if not self.able():
            self.now_us = self.next_us()
        self.step_of(self.chosen(self.able()))

    def step_of(self, w: int) -> None:
        """One step of this worker."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.fail(f"no end after {STEPS_MAX} steps")
        self._step(w)
        if self._is_whole and self.steps % CHECK_EVERY == 0:
            self._check_credit()

    def lose(self, w: int) -> None:
        """A worker takes no more steps, and nobody takes what is on its way to it."""
        self._is_whole = False
        self._until_us.pop(w, None)

    def begin_epoch(self, w: int, epoch: int) -> None:
        """A worker hears from the driver that an epoch begins; one that is done hears it while it waits for others."""
        self.history.note(self.now_us, w, f"hears     epoch {epoch}")
        if w in self._until_us:
            self._until_us[w] = 0
        self.workers[w].begin_epoch(epoch)

    def able(self) -> list[int]:
        """The workers that can take a step now."""
        return [w for w in self._until_us if self._wakes_us(w) <= self.now_us]

    def next_us(self) -> int:
        """When one can; where none ever can, something has gone wrong."""
        next_us = min((self._wakes_us(w) for w in self._until_us), default=FAR_US)
        if next_us >= FAR_US and self._is_whole and self._until_us:
            self._check_credit()  # which would be the cause
            self.fail(f"workers {sorted(self._until_us)} wait for ever")
        return next_us

    def chosen(self, able: Sequence[int]) -> int:
        """The worker that takes the next step."""
        return self._random.choices(able, [self._haste[w] for w in able])[0]

    def _wakes_us(self, w: int) -> int:
        frame_us = self._network.next_us(w)
        return self._until_us[w] if frame_us is None else min(self._until_us[w], frame_us)

    def _step(self, w: int) -> None:
        found = self.workers[w].step(self.now_us)
        if isinstance(found, Done):
            del self._until_us[w]
            self.workers[w].ended()
        else:
            self._until_us[w] = 0 if found is None or found.until_us is None else found.until_us
        self.now_us += self._random.choice(self._ticks_us)

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check_credit(self) -> None:
        """What each edge has outstanding is held, on its way, or unreturned at its receiver."""
        for w, worker in enumerate(self.workers):
            machine, share = worker.machine, worker.share
            for e, layout in enumerate(machine.layout.edges):
                if layout.source is None or not self._is_led(w, e):
                    continue
                found = machine.outstanding(e)
                number = share.edges[e].number
                if layout.target is not None:
                    due = machine.unreturned(e)
                else:
                    there = share.peer_of[e]
                    far = self.workers[there].share.local_number[number]
                    unreturned = self.workers[there].machine.unreturned(far)
                    due = machine.held(e) + self._network.in_flight(number) + unreturned
                if found != due:
                    ends = f"{share.edges[e].source} -> {share.edges[e].target}"
                    self.fail(f"{ends} has {found} bytes outstanding, and {due} are held, on their way or unreturned")

    def _is_led(self, w: int, e: int) -> bool:
        """Whether an edge is the way by which its rows go; where nothing moves each is."""
        return True

    def _check_end(self) -> None:
        self._check_credit()
        for w, worker in enumerate(self.workers):
            full = worker.machine.statistics()
            if full.queued_batches or full.unfinished_tasks:
                self.fail(f"worker {w} ended with {full}")
        if left := self._network.left():
            self.fail(f"frames are still on their way: {left[:3]}")
        for wrong in self.job.wrong(self.rows):
            self.fail(wrong)

    def fail(self, why: str) -> NoReturn:
        """Tell what is wrong."""
        places = {f"worker {w}": ", ".join(worker.share.tasks) for w, worker in enumerate(self.workers)}
        raise SimulationFailed(self.seed, why, f"{self.job.text}; {places}", self.history, self.module)


def simulate_seed(seed: int) -> Outcome:
    """Run the job of a seed, with all checks."""
    return Simulation(seed).run()


def _ends(shares: list[WorkerShare], plan: Mapping[str, int]) -> dict[int, Ends]:
    found = {}
    for share in shares:
        for e in share.peer_of:
            edge, layout = share.edges[e], share.layout.edges[e]
            name = f"{edge.source} -> {edge.target}"
            found[edge.number] = Ends(plan[edge.source], plan[edge.target], name, layout.slice_bytes_min)
    return found


def _text(instruction: Instruction, share: WorkerShare) -> str:
    """An instruction with names in place of numbers."""
    kind = type(instruction).__name__.lower()
    if isinstance(instruction, Send | Grant):
        edge = share.edges[instruction.edge]
        return f"{kind:<9} {edge.source} -> {edge.target}  {instruction.size} bytes"
    if isinstance(instruction, Wait):
        return f"{kind:<9} until {'a frame comes' if instruction.until_us is None else f'{instruction.until_us:,}'}"
    if isinstance(instruction, Done):
        return kind
    task = share.tasks[instruction.task]
    if isinstance(instruction, Run):
        return f"{kind:<9} {task}  {sum(len(payloads) for _, payloads in instruction.inputs)} payloads"
    return f"{kind:<9} {task}"


if __name__ == "__main__":
    for given in sys.argv[1:]:
        simulation = Simulation(int(given))
        print(simulation.run(), simulation.job.text)
