"""Placements made to meet constraints, pins under every scheduler and method, and plans that record what they keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Infeasible, InvalidInput, UserError
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraint_check import constraint_violations
from penstock.model.constraints import Apart, Constraint, Dedicated, Pin, Replicas, Resource, Together
from penstock.model.files import read_plan, write_plan
from penstock.model.plan import Slot
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options, Problem
from penstock.optimise.door import place
from penstock.optimise.fuse.contract import METHODS, FuseOptions
from penstock.optimise.fuse.door import fuse
from penstock.optimise.fuse.steps.rules import compile_rules
from penstock.optimise.meet import keeps, met
from penstock.optimise.place import SCHEDULERS

GRAPH = OperatorGraph("t", (Operator("a", 4), Operator("b", 4), Operator("c", 2)), (Stream("a", "b"), Stream("b", "c")))
CLUSTER = Cluster((Node("n1", 8.0, slots=2, worker_capacity=None), Node("n2", 8.0, slots=3, worker_capacity=None)))
PINS = (Pin("a/0", "n1", 1), Pin("a/1", "n2", 0), Pin("a/2", "n2", 2), Pin("c/0", "n2", 2))
APART = Apart("worker", ("b/0", "b/1", "b/2", "b/3"))


def problem_of(*constraints: Constraint) -> Problem:
    graph = replace(GRAPH, constraints=constraints)
    return Problem(TaskGraph.expand(graph), CLUSTER, graph.constraints)


@st.composite
def seats(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    node = draw(st.lists(st.integers(0, 1), min_size=10, max_size=10))
    return node, [draw(st.integers(0, 1 + k)) for k in node]


@given(seats(), st.sets(st.sampled_from([*PINS, APART, Together("worker", ("b/0", "c/1"))])))
def test_what_a_job_demands_can_always_be_met_and_the_rest_stays(
    at: tuple[list[int], list[int]], demands: set[Constraint]
) -> None:
    problem = problem_of(*sorted(demands, key=repr))
    rules = compile_rules(problem)
    node, worker = (np.array(side, dtype=np.int32) for side in at)
    after, seat = met(problem, rules, node, worker)
    assert keeps(rules, after, seat)
    names = [k.name for k in CLUSTER.nodes]
    slots = {t: Slot(names[k], w) for t, k, w in zip(problem.graph.ids, after.tolist(), seat.tolist(), strict=True)}
    assert constraint_violations(replace(GRAPH, constraints=tuple(problem.constraints)), slots) == []
    if keeps(rules, node, worker):
        full = np.bincount(node, problem.graph.load, minlength=2)
        assert (after == node).all() or (full > problem.capacity).any()
        assert (seat == worker).all() or (after != node).any()


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_every_scheduler_keeps_pins_and_separations_where_it_is_asked_to_meet_them(name: str) -> None:
    options = Options(theta=0.3, settings={"phi": 6} if name == "ischeduler" else {})
    try:
        plan = place(GRAPH, CLUSTER, name, options=options, demands=(*PINS, APART), meet=True)
    except UserError as refused:  # flink wants a slot for each task of an operator, others fill a node beyond its cores
        assert "needs a slot" in str(refused) or "found no plan that fits" in str(refused), str(refused)  # noqa: PT017
        return
    assert check_plan(replace(GRAPH, constraints=(*PINS, APART)), CLUSTER, plan) == []
    assert plan.constraints == (), "what a deployment demands is no part of the plan"
    assert plan.assignment["a/0"] == Slot("n1", 1)
    assert plan.assignment["a/2"] == plan.assignment["c/0"] == Slot("n2", 2)


@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if row.honours_constraints])
def test_fusion_numbers_pinned_workers_as_they_are(method: str) -> None:
    options = FuseOptions(theta=0.3, stream_cost=0.0)
    plan = fuse(GRAPH, CLUSTER, method, options=options, demands=PINS)
    assert check_plan(replace(GRAPH, constraints=PINS), CLUSTER, plan) == []
    assert plan.constraints == ()


@pytest.mark.parametrize(
    ("constraints", "told"),
    [
        (
            (Pin("a/0", "n1", 0), Pin("a", "n1", 1)),
            "'a/0' would have to be in worker 0 of 'n1' and in worker 1 of 'n1'",
        ),
        (
            (Pin("a/0", "n1", 0), Pin("b/0", "n1", 1), Together("worker", ("a/0", "b/0"))),
            "must share a worker and must",
        ),
        ((Pin("a/0", "n1", 0), Resource("a", ("n2",))), "no node is allowed for 'a/0'"),
        ((Apart("worker", tuple(f"{o}/{i}" for o in "ab" for i in range(3))),), "but the nodes have only 5 slots"),
    ],
)
def test_pins_that_clash_are_refused_with_the_reason(constraints: tuple[Constraint, ...], told: str) -> None:
    with pytest.raises(Infeasible, match=told):
        place(GRAPH, CLUSTER, demands=constraints)


def test_a_pin_to_a_worker_that_is_not_there_is_an_input_error() -> None:
    with pytest.raises(InvalidInput, match=r"constraint 0 \(pin\) names worker 2 of node 'n1', which has 2 slots"):
        place(GRAPH, CLUSTER, demands=(Pin("a/0", "n1", 2),))
    with pytest.raises(InvalidInput, match=r"constraint 0 \(pin\) names node 'n9', which the cluster lacks"):
        place(GRAPH, CLUSTER, demands=(Pin("a/0", "n9", 0),))
    with pytest.raises(InvalidInput, match=r"constraint 0 \(pin\) names worker -1; they count from 0"):
        place(GRAPH, CLUSTER, demands=(Pin("a/0", "n1", -1),))


def test_a_plan_does_not_record_pins_of_its_topology() -> None:
    plan = place(replace(GRAPH, constraints=(PINS[0], Resource("c", ("n2",)))), CLUSTER, options=Options(theta=0.3))
    assert plan.constraints == (Resource("c", ("n2",)),)


def test_a_plan_file_records_the_constraints_that_the_plan_keeps(tmp_path: Path) -> None:
    cluster = Cluster.uniform([(4, 10.0)])
    kept = (
        Resource("a", ("n1", "n2")),
        Together("node", ("c/0", "c/1")),
        APART,
        Dedicated("worker", "c"),
        Replicas((("a",), ("b",)), isomorphic=True),
    )
    plan = place(replace(GRAPH, constraints=kept), cluster, options=Options(theta=0.5))
    assert plan.constraints == kept
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json").constraints == kept
    write_plan(replace(plan, constraints=()), tmp_path / "free.json")
    assert "constraints" not in (tmp_path / "free.json").read_text()
