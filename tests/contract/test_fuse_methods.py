"""One suite over the registry of fusion methods, with check_plan as the certificate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Infeasible, InvalidInput, UnhonouredConstraints, UserError
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart
from penstock.model.plan import Plan, Slot
from penstock.model.profile import Profile
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.fuse.contract import METHODS, FuseOptions
from penstock.optimise.fuse.door import fuse
from penstock.testing import instances, profiles

Instance = tuple[OperatorGraph, Cluster]
SMALL = instances(max_tasks=9, max_nodes=4)
STREAM_COST = 0.05

every_method = pytest.mark.parametrize("name", list(METHODS))


def attempt(
    graph: OperatorGraph, cluster: Cluster, name: str, profile: Profile | None = None, **asked: float
) -> Plan | None:
    """A plan that the certificate and SIZE accept, or None when the method says why there is none."""
    options = METHODS[name].heard(FuseOptions(seed=3, stream_cost=STREAM_COST, **asked))  # type: ignore[arg-type]
    try:
        plan = fuse(graph, cluster, name, profile=profile, options=options)
    except UserError:
        return None
    assert check_plan(graph, cluster, plan, profile) == []
    if profile is None:
        assert max(utilisations(graph, cluster, plan).values()) <= 1 + 1e-6
        assert overfull(graph, cluster, plan) == []
    return plan


def overfull(graph: OperatorGraph, cluster: Cluster, plan: Plan) -> list[Slot]:
    """Workers of several tasks whose SIZE is more than their node says that a worker carries, by plain loops."""
    limit = {node.name: node.worker_capacity for node in cluster.nodes}
    size, tasks = dict.fromkeys(plan.assignment.values(), 0.0), Counter(plan.assignment.values())
    for operator in graph.operators:
        for i, load in enumerate(operator.loads()):
            size[plan.assignment[f"{operator.name}/{i}"]] += load
    for ends, rate in _pairs(graph, plan):
        for end in ends:
            size[end] += rate * STREAM_COST
    return [
        slot
        for slot, amount in size.items()
        if tasks[slot] > 1 and amount > (math.inf if (most := limit[slot.node]) is None else most) * (1 + 1e-6)
    ]


def _pairs(graph: OperatorGraph, plan: Plan) -> Iterator[tuple[tuple[Slot, Slot], float]]:
    """The two workers of each pair of tasks that are in different ones, with the pair's rate."""
    sizes = {operator.name: operator.tasks for operator in graph.operators}
    for stream in graph.streams:
        for i in range(sizes[stream.source]):
            for j in range(sizes[stream.target]):
                if stream.grouping == "forward" and i != j:  # from each task to its like alone
                    continue
                rate = stream.rate[i][j] if isinstance(stream.rate, tuple) else stream.rate
                ends = plan.assignment[f"{stream.source}/{i}"], plan.assignment[f"{stream.target}/{j}"]
                if ends[0] != ends[1]:
                    yield ends, rate


def utilisations(graph: OperatorGraph, cluster: Cluster, plan: Plan) -> dict[str, float]:
    """How full each node is with SIZE as in formula (1), by plain loops."""
    used = dict.fromkeys((node.name for node in cluster.nodes), 0.0)
    for operator in graph.operators:
        for i, load in enumerate(operator.loads()):
            used[plan.assignment[f"{operator.name}/{i}"].node] += load
    for ends, rate in _pairs(graph, plan):
        for end in ends:
            used[end.node] += rate * STREAM_COST
    capacity = {node.name: node.capacity for node in cluster.nodes}
    return {name: amount / capacity[name] for name, amount in used.items()}


def cut(plan: Plan) -> float:
    return plan.cost + plan.inter_worker_cost


@every_method
class TestEveryMethod:
    @settings(max_examples=20)
    @given(data=st.data())
    def test_gives_a_certified_plan_or_says_why_not(self, name: str, data: st.DataObject) -> None:
        graph, cluster = data.draw(SMALL)
        attempt(graph, cluster, name, data.draw(st.none() | profiles(graph)))

    @settings(max_examples=8)
    @given(instance=instances(max_tasks=9, cpu_only=True))
    def test_finds_a_plan_where_any_would_do(self, name: str, instance: Instance) -> None:
        graph, cluster = instance
        load = 1.0 + 100 * sum(sum(operator.loads()) for operator in graph.operators) + 1e3
        assert attempt(graph, Cluster(tuple(Node(node.name, load) for node in cluster.nodes)), name) is not None
        roomy = Cluster(tuple(Node(node.name, load, worker_capacity=None) for node in cluster.nodes))
        plan = attempt(graph, roomy, name)
        assert plan is not None
        if name in ("best", "cola", "cola-basic"):
            assert cut(plan) == 0  # everything fits one worker

    @settings(max_examples=8)
    @given(instance=SMALL)
    def test_same_seed_same_plan(self, name: str, instance: Instance) -> None:
        first, second = attempt(*instance, name), attempt(*instance, name)
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            assert replace(first, seconds=0.0) == replace(second, seconds=0.0)

    @pytest.mark.parametrize(
        "graph",
        [
            OperatorGraph("single task", (Operator("a"),)),
            OperatorGraph("no streams", (Operator("a", 3), Operator("b", 2))),
            OperatorGraph("no load", (Operator("a", 3, load=0.0), Operator("b", 2, load=0.0)), (Stream("a", "b"),)),
            OperatorGraph("no rate", (Operator("a", 3), Operator("b", 2)), (Stream("a", "b", rate=0.0),)),
            OperatorGraph("two streams", (Operator("a", 2), Operator("b", 2)), (Stream("a", "b"), Stream("a", "b"))),
            OperatorGraph("one heavy", (Operator("a", load=4.0), Operator("b", 3, load=0.1)), (Stream("a", "b"),)),
        ],
        ids=lambda graph: graph.name,
    )
    @pytest.mark.parametrize(
        "cluster",
        [
            Cluster((Node("only", 6.0),)),
            Cluster(tuple(Node(f"n{k}", 6.0) for k in range(9))),
            Cluster((Node("n1", 7.0, memory_mb=9.0, slots=3), Node("n2", 6.0, slots=5))),
        ],
        ids=["one node", "more nodes than tasks", "memory and slots"],
    )
    def test_corners(self, name: str, graph: OperatorGraph, cluster: Cluster) -> None:
        assert attempt(graph, cluster, name) is not None

    def test_load_beyond_the_cluster_is_refused_with_the_shortage(self, name: str) -> None:
        with pytest.raises(Infeasible, match=r"need load 9 in all but the cluster offers 8; it is 1 short"):
            fuse(OperatorGraph("t", (Operator("a", 9),)), Cluster.uniform([(2, 4.0)]), name)

    def test_an_operator_larger_than_every_node_is_refused_by_name(self, name: str) -> None:
        graph = OperatorGraph("t", (Operator("a"), Operator("big", load=5.0)))
        with pytest.raises(Infeasible, match=r"task 'big/0' needs load 5 but the largest node offers 4"):
            fuse(graph, Cluster.uniform([(3, 4.0)]), name)

    def test_numbers_out_of_range_are_all_named(self, name: str) -> None:
        wrong = FuseOptions(seed=-1, balance=2.0, threshold=math.nan, cut="scissors")
        with pytest.raises(InvalidInput, match=r"balance is 2.*threshold is nan.*seed is -1.*cut is 'scissors'"):
            fuse(OperatorGraph("t", (Operator("a"),)), Cluster.uniform([(1, 4.0)]), name, options=wrong)

    def test_a_broken_constraint_never_gets_out(self, name: str) -> None:
        graph = OperatorGraph(
            "t",
            (Operator("a", load=0.1), Operator("b", load=0.1)),
            (Stream("a", "b", rate=0.1),),
            (Apart("worker", ("a", "b")),),
        )
        if METHODS[name].honours_constraints:
            plan = fuse(graph, Cluster.uniform([(2, 4.0)]), name)
            assert plan.assignment["a/0"] != plan.assignment["b/0"]
        else:
            with pytest.raises(UnhonouredConstraints, match=r"does not honour constraints.*--method best"):
                fuse(graph, Cluster.uniform([(2, 4.0)]), name)


@settings(max_examples=30)
@given(instance=SMALL, balance=st.sampled_from((0.0, 0.3, 1.0)))
def test_best_is_never_worse(instance: Instance, balance: float) -> None:
    plans = {name: attempt(*instance, name, balance=balance) for name in METHODS}
    found = {name: plan for name, plan in plans.items() if plan is not None}
    if not found:
        return
    best = plans["best"]
    assert best is not None, f"best found no plan but {', '.join(found)} did"

    def objective(plan: Plan) -> float:
        graph, cluster = instance
        fullest = max(utilisations(graph, cluster, plan).values())
        total = sum(_rates(graph)) or 1.0
        return balance * fullest + (1 - balance) * cut(plan) / total

    for plan in found.values():
        assert objective(best) <= objective(plan) + 1e-6
        if balance == 0:
            assert cut(best) <= cut(plan) + 1e-9


def _rates(graph: OperatorGraph) -> list[float]:
    sizes = {operator.name: operator.tasks for operator in graph.operators}
    return [
        stream.rate[i][j] if isinstance(stream.rate, tuple) else stream.rate
        for stream in graph.streams
        for i in range(sizes[stream.source])
        for j in range(sizes[stream.target])
        if stream.grouping != "forward" or i == j
    ]
