"""Jobs on real Spark that are told how to place their tasks: by constraints, tags, profiles and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession

import penstock as ps
from conftest import ZONE
from penstock.errors import Infeasible, InvalidInput

LINES = ["to be or not", "to be that is"]
EXPECTED = Counter(word for line in LINES for word in line.split())


def lines_of(task: int, tasks: int) -> Iterator[tuple[str]]:
    return iter([(line,) for line in LINES[task::tasks]])


def forever(task: int, tasks: int) -> Iterator[tuple[int]]:
    return ((n,) for n in count())


def words() -> ps.Topology:
    top = ps.Topology("words")
    lines = top.source("lines", ps.io.generator(lines_of, "line string"), tasks=2)
    counts = lines.split("line", name="split", tasks=2).key_by("word").count(name="counts", tasks=2)
    counts.sink("out", ps.io.collect())
    return top


def nodes_of(spark: SparkSession) -> int:
    return 2 if "cluster" in spark.sparkContext.master else 1


def finished(job: ps.Job) -> dict[str, int]:
    assert Counter({row.word: row["count"] for row in job.result.collect()}) == EXPECTED
    return dict(job.worker_of)


@pytest.mark.parametrize(
    "scheduler", ["best", "even"]
)  # one looks at constraints, the other's plan is changed for them
def test_a_job_keeps_what_its_topology_and_its_caller_require(spark: SparkSession, scheduler: str) -> None:
    top = words()
    top.require(ps.colocate("lines/0", "counts/1"), ps.separate_workers("split/0", "split/1"))
    asked = [ps.dedicated("lines/1")]
    with top.start(spark, scheduler=scheduler, workers=3, constraints=asked) as job:
        where = finished(job)
        assert job.plan is not None
        assert job.plan.constraints == (*top.constraints, *asked)
    assert where["lines/0"] == where["counts/1"]
    assert where["split/0"] != where["split/1"]
    assert [task for task in where if where[task] == where["lines/1"]] == ["lines/1"]


def test_a_plan_that_breaks_a_constraint_is_refused_by_name_and_leaves_nothing(
    spark: SparkSession, footprint: Footprint
) -> None:
    top = words()
    plan = ps.place(top, ps.parse_cluster("1x9"), options=ps.Options(tasks_per_worker=9))  # all in few workers
    together = {task: ps.Slot("n1", 0) for task in plan.assignment}
    one = ps.Plan("by hand", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, together)
    top.require(ps.separate_workers("counts/0", "counts/1"))
    with pytest.raises(InvalidInput, match=r"followed here: constraint 0 \(separate-workers\): 'counts/0' and"):
        top.start(spark, plan=one)
    footprint.assert_gone()


def test_constraints_that_nobody_can_keep_are_named(spark: SparkSession, footprint: Footprint) -> None:
    top = words()
    top.require(ps.colocate("lines/0", "lines/1"), ps.separate_workers("lines/0", "lines/1"))
    with pytest.raises(Infeasible, match=r"2 constraints clash: constraint 0 \('lines/0', 'lines/1' in one worker\)"):
        top.start(spark, workers=2)
    more = nodes_of(spark) + 1  # than there are nodes
    apart = ps.separate_nodes(*["lines/0", "lines/1", "counts/0"][:more])
    with pytest.raises(Infeasible, match="on different nodes"):
        words().start(spark, workers=2, constraints=[apart])
    footprint.assert_gone()


def test_nodes_have_the_tags_that_spark_tells_of_their_executors(spark: SparkSession, footprint: Footprint) -> None:
    top = words()
    top.require(ps.on_tag("counts", ZONE))
    with top.start(spark, workers=2) as job:
        finished(job)
        assert all(ZONE in hello.tags for hello in job.workers)
        plan = job.plan
    with words().start(spark, plan=plan) as again:  # which keeps what it was made for
        finished(again)
        assert again.plan is not None
        assert again.plan.constraints == top.constraints
    with pytest.raises(InvalidInput, match=rf"needs tag 'gpu', which no node .*; their tags are .*'{ZONE}'"):
        words().start(spark, workers=2, constraints=[ps.on_tag("split", "gpu")])
    footprint.assert_gone()


def test_a_job_is_placed_by_its_profile_and_by_its_schedulers_settings(spark: SparkSession) -> None:
    load = {"lines": 0.01, "split": 0.01, "counts": 0.6}
    heavy = {f"{name}/{i}": ps.TaskProfile(load[name]) for name in load for i in range(2)}
    edges = (ps.EdgeProfile("lines/0", "split/0", 1e6), ps.EdgeProfile("lines/1", "split/1", 1e6))
    measured = ps.Profile(heavy, edges)
    with words().start(spark, scheduler="exact", profile=measured, theta=5, workers=2) as job:
        where = finished(job)
        assert job.plan is not None
        assert job.plan.max_utilisation >= 0.6  # of loads that were measured, not of 1 each
    assert where["counts/0"] != where["counts/1"]  # 1.2 cores are more than a worker has
    with words().start(spark, scheduler="ols", settings={"workers": 1}, workers=2) as job:
        assert len(set(finished(job).values())) == 1
    with words().start(spark, scheduler="even", tasks_per_worker=2) as job:
        assert max(Counter(finished(job).values()).values()) == 2


def test_jobs_of_a_session_see_what_the_others_use(spark: SparkSession, footprint: Footprint) -> None:
    endless = ps.Topology("endless")
    numbers = endless.source("numbers", ps.io.generator(forever, "n bigint", bounded=False))
    numbers.sink("out", ps.io.discard())
    with endless.start(spark, workers=1) as busy:
        (use,) = busy.uses()
        assert 0 < use.cores <= 1
        with words().start(spark, workers=2) as job:
            finished(job)
            assert [note for note in job.notes if note.startswith("other jobs of this session use ")]
        assert not [note for note in busy.notes if note.startswith("other jobs of this session use ")]
    with words().start(spark, workers=2) as alone:
        finished(alone)
        assert not [note for note in alone.notes if note.startswith("other jobs of this session use ")]
    footprint.assert_gone()


def test_memory_that_no_node_has_is_refused_before_a_row_is_read(spark: SparkSession, footprint: Footprint) -> None:
    top = words()
    top.declare("counts", memory_mb=1e9)
    with pytest.raises(Infeasible, match="task 'counts/0' needs memory 1e"):
        top.start(spark, workers=2)
    footprint.assert_gone()
