"""What a deployment demands of plans: replicas of regions in workers of their own, on the nodes that are there."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.deploy.driver.binding import Placing, scheduled
from penstock.deploy.driver.demands import among, replicas_apart
from penstock.deploy.driver.slots import Slots
from penstock.model.constraints import Apart, Resource, Together
from penstock.optimise.door import MOVED_NOTE
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker_share import task_ids


def region(replicas: int) -> Dataflow:
    top = ps.Topology("spread")
    stream = top.source("numbers", ps.io.generator(lambda task, tasks: [1], "n bigint"))
    inside = stream.parallel(replicas).filter(lambda row: True, name="a").filter(lambda row: True, name="b")
    inside.merge().sink("out", ps.io.discard())
    return top.build()


def slots(*nodes: int) -> Slots:
    return Slots(tuple(f"n{k}" for k, count in enumerate(nodes) for _ in range(count)))


@settings(max_examples=40)
@given(
    st.integers(1, 6),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.sampled_from(["even", "ffd", "ras", "t3"]),
)
def test_replicas_meet_only_where_there_are_too_few_workers(replicas: int, nodes: list[int], scheduler: str) -> None:
    dataflow = region(replicas)
    at = scheduled(dataflow, slots(*nodes), Placing(scheduler)).plan.assignment
    assert set(at) == set(task_ids(dataflow))
    used = [at[f"a/{i}"] for i in range(replicas)]
    assert len(set(used)) == min(replicas, sum(nodes))
    assert used == [at[f"b/{i}"] for i in range(replicas)]


def test_what_is_demanded_of_replicas() -> None:
    together = tuple(Together("worker", (f"a/{i}", f"b/{i}")) for i in range(3))
    assert replicas_apart(region(3), 8) == (*together, Apart("worker", ("a/0", "a/1", "a/2")))
    assert replicas_apart(region(3), 2) == (*together, Apart("worker", ("a/0", "a/1")))
    assert replicas_apart(region(3), 1) == together


def test_the_plan_says_that_tasks_were_moved_for_a_scheduler_that_looks_at_no_constraint() -> None:
    plan = scheduled(region(3), slots(4), Placing("ffd")).plan
    assert any(note.endswith(MOVED_NOTE) for note in plan.notes)
    assert not any(note.endswith(MOVED_NOTE) for note in scheduled(region(3), slots(4), Placing()).plan.notes)


def test_a_constraint_means_the_nodes_that_are_there() -> None:
    graph = region(2).graph()
    limited = Resource("a", ("n0", "gone"))
    kept = Resource("b", ("gone",))
    both = dataclasses.replace(graph, constraints=(limited, kept))
    assert among(both, slots(1, 1)).constraints == (Resource("a", ("n0",)), kept)


@pytest.mark.parametrize("scheduler", ["best", "exact", "t3", "ischeduler", "rstorm", "flink"])
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_region_of_several_operators_is_placed(scheduler: str, replicas: int) -> None:
    """Each replica's operators send to their like alone, and the certificate counts it so too."""
    top = ps.Topology("chained")
    numbers = top.source("numbers", ps.io.generator(lambda task, tasks: iter(()), "n bigint"))
    region = numbers.parallel(replicas).map(lambda row: row.n, "n bigint").filter(lambda row: row.n > 0)
    region.merge().sink("out", ps.io.discard())
    dataflow = top.build()
    plan = scheduled(dataflow, slots(4, 4), Placing(scheduler=scheduler, theta=0.3)).plan
    assert set(plan.assignment) == set(task_ids(dataflow))
