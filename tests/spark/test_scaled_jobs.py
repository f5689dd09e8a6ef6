"""Jobs whose operators get more or fewer tasks while they run: what they answer, who stays, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import (
    KEYS,
    PATIENCE_S,
    ROWS,
    answer,
    await_epoch,
    await_recoveries,
    counts,
    kill,
    numbers,
    rows_of,
)

import penstock as ps
from penstock.checkpoint.inspection import content_of, find, opened
from penstock.deploy import Job
from penstock.deploy.attempt.attempt import Attempt
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.line.messages import Hello
from penstock.errors import InvalidInput, JobFailed, NotEnoughSlots
from penstock.flow import io
from penstock.model.task_id import operator_of
from penstock.run.operators.state.process import Emit, KeyState, Timers


@pytest.fixture(autouse=True)
def cancelled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that fails leaves no job behind for the next."""
    started: list[Job] = []
    begin = Job.begin

    def begun(job: Job) -> None:
        started.append(job)
        begin(job)

    monkeypatch.setattr(Job, "begin", begun)
    yield
    for job in started:
        job.cancel()


def tasks_of(job: Job, operator: str) -> int:
    return Counter(map(operator_of, job.worker_of))[operator]


@pytest.mark.parametrize("sink", ["collect", "parquet"])
def test_a_keyed_count_has_more_and_fewer_tasks_and_nothing_is_lost_or_comes_twice(
    spark: SparkSession, footprint: Footprint, tmp_path: Path, sink: str
) -> None:
    gate = tmp_path / "gate"
    top = counts(numbers(gate), io.collect() if sink == "collect" else io.parquet(tmp_path / "out"))
    job = top.start(spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    processes = [hello.pid for hello in job.workers]
    await_epoch(job, 2)
    for tasks in (4, 3, 1, 5):
        before = dict(job.worker_of)
        crossing = job.scale("count", tasks)
        assert crossing is not None
        assert tasks_of(job, "count") == tasks
        assert crossing.scaled == {"count": (Counter(map(operator_of, before))["count"], tasks)}
        stayed = before.keys() & job.worker_of.keys()
        assert {task: job.worker_of[task] for task in stayed} == {task: before[task] for task in stayed}
        assert crossing.moved == ()
        await_epoch(job, job.epoch + 2)
    assert [hello.pid for hello in job.workers] == processes
    assert "'count' has 5 tasks instead of 1, 0 tasks moved" in crossing.note
    gate.touch()
    assert rows_of(job) == answer()
    assert job.recoveries == 0
    footprint.assert_gone()


def test_workers_join_and_leave_and_their_slots_are_free_again(
    spark: SparkSession, footprint: Footprint, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = counts(numbers(gate), tasks=4).start(
        spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05
    )
    first = [hello.pid for hello in job.workers]
    await_epoch(job, 2)
    joined = job.add_workers()
    assert joined.workers == (2, 3)
    assert joined.has_kept_processes
    assert [hello.pid for hello in job.workers][:2] == first
    assert {*job.worker_of.values()} == {0, 1, 2}
    await_epoch(job, job.epoch + 2)
    job.scale("count", 5)
    left = job.remove_workers(2)
    assert left.workers == (3, 1)
    assert left.has_kept_processes
    assert len(job.workers) == 1
    slots = 8 if spark.sparkContext.master == "local[8]" else 4
    meeting = tmp_path / "meeting"
    assert spark.sparkContext.parallelize(range(slots - 1), slots - 1).map(Meets(meeting, slots - 1)).count()
    await_epoch(job, job.epoch + 2)
    job.add_workers(2)
    await_epoch(job, job.epoch + 1)
    gate.touch()
    assert rows_of(job) == answer()
    assert job.recoveries == 0
    footprint.assert_gone()


class Meets:
    """Waits until so many tasks of Spark's are there at once, which takes as many slots."""

    def __init__(self, folder: Path, tasks: int) -> None:
        self.folder, self.tasks = folder, tasks

    def __call__(self, task: int) -> bool:
        self.folder.mkdir(exist_ok=True)
        (self.folder / str(task)).touch()
        return wait_until(lambda: len(list(self.folder.iterdir())) == self.tasks, PATIENCE_S)


SCHEMA = "n bigint, k bigint, ts timestamp, padding string"
PADDING = "x" * 4000  # a window of credit takes few rows, so that sources are on their way, and markers soon through
SLOW_S = 0.005  # a row, until the test lets go
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
STEP_US, EACH_US, PAIRS_US = 250, 500_000, 10_000  # of event time: between rows, and the windows


@dataclass
class Slowly:
    """Passes batches on slowly, until a file is there."""

    gate: Path

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.gate.exists():
            time.sleep(SLOW_S * batch.num_rows)
        return batch


class Halves(ps.Stateful):
    """Counts the rows of each half second by hand, with a timer at its end."""

    schema = "k bigint, end timestamp, rows bigint"

    def on_row(self, key: object, row: ps.Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        passed = (row.ts - BEGAN) // timedelta(microseconds=EACH_US)
        state[str(passed)] = state.get(str(passed), 0) + 1
        timers.at(BEGAN + timedelta(microseconds=(passed + 1) * EACH_US))

    def on_timer(self, key: object, at: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        half = (at - BEGAN) // timedelta(microseconds=EACH_US) - 1
        emit((key, at, state.pop(str(half))))


def files(folder: Path) -> io.Source:
    """Five files, each with every fifth row."""
    folder.mkdir()
    for part in range(5):
        found = range(part, ROWS, 5)
        times = pa.array([int(BEGAN.timestamp() * 1e6) + n * STEP_US for n in found]).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"n": pa.array(found), "k": pa.array([n % KEYS for n in found]), "ts": times})
        table = table.append_column("padding", pa.array([PADDING] * len(found)))
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=500)
    return io.files(folder)


def everything(source: io.Source, gate: Path) -> ps.Topology:
    """One of each kind of operator with state, behind one without and a source whose files can be shared out."""
    top = ps.Topology("everything")
    timed = top.source("numbers", source, tasks=2).event_time("ts")
    keyed = timed.map_batches(Slowly(gate), SCHEMA, name="slowly", tasks=2).key_by("k")
    keyed.aggregate(rows="count(*)", total="sum(n)", name="all", tasks=2).sink("of all", io.collect())
    each, pairs = (ps.tumbling(timedelta(microseconds=us)) for us in (EACH_US, PAIRS_US))
    keyed.aggregate(window=each, rows="count(*)", name="each", tasks=2).sink("of each", io.collect())
    keyed.process(Halves, name="halves", tasks=2).sink("of halves", io.collect())
    keyed.reduce(Larger(), name="largest", tasks=2).sink("of largest", io.collect())
    keyed.top_per_key(3, by="n", name="best", tasks=2).sink("of best", io.collect())
    even = timed.where("n % 2 = 0", name="even").rename({"n": "m", "ts": "at", "padding": "more"}, name="renamed")
    joined = keyed.join(even.key_by("k"), window=pairs, name="pairs", tasks=2)
    joined.key_by("k").aggregate(rows="count(*)", name="paired", tasks=2).sink("of paired", io.collect())
    return top


@dataclass
class Larger:
    """The row with the larger number."""

    def __call__(self, one: ps.Row, other: ps.Row) -> ps.Row:
        return one if one.n >= other.n else other


def everything_answered(job: Job) -> None:
    """Compared with what is reckoned by hand."""
    results = {name: frame.collect() for name, frame in job.results.items()}
    ours = [(n, n % KEYS) for n in range(ROWS)]
    each = Counter((n * STEP_US // EACH_US, k) for n, k in ours)
    windows = Counter((n * STEP_US // PAIRS_US, k) for n, k in ours)
    even = Counter((n * STEP_US // PAIRS_US, k) for n, k in ours if n % 2 == 0)
    pairs = Counter[int]()
    for (window, k), rows in windows.items():
        pairs[k] += rows * even[window, k]
    of_key = {k: [n for n, key in ours if key == k] for k in range(KEYS)}
    assert sorted((row.k, row.rows, row.total) for row in results["of all"]) == answer()
    assert Counter({(ended(row.window_end), row.k): row.rows for row in results["of each"]}) == each
    assert Counter({(ended(row.end), row.k): row.rows for row in results["of halves"]}) == each
    assert len(results["of each"]) == len(results["of halves"]) == len(each)
    assert {row.k: row.n for row in results["of largest"]} == {k: max(found) for k, found in of_key.items()}
    best = [(k, n) for k, found in of_key.items() for n in sorted(found)[-3:]]
    assert sorted((row.k, row.n) for row in results["of best"]) == best
    assert {row.k: row.rows for row in results["of paired"]} == dict(pairs)
    assert dict(job.late_rows) == {}


def ended(at: datetime) -> int:
    """Which half second ends then, whatever zone Spark tells times in."""
    return (at.astimezone(UTC) - BEGAN) // timedelta(microseconds=EACH_US) - 1


def is_read_on(kept: Path) -> bool:
    """Whether the source has something left to read."""
    store = opened(str(kept))
    (source,) = (each for each in content_of(store, find(store, None)).operators if each.name == "numbers")
    return any(words != "at its end" for words in source.positions.values())


STEPS = (
    (("each", 3), ("all", 1), ("slowly", 3), ("pairs", 4), ("halves", 1), ("numbers", 3)),
    (("best", 4), ("largest", 1), ("pairs", 1), ("halves", 5), ("numbers", 1), ("each", 1)),
)


@pytest.mark.parametrize("steps", STEPS, ids=["one way", "another way"])
def test_every_kind_of_state_is_shared_out_anew(
    spark: SparkSession, tmp_path: Path, steps: Sequence[tuple[str, int]]
) -> None:
    gate = tmp_path / "gate"
    job = everything(files(tmp_path / "in"), gate).start(
        spark, workers=2, rows_max=16, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.1
    )
    await_epoch(job, 2)
    for operator, tasks in steps:
        job.scale(operator, tasks)
        assert tasks_of(job, operator) == tasks
        await_epoch(job, job.epoch + 1)
        assert is_read_on(tmp_path / "kept")
    gate.touch()
    everything_answered(job)
    assert job.recoveries == 0


def test_a_recovery_keeps_the_counts_and_a_restart_has_the_programs(spark: SparkSession, tmp_path: Path) -> None:
    gate, kept = tmp_path / "gate", tmp_path / "kept"
    source = files(tmp_path / "in")
    job = everything(source, gate).start(spark, workers=2, rows_max=16, checkpoint=kept, checkpoint_interval_s=0.1)
    await_epoch(job, 2)
    job.scale("each", 4)
    job.scale("numbers", 3)
    job.add_workers()
    placed = dict(job.worker_of)
    await_epoch(job, job.epoch + 1)
    kill(job, 2)
    await_recoveries(job, 1)
    assert len(job.workers) == 3
    assert job.worker_of.keys() == placed.keys()
    await_epoch(job, job.epoch + 1)
    job.cancel()
    gate.touch()
    again = everything(source, gate).start(spark, workers=2, rows_max=16, checkpoint=kept, checkpoint_interval_s=0.1)
    assert (tasks_of(again, "each"), tasks_of(again, "numbers"), len(again.workers)) == (2, 2, 2)
    everything_answered(again)


def test_a_job_keeps_its_tasks_and_workers_where_one_dies_while_they_change(
    spark: SparkSession, footprint: Footprint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, take_over = tmp_path / "gate", Attempt.take_over

    def killing(attempt: Attempt, before: Attempt) -> bool:
        os.kill(before.hellos[0].pid, signal.SIGKILL)
        return take_over(attempt, before)

    job = counts(numbers(gate)).start(
        spark, workers=2, scheduler="even", checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05
    )
    await_epoch(job, 2)
    for recoveries, change in enumerate((lambda: job.scale("count", 3), job.add_workers, job.remove_workers), 1):
        before = job.worker_of.keys()
        with monkeypatch.context() as dying:
            dying.setattr(Attempt, "take_over", killing)
            with pytest.raises(JobFailed, match=r"did not go over to another plan: .* died without a word"):
                change()
        await_recoveries(job, recoveries)
        assert job.worker_of.keys() == before
        assert len(job.workers) == 2
        await_epoch(job, job.epoch + 1)
    job.scale("count", 3)
    gate.touch()
    assert rows_of(job) == answer()
    footprint.assert_gone()


def test_a_worker_that_dies_before_it_has_joined_refuses_the_wish_and_nothing_else(
    spark: SparkSession, footprint: Footprint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, newcomers = tmp_path / "gate", Attempt.newcomers

    def dying(attempt: Attempt, is_off: Callable[[], bool]) -> list[Hello]:
        hellos = newcomers(attempt, is_off)
        os.kill(hellos[0].pid, signal.SIGKILL)
        assert wait_until(lambda: attempt.roll.ending, PATIENCE_S)
        return hellos

    job = counts(numbers(gate)).start(spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 1)
    with monkeypatch.context() as deadly:
        deadly.setattr(Attempt, "newcomers", dying)
        with pytest.raises(JobFailed, match="stays as it is, and could not go over: a worker that was to join it has"):
            job.add_workers()
    assert (job.attempt, job.recoveries, len(job.workers)) == (1, 0, 2)
    job.add_workers()
    gate.touch()
    assert rows_of(job) == answer()
    footprint.assert_gone()


def test_what_cannot_be_is_refused_before_anything_stands_still(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = counts(numbers(gate)).start(spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    slots = 8 if spark.sparkContext.master == "local[8]" else 4
    with pytest.raises(InvalidInput, match="source 'numbers' cannot have 2 tasks instead of 1: which rows a task of a"):
        job.scale("numbers", 2)
    with pytest.raises(InvalidInput, match="unknown operator or parallel region 'counts'"):
        job.scale("counts", 2)
    with pytest.raises(InvalidInput, match="has 2 workers and 3 tasks, so 2 more would have nothing to do"):
        job.add_workers(2)
    job.scale("count", 20)
    with pytest.raises(NotEnoughSlots, match=f"cannot have 7 more workers: .* has {slots} slots, {slots - 2} of them"):
        job.add_workers(7)
    with pytest.raises(InvalidInput, match="workers to remove are 2; job 'counts' has 2, and one at least stays"):
        job.remove_workers(2)
    assert job.attempt == 2
    gate.touch()
    assert rows_of(job) == answer()
    with pytest.raises(InvalidInput, match="operator 'count' can be scaled only while the job runs"):
        job.scale("count", 3)
    plain = counts(numbers(tmp_path / "never"), name="plain").start(spark, workers=2)
    with pytest.raises(InvalidInput, match="has no checkpoints, so its tasks stay as many"):
        plain.scale("count", 3)
    plain.cancel()


def test_a_node_is_drained(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    top = counts(numbers(gate), tasks=4)
    job = top.start(spark, workers=3, scheduler="even", checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 1)
    nodes = Counter(place.node for place in job.places)
    if len(nodes) == 1:
        with pytest.raises(InvalidInput, match="all workers of job 'counts' are on node 'n1', so it cannot be drained"):
            job.drain("n1")
    else:
        leaving = min(nodes)
        addresses = {hello.address for hello, at in zip(job.workers, job.places, strict=True) if at.node == leaving}
        crossing = job.drain(leaving)
        assert crossing.workers == (3, 3 - nodes[leaving])
        assert addresses.isdisjoint(hello.address for hello in job.workers)
    with pytest.raises(InvalidInput, match="unknown node of job 'counts' 'n7'"):
        job.drain("n7")
    gate.touch()
    assert rows_of(job) == answer()


LEAVES = """
import sys
from pathlib import Path
from recovery_kit import PATIENCE_S, answer, await_epoch, counts, numbers, rows_of
from penstock.deploy import local_session
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.scaling.leaving import executors_of_tasks

folder = Path(sys.argv[1])
spark = local_session("local-cluster[3,2,1024]", java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
job = counts(numbers(folder / "gate"), tasks=5).start(
    spark, workers=3, scheduler="even", checkpoint=folder / "kept", checkpoint_interval_s=0.1
)
await_epoch(job, 2)
leaves = job.workers[1]
executor = executors_of_tasks(spark, job._attempts.now.action.groups)[leaves.attempt]
java = spark.sparkContext._jvm
none = java.java.lang.Class.forName("scala.None$").getField("MODULE$").get(None)
told = java.org.apache.spark.scheduler.ExecutorDecommissionInfo("leaves", none)
assert spark.sparkContext._jsc.sc().schedulerBackend().decommissionExecutor(executor, told, False, False)
assert wait_until(lambda: leaves.address not in {hello.address for hello in job.workers}, PATIENCE_S), job.notes
assert wait_until(lambda: len(job.workers) == 3, PATIENCE_S), job.notes
assert job.recoveries == 0, job.notes
await_epoch(job, job.epoch + 1)
(folder / "gate").touch()
assert rows_of(job) == answer()
print("the job has left")
spark.stop()
"""


def test_workers_leave_an_executor_that_spark_is_to_lose(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert "the job has left" in done.stdout, done.stderr[-4000:]


def test_a_dataframe_is_read_on_by_more_and_by_fewer_workers(spark: SparkSession, tmp_path: Path) -> None:
    gate, schema = tmp_path / "gate", "n bigint, k bigint, padding string"
    frame = spark.range(ROWS).selectExpr("id as n", f"id % {KEYS} as k", f"repeat('x', {len(PADDING)}) as padding")
    top = ps.Topology("frame")
    slow = top.source("numbers", io.dataframe(frame.repartition(4)))
    keyed = slow.map_batches(Slowly(gate), schema, name="slowly", tasks=2).key_by("k")
    keyed.aggregate(rows="count(*)", total="sum(n)", name="count", tasks=2).sink("out", io.collect())
    job = top.start(spark, workers=2, rows_max=16, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.1)
    await_epoch(job, 2)
    with pytest.raises(InvalidInput, match="source 'numbers' cannot have 4 tasks instead of 2: it reads a DataFrame"):
        job.scale("numbers", 4)
    job.add_workers()
    assert tasks_of(job, "numbers") == 3
    await_epoch(job, job.epoch + 1)
    job.remove_workers(2)
    assert tasks_of(job, "numbers") == 1
    await_epoch(job, job.epoch + 1)
    assert is_read_on(tmp_path / "kept")
    gate.touch()
    assert rows_of(job) == answer()
