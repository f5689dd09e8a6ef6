"""Jobs whose metric rows are compared: over real transports, or over simulated links with clocks of their own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from worker_kit import LocalControl, LocalJob

from penstock._core import ImageCodec, PreparedImage
from penstock.run.contract import SourceTask, Task
from penstock.run.dataflow import Dataflow
from penstock.run.engine.meters import Clocks
from penstock.run.engine.worker import Deployment, Worker
from penstock.run.engine.worker_share import RunSettings, share_of
from penstock.run.machine.instructions import Done
from penstock.run.transport.links import WorkerPlace
from penstock.run.transport.protocol import ChannelStatistics
from penstock.run.transport.wire import BufferFrame, Frame, Kind
from penstock_lab.simulate.network import Ends, Network, SimulatedLinks

STEPS_MAX = 200_000
Row = dict[str, object]


def rows_of(controls: list[LocalControl], table: str) -> list[Row]:
    """Every row of one table that any worker has reported."""
    return [row for control in controls for tables in control.tables for row in tables[table].to_pylist()]


def added(rows: list[Row], keys: tuple[str, ...], columns: tuple[str, ...]) -> dict[tuple[object, ...], Counter[str]]:
    """Columns added up by key."""
    found: dict[tuple[object, ...], Counter[str]] = {}
    for row in rows:
        counts = found.setdefault(tuple(row[key] for key in keys), Counter())
        counts.update({column: row[column] for column in columns})  # type: ignore[misc] # columns of integers
    return found


def edges_of(rows: list[Row], *columns: str) -> dict[tuple[object, ...], Counter[str]]:
    """Columns of each pair of tasks."""
    return added(rows, ("source", "target"), columns)


def run_really(flow: Dataflow, place: Mapping[str, int], settings: RunSettings) -> list[LocalControl]:
    """Workers as threads of this process; what they have told their driver."""
    return LocalJob(flow, 1 + max(place.values()), place, settings).run().controls


class WorkClock:
    """Nanoseconds that one worker has worked; it stands still unless something says what it costs."""

    def __init__(self) -> None:
        self.ns = 0

    def work(self, ns: int) -> None:
        """Something has been done."""
        self.ns += ns

    def now(self) -> int:
        """Time of day and CPU time are the same for a worker that is never kept waiting."""
        return self.ns


@dataclass(frozen=True)
class Costs:
    """What a batch costs at each place, in ns."""

    send: int = 0
    receive: int = 0
    open: int = 0
    look: int = 0  # of a look, whatever it finds


@dataclass(frozen=True)
class CostlyFrame:
    """A frame that costs something to open."""

    frame: BufferFrame
    pay: Callable[[], None]

    def __getattr__(self, name: str) -> object:
        return getattr(self.frame, name)

    def open(self, codec: ImageCodec, /) -> pa.RecordBatch:
        self.pay()
        return self.frame.open(codec)


class CostlyLinks(SimulatedLinks):
    """Simulated links on which batches cost their worker a set time; marks and credit cost nothing."""

    def __init__(self, network: Network, me: int, clock: WorkClock, costs: Costs, peers: set[int]) -> None:
        super().__init__(network, me)
        self._clock, self._costs, self._peers = clock, costs, peers

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        self._clock.work(self._costs.send)
        return super().send_image(edge, image, origin_ns)

    def wait(self, seconds: float) -> tuple[list[Frame], bool]:
        frames, called = super().wait(seconds)
        data = sum(frame.kind == Kind.DATA for frame in frames)
        self._clock.work(self._costs.look + data * self._costs.receive)
        return [self._costly(frame) for frame in frames], called

    def _costly(self, frame: Frame) -> Frame:
        pay = lambda: self._clock.work(self._costs.open)  # noqa: E731
        return CostlyFrame(frame, pay)  # type: ignore[arg-type,return-value]

    def statistics(self) -> dict[int, tuple[str, ChannelStatistics]]:
        return {peer: ("ring", ChannelStatistics(0, 0, 0, 0, 0)) for peer in self._peers}


class SimulatedRun:
    """Workers in one thread, each with a work clock; the seed decides who takes the next step and when frames come."""

    def __init__(
        self,
        flow: Dataflow,
        place: Mapping[str, int],
        costs: Costs,
        seed: int = 1,
        *,
        task_ns: Mapping[str, int] | None = None,
        rows_max: int = 4096,
    ) -> None:
        """`task_ns`: what each call of a task's code costs."""
        rng = random.Random(seed)
        settings = RunSettings(interval_s=1e6, rows_max=rows_max)
        workers = range(1 + max(place.values()))
        shares = [share_of(flow, place, w, settings) for w in workers]
        ends = {}
        for share in shares:
            for e in share.peer_of:
                edge, layout = share.edges[e], share.layout.edges[e]
                ends[edge.number] = Ends(place[edge.source], place[edge.target], edge.source, layout.slice_bytes_min)
        self.now_us = 1_000_000
        network = Network(ends, rng, (0, 0, 30), lambda: self.now_us)
        self.clocks = [WorkClock() for _ in workers]
        self.controls = [LocalControl() for _ in workers]
        self.rows: list[pa.RecordBatch] = []
        places = tuple(WorkerPlace(w, "n", "", 0) for w in workers)
        deployment = Deployment("simulated", places, place, settings)
        sink = {"job": "simulated", "deliver": lambda name, batch: self.rows.append(batch)}
        self.workers = [
            Worker(
                flow,
                deployment,
                w,
                self.controls[w],
                sink,
                links=CostlyLinks(network, w, self.clocks[w], costs, set(shares[w].peer_of.values())),
                clock=lambda: self.now_us,
                work_clocks=Clocks(self.clocks[w].now, self.clocks[w].now),
            )
            for w in workers
        ]
        self._random = rng
        self.paid: Counter[str] = Counter()  # calls of each task's code
        for worker, clock, share in zip(self.workers, self.clocks, shares, strict=True):
            for name, task in zip(share.tasks, worker._runner.tasks, strict=True):
                if task_ns is not None:
                    self._charge(name, task, clock, task_ns[name])

    def _charge(self, name: str, task: Task, clock: WorkClock, ns: int) -> None:
        """Let each call of a task's code cost something, before it emits anything."""

        def costly(code: Callable[..., Any]) -> Callable[..., Any]:
            def paid(*given: object) -> Any:  # noqa: ANN401
                self.paid[name] += 1
                clock.work(ns)
                return code(*given)

            return paid

        called = "poll" if isinstance(task, SourceTask) else "process"
        setattr(task, called, costly(getattr(task, called)))

    def run(self) -> SimulatedRun:
        """Every worker to its end, and its last report."""
        left = set(range(len(self.workers)))
        for worker in self.workers:
            worker.open()
        for _ in range(STEPS_MAX):
            if not left:
                break
            w = self._random.choice(sorted(left))
            if isinstance(self.workers[w].step(self.now_us), Done):
                left.discard(w)
                self.workers[w]._report(self.now_us, ended=True)
            self.now_us += self._random.choice((0, 1, 300))
        assert not left, f"no end after {STEPS_MAX} steps"
        for worker, control in zip(self.workers, self.controls, strict=True):
            worker.close()
            control.close()
        return self
