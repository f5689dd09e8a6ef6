"""The certificate can fail: every kind of fault is planted once into a correct plan and must be named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.model.check import check_plan
from penstock.model.cluster import BYTES_PER_SECOND_PER_MBPS, Cluster, Node
from penstock.model.constraints import Apart, Constraint, Dedicated, Replicas, Resource, Together
from penstock.model.plan import Plan, Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import Operator, OperatorGraph, Stream

GRAPH = OperatorGraph(
    "t",
    (Operator("a", 2, load=1.0, memory_mb=100.0), Operator("b", 2, load=(0.5, 1.5), memory_mb=50.0)),
    (Stream("a", "b", rate=((1.0, 2.0), (3.0, 4.0))),),
)
# What crosses nodes in PLAN: a/0 -> b/1 is 2 and a/1 -> b/0 is 3, in both cases between the nodes: n1 sends 2 and
# receives 3. Between workers of a node: a/1 -> b/1 on n2 is 4; a/0 and b/0 share worker 0 of n1.
BANDWIDTH = 3.0 / BYTES_PER_SECOND_PER_MBPS
CLUSTER = Cluster(
    (
        Node("n1", 2.0, memory_mb=150.0, bandwidth_mbps=BANDWIDTH, slots=2, worker_capacity=1.5),
        Node("n2", 3.0, memory_mb=200.0, bandwidth_mbps=BANDWIDTH, slots=2, worker_capacity=1.5),
        Node("n3", 1.0, slots=1),
    )
)
ASSIGNMENT = {"a/0": Slot("n1", 0), "b/0": Slot("n1", 0), "a/1": Slot("n2", 0), "b/1": Slot("n2", 1)}
PLAN = Plan(
    scheduler="hand",
    seed=0,
    seconds=0.0,
    cost=5.0,
    inter_worker_cost=4.0,
    lower_bound=5.0,
    proved_optimal=True,
    nodes_used=2,
    max_utilisation=2.5 / 3.0,
    assignment=ASSIGNMENT,
)


def moved(**slots: Slot) -> Plan:
    """PLAN with tasks elsewhere; `a_0` stands for the task a/0."""
    return replace(PLAN, assignment={**ASSIGNMENT, **{name.replace("_", "/"): slot for name, slot in slots.items()}})


def faults_of(plan: Plan, cluster: Cluster = CLUSTER, *constraints: Constraint) -> list[str]:
    graph = replace(GRAPH, constraints=constraints)
    assert graph.faults() == []
    return check_plan(graph, cluster, plan)


def node_with(**changes: object) -> Cluster:
    first, *others = CLUSTER.nodes
    return Cluster((replace(first, **changes), *others))


def test_a_correct_plan_passes() -> None:
    assert faults_of(PLAN) == []


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (replace(PLAN, assignment={k: v for k, v in ASSIGNMENT.items() if k != "b/1"}), "task 'b/1' is not placed"),
        (
            replace(PLAN, assignment={"x/0": Slot("n1", 0)}),
            "the plan is one of another topology: it places 'x/0' and others, but not 'a/0' nor any other",
        ),
        (moved(c_0=Slot("n1", 0)), "task 'c/0' is placed but the topology has no such task"),
        (moved(a_0=Slot("n9", 0)), "task 'a/0' is on node 'n9', which the cluster lacks"),
        (moved(a_0=Slot("n1", 2)), "task 'a/0' is in worker 2 of node 'n1', which has 2 slots"),
        (moved(a_0=Slot("n1", -1)), "task 'a/0' is in worker -1 of node 'n1', which has 2 slots"),
        (replace(PLAN, cost=4.0, lower_bound=4.0), "the plan states cost 4 but it is 5"),
        (replace(PLAN, max_utilisation=float("nan")), "the plan states max_utilisation nan but it is 0.833333"),
        (replace(PLAN, lower_bound=float("nan")), "the plan's lower bound nan is not between 0 and its cost 5"),
        (replace(PLAN, inter_worker_cost=0.0), "the plan states inter_worker_cost 0 but it is 4"),
        (replace(PLAN, nodes_used=3), "the plan states nodes_used 3 but it is 2"),
        (replace(PLAN, max_utilisation=0.5), "the plan states max_utilisation 0.5 but it is 0.833333"),
        (replace(PLAN, lower_bound=5.1), "the plan's lower bound 5.1 is not between 0 and its cost 5"),
        (
            replace(PLAN, lower_bound=4.5),
            "the plan says it is proved optimal but cost 5 is above its lower bound 4.5",
        ),
    ],
)
def test_each_fault_of_a_plan_is_named(plan: Plan, fault: str) -> None:
    assert faults_of(plan) == [fault]


@pytest.mark.parametrize(
    ("cluster", "fault"),
    [
        (node_with(capacity=1.4, slots=2), "node 'n1' carries load 1.5 but its capacity is 1.4"),
        (node_with(memory_mb=149.0), "node 'n1' holds 150 MB but its memory is 149 MB"),
        (node_with(bandwidth_mbps=BANDWIDTH * 0.9), "node 'n1' receives 3 B/s but its bandwidth is 2.7 B/s"),
    ],
)
def test_each_resource_is_counted(cluster: Cluster, fault: str) -> None:
    assert fault in faults_of(PLAN, cluster)


def test_bandwidth_counts_each_direction_for_itself() -> None:
    # n2 sends 3 and receives 2; at 2.5 B/s only the sending is too much. Together they would be 5.
    first, second, third = CLUSTER.nodes
    limit = replace(second, bandwidth_mbps=2.5 / BYTES_PER_SECOND_PER_MBPS)
    assert faults_of(PLAN, Cluster((first, limit, third))) == ["node 'n2' sends 3 B/s but its bandwidth is 2.5 B/s"]


def test_a_load_of_exactly_the_capacity_fits_whatever_the_rounding() -> None:
    graph = OperatorGraph("ten", (Operator("a", 10, load=0.1),))
    assignment = {f"a/{i}": Slot("n", 0) for i in range(10)}
    plan = replace(
        PLAN, assignment=assignment, cost=0.0, lower_bound=0.0, inter_worker_cost=0.0, nodes_used=1, max_utilisation=1.0
    )
    assert check_plan(graph, Cluster((Node("n", 1.0),)), plan) == []
    assert check_plan(graph, Cluster((Node("n", 1.0 - 1e-6),)), plan) != []


@pytest.mark.parametrize(
    ("constraint", "fault"),
    [
        (Resource("a", ("n1", "n3")), "constraint 0 (resource): 'a' runs on 'n2', which is not among n1, n3"),
        (Resource("b/1", ("n1",)), "constraint 0 (resource): 'b/1' runs on 'n2', which is not among n1"),
        (
            Together("worker", ("a/1", "b/1")),
            "constraint 0 (colocate-worker): a/1, b/1 must share one worker but use 2",
        ),
        (Together("node", ("a/0", "b/1")), "constraint 0 (colocate-node): a/0, b/1 must share one node but use 2"),
        (Apart("worker", ("a", "b")), "constraint 0 (separate-workers): 'a' and 'b' share worker 0 of 'n1'"),
        (Apart("node", ("a/1", "b/1")), "constraint 0 (separate-nodes): 'a/1' and 'b/1' share node 'n2'"),
        (Dedicated("worker", "a"), "constraint 0 (dedicated-worker): 'b/0' shares worker 0 of 'n1' with 'a'"),
        (Dedicated("node", "b/1"), "constraint 0 (dedicated-node): 'a/1' shares node 'n2' with 'b/1'"),
        (Replicas((("a",), ("b",))), "constraint 0 (replicas): groups 0 and 1 share node 'n1'"),
        (
            Replicas((("a/0",), ("b/1",))),
            "constraint 0 (replicas): worker 0 of 'n1' mixes a group with tasks outside it",
        ),
        (
            Replicas((("a/0", "b/0"), ("a/1", "b/1")), isomorphic=True),
            "constraint 0 (replicas): the groups are isomorphic but are cut into workers differently",
        ),
    ],
)
def test_each_constraint_can_be_broken(constraint: Constraint, fault: str) -> None:
    assert fault in faults_of(PLAN, CLUSTER, constraint)


@pytest.mark.parametrize(
    "constraint",
    [
        Resource("a", ("n1", "n2")),
        Together("worker", ("a/0", "b/0")),
        Together("node", ("a/1", "b/1")),
        Apart("worker", ("a/1", "b/1")),
        Apart("node", ("a/0", "b/1")),
        Dedicated("worker", "b/1"),
        Replicas((("a/0", "b/0"), ("a/1", "b/1"))),
    ],
)
def test_each_constraint_can_hold(constraint: Constraint) -> None:
    assert faults_of(PLAN, CLUSTER, constraint) == []


def test_isomorphic_groups_cut_alike_hold() -> None:
    alike = replace(moved(b_1=Slot("n2", 0)), inter_worker_cost=0.0)
    threads = Cluster(tuple(replace(node, worker_capacity=None) for node in CLUSTER.nodes))
    assert faults_of(alike, threads, Replicas((("a/0", "b/0"), ("a/1", "b/1")), isomorphic=True)) == []


def test_a_dedicated_node_holds_when_the_operator_is_alone_there() -> None:
    # b/0 alone on n3 instead of n1: a/0 -> b/0 (1) crosses now as well, and n1 sends 3.
    plan = replace(moved(b_0=Slot("n3", 0)), cost=6.0, lower_bound=6.0, nodes_used=3)
    assert faults_of(plan, CLUSTER, Dedicated("node", "b/0")) == []


def test_several_faults_are_named_at_once() -> None:
    plan = replace(moved(a_0=Slot("n9", 0)), assignment={"a/0": Slot("n9", 0), "x/0": Slot("n1", 0)})
    assert len(faults_of(plan)) == 5  # three tasks lost, one unknown, one unknown node
    figures = replace(PLAN, cost=1.0, lower_bound=0.0, proved_optimal=False, nodes_used=9, inter_worker_cost=1.0)
    assert len(faults_of(figures)) == 3


def test_a_profile_replaces_what_is_declared() -> None:
    profile = Profile({"a/0": TaskProfile(load=1.6)}, (EdgeProfile("a/0", "b/1", 7.0),))
    faults = check_plan(GRAPH, CLUSTER, PLAN, profile)
    assert "node 'n1' carries load 2.1 but its capacity is 2" in faults
    assert "node 'n1' sends 7 B/s but its bandwidth is 3 B/s" in faults
    assert "the plan states cost 5 but it is 7" in faults


def test_a_worker_is_one_thread() -> None:
    """Two tasks beyond it are a fault, one task alone is not, and a worker without a limit has none."""
    # Worker 0 of n1 has a/0 (1.0) and b/0 (0.5); b/1 (1.5) is alone in worker 1 of n2.
    assert faults_of(PLAN, node_with(worker_capacity=1.4)) == [
        "worker 0 of node 'n1' carries load 1.5 in 2 tasks but one worker carries at most 1.4; "
        "give these tasks more workers"
    ]
    assert faults_of(PLAN, node_with(worker_capacity=None)) == []
    first, second, *others = CLUSTER.nodes
    assert faults_of(PLAN, Cluster((first, replace(second, worker_capacity=0.1), *others))) == []
