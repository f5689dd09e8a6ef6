"""A worker with little to do rests, reports in time, and wakes nobody for nothing. Its clock and links are scripted."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pytest

import penstock as ps
from penstock._core import set_timer_slack
from penstock.run.dataflow import Dataflow
from penstock.run.engine.outputs import OutStream, TaskOutputs
from penstock.run.engine.promptness import prompt_thread
from penstock.run.engine.routing import Router
from penstock.run.engine.worker import Deployment, Worker
from penstock.run.engine.worker_links import WorkerLinks
from penstock.run.engine.worker_share import RunSettings, task_ids
from penstock.run.machine.instructions import Done, Wait
from penstock.run.operators.sources.generated import PAUSE_US
from penstock.run.transport.links import WorkerPlace
from penstock.run.transport.wire import BufferFrame, Frame, Kind, WireFault, write_image

LOOK_COSTS_US = 10
BATCH = pa.record_batch({"i": pa.array([1, 2, 3], pa.int64())})


class Enough(Exception):
    """The script is at its end."""


class Recorder:
    """A driver's line that keeps what it is told."""

    def __init__(self) -> None:
        self.reports = 0

    def fileno(self) -> int:
        return -1

    def commands(self) -> list[str]:
        return []

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        self.reports += 1


class Script:
    """Time that passes only in waits, and frames that come one after the other."""

    def __init__(self, frames: Iterator[Frame], looks: int) -> None:
        self.now_us, self._frames, self.looks_left = 1_000_000, frames, looks
        self.marks: list[tuple[Kind, int]] = []
        self.woken_ns = 0

    def wait(self, seconds: float) -> tuple[list[Frame], bool]:
        self.looks_left -= 1
        if self.looks_left < 0:
            raise Enough
        frame = next(self._frames, None)
        self.now_us += LOOK_COSTS_US if frame is not None else max(LOOK_COSTS_US, int(seconds * 1e6))
        return [frame] if frame is not None else [], False

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        self.marks.append((kind, value))

    def statistics(self) -> dict[int, object]:
        return {}

    def close(self) -> None:
        pass


def scripted(
    dataflow: Dataflow, me: int, worker_of: Mapping[str, int], settings: RunSettings, script: Script
) -> Worker:
    places = tuple(WorkerPlace(w, "n", "127.0.0.1", 1) for w in range(max(worker_of.values()) + 1))
    deployment, sink = Deployment("t", places, worker_of, settings), {"deliver": lambda *_: None}
    links: WorkerLinks = script  # type: ignore[assignment] # all that a worker needs that is not connected
    worker = Worker(dataflow, deployment, me, Recorder(), sink, links=links, clock=lambda: script.now_us)
    worker.open()
    return worker


def test_a_worker_at_rest_sleeps_from_report_to_report() -> None:
    topology = ps.Topology("idle")
    topology.source("slow", ps.io.rate(0.001, rows=10)).sink("out", ps.io.discard())
    dataflow, script = topology.build(), Script(iter(()), looks=100)
    worker = scripted(dataflow, 0, dict.fromkeys(task_ids(dataflow), 0), RunSettings(interval_s=0.5), script)
    with pytest.raises(Enough):
        worker._loop()
    recorder = worker._control
    assert isinstance(recorder, Recorder)
    assert recorder.reports >= 90  # nearly one for each look: no look was for nothing
    assert script.now_us >= 1_000_000 + 90 * 500_000


def test_a_step_says_whether_there_is_more_to_do_and_until_when_there_is_not() -> None:
    topology = ps.Topology("steps")
    topology.source("two", ps.io.generator(lambda task, tasks: iter((BATCH, None, BATCH)), "i long")).sink(
        "out", ps.io.discard()
    )
    dataflow, script = topology.build(), Script(iter(()), looks=100)
    worker = scripted(dataflow, 0, dict.fromkeys(task_ids(dataflow), 0), RunSettings(), script)
    assert worker.step(script.now_us) is None  # the first batch
    assert worker.step(script.now_us) is None  # nothing yet
    at_rest = worker.step(script.now_us)
    assert isinstance(at_rest, Wait)
    assert at_rest.until_us is not None
    assert script.now_us < at_rest.until_us <= script.now_us + PAUSE_US
    looks = script.looks_left
    script.now_us = at_rest.until_us
    assert worker.step(script.now_us) is None  # the second batch
    assert script.looks_left == looks - 1  # whatever ended the wait, it looked around first
    while (found := worker.step(script.now_us)) is None:
        pass
    assert isinstance(found, Done)


def received(seen: list[int], batches: int) -> tuple[Worker, Script, int]:
    """A worker whose one task gets so many single batches from another worker; and what each counts for."""
    topology = ps.Topology("far")
    source = topology.source("near", ps.io.generator(lambda task, tasks: iter(()), "i long"))
    source.sink("out", ps.io.callback(lambda batch: seen.append(batch.num_rows)), tasks=1)
    dataflow = topology.build()
    image = write_image(BATCH.cast(dataflow.operator("near").outputs["out"]))
    frames = [BufferFrame(Kind.DATA, 0, 3, 0, len(image), image) for _ in range(batches)]
    script = Script(iter([*frames, BufferFrame(Kind.END, 0, 0, 0)]), looks=1_000)
    settings = RunSettings(window_bytes=10 * len(image))
    worker = scripted(dataflow, 1, {"near/0": 0, "out/0": 1}, settings, script)
    return worker, script, len(image)


def test_single_batches_go_straight_to_their_task_and_credit_goes_back_by_quarters() -> None:
    seen: list[int] = []
    worker, script, size = received(seen, batches=7)
    worker._loop()
    assert seen == [3] * 7
    assert script.marks == [(Kind.CREDIT, 3 * size), (Kind.CREDIT, 3 * size)]  # the seventh is less than a quarter
    assert worker.machine.statistics().queued_batches == 0


def test_a_frame_of_an_edge_that_has_no_end_here_is_refused() -> None:
    worker, script, _ = received([], batches=0)
    script._frames = iter([BufferFrame(Kind.END, 7, 0, 0)])
    with pytest.raises(WireFault, match="worker 1 received a frame of edge 7, which has no end here"):
        worker.step(script.now_us)


@pytest.mark.parametrize("kind", ["all", "fields"])
def test_rows_for_other_workers_are_sent_before_this_one_works_on_its_own(kind: str) -> None:
    went: list[int] = []

    class Carrier:
        def pass_on(self, task: int, edge: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
            went.append(edge)

        def push_image(self, task: int, edge: int, image: object, origin_ns: int, schema: pa.Schema) -> None:
            went.append(edge)

    local = [True, False, True, False]
    grouping = ps.run.dataflow.Grouping(kind, ("i",) if kind == "fields" else ())
    router = Router(grouping, targets=range(4), local=local, index=0, tasks=1)
    stream = OutStream(router, [0, 1, 2, 3], straight=kind == "fields")
    rows = pa.record_batch({"i": pa.array(range(200), pa.int64())})
    TaskOutputs(Carrier(), 0, {"out": [stream]}).emit(rows)  # type: ignore[arg-type] # all that a task that only emits needs
    assert went == [1, 3, 0, 2]


def failing() -> None:
    raise Enough


def is_frozen(thing: object) -> bool:
    """Whether the garbage collector has it out of sight; it lists everything else that it knows."""
    return not any(known is thing for known in gc.get_objects())


@pytest.mark.parametrize("work", [lambda: None, failing])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_process_is_left_as_it_was(work: Callable[[], None], frozen: bool) -> None:
    """Two lists of ours are looked at. How many objects are frozen in all says less: threads of others let some go."""
    slack = set_timer_slack(50_000)
    early: list[object] = [object]
    if frozen:
        gc.freeze()
    late: list[object] = [object]
    try:
        with contextlib.suppress(Enough), prompt_thread():
            # What the process froze itself is left alone, and what has come since as well.
            assert (is_frozen(early), is_frozen(late)) == (True, not frozen)
            work()
        assert (is_frozen(early), is_frozen(late)) == (frozen, False)
        assert set_timer_slack(50_000) == 50_000
    finally:
        gc.unfreeze()
        set_timer_slack(slack)
