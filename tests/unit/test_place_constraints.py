"""Placement under constraints: best and exact keep all of them, the others are held to them by the certificate."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from fuse_kit import random_case

from penstock.errors import Infeasible, InvalidInput, NoPlanFound, UnhonouredConstraints, UserError
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraint_check import constraint_violations
from penstock.model.constraints import Apart, Together
from penstock.model.plan import Slot
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options
from penstock.optimise.door import place
from penstock.optimise.place import SCHEDULERS

GRAPH = OperatorGraph("t", (Operator("a", 2, load=0.5), Operator("b", 2, load=0.5)), (Stream("a", "b"),))
CLUSTER = Cluster.uniform([(3, 2.0)])


def cheapest(graph: OperatorGraph, cluster: Cluster) -> float | None:
    """The least cost between nodes of all placements with every task its own worker or none that must be apart."""
    tasks = [f"{o.name}/{i}" for o in graph.operators for i in range(o.tasks)]
    load = [value for o in graph.operators for value in o.loads()]
    memory = [value for o in graph.operators for value in o.memories_mb()]
    best: float | None = None
    for nodes in itertools.product(range(len(cluster.nodes)), repeat=len(tasks)):
        if any(
            sum(x for x, k in zip(load, nodes, strict=True) if k == at) > node.capacity + 1e-9
            or sum(x for x, k in zip(memory, nodes, strict=True) if k == at) > (node.memory_mb or 1e9)
            for at, node in enumerate(cluster.nodes)
        ):
            continue
        where = dict(zip(tasks, nodes, strict=True))
        cost = sum(s.rate for s in graph.streams if where[f"{s.source}/0"] != where[f"{s.target}/0"])  # type: ignore[misc]
        if best is not None and cost >= best:
            continue
        if any(
            not constraint_violations(
                graph, {t: Slot(cluster.nodes[k].name, w) for t, k, w in zip(tasks, nodes, workers, strict=True)}
            )
            for workers in _labellings(len(tasks))
        ):
            best = cost
    return best


def _labellings(count: int) -> list[tuple[int, ...]]:
    return [
        labels
        for labels in itertools.product(range(count), repeat=count)
        if all(label <= max(labels[:k], default=-1) + 1 for k, label in enumerate(labels))
    ]


@pytest.mark.parametrize("seed", range(12))
def test_exact_and_best_against_brute_force(seed: int) -> None:
    graph, cluster = random_case(1000 + seed, constraints_max=3)
    if graph.task_count > 5:
        graph, cluster = random_case(2000 + seed, constraints_max=3)
    if graph.task_count > 5:
        return
    truth = cheapest(graph, cluster)
    for name in ("exact", "best"):
        try:
            plan = place(graph, cluster, name, options=Options(theta=5.0))
        except NoPlanFound:
            pytest.fail(f"{name} found no plan")
        except Infeasible:
            assert truth is None
            continue
        assert check_plan(graph, cluster, plan) == []
        assert truth is not None
        assert plan.cost == pytest.approx(truth, abs=1e-9)
        assert plan.lower_bound <= truth + 1e-9
        if name == "exact":
            assert plan.proved_optimal


def finest(graph: OperatorGraph) -> list[int]:
    """A worker for each operator of one task: only what must share one does, which is the best for all other rules."""
    worker = list(range(len(graph.operators)))
    number = {o.name: i for i, o in enumerate(graph.operators)}
    for constraint in graph.constraints:
        if isinstance(constraint, Together) and constraint.where == "worker":
            old = {worker[number[name]] for name in constraint.operators}
            worker = [min(old) if w in old else w for w in worker]
    return worker


@pytest.mark.parametrize("seed", range(8))
def test_exact_and_best_against_brute_force_on_eight_tasks(seed: int) -> None:
    kinds = ("resource", "cw", "cn", "sw", "sn", "dw", "replicas")
    graph, cluster = random_case(3000 + seed, constraints_max=4, operators=(8, 8), kinds=kinds)
    names, workers = [o.name for o in graph.operators], finest(graph)
    found = np.array(list(itertools.product(range(len(cluster.nodes)), repeat=8)))
    fits = np.ones(len(found), dtype=bool)
    for k, node in enumerate(cluster.nodes):
        load, memory = (np.array([sum(x) for x in v]) for v in (
            [o.loads() for o in graph.operators], [o.memories_mb() for o in graph.operators]
        ))  # fmt: skip
        fits &= (found == k) @ load <= node.capacity + 1e-9
        fits &= (found == k) @ memory <= (node.memory_mb or np.inf)
    found = found[fits]
    ends = [(names.index(s.source), names.index(s.target), s.rate) for s in graph.streams]
    costs = sum((rate * (found[:, a] != found[:, b]) for a, b, rate in ends), np.zeros(len(found)))
    truth = None
    for at in np.argsort(costs, kind="stable").tolist():
        slots = {f"{n}/0": Slot(cluster.nodes[k].name, w) for n, k, w in zip(names, found[at], workers, strict=True)}
        if not constraint_violations(graph, slots):
            truth = float(costs[at])
            break
    for name in ("exact", "best"):
        try:
            plan = place(graph, cluster, name, options=Options(theta=20.0))
        except Infeasible:
            assert truth is None
            continue
        assert check_plan(graph, cluster, plan) == []
        assert plan.cost == pytest.approx(truth, abs=1e-9)
        assert name == "best" or plan.proved_optimal


@pytest.mark.parametrize("name", list(SCHEDULERS))
class TestEveryScheduler:
    def test_a_clash_is_refused_for_all(self, name: str) -> None:
        clashing = replace(GRAPH, constraints=(Together("node", ("a", "b")), Apart("node", ("a/0", "b/0"))))
        with pytest.raises(Infeasible, match="2 constraints clash"):
            place(clashing, CLUSTER, name, options=Options(settings=_settings(name)))

    def test_a_constraint_is_kept_or_the_scheduler_says_that_it_looks_at_none(self, name: str) -> None:
        apart = replace(GRAPH, constraints=(Apart("node", ("a/0", "b/0")), Together("worker", ("a/1", "b/1"))))
        try:
            plan = place(apart, CLUSTER, name, options=Options(settings=_settings(name)))
        except UserError:
            assert "constraints" not in SCHEDULERS[name].looks_at
        else:
            assert check_plan(apart, CLUSTER, plan) == []
            if "constraints" not in SCHEDULERS[name].looks_at:
                assert any("does not look at constraints" in note for note in plan.notes)


def _settings(name: str) -> dict[str, object]:
    return {"phi": 6} if name == "ischeduler" else {}


def test_a_broken_constraint_is_told_with_the_scheduler_that_does_not_look() -> None:
    apart = replace(GRAPH, constraints=(Apart("node", ("a/0", "b/0")), Apart("node", ("a/1", "b/1"))))
    with pytest.raises(UnhonouredConstraints, match=r"'t3' does not honour constraints and its plan breaks constraint"):
        place(apart, CLUSTER, "t3")


def test_workers_keep_the_rules_and_the_slots() -> None:
    graph = replace(GRAPH, constraints=(Apart("worker", ("a/0", "a/1")), Together("worker", ("a/0", "b/0"))))
    cluster = Cluster((Node("n1", 9.0, slots=2),))
    for name in ("best", "exact"):
        at = place(graph, cluster, name).assignment
        assert at["a/0"] == at["b/0"] != at["a/1"]
        assert {slot.worker for slot in at.values()} == {0, 1}


def test_best_has_a_bound_under_constraints_and_it_is_true() -> None:
    graph = OperatorGraph(
        "t",
        (Operator("a", 2, load=0.8), Operator("b", 2, load=0.8)),
        (Stream("a", "b"),),
        (Apart("node", ("a/0", "a/1")),),
    )
    cluster = Cluster.uniform([(4, 1.0)])  # a task to a node, so that every stream crosses
    plan = place(graph, cluster, "best", options=Options(theta=0.5))
    assert (plan.cost, plan.lower_bound, plan.proved_optimal) == (4.0, 4.0, True)


def test_best_hears_of_its_settings_under_constraints() -> None:
    graph = replace(GRAPH, constraints=(Apart("node", ("a", "b")),))
    plan = place(graph, CLUSTER, "best", options=Options(theta=5.0, settings={"effort": 2.0}))
    assert any("effort changed nothing" in note for note in plan.notes)
    for theta in (1.0, 5.0):
        plan = place(graph, CLUSTER, "best", options=Options(theta=theta, settings={"rounds": 3, "prove": False}))
        assert not any("changed nothing" in note for note in plan.notes)
    for name, value in (("rounds", "x"), ("prove", 7), ("effort", "no"), ("effort_follows_theta", "perhaps")):
        with pytest.raises(InvalidInput, match=f"setting {name} is"):
            place(graph, CLUSTER, "best", options=Options(settings={name: value}))


@pytest.mark.parametrize("seed", [3003, 3004, 3007, 3014])  # whose bound without the program is below their cost
def test_best_proves_its_plan_under_constraints_where_it_has_time(seed: int) -> None:
    graph, cluster = random_case(seed, constraints_max=4, operators=(8, 8))
    exact = place(graph, cluster, "exact", options=Options(theta=20.0))
    quick = place(graph, cluster, "best", options=Options(theta=20.0, settings={"rounds": 0, "prove": False}))
    best = place(graph, cluster, "best", options=Options(theta=20.0))
    assert exact.proved_optimal
    assert not quick.proved_optimal
    assert best.proved_optimal
    assert best.cost == pytest.approx(exact.cost)


def test_best_goes_on_in_rounds_under_constraints_and_says_when_it_has_stalled() -> None:
    graph, cluster = random_case(3003, constraints_max=4, operators=(8, 8))
    settings = {"prove": False, "rounds": 2}
    plan = place(graph, cluster, "best", options=Options(theta=20.0, settings=settings))
    assert any("stalled: the last 2 of" in note for note in plan.notes)
    assert place(graph, cluster, "best", options=Options(theta=20.0, settings=settings)).assignment == plan.assignment
