"""Jobs on real Spark, on one executor and on two."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from footprint import Footprint
from pyspark.sql import DataFrame, SparkSession

from penstock.deploy import Job
from penstock.deploy.driver.binding import NODES_NOTE
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.session.private_folder import PrivateFolder
from penstock.errors import InvalidInput, JobCancelled, JobFailed, NotEnoughSlots
from penstock.flow import io
from penstock.flow.windows import tumbling
from penstock.jobs import Topology
from penstock.model.plan import Plan, Slot

LINES = [f"the quick {'lazy ' * (i % 3)}fox {i % 7}" for i in range(500)]
EXPECTED = Counter(word for line in LINES for word in line.split())


def lines_of(index: int, tasks: int) -> Iterator[tuple[str]]:
    for line in LINES[index::tasks]:
        yield (line,)


def endless(index: int, tasks: int) -> Iterator[pa.RecordBatch | None]:
    for start in itertools.count(0, 10):
        yield pa.RecordBatch.from_pydict({"n": list(range(start, start + 10))})
        yield None


def words_topology(tasks: int = 2) -> Topology:
    top = Topology("words")
    lines = top.source("lines", io.generator(lines_of, "line string", tasks=tasks))
    lines.split("line", tasks=tasks).key_by("word").count(tasks=tasks).sink("out", io.collect())
    return top


def slots_of(spark: SparkSession) -> int:
    return 4 if "cluster" in spark.sparkContext.master else 8


def endless_topology() -> Topology:
    top = Topology("endless")
    numbers = top.source("numbers", io.generator(endless, "n bigint", tasks=2, bounded=False))
    numbers.filter(lambda row: row.n % 10 == 0, tasks=2).sink("out", io.collect())
    return top


def frame_topology(frame: DataFrame) -> Topology:
    top = Topology("frame")
    top.source("lines", io.dataframe(frame)).split("line").key_by("word").count(tasks=2).sink("out", io.collect())
    return top


def as_counter(frame: DataFrame) -> Counter[str]:
    return Counter({row["word"]: row["count"] for row in frame.collect()})


def rows_flow(job: Job) -> bool:
    return sum(counts["tuples_out"] for counts in job.totals().values()) > 0


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_word_count_equals_a_counter(spark: SparkSession, workers: int) -> None:
    assert as_counter(words_topology().run(spark, scheduler="even", workers=workers)) == EXPECTED


@pytest.mark.parametrize("transport", ["socket", "ring"])
def test_workers_of_one_machine_use_the_transport_that_was_asked_for(
    spark: SparkSession, footprint: Footprint, transport: str
) -> None:
    with words_topology().start(spark, scheduler="even", workers=3, transport=transport) as job:
        assert as_counter(job.result) == EXPECTED
        links = job.metrics("links").to_pylist()
    assert {row["transport"] for row in links} == {transport}
    assert {row["worker"] for row in links} == {0, 1, 2}
    footprint.assert_gone()


def test_by_default_transports_follow_nodes(spark: SparkSession, footprint: Footprint) -> None:
    """Rings join workers of one executor; workers of two speak through sockets, and the job says so."""
    with words_topology().start(spark, scheduler="even", workers=3) as job:
        assert as_counter(job.result) == EXPECTED
        node = [job.workers[worker].address for worker in range(3)]
        links = {(row["worker"], row["peer"]): row["transport"] for row in job.metrics("links").to_pylist()}
        assert links
        for (worker, peer), transport in links.items():
            assert transport == ("ring" if node[worker] == node[peer] else "socket")
        assert (NODES_NOTE in job.notes) == (len(set(node)) > 1) == ("socket" in links.values())
    footprint.assert_gone()


def test_an_unknown_transport_is_refused_before_anything_starts(spark: SparkSession) -> None:
    with pytest.raises(InvalidInput, match="unknown transport 'shm'; known: auto, socket, ring"):
        words_topology().start(spark, transport="shm")


def test_two_executors_are_two_nodes(spark: SparkSession) -> None:
    with words_topology().start(spark, scheduler="even", workers=3) as job:
        job.wait()
        assert job.plan is not None
        nodes = {slot.node for slot in job.plan.assignment.values()}
        assert nodes == ({"n1", "n2"} if "cluster" in spark.sparkContext.master else {"n1"})
        assert len(set(job.worker_of.values())) == 3


def test_a_frame_goes_in_and_out(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(line,) for line in LINES], "line string")
    out = frame_topology(frame).run(spark, scheduler="even", workers=2)
    assert as_counter(out) == EXPECTED
    out.show()
    assert len(out.take(3)) == 3
    lengths = spark.createDataFrame([("fox", 3)], "word string, length int")
    assert [(row["count"], row["length"]) for row in out.join(lengths, "word").collect()] == [(EXPECTED["fox"], 3)]


@pytest.mark.parametrize("optimised_away", [True, False])
def test_an_empty_frame_gives_an_empty_frame(spark: SparkSession, optimised_away: bool) -> None:
    frame = spark.createDataFrame([("a b",)], "line string")
    empty = frame.where("false") if optimised_away else frame.where("length(line) > 100")
    out = frame_topology(empty).run(spark, scheduler="even", workers=2)
    assert out.collect() == []
    assert [(field.name, field.dataType.simpleString()) for field in out.schema] == [
        ("word", "string"),
        ("count", "bigint"),
    ]


def test_several_frames_go_in(spark: SparkSession) -> None:
    top = Topology("three")
    lines = spark.createDataFrame([(line, i) for i, line in enumerate(LINES)], "line string, `a``b` int")
    numbers = spark.range(5000)
    none = spark.range(10).where("id > 10")
    top.source("lines", io.dataframe(lines)).split("line").key_by("word").count(tasks=2).sink("words", io.collect())
    ids = top.source("numbers", io.dataframe(numbers))
    ids.filter(lambda row: row.id % 2 == 0).sink("even", io.collect())
    ids.union(top.source("none", io.dataframe(none))).sink("all", io.collect())
    top.source("again", io.dataframe(numbers)).key_by("id").count().sink("twice", io.collect())
    out = top.run(spark, scheduler="even", workers=2)
    assert as_counter(out["words"]) == EXPECTED
    assert sorted(row.id for row in out["even"].collect()) == list(range(0, 5000, 2))
    assert sorted(row.id for row in out["all"].collect()) == list(range(5000))
    assert out["twice"].where("count = 1").count() == 5000


def test_several_frames_may_all_be_empty(spark: SparkSession) -> None:
    top = Topology("nothing")
    a = top.source("a", io.dataframe(spark.range(3).where("false")))
    a.union(top.source("b", io.dataframe(spark.range(3).where("id > 5")))).sink("out", io.collect())
    assert top.run(spark, scheduler="even", workers=2).collect() == []


def test_several_sinks_give_several_frames(spark: SparkSession, tmp_path: Path) -> None:
    top = Topology("several")
    lines = top.source("lines", io.generator(lines_of, "line string"))
    lines.sink("all", io.collect())
    lines.filter(lambda row: "lazy" in row.line).sink("lazy", io.parquet(str(tmp_path / "lazy")))
    out = top.run(spark, scheduler="even", workers=2)
    assert {name: frame.count() for name, frame in out.items()} == {
        "all": len(LINES),
        "lazy": sum("lazy" in line for line in LINES),
    }


@pytest.mark.parametrize("spark", ["local[4]"], indirect=True)
def test_the_workers_of_a_job_that_has_just_started_count_as_busy(spark: SparkSession, footprint: Footprint) -> None:
    def endless(name: str) -> Topology:
        top = Topology(name)
        top.source("ticks", io.rate(100)).sink("out", io.discard(), tasks=2)
        return top

    with endless("first").start(spark, workers=2) as first:
        with pytest.raises(NotEnoughSlots, match="busy with job 'first'"):
            endless("second").start(spark, workers=2)
        first.cancel()
    endless("third").start(spark, workers=2).cancel()  # its slots are free again
    footprint.assert_gone()


def test_too_few_slots_is_said_at_once(spark: SparkSession) -> None:
    slots = slots_of(spark)
    with pytest.raises(NotEnoughSlots) as caught:
        words_topology(3).run(spark, scheduler="even", workers=slots)
    needs = f"needs {slots} workers but master {spark.sparkContext.master!r} offers {slots} slots"
    assert str(caught.value) == (
        f"topology 'words' {needs} and one stays free for other queries; "
        f"take a master with {slots + 1} slots or more, ask for at most {slots - 1} workers, "
        "or let it take the last slot: take_last_slot=True in Python, --take-last-slot of the command"
    )


def test_the_last_slot_is_taken_when_asked_for(spark: SparkSession) -> None:
    options = {"scheduler": "even", "workers": slots_of(spark), "take_last_slot": True}
    with words_topology(3).start(spark, **options) as job:  # type: ignore[arg-type]
        assert as_counter(job.result) == EXPECTED
        assert "takes the last free slot" in job.notes[0]


def test_another_query_runs_while_a_job_runs_and_stop_drains(spark: SparkSession, footprint: Footprint) -> None:
    with endless_topology().start(spark, scheduler="even", workers=3, interval_s=0.1) as job:
        assert job.status == "running"
        assert spark.range(1000).selectExpr("sum(id) as s").first()["s"] == 499500
        assert wait_until(lambda: rows_flow(job), seconds=60)
        out = job.stop()
        assert job.status == "finished"
    rows = sorted(row["n"] for row in out.collect())
    assert rows, "nothing came out"
    counts = Counter(rows)  # each of the two sources counts from 0 without a gap: all that was read has flowed out
    assert all(n % 10 == 0 for n in counts)
    assert list(counts) == list(range(0, 10 * len(counts), 10))
    footprint.assert_gone()


def test_cancel_leaves_nothing(spark: SparkSession, footprint: Footprint) -> None:
    job = endless_topology().start(spark, scheduler="even", workers=3, interval_s=0.1)
    assert wait_until(lambda: rows_flow(job), seconds=60)
    job.cancel()
    assert job.status == "cancelled"
    with pytest.raises(JobCancelled):
        _ = job.result
    footprint.assert_gone()


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_a_user_exception_is_one_error_that_names_everything(
    spark: SparkSession, footprint: Footprint, kind: type[BaseException]
) -> None:
    def break_on_seven(row: object) -> tuple[int]:
        if row.n == 70:  # type: ignore[attr-defined]
            msg = "seventy is too much"
            raise kind(msg)
        return (row.n,)  # type: ignore[attr-defined]

    top = Topology("breaks")
    numbers = top.source("numbers", io.generator(endless, "n bigint", bounded=False))
    numbers.map(break_on_seven, "m bigint", name="mapped", tasks=2).sink("out", io.collect())
    with (
        pytest.raises(JobFailed, match="seventy is too much") as caught,
        top.start(spark, scheduler="even", workers=3) as job,
    ):
        job.wait(60)
    error = caught.value
    assert error.operator == "mapped"
    assert error.task in {"mapped/0", "mapped/1"}
    assert error.worker in {0, 1, 2}
    assert error.node in {"n1", "n2"}
    assert "break_on_seven" in error.user_traceback
    assert (
        f"{kind.__name__}: seventy is too much (test_jobs.py:{break_on_seven.__code__.co_firstlineno + 3} in "
        in str(error)
    )
    assert error.__notes__ == [error.user_traceback.rstrip()], "Python and notebooks print it below the message"
    assert (error.__cause__, error.__context__) == (None, None), "nothing of Spark's is printed with it"
    assert "n=70" in str(error) or "'n': 70" in str(error) or "n: 70" in str(error)
    footprint.assert_gone()


@pytest.mark.parametrize("transport", ["socket", "ring"])
def test_a_killed_worker_is_named(spark: SparkSession, footprint: Footprint, transport: str) -> None:
    options = {"scheduler": "even", "workers": 3, "interval_s": 0.1, "transport": transport}
    with endless_topology().start(spark, **options) as job:  # type: ignore[arg-type] # each is what it names
        assert wait_until(lambda: rows_flow(job), seconds=60)
        victim = job.workers[1]
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(JobFailed, match=rf"worker 1 \(pid {victim.pid}, node 'n[12]'\) died"):
            job.wait(60)
    assert job.status == "failed"
    footprint.assert_gone()
    assert as_counter(words_topology().run(spark, scheduler="even", workers=3)) == EXPECTED


def test_the_metric_log_says_where_every_task_ran(spark: SparkSession, tmp_path: Path) -> None:
    with words_topology().start(spark, scheduler="even", workers=3, metrics=str(tmp_path)) as job:
        job.wait()
        worker_of = dict(job.worker_of)
    tasks = pq.read_table(tmp_path / "tasks").to_pylist()
    assert {row["task"]: row["worker"] for row in tasks} == worker_of
    assert sum(row["tuples_out"] for row in tasks if row["task"].startswith("lines")) == len(LINES)
    edges = pq.read_table(tmp_path / "edges").to_pylist()
    assert sum(row["tuples"] for row in edges if row["source"].startswith("split")) > 0


def test_a_metric_log_that_cannot_be_written_costs_no_result_and_is_told(spark: SparkSession, tmp_path: Path) -> None:
    options = {"scheduler": "even", "workers": 2, "interval_s": 0.1}
    with endless_topology().start(spark, metrics=str(tmp_path), **options) as job:
        for table in tmp_path.iterdir():
            table.rmdir()  # nothing is written before the first flush, ten seconds away
        assert wait_until(lambda: rows_flow(job), seconds=60)
        assert job.stop().count() > 0
    assert job.status == "finished"
    assert [note for note in job.notes if note.startswith("metric log stopped: ")]


class FullFolder(PrivateFolder):
    """A folder in which every write finds no space, whether workers write there or the driver does."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        (self.path / "sink-0").mkdir()
        for name in ("0.arrow", *(f"sink-0/part-{worker:05d}.parquet" for worker in range(2))):
            (self.path / name).symlink_to("/dev/full")


@pytest.mark.parametrize("over_the_line", [False, True])
def test_a_full_disk_fails_the_job_in_one_line_and_leaves_nothing(
    spark: SparkSession, footprint: Footprint, monkeypatch: pytest.MonkeyPatch, over_the_line: bool
) -> None:
    monkeypatch.setattr("penstock.deploy.results.dataframes.PrivateFolder", FullFolder)
    if over_the_line:
        monkeypatch.setattr("penstock.deploy.results.dataframes.fits_parquet", lambda schema: False)
    job = words_topology().start(spark, scheduler="even", workers=2)
    with pytest.raises(JobFailed, match=r"its results could not be kept: .*No space left on device.*; free room in"):
        job.wait(60)
    assert job.status == "failed"
    job.cancel()
    footprint.assert_gone()


def test_a_plan_is_followed_and_spare_workers_go_home(spark: SparkSession) -> None:
    tasks = [f"{operator.name}/{i}" for operator in words_topology().build().operators for i in range(operator.tasks)]
    assignment = {task: Slot("elsewhere", i % 2) for i, task in enumerate(tasks)}
    plan = Plan("by hand", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, assignment)
    with words_topology().start(spark, plan=plan) as job:
        assert as_counter(job.result) == EXPECTED
        # Where all slots are alike no spare worker is needed to fit the plan's shape.
        assert len(job.workers) == (3 if "cluster" in spark.sparkContext.master else 2)
        assert len(set(job.worker_of.values())) == 2
        together = {task: job.worker_of[task] for task in tasks}
        assert all((together[a] == together[b]) == (assignment[a] == assignment[b]) for a in tasks for b in tasks)


def test_a_job_on_a_frame_stops_before_its_input_ends(spark: SparkSession) -> None:
    top = Topology("frame")
    top.source("rows", io.dataframe(spark.range(200_000))).sink("out", io.collect())
    with top.start(spark, scheduler="even", workers=2, interval_s=0.1) as job:
        rows = job.stop().count()
    assert rows <= 200_000
    assert job.status == "finished"


def test_a_job_that_never_ends_is_not_run(spark: SparkSession) -> None:
    with pytest.raises(InvalidInput, match="source 'numbers' does not; use start"):
        endless_topology().run(spark)


def test_sources_on_two_workers_keep_pace_through_the_driver(spark: SparkSession) -> None:
    """Both sides of a join have more rows than one may be ahead; they arrive whole, so nobody is held for ever."""
    rows, wide = 400_000, pa.array(["x" * 500] * 4096)  # above pace.BYTES_AHEAD_MAX

    def numbers(task: int, tasks: int) -> Iterator[pa.RecordBatch]:
        for at in range(0, rows, 4096):
            n = pa.array(range(at, min(at + 4096, rows)), pa.int64())
            columns = [n.cast(pa.timestamp("us", tz="UTC")), n, wide.slice(0, len(n))]
            yield pa.RecordBatch.from_arrays(columns, ["at", "n", "wide"])

    top = Topology("pace")
    made = io.generator(numbers, "at timestamp, n bigint, wide string")
    a, b = (top.source(name, made).event_time("at").select("at", "n") for name in "ab")
    counts = a.union(b).key_by("n").count(window=tumbling("1 second"))
    counts.filter(lambda row: row["count"] != 2).sink("odd", io.collect())
    tasks = ["a/0", "b/0", "select1/0", "select2/0", "union1/0", "count1/0", "filter1/0"]
    workers = {"b/0": 1, "select2/0": 1}
    assignment = {task: Slot("n1", workers.get(task, 0)) for task in tasks}
    plan = Plan("by hand", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, assignment)
    with top.start(spark, plan=plan) as job:
        assert job.result.count() == 0
        assert len(set(job.worker_of.values())) == 2


@pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
def test_stopping_says_which_worker_does_not_return(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate, entered = str(tmp_path / "gate"), tmp_path / "entered"
    os.mkfifo(gate)

    def waits(row: object) -> bool:
        entered.touch()
        with open(gate) as pipe:  # until somebody opens its other end
            return bool(pipe.read())

    top = Topology("hangs")
    top.source("numbers", io.generator(lambda task, tasks: [(1,)], "n bigint")).filter(waits, name="wait").sink(
        "out", io.collect()
    )
    monkeypatch.setattr("penstock.deploy.driver.job.STOP_QUIET_SECONDS", 0.0)
    with top.start(spark, scheduler="even", workers=1, interval_s=0.05) as job:
        silent = job._log.silent_s
        assert wait_until(lambda: entered.exists() and silent(0, job._working_since) > 0.2, seconds=60)
        stopping = threading.Thread(target=job.stop)
        stopping.start()
        assert wait_until(lambda: bool(caplog.records), seconds=60)
        Path(gate).write_text("on")
        stopping.join(60)
        assert job.result.count() == 1
    (record,) = caplog.records
    assert f"worker 0 (pid {job.workers[0].pid}, node 'n1'), which runs numbers/0, wait/0, has" in record.getMessage()
