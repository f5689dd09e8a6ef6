"""Replicas of a region on workers of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.deploy.binding import Placing, make_placement
from penstock.deploy.region_spread import NOTE, spread
from penstock.model.plan import Plan, Slot
from penstock.run.dataflow import Dataflow
from penstock.run.layout import task_ids


def region(replicas: int) -> Dataflow:
    top = ps.Topology("spread")
    stream = top.source("numbers", ps.io.generator(lambda task, tasks: [1], "n bigint"))
    inside = stream.parallel(replicas).filter(lambda row: True, name="a").filter(lambda row: True, name="b")
    inside.merge().sink("out", ps.io.discard())
    return top.build()


@given(st.data(), st.integers(1, 6), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_replicas_meet_only_where_there_are_too_few_workers(
    data: st.DataObject, replicas: int, nodes: list[int]
) -> None:
    dataflow = region(replicas)
    workers_on = {f"n{i}": count for i, count in enumerate(nodes)}
    slots = [Slot(node, worker) for node, count in workers_on.items() for worker in range(count)]
    before = {task: data.draw(st.sampled_from(slots)) for task in task_ids(dataflow)}
    plan = Plan("test", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 0.0, before)
    after = spread(plan, dataflow, workers_on).assignment
    assert set(after) == set(before)
    assert set(after.values()) <= set(slots)
    used = [after[f"a/{i}"] for i in range(replicas)]
    assert len(set(used)) == min(replicas, len(slots))
    assert used == [after[f"b/{i}"] for i in range(replicas)]
    inside = {f"{name}/{i}" for name in "ab" for i in range(replicas)}
    assert all(after[task] == before[task] for task in before if task not in inside)
    good = len({before[f"a/{i}"] for i in range(replicas)}) == replicas
    together = all(before[f"a/{i}"] == before[f"b/{i}"] for i in range(replicas))
    assert (NOTE not in spread(plan, dataflow, workers_on).notes) == (after == before)
    assert not (good and together) or after == before


@pytest.mark.parametrize("scheduler", ["best", "exact", "t3", "ischeduler", "rstorm", "flink"])
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_region_of_several_operators_is_placed(scheduler: str, replicas: int) -> None:
    """Each replica's operators send to their like alone, and the certificate counts it so too."""
    top = ps.Topology("chained")
    numbers = top.source("numbers", ps.io.generator(lambda task, tasks: iter(()), "n bigint"))
    region = numbers.parallel(replicas).map(lambda row: row.n, "n bigint").filter(lambda row: row.n > 0)
    region.merge().sink("out", ps.io.discard())
    dataflow = top.build()
    plan = make_placement(dataflow, {"one": 4, "two": 4}, Placing(scheduler=scheduler))
    assert set(plan.assignment) == set(task_ids(dataflow))
