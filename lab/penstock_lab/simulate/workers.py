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
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.run.engine.worker import Deployment, Worker
from penstock.run.engine.worker_share import RunSettings, WorkerShare, share_of, task_ids
from penstock.run.machine.instructions import Done, Grant, Instruction, Run, Send, Wait
from penstock.run.transport.links import WorkerPlace
from penstock_lab.simulate.network import Ends, Network, SimulatedLinks
from penstock_lab.simulate.random_jobs import OutOfOrder, RandomJob, random_job

STEPS_MAX = 300_000
START_US = 1_000_000
FAR_US = 1 << 60  # a worker that waits until then waits for frames alone
CHECK_EVERY = 8  # steps


class SimulationFailed(AssertionError):
    """A run went wrong; the seed repeats it, and the events say how it came to that."""

    def __init__(self, seed: int, why: str, job: str, history: object) -> None:
        self.seed = seed
        super().__init__(f"seed {seed}: {why}\n{job}\n{history}\nagain: python -m penstock_lab.simulate.workers {seed}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did: how many steps and events, the digest of all events, and when it ended."""

    steps: int
    events: int
    digest: int
    ended_us: int


class Simulation:
    """One job of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = rng = random.Random(seed)  # noqa: S311 - a simulation
        self.job: RandomJob = random_job(rng)
        self.now_us = START_US
        workers = rng.randint(1, 4)
        self._ticks_us = rng.choice(((0,), (0, 1, 20), (0, 150, 4_000)))
        self._haste = [rng.choice((1, 1, 8)) for _ in range(workers)]  # how readily each worker gets its turn
        settings = RunSettings(
            rows_max=rng.choice((1, 3, 16, 64)),
            linger_ms=rng.choice((0.0, 0.0, 0.3, 5.0)),
            window_bytes=rng.choice((1, 300, 3_000, None)),
            metered=False,
            interval_s=FAR_US / 1e6,
        )
        plan = {task: rng.randrange(workers) for task in task_ids(self.job.dataflow)}
        self._shares = [share_of(self.job.dataflow, plan, w, settings) for w in range(workers)]
        delays_us = rng.choice(((0,), (0, 5, 300), (10, 2_000, 50_000)))
        self._network = Network(_ends(self._shares, plan), rng, delays_us, lambda: self.now_us)
        self.rows: dict[str, list[pa.RecordBatch]] = {}
        deployment = Deployment("simulated", tuple(WorkerPlace(w, "n", "", 0) for w in range(workers)), plan, settings)
        self._workers = [self._worker(deployment, w) for w in range(workers)]
        self._until_us: dict[int, int] = dict.fromkeys(range(workers), 0)  # workers that have not finished

    def _worker(self, deployment: Deployment, w: int) -> Worker:
        sink = {"job": "simulated", "deliver": lambda name, batch: self.rows.setdefault(name, []).append(batch)}
        links = SimulatedLinks(self._network, w)
        made = Worker(self.job.dataflow, deployment, w, None, sink, links=links, clock=lambda: self.now_us)
        made.machine.next = self._noted(w, made.machine.next)  # type: ignore[method-assign,assignment]
        return made

    def _noted(self, w: int, decide: Callable[[int], Instruction]) -> Callable[[int], Instruction]:
        def noted(now_us: int) -> Instruction:
            instruction = decide(now_us)
            self._network.history.note(now_us, w, _text(instruction, self._shares[w]))
            return instruction

        return noted

    def run(self) -> Outcome:
        """Step until every worker is done; SimulationFailed where anything is not as it should be."""
        steps = 0
        try:
            for worker in self._workers:
                worker.open()
            while self._until_us:
                steps += 1
                if steps > STEPS_MAX:
                    self._fail(f"no end after {STEPS_MAX} steps")
                self._step(self._chosen())
                if steps % CHECK_EVERY == 0:
                    self._check_credit()
            self._check_end()
        except SimulationFailed:
            raise
        except OutOfOrder as error:
            self._fail(str(error))
        except Exception as error:
            cause = error.__cause__ if isinstance(error.__cause__, OutOfOrder) else error
            self._fail(f"{type(cause).__name__}: {cause}")
        finally:
            for worker in self._workers:
                worker.close()
        history = self._network.history
        return Outcome(steps, history.events, history.digest, self.now_us)

    def _chosen(self) -> int:
        """The worker that takes the next step; where none can, time goes on until one can."""
        able = [w for w in self._until_us if self._wakes_us(w) <= self.now_us]
        if not able:
            self.now_us = min(self._wakes_us(w) for w in self._until_us)
            if self.now_us >= FAR_US:
                self._check_credit()  # which would be the cause
                self._fail(f"workers {sorted(self._until_us)} wait for ever")
            able = [w for w in self._until_us if self._wakes_us(w) <= self.now_us]
        return self._random.choices(able, [self._haste[w] for w in able])[0]

    def _wakes_us(self, w: int) -> int:
        frame_us = self._network.next_us(w)
        return self._until_us[w] if frame_us is None else min(self._until_us[w], frame_us)

    def _step(self, w: int) -> None:
        found = self._workers[w].step(self.now_us)
        if isinstance(found, Done):
            del self._until_us[w]
        else:
            self._until_us[w] = 0 if found is None or found.until_us is None else found.until_us
        self.now_us += self._random.choice(self._ticks_us)

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check_credit(self) -> None:
        """What each edge has outstanding is held, on its way, or unreturned at its receiver."""
        for w, share in enumerate(self._shares):
            machine = self._workers[w].machine
            for e, layout in enumerate(share.layout.edges):
                if layout.source is None:
                    continue
                found = machine.outstanding(e)
                number = share.edges[e].number
                if layout.target is not None:
                    due = machine.unreturned(e)
                else:
                    there = share.peer_of[e]
                    far = self._shares[there].local_number[number]
                    unreturned = self._workers[there].machine.unreturned(far)
                    due = machine.held(e) + self._network.in_flight(number) + unreturned
                if found != due:
                    ends = f"{share.edges[e].source} -> {share.edges[e].target}"
                    self._fail(f"{ends} has {found} bytes outstanding, and {due} are held, on their way or unreturned")

    def _check_end(self) -> None:
        self._check_credit()
        for w, worker in enumerate(self._workers):
            full = worker.machine.statistics()
            if full.queued_batches or full.unfinished_tasks:
                self._fail(f"worker {w} ended with {full}")
        if left := self._network.left():
            self._fail(f"frames are still on their way: {left[:3]}")
        for wrong in self.job.wrong(self.rows):
            self._fail(wrong)

    def _fail(self, why: str) -> None:
        places = {f"worker {w}": ", ".join(share.tasks) for w, share in enumerate(self._shares)}
        raise SimulationFailed(self.seed, why, f"{self.job.text}; {places}", self._network.history)


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
