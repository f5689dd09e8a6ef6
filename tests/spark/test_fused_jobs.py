"""Fused plans on real Spark: the answer is the same, readers are at their data, replicas apart; and tuning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from plan_kit import made_by
from pyspark.sql import SparkSession

import penstock as ps
from penstock.apps import routes
from penstock.apps.trips import Trips
from penstock.deploy import JobOptions, Tuning, tune_topology
from penstock.errors import InvalidInput
from penstock.flow import io
from penstock.jobs import Topology

LINES = [f"the quick {'lazy ' * (i % 3)}fox {i % 7}" for i in range(500)]
EXPECTED = Counter(word for line in LINES for word in line.split())


def lines_of(index: int, tasks: int) -> Iterator[tuple[str]]:
    for line in LINES[index::tasks]:
        yield (line,)


def words() -> Topology:
    top = Topology("words")
    lines = top.source("lines", io.generator(lines_of, "line string", tasks=2))
    lines.split("line", tasks=2).key_by("word").count(tasks=2).sink("out", io.collect())
    return top


@pytest.mark.parametrize("method", ["cola", "none"])
def test_routes_under_a_fused_plan_gives_the_scheduler_s_answer(spark: SparkSession, method: str) -> None:
    trips = Trips(20_000)
    expected = Counter(map(tuple, routes.build(trips).run(spark, scheduler="even").collect()))
    with routes.build(trips).start(spark, fuse=method) as job:
        assert Counter(map(tuple, job.result.collect())) == expected
        assert job.plan is not None
        assert job.plan.scheduler == method
        assert len(job.workers) > 1
    again = job.replan()
    assert made_by(again.plan, method)
    assert made_by(job.replan("ffd").plan, "ffd")


def test_readers_of_a_dataframe_are_where_its_rows_are(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(line,) for line in LINES], "line string")
    top = Topology("frame")
    top.source("lines", io.dataframe(frame)).split("line").key_by("word").count(tasks=2).sink("out", io.collect())
    with top.start(spark, fuse="cola", fuse_options=ps.FuseOptions(balance=0.2, seed=3), workers=2) as job:
        assert {row["word"]: row["count"] for row in job.result.collect()} == EXPECTED
        assert [job.worker_of[f"lines/{i}"] for i in range(2)] == [0, 1]


def test_replicas_of_a_region_stay_apart(spark: SparkSession) -> None:
    top = Topology("region")
    lines = top.source("lines", io.generator(lines_of, "line string", tasks=1))
    region = lines.split("line").parallel(2).filter(lambda row: row["word"] != "", name="kept")
    region.merge().sink("out", io.collect())
    with top.start(spark, fuse="cola", workers=3) as job:
        assert Counter(row["word"] for row in job.result.collect()) == EXPECTED
        replicas = [worker for task, worker in job.worker_of.items() if task.startswith("kept/")]
        assert len(set(replicas)) == len(replicas) == 2


def test_tuning_runs_the_iterations_and_keeps_a_plan_that_can_be_followed(spark: SparkSession) -> None:
    told: list[str] = []
    tuned = tune_topology(
        words(), spark, JobOptions(), Tuning(iterations=2), lambda done, total, what: told.append(what)
    )
    assert [(i.step.number, i.step.method, i.step.gamma) for i in tuned.done] == [
        (0, "none", 1.0), (1, "cola", 0.5), (2, "cola", 0.6),
    ]  # fmt: skip
    assert all((iteration.throughput or 0.0) > 0 for iteration in tuned.done)
    assert tuned.kept.throughput == max(iteration.throughput or 0.0 for iteration in tuned.done)
    assert told[0] == "none, iteration 0, gamma 1"
    frame = words().run(spark, plan=tuned.plan)
    assert {row["word"]: row["count"] for row in frame.collect()} == EXPECTED


def test_a_fused_job_has_no_scheduler_beside_it(spark: SparkSession) -> None:
    for asked, said in (
        ({"fuse": "cola", "scheduler": "t3"}, "leave scheduler out, or leave fuse out"),
        ({"fuse": "magic"}, "known: best, cola"),
        ({"fuse_options": ps.FuseOptions()}, "fuse is not"),
        ({"fuse": "cola", "fuse_options": ps.FuseOptions(balance=2.0)}, "balance is 2"),
    ):
        with pytest.raises(InvalidInput, match=said):
            words().run(spark, **asked)  # type: ignore[arg-type]
