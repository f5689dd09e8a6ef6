"""`penstock run` as its users meet it: the main job as a program of its own, and complaints of one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.apps import routes
from penstock.apps.trips import Trips
from penstock_lab.same_rows import row_differences

SECONDS_MAX = 240  # of a program that hangs
USER_FILE = """
import penstock as ps

NUMBER = 3
ENDLESS = ps.Topology("endless")
ENDLESS.source("ticks", ps.io.rate(10)).sink("out", ps.io.collect())
BOUNDED = ps.Topology("bounded")
BOUNDED.source("ticks", ps.io.rate(1000, rows=10)).sink("out", ps.io.collect())

def sides():
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()  # the one that --master names
    frame = spark.range(10).selectExpr("id as value", f"'{spark.sparkContext.master}' as master")
    top = ps.Topology("sides")
    ticks = top.source("ticks", ps.io.dataframe(frame))
    even = ticks.map(lambda row: (10 // (row.value % 2), row.master), "tens bigint, on string", on_error="quarantine")
    even.sink("good", ps.io.collect())
    even.errors.sink("bad", ps.io.collect())
    return top

def no_sink():
    top = ps.Topology("half")
    top.source("ticks", ps.io.rate(10))
    return top
"""


def penstock(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The program, in a process of its own: a session of Spark belongs to one process."""
    command = [sys.executable, "-m", "penstock", *words]
    # Short-lived JVMs: the optimising compiler would cost more than it brings.
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


# -- the main job ----------------------------------------------------------------------------------------------------


@dataclass
class MainJob:
    """What `penstock run routes` printed and wrote."""

    folder: Path
    document: dict[str, object]

    @property
    def ran(self) -> dict[str, tuple[str, int]]:
        return {task: (place["node"], place["worker"]) for task, place in self.document["ran"].items()}  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def main_job(tmp_path_factory: pytest.TempPathFactory) -> MainJob:
    folder = tmp_path_factory.mktemp("main")
    master = "local-cluster[3,3,1024]"
    words = ("run", "routes", "--master", master, "--scheduler", "t3", "--metrics", "log", "--output", "answer")
    done = penstock(*words, "--format", "json", folder=folder)
    assert done.returncode == 0, done.stderr
    return MainJob(folder, json.loads(done.stdout))


group = pytest.mark.xdist_group("local[8]")  # the process that has the session for SQL's answer


@group
def test_the_main_job_uses_three_nodes_and_at_most_eight_workers(main_job: MainJob) -> None:
    tasks = Counter(task.rpartition("/")[0] for task in main_job.ran)
    assert tasks == routes.TASKS
    assert tasks.total() == 45
    assert len({node for node, _ in main_job.ran.values()}) == 3
    assert len({worker for _, worker in main_job.ran.values()}) <= 8
    assert main_job.document["tuples_read"] == Trips().count


@group
def test_every_task_ran_where_the_plan_put_it(main_job: MainJob) -> None:
    """The log is written from what the workers counted, the plan before they began."""
    logged = pq.read_table(main_job.folder / "log" / "tasks").to_pylist()
    places = {(row["task"], row["node"], row["worker"]) for row in logged}
    assert places == {(task, *place) for task, place in main_job.ran.items()}
    plan = main_job.document["plan"]["assignment"]  # type: ignore[index]
    planned = {task: (slot["node"], slot["worker"]) for task, slot in plan.items()}
    assert planned.keys() == main_job.ran.keys()
    # Workers count per node in a plan and through all nodes in a run: one of the plan is always the same one there.
    pairs = {(planned[task], main_job.ran[task]) for task in planned}
    assert len(pairs) == len(set(planned.values())) == len(set(main_job.ran.values()))
    assert all(slot[0] == place[0] for slot, place in pairs)


@group
def test_the_metric_log_accounts_for_every_trip(main_job: MainJob) -> None:
    logged = pq.read_table(main_job.folder / "log" / "tasks").to_pylist()
    out: Counter[str] = Counter()
    for row in logged:
        out[row["task"].rpartition("/")[0]] += row["tuples_out"]
    assert out["source"] == Trips().count
    answer = pq.read_table(main_job.folder / "answer")
    assert out["final-rank"] == answer.num_rows > 0


@group
@pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
def test_the_main_jobs_answer_is_spark_sqls(main_job: MainJob, spark: SparkSession) -> None:
    sources = routes.TASKS["source"]
    trips = [batch for task in range(sources) for batch in Trips()(task, sources)]
    spark.createDataFrame(pa.Table.from_batches(trips)).createOrReplaceTempView("trips")
    answer = spark.read.parquet(str(main_job.folder / "answer"))
    assert not row_differences(answer, spark.sql(routes.answer_sql("trips")))
    # The rows that were printed are rows of it.
    shown = main_job.document["rows"]
    assert isinstance(shown, list)
    assert len(shown) == routes.RANKS
    known = {(row["route"], row["count"]) for row in answer.collect()}
    assert {(row["route"], row["count"]) for row in shown} <= known


@group
def test_its_profile_fits_the_graph_of_that_name(main_job: MainJob) -> None:
    """Measure, then place the built-in graph by what was measured: the loop closes without an edit in between."""
    done = penstock("profile", "log", "-o", "profile.json", "--format", "json", folder=main_job.folder)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["tasks"]) == main_job.ran.keys()
    words = ("place", "routes", "3x3", "--profile", "profile.json", "--scheduler", "t3", "--format", "json")
    placed = penstock(*words, folder=main_job.folder)
    assert placed.returncode == 0, placed.stderr
    assert json.loads(placed.stdout)["assignment"].keys() == main_job.ran.keys()


# -- other jobs ------------------------------------------------------------------------------------------------------


def test_a_job_with_several_sinks_shows_and_writes_each(user_folder: Path) -> None:
    words = ("run", "mine.py:sides", "--master", "local[3]", "--output", "both", "--format", "json")
    done = penstock(*words, folder=user_folder)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["tens"], row["on"]) for row in rows["good"]] == [(10, "local[3]")] * 5
    assert all("ZeroDivisionError" in row["error"] for row in rows["bad"])
    assert pq.read_table(user_folder / "both" / "good").num_rows == 5
    assert pq.read_table(user_folder / "both" / "bad").num_rows == 5


# -- complaints ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def user_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    (folder / "mine.py").write_text(USER_FILE)
    (folder / "broken.py").write_text("import penstock\n1 / 0\n")
    (folder / "plan.json").write_text('{"penstock": 1, "assignment": 3}')
    (folder / "text.json").write_text("not JSON")
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "application 'nothing' is neither built in (known: routes) nor of the form file.py:name"),
        (["absent.py:TOP"], "cannot read absent.py: no such file"),
        (["broken.py:TOP"], "broken.py cannot be loaded: ZeroDivisionError: division by zero"),
        (["mine.py:TOP"], "mine.py has no 'TOP'"),
        (["mine.py:NUMBER"], "'mine.py:NUMBER' is int; it must be a penstock.Topology or a function that returns one"),
        (["mine.py:no_sink"], "topology 'half' has no sink"),
        (["mine.py:ENDLESS"], "topology 'endless' never ends by itself; give --duration SECONDS"),
        (["mine.py:BOUNDED", "--duration", "0"], "--duration is 0; it must be above 0 seconds"),
        (["mine.py:BOUNDED", "--duration", "nan"], "--duration is nan; it must be above 0 seconds"),
        (["mine.py:BOUNDED", "--output", "mine.py"], "--output is mine.py, which is there already"),
        (["mine.py:BOUNDED", "--output", "mine.py/out"], "--output is mine.py/out, and mine.py is no folder; name one"),
        (["mine.py:BOUNDED", "--scheduler", "worst"], "unknown scheduler 'worst'"),
        (["mine.py:BOUNDED", "--master", "mesos://there"], "master 'mesos://there'"),
        (["mine.py:BOUNDED", "--master", "local[0]"], "master 'local[0]'"),
        (["mine.py:BOUNDED", "--master", "local-cluster[2,2]"], "master 'local-cluster[2,2]'"),
        (["mine.py:BOUNDED", "--master", "yarn"], "Spark did not start on master 'yarn'"),
        (["mine.py:BOUNDED", "--plan", "absent.json"], "absent.json"),
        (["mine.py:BOUNDED", "--plan", "text.json"], "text.json"),
        (["mine.py:BOUNDED", "--plan", "plan.json"], "plan.json"),
        (["mine.py:BOUNDED", "--input", "x.parquet"], "--input is for built-in applications"),
        (["routes", "--input", "absent/*.parquet"], "absent/*.parquet"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(words: list[str], said: str, user_folder: Path) -> None:
    done = penstock("run", *words, folder=user_folder)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert said in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("penstock: ")]
    assert len(lines) == 1
    assert "Traceback" not in done.stderr
