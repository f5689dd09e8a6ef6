"""From a run's metric log to a profile, and from the profile to the next plan."""

from __future__ import annotations

import itertools
import json
import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import ANY
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from footprint import Footprint
from plan_kit import made_by
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from penstock.deploy import Job, build_profile
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.metrics.metric_log import MetricLog, read_metric_table
from penstock.errors import InvalidInput
from penstock.flow import io
from penstock.jobs import Topology
from penstock.model.files import read_profile, write_profile
from penstock.model.profile import Profile
from penstock.run.engine.meters import TABLES

LINES = [f"w{i % 7} w{i % 3} end" for i in range(3000)]
one_session = pytest.mark.parametrize("spark", ["local[8]"], indirect=True)


def lines_of(task: int, tasks: int) -> list[tuple[str]]:
    return [(line,) for line in LINES[task::tasks]]


def words_topology() -> Topology:
    top = Topology("words")
    lines = top.source("lines", io.generator(lines_of, "line string", tasks=2))
    counts = lines.split("line", name="split", tasks=2).key_by("word").count(name="count", tasks=2)
    counts.sink("out", io.collect())
    return top


@dataclass
class Measured:
    """A run, its log, and the profile made of it."""

    folder: Path
    profile: Profile
    task_rows: list[dict[str, object]]
    edge_rows: list[dict[str, object]]


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("profile")
    log = folder / "log"
    words_topology().run(spark, scheduler="even", workers=2, metrics=str(log), interval_s=0.05)
    profile = build_profile(spark, log)
    write_profile(profile, folder / "profile.json")
    tasks, edges = (pq.read_table(log / table).to_pylist() for table in ("tasks", "edges"))
    return Measured(folder, profile, tasks, edges)


@one_session
def test_the_profile_knows_every_task_and_fits_the_graph(measured: Measured) -> None:
    graph = words_topology().build().graph()
    assert set(measured.profile.tasks) == {f"{o.name}/{i}" for o in graph.operators for i in range(o.tasks)}
    assert measured.profile.validated(graph) is measured.profile
    assert read_profile(measured.folder / "profile.json", graph) == measured.profile


@one_session
def test_loads_are_cpu_seconds_per_second(measured: Measured) -> None:
    """Of all the run, for each task: a worker may end before another."""
    cpu: Counter[object] = Counter()
    for row in measured.task_rows:
        cpu[row["task"]] += row["cpu_us"]  # type: ignore[assignment]
    loads = {task: found.load for task, found in measured.profile.tasks.items()}
    assert measured.profile.seconds is not None
    assert {task: load * measured.profile.seconds for task, load in loads.items()} == pytest.approx(
        {task: us / 1e6 for task, us in cpu.items()}
    )
    assert all(0 <= load <= 1.01 for load in loads.values()), loads  # a task runs in one thread
    assert loads["lines/0"] > 0
    worker_of = {row["task"]: row["worker"] for row in measured.task_rows}
    for worker in set(worker_of.values()):
        together = sum(load for task, load in loads.items() if worker_of[task] == worker)
        assert together <= 1.01, "a worker has one thread"


@one_session
def test_rates_say_what_went_over_every_edge(measured: Measured) -> None:
    begin = min(row["time_us"] - row["interval_us"] for row in measured.task_rows)  # type: ignore[operator, type-var]
    end = max(row["time_us"] for row in measured.task_rows)  # type: ignore[type-var]
    seconds = (end - begin) / 1e6  # type: ignore[operator]
    sent: Counter[tuple[str, str]] = Counter()
    for edge in measured.profile.edges:
        assert edge.tuples is not None
        sent[edge.source.partition("/")[0], edge.target.partition("/")[0]] += edge.tuples * seconds
        assert edge.rate >= edge.tuples, "a tuple has at least a byte"
    words = sum(len(line.split()) for line in LINES)
    assert sent == pytest.approx({("lines", "split"): len(LINES), ("split", "count"): words})


LIVES = {  # of some tasks, the rounds in which they reported
    "c/0": range(100),  # it has ended before any of the windows begins
    "d/0": range(399),  # it says so, less than two intervals before the end
    "e/0": range(390, 400),  # it begins within every window
}


@one_session
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("window", [None, 7.5, "1 minute"])
def test_both_builders_make_the_same_profile(
    spark: SparkSession, tmp_path: Path, window: float | str | None, busy: bool
) -> None:
    rng = random.Random(3)
    log = MetricLog("aa", tmp_path / "log", "words")
    for i in range(400):
        for worker in range(2):  # they report at different moments
            end_us = 90_000_000 + i * 250_000 + 110_000 * worker + rng.randrange(9)
            end = {"time_us": end_us, "interval_us": rng.randrange(1, 300_000)}
            rows = rng.choice((0, rng.randrange(1, 10_000)))
            counts = {name: rng.randrange(200_000) for name in TABLES["tasks"].names}
            text = {"node": "n", "idle": False, "ended": False, "worker": worker, "watermark_us": None}
            moved = {"tuples_in": rows * worker, "tuples_out": rows}
            task = counts | text | end | moved | {"task": f"{'ab'[worker]}/0"}
            log.take(worker, "tasks", pa.RecordBatch.from_pylist([task], TABLES["tasks"]))
            counts = {name: rng.randrange(200_000) for name in TABLES["edges"].names}
            pair = {"source": "a/0", "target": "b/0", "distance": "ring", "tuples": 0 if worker else rows}
            log.take(worker, "edges", pa.RecordBatch.from_pylist([counts | end | pair], TABLES["edges"]))
        for name, lives in LIVES.items():
            if i in lives:
                told = {"task": name, "ended": i == lives[-1] if name == "d/0" else None}
                log.take(2, "tasks", pa.RecordBatch.from_pylist([task | told], TABLES["tasks"]))
    log.close()
    sums = log.sums() if window is None else log.recent(window)
    here, there = sums.profile(busy=busy), build_profile(spark, tmp_path / "log", window=window, busy=busy)
    assert asdict(there) == {"costs": None} | {
        "tasks": {task: pytest.approx(asdict(found)) for task, found in here.tasks.items()},
        "edges": tuple(
            {name: value if isinstance(value, str) else pytest.approx(value) for name, value in asdict(edge).items()}
            for edge in here.edges
        ),
        "seconds": None if busy else pytest.approx(here.seconds),
        "rows": None if busy else pytest.approx(here.rows),
    }
    assert there.edges
    assert (len(here.tasks), here.tasks["a/0"].spread, here.edges[0].distance) == (5, ANY, "ring")
    assert (here.tasks["c/0"].load == 0.0) == (window is not None)


@one_session
def test_a_log_of_workers_that_did_not_tell_when_they_ended_is_read(spark: SparkSession, tmp_path: Path) -> None:
    log = MetricLog("aa", tmp_path, "words")
    zeros = dict.fromkeys(TABLES["tasks"].names, 0) | {"node": "n", "idle": False, "ended": None}
    for s in range(1, 11):
        span = {"time_us": s * 1_000_000, "interval_us": 1_000_000, "cpu_us": 500_000, "tuples_out": 10}
        rows = [zeros | span | {"task": name} for name in ("a/0", "b/0") if name == "a/0" or s == 1]
        log.take(0, "tasks", pa.RecordBatch.from_pylist(rows, TABLES["tasks"]))
    pair = dict.fromkeys(TABLES["edges"].names, 1) | {"source": "a/0", "target": "b/0", "distance": "ring"}
    log.take(0, "edges", pa.RecordBatch.from_pylist([pair], TABLES["edges"]))
    log.close()
    (file,) = (tmp_path / "tasks").iterdir()
    pq.write_table(pq.read_table(file).drop_columns(["ended"]), file)
    found = build_profile(spark, tmp_path)
    assert {task: measured.load for task, measured in found.tasks.items()} == pytest.approx({"a/0": 0.5, "b/0": 0.05})
    assert read_metric_table(tmp_path, "tasks")[0]["ended"] is None


@one_session
def test_an_empty_folder_is_no_metric_log(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no metric log"):
        build_profile(spark, tmp_path)


# -- the verbs -------------------------------------------------------------------------------------------------------


def penstock(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


@one_session
def test_figures_that_cannot_be_and_files_that_cannot_be_read_are_told_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = MetricLog("aa", tmp_path / "log", "words")
    row: dict[str, object] = dict.fromkeys(TABLES["tasks"].names, 1) | {
        "node": "n1",
        "task": "a/0",
        "cpu_us": -5,
        "idle": False,
        "ended": False,
    }
    log.take(0, "tasks", pa.RecordBatch.from_pylist([row], TABLES["tasks"]))
    edge: dict[str, object] = dict.fromkeys(TABLES["edges"].names, 1) | {
        "source": "a/0",
        "target": "b/0",
        "distance": "ring",
    }
    log.take(0, "edges", pa.RecordBatch.from_pylist([edge], TABLES["edges"]))
    log.close()
    with pytest.raises(InvalidInput, match=r"log is damaged: .*task 'a/0' has measured -5, and figures begin at 0"):
        build_profile(spark, tmp_path / "log")
    (file,) = (tmp_path / "log" / "edges").iterdir()
    pq.write_table(pa.table({"other": [1]}), file)
    with pytest.raises(InvalidInput, match="log is damaged") as caught:
        build_profile(spark, tmp_path / "log")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@one_session
def test_the_verb_writes_it_and_place_accepts_it(measured: Measured) -> None:
    done = penstock("profile", "log", "-o", "told.json", "--format", "json", folder=measured.folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((measured.folder / "told.json").read_text())
    graph = words_topology().build().graph()
    assert read_profile(measured.folder / "told.json", graph) == measured.profile
    document = {
        "penstock": 1,
        "name": graph.name,
        "operators": [{"name": operator.name, "tasks": operator.tasks} for operator in graph.operators],
        "streams": [{"from": s.source, "to": s.target, "grouping": s.grouping} for s in graph.streams],
    }
    (measured.folder / "words.json").write_text(json.dumps(document))
    placed = penstock(
        "place", "words.json", "2x1", "--profile", "told.json", "--format", "json", folder=measured.folder
    )
    assert placed.returncode == 0, placed.stderr
    assert set(json.loads(placed.stdout)["assignment"]) == set(measured.profile.tasks)


def test_the_verb_complains_in_one_line(tmp_path: Path) -> None:
    done = penstock("profile", "absent", folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "absent is no metric log" in done.stderr
    assert "Traceback" not in done.stderr


# -- while a job runs ------------------------------------------------------------------------------------------------


def endless(task: int, tasks: int) -> Iterator[tuple[str] | None]:
    for i in itertools.count(task):
        yield (f"w{i % 7} w{i % 3}",)
        if i % 100 == 0:
            yield None


def endless_topology() -> Topology:
    top = Topology("words")
    lines = top.source("lines", io.generator(endless, "line string", tasks=2, bounded=False))
    lines.split("line", name="split", tasks=2).key_by("word").count(name="count", tasks=2).sink("out", io.discard())
    return top


def measured_all(job: Job) -> bool:
    try:
        return bool(job.profile().edges)
    except InvalidInput:
        return False


def test_a_job_tells_its_profile_and_a_new_plan_beside_its_own(spark: SparkSession, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    options = {"scheduler": "even", "workers": 3, "interval_s": 0.1, "metrics": log, "prometheus_port": 0}
    with endless_topology().start(spark, **options) as job:  # type: ignore[arg-type]
        assert wait_until(lambda: measured_all(job), seconds=60)
        graph = endless_topology().build().graph()
        assert job.profile().validated(graph)
        replan = job.replan("t3")
        assert job.plan is not None
        assert made_by(replan.plan, "t3")
        assert replan.current.assignment == job.plan.assignment
        assert replan.plan.assignment.keys() == job.plan.assignment.keys()
        assert replan.gain == replan.current.cost - replan.plan.cost
        assert all(replan.plan.assignment[task] != job.plan.assignment[task] for task in replan.moves)
        assert made_by(job.replan().plan, "even"), "by default the scheduler that placed the job"
        two_nodes = "cluster" in spark.sparkContext.master
        assert (replan.current.cost > 0) == two_nodes, "cost is bytes per second between nodes"
        assert job.status == "running", "comparing moves nothing"
        assert "running: 3 workers, 6 tasks, " in repr(job)
        assert "job.stop() drains it" in job._repr_html_()
        _look_at_page(job)
        url = job.prometheus_url
        job.stop()
    assert url is not None
    with pytest.raises(URLError):
        urlopen(url, timeout=10)  # noqa: S310 - our own page
    # What the driver added up is what Spark SQL finds in the log.
    asked = build_profile(spark, log)
    assert {task: found.load for task, found in job.profile().tasks.items()} == pytest.approx(
        {task: found.load for task, found in asked.tasks.items()}
    )
    assert {(e.source, e.target): (e.rate, e.tuples) for e in job.profile().edges} == {
        (e.source, e.target): (pytest.approx(e.rate), pytest.approx(e.tuples)) for e in asked.edges
    }


def _look_at_page(job: Job) -> None:
    assert job.prometheus_url is not None
    assert job.prometheus_url.startswith("http://127.0.0.1:")
    with urlopen(job.prometheus_url, timeout=10) as answer:  # noqa: S310 - our own page
        families = {f.name: f for f in text_string_to_metric_families(answer.read().decode())}
    out = {s.labels["task"]: s for s in families["penstock_task_tuples_out"].samples if s.name.endswith("_total")}
    assert out.keys() == job.worker_of.keys()
    assert {task: int(sample.labels["worker"]) for task, sample in out.items()} == dict(job.worker_of)
    assert out["lines/0"].value > 0
    pairs = {(s.labels["source"], s.labels["target"]) for s in families["penstock_edge_tuples"].samples}
    assert pairs <= {
        (f"{a}/{i}", f"{b}/{j}") for a, b in (("lines", "split"), ("split", "count")) for i in (0, 1) for j in (0, 1)
    }
    assert pairs
    assert {s.labels["task"] for s in families["penstock_latency_seconds"].samples} <= {"count/0", "count/1"}


def test_a_job_that_has_measured_nothing_says_so(spark: SparkSession) -> None:
    with endless_topology().start(spark, scheduler="even", workers=2, interval_s=1000.0) as job:
        with pytest.raises(InvalidInput, match=r"job 'words' has measured nothing .*interval of 1000 s"):
            job.profile()
        with pytest.raises(InvalidInput, match="unknown scheduler 'worst'"):
            job.replan("worst")


def test_a_port_that_is_taken_ends_the_job_before_it_begins(spark: SparkSession, footprint: Footprint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"cannot be served at 127.0.0.1:{port}"):
            endless_topology().start(spark, scheduler="even", workers=2, prometheus_port=port)
    footprint.assert_gone()
