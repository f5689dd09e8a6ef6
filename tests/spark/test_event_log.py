"""Spark event logs, recorded and fresh, to topologies and profiles, and on to a plan."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import SparkSession

from mutation_kit import damaged as damaged_documents
from penstock.cli import run_command
from penstock.deploy import import_spark
from penstock.errors import InvalidInput
from penstock.imports import Imported
from penstock.model.cluster import Cluster
from penstock.optimise.door import place

RECORDED = Path(__file__).parents[1] / "imported" / "spark" / "bids"
one_session = pytest.mark.parametrize("spark", ["local[8]"], indirect=True)


def ended_tasks() -> list[dict[str, Any]]:
    events = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return [event for event in events if event["Event"] == "SparkListenerTaskEnd"]


def cpu_ns(event: dict[str, Any]) -> int:
    metrics = event["Task Metrics"]
    return int(metrics["Executor CPU Time"]) + int(metrics["Executor Deserialize CPU Time"])


def bytes_between(found: Imported, source: str, target: str) -> float:
    return sum(
        edge.rate
        for edge in found.profile.edges
        if edge.source.startswith(f"{source}/") and edge.target.startswith(f"{target}/")
    )


@pytest.fixture(scope="module")
def recorded(spark: SparkSession) -> Imported:
    return import_spark(spark, RECORDED)


@one_session
def test_the_recorded_application_is_four_operators(recorded: Imported) -> None:
    # The query ran twice, as 8 stages of 8 jobs, and skipped others; a wide scan, a small one, their join, the groups.
    assert {operator.name: (operator.tasks, operator.source) for operator in recorded.graph.operators} == {
        "stage 0 Exchange": (4, True),
        "stage 1 Exchange": (2, True),
        "stage 4 Exchange": (4, False),  # of 6 partitions, but no more than 4 tasks ran at once
        "stage 8 SortAggregate": (4, False),
    }
    assert {(stream.source, stream.target) for stream in recorded.graph.streams} == {
        ("stage 0 Exchange", "stage 4 Exchange"),
        ("stage 1 Exchange", "stage 4 Exchange"),
        ("stage 4 Exchange", "stage 8 SortAggregate"),
    }


@one_session
def test_loads_and_rates_are_the_logs(recorded: Imported) -> None:
    seconds = next(float(note.split("over the ")[1].split(" s ")[0]) for note in recorded.notes if "over the" in note)
    total = sum(cpu_ns(event) for event in ended_tasks()) / 1e9 / seconds
    assert sum(task.load for task in recorded.profile.tasks.values()) == pytest.approx(total, rel=1e-3)
    first = sum(cpu_ns(e) for e in ended_tasks() if e["Stage ID"] in {0, 9} and e["Task Info"]["Index"] == 0)
    assert recorded.profile.tasks["stage 0 Exchange/0"].load == pytest.approx(first / 1e9 / seconds, rel=1e-3)

    def written(*stages: int) -> float:
        metrics = [
            event["Task Metrics"]["Shuffle Write Metrics"] for event in ended_tasks() if event["Stage ID"] in stages
        ]
        return sum(one["Shuffle Bytes Written"] for one in metrics) / seconds

    # What the scans wrote the join read, and nobody else.
    assert bytes_between(recorded, "stage 0 Exchange", "stage 4 Exchange") == pytest.approx(written(0, 9), rel=1e-3)
    assert bytes_between(recorded, "stage 1 Exchange", "stage 4 Exchange") == pytest.approx(written(1, 10), rel=1e-3)
    assert bytes_between(recorded, "stage 4 Exchange", "stage 8 SortAggregate") == pytest.approx(
        written(4, 13), rel=1e-3
    )


@one_session
def test_a_plan_can_be_made_of_it(recorded: Imported) -> None:
    plan = place(recorded.graph, Cluster.uniform([(3, 1.0)]), profile=recorded.profile)
    assert plan.faults == ()
    assert len(plan.assignment) == 14


@one_session
def test_the_command_line_imports_and_places_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, arguments)])
        assert run_command() == 0
        return capsys.readouterr().out

    profile, topology = tmp_path / "profile.json", tmp_path / "topology.json"
    shown = run("import", "spark", RECORDED, "-o", profile, "--topology-out", topology, "--tasks-max", "3")
    assert "11 tasks, 11 of them measured" in shown
    plan: Any = json.loads(run("place", topology, "3x2", "--profile", profile, "--scheduler", "t3", "--format", "json"))
    assert plan["faults"] == []
    assert len(plan["assignment"]) == 11


@one_session
def test_a_rolled_and_compressed_log_is_the_same(spark: SparkSession, recorded: Imported, tmp_path: Path) -> None:
    lines = RECORDED.read_text().splitlines(keepends=True)
    folder = tmp_path / "eventlog_v2_bids"
    folder.mkdir()
    (folder / "appstatus_bids").touch()
    for number, part in enumerate((lines[:40], lines[40:]), start=1):
        packed = pa.compress("".join(part).encode(), codec="zstd", asbytes=True)
        (folder / f"events_{number}_bids.zstd").write_bytes(packed)
    again = import_spark(spark, folder)
    assert again.graph == recorded.graph
    assert again.profile == recorded.profile
    more = import_spark(spark, folder, tasks_max=6)
    assert {operator.name: operator.tasks for operator in more.graph.operators}["stage 4 Exchange"] == 6


def damaged(*changes: tuple[str, str, int]) -> str:
    """The recorded log with texts replaced, each as often as it says."""
    text = RECORDED.read_text()
    for old, new, count in changes:
        assert old in text
        text = text.replace(old, new, count)
    return text


@one_session
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no log\n", "is not a Spark event log, or it is damaged: a line is 'no log'"),
        ("[1]\n", "is not a Spark event log"),
        ("", "has no finished task of a finished stage"),
        ('{"Event":"SparkListenerLogStart"}\n', "has no finished task of a finished stage"),
        (damaged(('"Executor CPU Time":', '"Executor CPU Time":-', 1)), "a time or figure that cannot be"),
        (damaged(('"Launch Time":1', '"Launch Time":9', -1)), "a time or figure that cannot be"),
        (damaged(('"Number of Tasks":6', '"Number of Tasks":0', 1)), "with 0 tasks; a stage has a number"),
        (damaged(('"Stage ID":4,', '"Stage ID":null,', -1)), "lists stage None with 6 tasks"),
        (damaged(('"Shuffle Bytes Written":', '"Shuffle Bytes Written":"x","was":', 1)), "it is damaged"),
        (damaged(('"Job ID":1,', '"Job ID":"one",', 1)), "it is damaged"),
        (damaged(("SparkListenerStageCompleted", "Other", -1)), "has no finished task of a finished stage"),
        (damaged(("SparkListenerTaskEnd", "Other", -1)), "has no finished task of a finished stage"),
        (RECORDED.read_text()[:-50], "it is damaged"),
    ],
)
def test_damaged_logs_are_one_error(spark: SparkSession, tmp_path: Path, text: str, said: str) -> None:
    (log := tmp_path / "app").write_text(text)
    with pytest.raises(InvalidInput) as error:
        import_spark(spark, log)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@one_session
@settings(max_examples=10)
@given(events=damaged_documents({"events": [json.loads(line) for line in RECORDED.read_text().splitlines()]}))
def test_logs_with_odd_events_are_told_or_make_sound_topologies(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, events: dict[str, Any]
) -> None:
    listed = events.get("events")
    (log := tmp_path_factory.mktemp("odd") / "app").write_text(
        "".join(f"{json.dumps(event)}\n" for event in (listed if isinstance(listed, list) else [listed]))
    )
    try:
        found = import_spark(spark, log)
    except InvalidInput as error:
        assert "\n" not in str(error)  # noqa: PT017 - either ending is right
        return
    assert found.graph.faults() == found.profile.faults(found.graph) == []


@one_session
def test_the_last_line_of_a_log_that_is_still_written_may_be_cut(spark: SparkSession, tmp_path: Path) -> None:
    (log := tmp_path / "app.inprogress").write_text(RECORDED.read_text()[:-20])
    assert len(import_spark(spark, log).graph.operators) == 4


def test_a_fresh_log_of_this_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own listener writes what the session does while the test runs."""
    jvm: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc.sc()
    conf = context.getConf().set("spark.eventLog.rolling.enabled", "false").set("spark.eventLog.compress", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "fresh", jvm.scala.Option.empty(), jvm.java.net.URI(f"file://{tmp_path}"), conf, context.hadoopConfiguration()
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        rows = spark.range(0, 3000, 1, 3).selectExpr("id % 7 as k").groupBy("k").count().collect()
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(listener)
        listener.stop()
    assert len(rows) == 7
    found = import_spark(spark, tmp_path, tasks_max=2)
    scan, count = found.graph.operators
    assert (scan.source, count.source) == (True, False)
    assert (scan.tasks, count.tasks) == (2, min(2, count.tasks))
    # Each of 3 partitions wrote the 7 groups that it has.
    tuples = sum(edge.tuples or 0.0 for edge in found.profile.edges)
    seconds = next(float(note.split("over the ")[1].split(" s ")[0]) for note in found.notes if "over the" in note)
    assert tuples * seconds == pytest.approx(21, rel=0.01)
    assert all(task.load > 0 for task in found.profile.tasks.values())
    assert place(found.graph, Cluster.uniform([(2, 2.0)]), profile=found.profile).faults == ()


@one_session
def test_the_session_keeps_its_views_and_settings(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.range(1).createOrReplaceTempView("tasks")
    import_spark(spark, RECORDED)
    assert spark.table("tasks").columns == ["id"]
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    spark.catalog.dropTempView("tasks")


@one_session
@pytest.mark.parametrize("tasks_max", [0, -1, 10**6])
def test_numbers_of_tasks_that_cannot_be_are_refused(spark: SparkSession, tasks_max: int) -> None:
    with pytest.raises(InvalidInput, match="tasks_max is"):
        import_spark(spark, RECORDED, tasks_max=tasks_max)
