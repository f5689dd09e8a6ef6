"""One suite over the registry: whatever places tasks keeps these promises, and a new row is tested by being there.

Nothing here knows an algorithm. Plans come through `place`, which certifies them; `certificate` below recomputes the
same from the files' own words with plain loops, so that a mistake in the model cannot hide in both.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Infeasible, NoPlanFound, UserError
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options
from penstock.optimise.door import place
from penstock.optimise.place import SCHEDULERS
from penstock.testing import instances, profiles, random_cluster, random_topology

Instance = tuple[OperatorGraph, Cluster]
SLACK = 1e-6
# phi is how many tasks I-Scheduler solves exactly; by default it depends on the machine, and here it must not.
SETTINGS: dict[str, dict[str, object]] = {"ischeduler": {"phi": 6}}
# Small enough that `exact` ends before its time, so that the same seed can be held to the same plan.
SMALL = instances(max_tasks=9, max_nodes=4)

every_scheduler = pytest.mark.parametrize("name", list(SCHEDULERS))


def options_for(name: str, theta: float = 5.0) -> Options:
    return Options(seed=3, theta=theta, settings=SETTINGS.get(name, {}))


def attempt(graph: OperatorGraph, cluster: Cluster, name: str, profile: Profile | None = None) -> Plan | None:
    """A plan that both certificates accept, or None when the scheduler says why there is none; all else escapes."""
    try:
        plan = place(graph, cluster, name, profile=profile, options=options_for(name))
    except UserError:
        return None
    assert check_plan(graph, cluster, plan, profile) == []
    if profile is None:
        certificate(graph, cluster, plan)
    return plan


def rates(graph: OperatorGraph) -> dict[tuple[str, str], float]:
    size = {operator.name: operator.tasks for operator in graph.operators}
    between: dict[tuple[str, str], float] = defaultdict(float)
    for stream in graph.streams:
        for i, j in itertools.product(range(size[stream.source]), range(size[stream.target])):
            if stream.grouping == "forward" and i != j:  # from each task to its like alone
                continue
            rate = stream.rate[i][j] if isinstance(stream.rate, tuple) else stream.rate
            between[f"{stream.source}/{i}", f"{stream.target}/{j}"] += rate
    return between


def certificate(graph: OperatorGraph, cluster: Cluster, plan: Plan) -> None:
    """Every task placed once, every limit kept, every figure true."""
    load = {f"{o.name}/{i}": value for o in graph.operators for i, value in enumerate(o.loads())}
    memory = {f"{o.name}/{i}": value for o in graph.operators for i, value in enumerate(o.memories_mb())}
    assert sorted(plan.assignment) == sorted(load)
    nodes = {node.name: node for node in cluster.nodes}
    for task, slot in plan.assignment.items():
        assert slot.node in nodes, task
        assert 0 <= slot.worker < nodes[slot.node].workers_max, task
    for node in cluster.nodes:
        here = [task for task, slot in plan.assignment.items() if slot.node == node.name]
        assert sum(load[task] for task in here) <= node.capacity + SLACK
        assert node.memory_mb is None or sum(memory[task] for task in here) <= node.memory_mb + SLACK
        if node.bandwidth_mbps is not None:
            limit = node.bandwidth_mbps * 1e6 / 8 + SLACK
            crossing = {ends: r for ends, r in rates(graph).items() if (ends[0] in here) != (ends[1] in here)}
            assert sum(r for (source, _), r in crossing.items() if source in here) <= limit
            assert sum(r for (_, target), r in crossing.items() if target in here) <= limit
    at = plan.assignment
    assert plan.cost == pytest.approx(sum(r for (a, b), r in rates(graph).items() if at[a].node != at[b].node))
    inside = sum(r for (a, b), r in rates(graph).items() if at[a].node == at[b].node and at[a].worker != at[b].worker)
    assert plan.inter_worker_cost == pytest.approx(inside)
    assert 0 <= plan.lower_bound <= plan.cost + SLACK
    assert not plan.proved_optimal or plan.lower_bound == pytest.approx(plan.cost, rel=1e-6, abs=SLACK)


def cheapest(graph: OperatorGraph, cluster: Cluster) -> float | None:
    """The least cost of all assignments to nodes that keep every limit, or None when there is none: by trying all."""
    loads = [(o.name, i, value) for o in graph.operators for i, value in enumerate(o.loads())]
    memories = [value for o in graph.operators for value in o.memories_mb()]
    number = {f"{name}/{i}": k for k, (name, i, _) in enumerate(loads)}
    edges = [(number[a], number[b], rate) for (a, b), rate in rates(graph).items()]
    best: float | None = None
    for nodes in itertools.product(range(len(cluster.nodes)), repeat=len(loads)):
        if not _fits(cluster, nodes, [load for _, _, load in loads], memories, edges):
            continue
        cost = math.fsum(rate for a, b, rate in edges if nodes[a] != nodes[b])
        best = cost if best is None else min(best, cost)
    return best


def _fits(
    cluster: Cluster,
    nodes: tuple[int, ...],
    loads: list[float],
    memories: list[float],
    edges: list[tuple[int, int, float]],
) -> bool:
    for k, node in enumerate(cluster.nodes):
        here = [t for t, at in enumerate(nodes) if at == k]
        if math.fsum(loads[t] for t in here) > node.capacity * (1 + 1e-9):
            return False
        if node.memory_mb is not None and math.fsum(memories[t] for t in here) > node.memory_mb * (1 + 1e-9):
            return False
        if node.bandwidth_mbps is not None:
            limit = node.bandwidth_mbps * 125_000 * (1 + 1e-9) + 1e-9
            if math.fsum(rate for a, b, rate in edges if nodes[a] == k != nodes[b]) > limit:
                return False
            if math.fsum(rate for a, b, rate in edges if nodes[b] == k != nodes[a]) > limit:
                return False
    return True


def test_the_certificate_can_fail() -> None:
    graph = OperatorGraph("t", (Operator("a", 2, load=2.0), Operator("b", 2)), (Stream("a", "b", rate=3.0),))
    cluster = Cluster.uniform([(2, 4.0)])
    plan = place(graph, cluster, "even")
    certificate(graph, cluster, plan)
    elsewhere = {task: slot._replace(node="n1") for task, slot in plan.assignment.items()}
    lost = {task: slot for task, slot in plan.assignment.items() if task != "b/1"}
    for wrong in (
        replace(plan, assignment=elsewhere, cost=0.0),  # overload
        replace(plan, assignment=lost),
        replace(plan, assignment={**plan.assignment, "b/1": plan.assignment["b/1"]._replace(worker=4)}),
        replace(plan, cost=plan.cost - 1.0),
        replace(plan, inter_worker_cost=plan.inter_worker_cost + 1.0),
        replace(plan, lower_bound=plan.cost + 1.0),
        replace(plan, proved_optimal=True),
    ):
        with pytest.raises(AssertionError):
            certificate(graph, cluster, wrong)


@every_scheduler
class TestEveryScheduler:
    @settings(max_examples=25)
    @given(data=st.data())
    def test_gives_a_certified_plan_or_says_why_not(self, name: str, data: st.DataObject) -> None:
        graph, cluster = data.draw(SMALL)
        attempt(graph, cluster, name, data.draw(st.none() | profiles(graph)))

    @settings(max_examples=10)
    @given(instance=instances(max_tasks=9, cpu_only=True))
    def test_finds_a_plan_where_any_would_do(self, name: str, instance: Instance) -> None:
        # Every node could take everything, so a refusal has no excuse: without this a scheduler could refuse always.
        graph, cluster = instance
        load = 1.0 + sum(sum(operator.loads()) for operator in graph.operators)
        roomy = Cluster(tuple(replace(node, capacity=load, slots=graph.task_count) for node in cluster.nodes))
        assert attempt(graph, roomy, name) is not None

    @settings(max_examples=12)
    @given(instance=SMALL)
    def test_same_seed_same_plan(self, name: str, instance: Instance) -> None:
        first, second = attempt(*instance, name), attempt(*instance, name)
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            assert first.assignment == second.assignment
            assert replace(first, seconds=0.0) == replace(second, seconds=0.0)

    @settings(max_examples=12)
    @given(data=st.data())
    def test_names_and_the_order_of_the_files_do_not_matter_to_validity(self, name: str, data: st.DataObject) -> None:
        graph, cluster = data.draw(SMALL)
        renamed = {operator.name: f"x-{operator.name[::-1]}" for operator in graph.operators}
        operators = data.draw(st.permutations([replace(o, name=renamed[o.name]) for o in graph.operators]))
        streams = data.draw(
            st.permutations([replace(s, source=renamed[s.source], target=renamed[s.target]) for s in graph.streams])
        )
        nodes = data.draw(st.permutations([replace(node, name=f"host {node.name}") for node in cluster.nodes]))
        other = OperatorGraph("renamed", tuple(operators), tuple(streams))
        before, after = attempt(graph, cluster, name), attempt(other, Cluster(tuple(nodes)), name)
        if before is not None and after is not None and before.proved_optimal and after.proved_optimal:
            assert before.cost == pytest.approx(after.cost, abs=SLACK)

    @settings(max_examples=8)
    @given(instance=instances(max_operators=3, max_tasks=6, max_nodes=3))
    def test_what_it_says_is_impossible_or_optimal_is(self, name: str, instance: Instance) -> None:
        truth = cheapest(*instance)
        try:
            plan = place(*instance, name, options=options_for(name))
        except Infeasible:
            assert truth is None
        except UserError:
            return  # it gave up, which claims nothing
        else:
            assert truth is not None
            assert plan.cost >= truth - SLACK
            assert plan.lower_bound <= truth + SLACK
            assert not plan.proved_optimal or plan.cost == pytest.approx(truth, abs=SLACK)

    @settings(max_examples=12)
    @given(instance=SMALL)
    def test_an_overload_is_shown_when_it_is_asked_for(self, name: str, instance: Instance) -> None:
        graph, cluster = instance
        try:
            plan = place(graph, cluster, name, options=options_for(name), allow_overload=True)
        except UserError:
            return
        shortages = ("carries load", "holds", "sends", "receives")
        assert all(any(verb in fault for verb in shortages) for fault in check_plan(graph, cluster, plan))

    @pytest.mark.parametrize(
        "graph",
        [
            OperatorGraph("single task", (Operator("a"),)),
            OperatorGraph("no streams", (Operator("a", 3), Operator("b", 2))),
            OperatorGraph("no load", (Operator("a", 3, load=0.0), Operator("b", 2, load=0.0)), (Stream("a", "b"),)),
            OperatorGraph("no rate", (Operator("a", 3), Operator("b", 2)), (Stream("a", "b", rate=0.0),)),
            OperatorGraph(
                "nothing", (Operator("a", 2, load=0.0), Operator("b", 2, load=0.0)), (Stream("a", "b", rate=0.0),)
            ),
            OperatorGraph(
                "two streams", (Operator("a", 2), Operator("b", 2)), (Stream("a", "b"), Stream("a", "b", rate=3.0))
            ),
            OperatorGraph(
                "two components",
                (Operator("a"), Operator("b"), Operator("c"), Operator("d")),
                (Stream("a", "b"), Stream("c", "d")),
            ),
            OperatorGraph("one heavy", (Operator("a", load=5.0), Operator("b", 3, load=0.1)), (Stream("a", "b"),)),
        ],
        ids=lambda graph: graph.name,
    )
    @pytest.mark.parametrize(
        "cluster",
        [
            Cluster((Node("only", 6.0),)),
            Cluster(tuple(Node(f"n{k}", 6.0) for k in range(12))),
            Cluster((Node("n1", 7.0, memory_mb=9.0, bandwidth_mbps=1.0, slots=3), Node("n2", 6.0, slots=5, rack="r2"))),
        ],
        ids=["one node", "more nodes than tasks", "everything limited"],
    )  # fmt: skip
    def test_corners(self, name: str, graph: OperatorGraph, cluster: Cluster) -> None:
        plan = attempt(graph, cluster, name)
        assert plan is not None
        if len(cluster.nodes) == 1 or not any(rates(graph).values()):
            assert plan.cost == 0.0

    def test_load_beyond_the_cluster_is_refused_with_the_shortage(self, name: str) -> None:
        with pytest.raises(Infeasible, match=r"need load 9 in all but the cluster offers 8; it is 1 short"):
            place(OperatorGraph("t", (Operator("a", 9),)), Cluster.uniform([(2, 4.0)]), name, options=options_for(name))

    def test_a_task_larger_than_every_node_is_refused_by_name(self, name: str) -> None:
        graph = OperatorGraph("t", (Operator("a"), Operator("big", load=5.0)))
        with pytest.raises(Infeasible, match=r"task 'big/0' needs load 5 but the largest node offers 4"):
            place(graph, Cluster.uniform([(3, 4.0)]), name, options=options_for(name))

    def test_a_hundred_unequal_tasks(self, name: str) -> None:
        # Big enough for every phase of every algorithm; a scheduler that does not look at load may honestly give up.
        graph = random_topology(5, operators=20, tasks_per_operator=5)
        cluster = random_cluster(5, graph, fill=0.6)
        try:
            plan = place(graph, cluster, name, options=options_for(name, theta=2.0))
        except NoPlanFound:
            assert not {"cpu", "memory", "bandwidth"} <= SCHEDULERS[name].looks_at
        else:
            certificate(graph, cluster, plan)


@settings(max_examples=25)
@given(instance=SMALL)
def test_exact_and_best_against_all_others(instance: Instance) -> None:
    plans = {name: attempt(*instance, name) for name in SCHEDULERS}
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
