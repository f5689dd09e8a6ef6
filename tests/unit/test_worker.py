"""Whole workers over sockets and over rings: answers, deadlock, memory, draining, cancelling, errors, metrics."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_kit import PATIENCE_SECONDS, LocalJob

import penstock as ps
from penstock._core import NoSharedMemory, RingSegment
from penstock.errors import InternalError, InvalidInput
from penstock.run.contract import Interrupted
from penstock.run.engine.worker import Cancelled, TaskFault
from penstock.run.engine.worker_share import RunSettings
from penstock.run.operators.sources.generated import RateSource
from penstock.run.transport import links
from penstock.run.transport.protocol import PeerGone

both_transports = pytest.mark.parametrize("transport", ["socket", "ring"])
TEXT = ["the cat sat", "the dog sat", "a cat", "", "the end"]


def words(lines: int, tasks: int = 2) -> ps.Topology:
    top = ps.Topology("words")
    source = ps.io.generator(lambda task, n: [(TEXT[i % len(TEXT)],) for i in range(task, lines, n)], "line string")
    stream = top.source("lines", source, tasks=tasks).split("line", tasks=2)
    stream.key_by("word").count(tasks=2).sink("out", ps.io.collect())
    return top


def expected(lines: int) -> Counter[str]:
    return Counter(word for i in range(lines) for word in TEXT[i % len(TEXT)].split())


def counted(job: LocalJob) -> dict[object, object]:
    return {row["word"]: row["count"] for row in job.rows("out")}


@both_transports
@settings(max_examples=25)
@given(lines=st.integers(0, 300), workers=st.integers(1, 8), rows_max=st.integers(1, 10_000), data=st.data())
def test_word_count_is_the_same_on_any_plan(
    transport: str, lines: int, workers: int, rows_max: int, data: st.DataObject
) -> None:
    flow = words(lines).build()
    place = {f"{o.name}/{i}": data.draw(st.integers(0, workers - 1)) for o in flow.operators for i in range(o.tasks)}
    linger_ms = data.draw(st.sampled_from((0.0, 0.0, 0.3, 2.0)))
    window = data.draw(st.integers(1, 5000))
    job = LocalJob(
        flow,
        workers,
        place,
        RunSettings(rows_max=rows_max, linger_ms=linger_ms, window_bytes=window, transport=transport),
    )
    assert counted(job.run()) == expected(lines)


@both_transports
def test_circular_sends_with_tiny_credits_and_a_slow_sink_do_not_deadlock(transport: str) -> None:
    # Two workers, each with a source that feeds the other's filter: data flows in a circle between the workers.
    top = ps.Topology("circle")
    numbers = ps.io.generator(lambda task, n: ((i,) for i in range(task, 4000, n)), "i bigint")
    stream = top.source("a", numbers, tasks=2).shuffle().map(lambda row: (row.i,), "i bigint", name="b", tasks=2)
    held = threading.Event()

    def slow(batch: pa.RecordBatch) -> None:
        held.wait(0.001)  # never set: each batch takes a millisecond
        seen.extend(batch["i"].to_pylist())

    seen: list[int] = []
    stream.sink("c", ps.io.callback(slow), tasks=1)
    place = {"a/0": 0, "b/1": 0, "a/1": 1, "b/0": 1, "c/0": 0}
    LocalJob(top.build(), 2, place, RunSettings(rows_max=64, window_bytes=1, transport=transport)).run()
    assert sorted(seen) == list(range(4000))


@both_transports
def test_overload_keeps_queues_within_their_windows(transport: str) -> None:
    # The source could produce for ever; the sink takes a little at a time. What waits must not grow with what was made.
    top = ps.Topology("flood")
    batch = pa.RecordBatch.from_pydict({"i": list(range(1000))})
    made = 0

    def flood(task: int, tasks: int) -> Iterator[pa.RecordBatch]:
        nonlocal made
        for _ in range(500):
            made += 1
            yield batch

    largest = 0
    ahead = 0

    def slow(got: pa.RecordBatch) -> None:
        nonlocal largest, ahead, taken
        taken += got.num_rows
        ahead = max(ahead, made * 1000 - taken)
        largest = max(largest, *(worker.machine.statistics().queued_bytes for worker in job.workers))

    taken = 0
    top.source("a", ps.io.generator(flood, "i bigint")).sink("b", ps.io.callback(slow), tasks=1)
    window = 40_000
    job = LocalJob(
        top.build(), 2, {"a/0": 0, "b/0": 1}, RunSettings(rows_max=1000, window_bytes=window, transport=transport)
    )
    job.run()
    assert taken == 500_000
    assert largest <= window + 8_200  # one batch may overdraw the window
    assert ahead * 8 <= 2 * (window + 8_200) + 1_000_000  # plus what the kernel's socket buffers hold


@both_transports
def test_stop_drains_what_was_read(transport: str) -> None:
    top = ps.Topology("endless")
    emitted: list[int] = []

    def endless(task: int, tasks: int) -> Iterator[tuple[int]]:
        for i in itertools.count():
            emitted.append(i)
            if i == 5000:
                started.set()
            yield (i,)

    started = threading.Event()
    source = ps.io.generator(endless, "i bigint", bounded=False)
    top.source("a", source).filter(lambda row: row.i % 2 == 0, tasks=2).sink("out", ps.io.collect())
    job = LocalJob(top.build(), 2, settings=RunSettings(transport=transport)).start()
    assert started.wait(60)
    for control in job.controls:
        control.say("stop")
    job.join()
    assert job.errors == [None, None]
    got = sorted(row["i"] for row in job.rows("out"))  # type: ignore[type-var]
    assert got == list(range(0, 2 * len(got), 2))
    assert len(got) >= 2500
    assert len(emitted) - 2 * len(got) <= 2 + 4096  # at most the batch that the source was filling is not sent


@both_transports
def test_cancel_ends_at_once(transport: str) -> None:
    top = ps.Topology("endless")
    started = threading.Event()

    def endless(task: int, tasks: int) -> Iterator[tuple[int]]:
        for i in itertools.count():
            started.set()
            yield (i,)

    top.source("a", ps.io.generator(endless, "i bigint", bounded=False)).sink("out", ps.io.discard(), tasks=1)
    job = LocalJob(top.build(), 2, {"a/0": 0, "out/0": 1}, RunSettings(transport=transport)).start()
    assert started.wait(60)
    for control in job.controls:
        control.say("cancel")
    job.join()
    assert all(isinstance(error, Cancelled | PeerGone) for error in job.errors)


def test_a_word_that_no_worker_knows_is_our_bug_and_stops_nothing_in_silence() -> None:
    top = ps.Topology("endless")
    endless = ps.io.generator(lambda task, tasks: ((i,) for i in itertools.count()), "i bigint", bounded=False)
    top.source("a", endless).sink("out", ps.io.discard())
    job = LocalJob(top.build(), 1)
    job.controls[0].say("scale region")  # without a number
    with pytest.raises(InternalError, match=r"worker 0 was told 'scale region'; it knows stop, cancel, over,"):
        job.run()


@pytest.mark.parametrize("tasks", [None, 1])
def test_a_sink_that_learns_of_the_cancel_first_is_not_a_failed_task(tasks: int | None) -> None:
    """The thread that hears commands tells `deliver` before the loop has looked; what it raises is the cancel."""

    def told(name: str, batch: pa.RecordBatch) -> None:
        msg = "worker 0 was cancelled"
        raise Cancelled(msg)

    top = ps.Topology("told")
    top.source("a", ps.io.generator(lambda task, n: [(1,)], "i bigint")).sink("out", ps.io.collect(), tasks=tasks)
    with pytest.raises(Cancelled):
        LocalJob(top.build(), 1, deliver=told).run()


@both_transports
def test_a_failing_function_names_operator_task_worker_node_and_row(transport: str) -> None:
    top = ps.Topology("fails")

    def reciprocal(row: ps.Row) -> tuple[float]:
        return (1 / row.i,)

    numbers = ps.io.generator(lambda task, n: [(2,), (1,), (0,)], "i bigint")
    top.source("a", numbers).map(reciprocal, "x double", name="invert").sink("out", ps.io.collect(), tasks=1)
    with pytest.raises(TaskFault) as caught:
        LocalJob(top.build(), 2, {"a/0": 0, "invert/0": 1, "out/0": 0}, RunSettings(transport=transport)).run()
    text = str(caught.value)
    for part in ("'invert'", "task 0", "worker 1", "'n1'", "division by zero", "i=0"):
        assert part in text, text
    assert "reciprocal" in caught.value.trace


class Ends(ps.Stateful):
    """A user's operator that ends the process where it is told to."""

    schema = "i bigint"
    where = ""

    def __init__(self) -> None:
        self._end("__init__")

    def _end(self, where: str) -> None:
        if self.where == where and threading.current_thread() is not threading.main_thread():  # not while it is built
            sys.exit(3)

    def on_row(self, key: object, row: ps.Row, state: object, timers: object, emit: Callable[[object], None]) -> None:
        if row.i == 2:
            self._end("on_row")
        emit((row.i,))

    def close(self) -> None:
        self._end("close")


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt("now"), GeneratorExit("out")], ids=repr)
def test_a_function_that_wants_to_end_the_process_fails_as_any_other(end: BaseException) -> None:
    def fails(row: ps.Row) -> tuple[int]:
        if row.i == 2:
            raise end
        return (row.i,)

    numbers = ps.io.generator(lambda task, n: [(1,), (2,)], "i bigint")
    for operator in ("map", "sink", "quarantine", "source"):
        top = ps.Topology("ends")
        if operator == "source":
            source = ps.io.generator(lambda task, n: (fails(row) for row in [ps.Row(i=2)]), "i bigint")
            top.source("bad", source).sink("out", ps.io.collect())
        elif operator == "sink":
            top.source("bad", numbers).sink("out", ps.io.callback(fails, rows=True))
        else:
            on_error: Any = "quarantine" if operator == "quarantine" else "fail"
            top.source("a", numbers).map(fails, "i bigint", name="bad", on_error=on_error).sink("out", ps.io.collect())
        with pytest.raises(TaskFault) as caught:
            LocalJob(top.build(), 1).run()
        said = ["'bad' (task 0, worker 0, node 'n0') failed", type(end).__name__, str(end)]
        said += [] if operator == "source" else ["row 1", "i=2"]
        said += ["in sink 'out'"] if operator == "sink" else []
        assert all(part in str(caught.value) for part in said), str(caught.value)
        assert "in fails" in caught.value.trace


@pytest.mark.parametrize("where", ["__init__", "on_row", "close"])
def test_an_operator_class_that_wants_to_end_the_process_does_not(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ends, "where", where)
    top = ps.Topology("ends")
    numbers = top.source("a", ps.io.generator(lambda task, n: [(1,), (2,)], "i bigint"))
    numbers.key_by("i").process(Ends, name="bad").sink("out", ps.io.collect())
    flow = top.build()
    ended: list[BaseException | LocalJob] = []

    def run() -> None:
        try:
            ended.append(LocalJob(flow, 1).run())
        except TaskFault as fault:
            ended.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    (end,) = ended
    if where == "close":  # everything has been done by then
        assert isinstance(end, LocalJob)
        assert sorted(row["i"] for row in end.rows("out")) == [1, 2]  # type: ignore[type-var]
    else:
        assert "operator 'bad' (task 0, worker 0, node 'n0') failed" in str(end)
        assert "SystemExit: 3" in str(end)


def test_a_signal_in_a_function_is_no_failure_of_that_function() -> None:
    top = ps.Topology("told")

    def told(row: ps.Row) -> tuple[int]:
        raise Interrupted  # as the handler does, wherever the process happens to be

    numbers = ps.io.generator(lambda task, n: [(1,)], "i bigint")
    top.source("a", numbers).map(told, "i bigint", on_error="quarantine").sink("out", ps.io.collect())
    with pytest.raises(Interrupted):
        LocalJob(top.build(), 1).run()


@both_transports
def test_metrics_count_what_flowed_and_say_where(transport: str) -> None:
    job = LocalJob(words(1000).build(), 3, settings=RunSettings(transport=transport)).run()
    tasks = [row for control in job.controls for t in control.tables for row in t["tasks"].to_pylist()]
    edges = [row for control in job.controls for t in control.tables for row in t["edges"].to_pylist()]
    latency = [row for control in job.controls for t in control.tables for row in t["latency"].to_pylist()]
    total = sum(expected(1000).values())
    assert sum(row["tuples_in"] for row in tasks if row["task"].startswith("count")) == total
    assert sum(row["tuples_out"] for row in tasks if row["task"].startswith("lines")) == 1000
    sent = [row for row in edges if row["source"].startswith("split")]
    assert sum(row["tuples"] for row in sent) == total  # counted where it leaves and, between workers, never twice
    assert {row["node"] for row in tasks} == {"n0", "n1", "n2"}
    assert all(row["latency_us"] >= 0 for row in latency)
    assert {row["task"] for row in latency} == {"count1/0", "count1/1"}  # where the sink is attached
    told = [row for control in job.controls for t in control.tables for row in t["links"].to_pylist()]
    assert {row["transport"] for row in told} == {transport}
    assert {(row["worker"], row["peer"]) for row in told} >= {(0, 1), (1, 0)}
    assert sum(row["frames"] for row in told) > 0
    assert all(row["blocked_us"] >= 0 for row in told)


@both_transports
def test_a_worker_that_waits_for_its_peers_to_finish_hears_a_cancel(transport: str) -> None:
    top = ps.Topology("late")
    begun, never = threading.Event(), threading.Event()

    def stuck(batch: pa.RecordBatch) -> None:
        begun.set()
        never.wait(PATIENCE_SECONDS)

    top.source("a", ps.io.generator(lambda task, n: [(1,)], "i bigint")).sink("out", ps.io.callback(stuck), tasks=1)
    job = LocalJob(top.build(), 2, {"a/0": 0, "out/0": 1}, RunSettings(transport=transport)).start()
    assert begun.wait(PATIENCE_SECONDS)
    job.controls[0].say("cancel")  # it has nothing left to do but to say goodbye
    job.threads[0].join(PATIENCE_SECONDS)
    assert isinstance(job.errors[0], Cancelled)
    never.set()
    job.join()


def test_a_worker_that_waits_to_be_called_hears_a_cancel() -> None:
    job = LocalJob(words(10).build(), 2)
    job.threads[1].start()  # worker 0, which would call it, never comes
    job.controls[1].say("cancel")
    job.threads[1].join(PATIENCE_SECONDS / 4)
    assert not job.threads[1].is_alive()
    assert isinstance(job.errors[1], Cancelled)
    job.threads[0].start()  # too late
    job.join()
    assert isinstance(job.errors[0], ConnectionError)


@both_transports
def test_a_stop_heard_while_workers_connect_is_kept_until_the_sources_are_open(transport: str) -> None:
    top = ps.Topology("early")
    top.source("a", ps.io.generator(lambda task, n: [(1,)], "i bigint")).sink("out", ps.io.collect(), tasks=1)
    job = LocalJob(top.build(), 2, {"a/0": 1, "out/0": 0}, RunSettings(transport=transport))
    job.controls[1].say("stop")
    job.threads[1].start()
    assert job.controls[1].heard.wait(PATIENCE_SECONDS)  # and it obeys before it answers worker 0, which is not there
    job.threads[0].start()
    job.join()
    assert job.errors == [None, None]
    assert job.rows("out") == []  # the source was stopped before it gave its row


def test_blocked_sends_are_metered_on_both_transports() -> None:
    """Far more in one batch than a ring or the kernel's buffers hold, to a worker that is busy until it was sent."""
    batch = pa.record_batch({"x": pa.array([b"x" * 1_000_000] * 32, pa.binary())})

    def batches(sent: threading.Event) -> Iterator[pa.RecordBatch]:
        yield from [batch] * 3
        sent.set()
        yield batch

    for transport in ("socket", "ring"):
        top = ps.Topology("blocked")
        sent = threading.Event()
        source = ps.io.generator(lambda task, n, sent=sent: batches(sent), "x binary")
        sink = ps.io.callback(lambda got, sent=sent: sent.wait(PATIENCE_SECONDS))
        top.source("a", source).sink("out", sink, tasks=1)
        settings = RunSettings(transport=transport, window_bytes=1 << 28)
        job = LocalJob(top.build(), 2, {"a/0": 0, "out/0": 1}, settings).run()
        told = [row for control in job.controls for t in control.tables for row in t["links"].to_pylist()]
        assert sum(row["blocked_us"] for row in told if row["worker"] == 0) > 0, transport


def no_segment(*_: object, **__: object) -> RingSegment:
    msg = "no memory is left"
    raise NoSharedMemory(msg)


def test_without_shared_memory_the_job_runs_over_sockets_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[int] = []

    def one_segment_only(capacity: int, *, producers: int) -> RingSegment:
        """The first worker gets its inbox, the others find no memory."""
        made.append(1)
        return RingSegment(capacity, producers=producers) if len(made) == 1 else no_segment()

    monkeypatch.setattr(links, "RingSegment", one_segment_only)
    job = LocalJob(words(300).build(), 3).run()
    assert counted(job) == expected(300)
    rows = [row for control in job.controls for t in control.tables for row in t["links"].to_pylist()]
    assert {row["transport"] for row in rows} == {"socket"}
    assert "no memory is left; sockets are used instead" in caplog.text


def test_a_ring_that_was_asked_for_and_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "RingSegment", no_segment)
    with pytest.raises(InvalidInput, match=r"no memory is left; give transport 'auto'"):
        LocalJob(words(300).build(), 2, settings=RunSettings(transport="ring")).run()


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown transport 'carrier pigeon'; known: auto, socket, ring"):
        RunSettings(transport="carrier pigeon")


def test_latency_is_metered_at_a_sink_with_tasks_of_its_own_too() -> None:
    top = ps.Topology("own")
    top.source("a", ps.io.generator(lambda task, n: [(1,)], "i bigint")).sink("out", ps.io.discard(), tasks=2)
    job = LocalJob(top.build(), 2).run()
    latency = [row for control in job.controls for t in control.tables for row in t["latency"].to_pylist()]
    assert [(row["task"], row["batches"]) for row in latency] == [("out/0", 1)]


def test_latency_counts_from_when_a_row_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RateSource, "due_us", lambda source: 1_000_000)  # a second after midnight in 1970
    top = ps.Topology("behind")
    top.source("a", ps.io.rate(1000, rows=3)).sink("out", ps.io.discard(), tasks=1)
    job = LocalJob(top.build(), 2).run()
    latency = [row for control in job.controls for t in control.tables for row in t["latency"].to_pylist()]
    assert latency
    assert all(row["latency_us"] > 365 * 24 * 3600 * 1_000_000 for row in latency)


def test_a_long_chain_in_one_worker_passes_everything_on_and_counts_it() -> None:
    top = ps.Topology("chain")
    stream = top.source("numbers", ps.io.generator(lambda task, n: [(i,) for i in range(100)], "i bigint"))
    for i in range(60):  # longer than tasks may call each other directly
        stream = stream.union(name=f"pass{i}")
    stream.sink("out", ps.io.collect())
    job = LocalJob(top.build(), 1, settings=RunSettings(rows_max=10)).run()
    assert [row["i"] for row in job.rows("out")] == list(range(100))
    rows = [row for tables in job.controls[0].tables for row in tables["tasks"].to_pylist()]
    for task in ("pass0/0", "pass59/0"):
        assert sum(row["tuples_in"] for row in rows if row["task"] == task) == 100
        assert sum(row["tuples_out"] for row in rows if row["task"] == task) == 100
    edges = [row for tables in job.controls[0].tables for row in tables["edges"].to_pylist()]
    assert sum(row["tuples"] for row in edges if row["target"] == "pass30/0") == 100
    assert sum(row["bytes"] for row in edges if row["target"] == "pass30/0") == 800


def test_a_fault_in_the_middle_of_a_chain_is_its_own_and_not_its_callers() -> None:
    top = ps.Topology("chain")
    stream = top.source("numbers", ps.io.generator(lambda task, n: [(i,) for i in range(10)], "i bigint"))
    stream.union(name="before").map(lambda row: 1 // row.i, "i bigint", name="bad").sink("out", ps.io.collect())
    with pytest.raises(TaskFault) as caught:
        LocalJob(top.build(), 1).run()
    assert caught.value.task == "bad/0"


def test_a_clock_that_is_set_back_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # A source that pauses for a millisecond must not wait for an hour because the clock was set back by one.
    set_back_ns = 0
    real = time.time_ns

    def numbers(task: int, tasks: int) -> Iterator[tuple[int] | None]:
        nonlocal set_back_ns
        for i in range(20):
            yield (i,)
            yield None  # what there is goes out
            if i == 10:
                set_back_ns = 3_600_000_000_000
            yield None  # nothing yet: to be asked again a millisecond later

    monkeypatch.setattr(time, "time_ns", lambda: real() - set_back_ns)
    top = ps.Topology("clock")
    top.source("a", ps.io.generator(numbers, "i bigint")).sink("out", ps.io.collect())
    job = LocalJob(top.build(), 1, settings=RunSettings(linger_ms=1.0)).run()
    assert [row["i"] for row in job.rows("out")] == list(range(20))
