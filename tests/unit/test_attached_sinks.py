"""Sinks inside the tasks that produce their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flow_kit import Recorder, WholeFlow, opened
from worker_kit import LocalJob

import penstock as ps
from penstock.errors import InvalidInput
from penstock.run.contract import MAIN, SourceTask, Task, TaskContext
from penstock.run.dataflow import AttachedSink
from penstock.run.engine.user_errors import SinkFailed
from penstock.run.engine.worker import Cancelled, TaskFault
from penstock.run.operators.sinks.attached import with_sinks
from penstock.run.operators.sinks.callbacks import BatchCallback
from penstock.run.operators.sinks.plain import Collect, Discard
from penstock.run.transport.protocol import PeerGone


def numbers(task: int, tasks: int) -> Iterator[tuple[int]]:
    return iter([(i,) for i in range(task, 100, tasks)])


def numbers_topology(tasks: int = 3) -> tuple[ps.Topology, ps.DataStream]:
    top = ps.Topology("numbers")
    return top, top.source("numbers", ps.io.generator(numbers, "n bigint", tasks=tasks))


def test_a_sink_without_tasks_adds_none() -> None:
    top, stream = numbers_topology()
    halves = stream.map(lambda row: (row.n // 2,), "n bigint", name="halve", tasks=2)
    halves.sink("out", ps.io.collect())
    halves.sink("again", ps.io.discard(), tasks=1)
    stream.global_().sink("grouped", ps.io.discard())
    flow = top.build()
    assert {o.name: o.tasks for o in flow.operators} == {"numbers": 3, "halve": 2, "again": 1, "grouped": 1}
    assert set(flow.sinks()) == {"out", "again", "grouped"}
    assert {(s.source, s.target) for s in flow.graph().streams} == {
        ("numbers", "halve"), ("halve", "again"), ("numbers", "grouped")
    }  # fmt: skip


def test_names_of_attached_sinks_are_taken() -> None:
    _, stream = numbers_topology()
    stream.sink("out", ps.io.discard())
    with pytest.raises(InvalidInput, match="has an operator 'out' already"):
        stream.select("n", name="out")
    with pytest.raises(InvalidInput, match="has an operator 'numbers' already"):
        stream.sink("numbers", ps.io.discard())
    stream.sink("map1", ps.io.discard())
    assert stream.map(lambda row: row, "n bigint").operator == "map2"


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_row_reaches_every_sink_once(workers: int) -> None:
    top, stream = numbers_topology()
    stream.sink("raw", ps.io.collect())
    odd = stream.map(lambda row: (1 // (row.n % 2), row.n), "one bigint, n bigint", on_error="quarantine", tasks=2)
    odd.sink("odd", ps.io.collect())
    odd.errors.sink("even", ps.io.collect())
    odd.key_by("one").count().sink("count", ps.io.collect())
    job = LocalJob(top.build(), workers).run()
    found = {name: Counter(row.get("n") for row in job.rows(name)) for name in ("raw", "odd", "even")}
    assert found == {"raw": Counter(range(100)), "odd": Counter(range(1, 100, 2)), "even": Counter(range(0, 100, 2))}
    assert job.rows("count") == [{"one": 1, "count": 50}]


def test_each_producing_task_writes_its_part(tmp_path: Path) -> None:
    top, stream = numbers_topology(tasks=3)
    stream.sink("kept", ps.io.parquet(str(tmp_path)))
    WholeFlow(top.build()).run()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"part-0000{i}-kept-local.parquet" for i in range(3)]
    assert Counter(pq.read_table(tmp_path)["n"].to_pylist()) == Counter(range(100))


def test_a_sink_that_raises_is_named_with_the_users_traceback() -> None:
    def picky(row: ps.Row) -> None:
        if row.n == 42:
            msg = "not that one"
            raise ValueError(msg)

    top, stream = numbers_topology(tasks=1)
    stream.sink("picky", ps.io.callback(picky, rows=True))
    with pytest.raises(
        TaskFault, match=r"operator 'numbers' .*in sink 'picky': ValueError: not that one .*n=42"
    ) as caught:
        LocalJob(top.build(), 1).run()
    assert "in picky" in caught.value.trace


class Pass(Task):
    """Emits what it gets, and at its end one row more."""

    def process(self, batch: pa.RecordBatch, port: int, out: Recorder) -> None:  # type: ignore[override]
        out.emit(batch)

    def finish(self, out: Recorder) -> None:  # type: ignore[override]
        out.emit(pa.RecordBatch.from_pydict({"n": [-1]}))


def test_latency_is_told_once_for_each_batch_at_each_sink_and_the_last_rows_arrive_before_the_end() -> None:
    got: list[int] = []

    class Ends(Discard):
        def process(self, batch: pa.RecordBatch, port: int, out: object) -> None:  # type: ignore[override]
            got.extend(batch["n"].to_pylist())

        def finish(self, out: object) -> None:  # type: ignore[override]
            got.append(99)

    sinks = [AttachedSink("a", "ends", Ends), AttachedSink("b", "discard", Discard, "errors")]
    task = opened(lambda: with_sinks(Pass, sinks))
    out = Recorder()
    task.process(pa.RecordBatch.from_pydict({"n": [1, 2]}), 0, out)
    task.process(pa.RecordBatch.from_pydict({"n": pa.array([], pa.int64())}), 0, out)
    task.finish(out)
    assert got == [1, 2, -1, 99]
    assert out.arrivals == 2, "the sink of another output saw nothing, and no rows are no arrival"
    assert out.rows(MAIN) == [(1,), (2,), (-1,)]


@pytest.mark.parametrize("passing", [Cancelled("told to"), PeerGone("driver gone")])
def test_the_end_of_the_job_is_not_the_sinks_failure(passing: Exception) -> None:
    def ends(batch: pa.RecordBatch) -> None:
        raise passing

    task = opened(lambda: with_sinks(Pass, [AttachedSink("a", "callback", lambda: BatchCallback(ends))]))
    with pytest.raises(type(passing)) as caught:
        task.process(pa.RecordBatch.from_pydict({"n": [1]}), 0, Recorder())
    assert not isinstance(caught.value, SinkFailed)


@pytest.mark.parametrize("when", ["open", "process", "finish"])
def test_a_sink_is_named_wherever_it_raises_and_loses_connections_of_its_own(when: str) -> None:
    class Loses(Discard):
        pass

    def lose(*_: object) -> None:
        msg = "the database is gone"
        raise ConnectionResetError(msg)

    setattr(Loses, when, lose)
    task = with_sinks(Pass, [AttachedSink("stored", "callback", Loses)])

    def whole_life() -> None:
        task.open(TaskContext("a", 0, 1))
        task.process(pa.RecordBatch.from_pydict({"n": [1]}), 0, Recorder())
        task.finish(Recorder())

    with pytest.raises(SinkFailed, match="in sink 'stored': ConnectionResetError: the database is gone"):
        whole_life()


def test_all_parts_are_closed_and_a_source_stays_one() -> None:
    closed: list[str] = []

    class Fails(Pass):
        def close(self) -> None:
            closed.append("inner")
            msg = "disk full"
            raise OSError(msg)

    class Sink(Discard):
        def close(self) -> None:
            closed.append("sink")

    task = with_sinks(Fails, [AttachedSink("a", "sink", Sink), AttachedSink("b", "sink", Sink)])
    with pytest.raises(OSError, match="disk full"):
        task.close()
    assert closed == ["inner", "sink", "sink"]
    top, stream = numbers_topology(tasks=1)
    stream.sink("out", ps.io.collect())
    source = top.build().operator("numbers").build()
    assert isinstance(source, SourceTask)
    assert top.build().sinks()["out"][0].collects
    (attached,) = top.build().operator("numbers").sinks
    assert isinstance(attached.build(), Collect)
