"""One suite over the registry: whatever places tasks keeps these promises, and a new row is tested by being there.

The suite itself is shipped (`penstock.testing.scheduler_contract`), so that other packages run it over their own
schedulers. Here it runs over ours, together with what only a comparison of all can show.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from penstock.errors import NoPlanFound
from penstock.model.cluster import Cluster
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.door import place
from penstock.optimise.objective import node_cost
from penstock.optimise.place import SCHEDULERS, even
from penstock.testing import PromiseBroken, certificate_faults, scheduler_contract
from penstock.testing.certificate import SLACK
from penstock.testing.scheduler_contract import SMALL, Instance, Subject

# phi is how many tasks I-Scheduler solves exactly; by default it depends on the machine, and here it must not.
SETTINGS: dict[str, dict[str, object]] = {"ischeduler": {"phi": 6}}
SUBJECTS = {name: Subject(name, SETTINGS.get(name, {})) for name in SCHEDULERS}

for _name in SCHEDULERS:
    globals()[f"Test_{_name.replace('-', '_')}"] = scheduler_contract(_name, settings=SETTINGS.get(_name))


def test_the_certificate_can_fail() -> None:
    graph = OperatorGraph("t", (Operator("a", 2, load=2.0), Operator("b", 2)), (Stream("a", "b", rate=3.0),))
    cluster = Cluster.uniform([(2, 4.0)])
    plan = place(graph, cluster, "even")
    assert certificate_faults(graph, cluster, plan) == []
    elsewhere = {task: slot._replace(node="n1") for task, slot in plan.assignment.items()}
    lost = {task: slot for task, slot in plan.assignment.items() if task != "b/1"}
    for wrong in (
        replace(plan, assignment=elsewhere, cost=0.0),  # overload
        replace(plan, assignment=lost),
        replace(plan, assignment={**plan.assignment, "b/1": plan.assignment["b/1"]._replace(worker=4)}),
        replace(plan, assignment={**plan.assignment, "b/1": plan.assignment["b/1"]._replace(node="n3")}),
        replace(plan, cost=plan.cost - 1.0),
        replace(plan, inter_worker_cost=plan.inter_worker_cost + 1.0),
        replace(plan, lower_bound=plan.cost + 1.0),
        replace(plan, proved_optimal=True),
    ):
        assert certificate_faults(graph, cluster, wrong) != []


def shaky(problem: Problem, options: Options) -> Placement:
    """Another plan each time that it is asked."""
    shaky.calls = getattr(shaky, "calls", 0) + 1  # type: ignore[attr-defined]
    return Placement(np.full(problem.task_count, shaky.calls % problem.node_count, dtype=np.int32))  # type: ignore[attr-defined]


def boastful(problem: Problem, options: Options) -> Placement:
    """Says that whatever it found is optimal."""
    node = (np.arange(problem.task_count) % problem.node_count).astype(np.int32)
    return Placement(node, lower_bound=node_cost(problem, node), proved_optimal=True)


def timid(problem: Problem, options: Options) -> Placement:
    """Never finds anything."""
    msg = "scheduler 'even' has no plan"
    raise NoPlanFound(msg)


@pytest.mark.parametrize(
    ("schedule", "test"),
    [
        (shaky, "test_same_seed_same_plan"),
        (boastful, "test_what_it_says_of_corners_is_true"),
        (timid, "test_finds_a_plan_where_any_would_do"),
        (timid, "test_corners"),
    ],
)
def test_the_contract_can_fail(monkeypatch: pytest.MonkeyPatch, schedule: object, test: str) -> None:
    monkeypatch.setattr(even, "schedule", schedule)
    contract = scheduler_contract("even")()
    with pytest.raises(PromiseBroken, match="'even'"):
        getattr(contract, test)()


@settings(max_examples=25)
@given(instance=SMALL)
def test_exact_and_best_against_all_others(instance: Instance) -> None:
    plans = {name: subject.plan(*instance) for name, subject in SUBJECTS.items()}
    found = {name: plan for name, plan in plans.items() if plan is not None}
    bound = max((plan.lower_bound for plan in found.values()), default=0.0)
    for name, plan in found.items():
        assert bound <= plan.cost + SLACK, f"a lower bound of {bound} is above the cost of {name}"
    exact, best = plans["exact"], plans["best"]
    if found:
        assert best is not None, f"best found no plan but {', '.join(found)} did"
        assert best.cost <= min(plan.cost for plan in found.values()) + SLACK
    if exact is not None and exact.proved_optimal:
        assert exact.cost <= min(plan.cost for plan in found.values()) + SLACK
