"""Several topologies in one placement: one certified plan, its parts, and no worker that two of them share."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import Infeasible, InvalidInput, NoPlanFound
from penstock.model.constraint_check import constraint_violations
from penstock.model.constraints import Apart, Dedicated, Jobs, Replicas, Resource, Together
from penstock.model.taskgraph import TaskGraph
from penstock.optimise.contract import Problem
from penstock.optimise.fuse.steps.rules import compile_rules
from penstock.optimise.joint import PACKED_NOTE, distinct, joined, joined_profile, place_together
from penstock.optimise.meet import keeps
from penstock.optimise.search.packed import packed
from penstock.testing import topologies

QUICK = ps.Options(theta=0.05)
PAIR = ps.OperatorGraph(
    "pair", (ps.Operator("a", 2, 0.3), ps.Operator("b", 2, 0.3)), (ps.Stream("a", "b", rate=5.0),),
    (ps.colocate("a/0", "b/0"),),
)  # fmt: skip


def workers_of(part: ps.Plan) -> set[ps.Slot]:
    return set(part.assignment.values())


@given(st.lists(topologies(), min_size=1, max_size=3))
def test_parts_are_certified_alone_and_together_and_share_no_worker(graphs: list[ps.OperatorGraph]) -> None:
    roomy = ps.Cluster(tuple(ps.Node(f"n{k}", 1e9, worker_capacity=None) for k in range(3)))
    plain = [replace(graph, constraints=()) for graph in graphs]
    joint = place_together(plain, roomy, "even", options=QUICK)
    names = distinct([graph.name for graph in plain])
    assert ps.check_plan(joined(plain, names), roomy, joint.plan) == []
    seen: set[ps.Slot] = set()
    for name, graph in zip(names, plain, strict=True):
        part = joint.parts[name]
        assert ps.check_plan(graph, roomy, part) == []
        assert {
            f"{name}.{task}": slot for task, slot in part.assignment.items()
        }.items() <= joint.plan.assignment.items()
        assert not seen & workers_of(part)
        seen |= workers_of(part)
    assert joint.plan.cost == pytest.approx(sum(part.cost for part in joint.parts.values()))


def test_topologies_of_one_name_are_told_apart() -> None:
    assert distinct(["a", "a", "a-2", "a"]) == ["a", "a-2", "a-2-2", "a-3"]
    joint = ps.place_together((PAIR, PAIR), ps.parse_cluster("2x2"), options=QUICK)
    assert list(joint.parts) == ["pair", "pair-2"]
    assert joint.plan.cost == 0  # each pair has room on a node of its own


def test_names_that_fit_alone_and_not_together_are_refused_with_their_origins() -> None:
    one, other = (ps.OperatorGraph(name, (ps.Operator(own),)) for name, own in (("a", "b.c"), ("a.b", "c")))
    said = r"^operator 'b\.c' of topology 'a' and operator 'c' of topology 'a\.b' would both be 'a\.b\.c'"
    with pytest.raises(InvalidInput, match=said):
        ps.place_together((one, other), ps.parse_cluster("2x2"), options=QUICK)
    long = ps.OperatorGraph("t" * 100, (ps.Operator("o" * 99), ps.Operator("p" * 100)))
    with pytest.raises(
        InvalidInput, match=r"^operator 'p{100}' of topology 't{100}' would have a name of 201 .* is 200"
    ):
        ps.place_together((long,), ps.parse_cluster("2x2"), options=QUICK)


def test_what_does_not_fit_together_is_refused_although_each_fits_alone() -> None:
    cluster = ps.parse_cluster("1x2")
    ps.place(PAIR, cluster, options=QUICK)  # load 1.2 of 2
    with pytest.raises(Infeasible, match=r"the tasks need load 2\.4 in all but the cluster offers 2"):
        ps.place_together((PAIR, PAIR), cluster, options=QUICK)


def test_each_topology_keeps_its_constraints() -> None:
    apart = replace(PAIR, name="apart", constraints=(ps.separate_nodes("a", "b"),))
    joint = ps.place_together((PAIR, apart), ps.parse_cluster("2x2"), options=QUICK)
    assert joint.plan.constraints == (
        Together("worker", ("pair.a/0", "pair.b/0")),
        Apart("node", ("apart.a", "apart.b")),
    )
    assert joint.parts["pair"].constraints == PAIR.constraints
    assert joint.parts["apart"].constraints == apart.constraints
    clash = replace(apart, constraints=(*apart.constraints, ps.colocate("a/1", "b/1", where="node")))
    with pytest.raises(Infeasible, match=r"'apart\.a', 'apart\.b' on different nodes"):
        ps.place_together((PAIR, clash), ps.parse_cluster("2x2"), options=QUICK)


def test_every_kind_of_constraint_is_put_in_the_joint_graphs_words() -> None:
    kinds = (
        Resource("a", ("n1",)),
        Together("node", ("a", "b/0")),
        Apart("worker", ("a", "b/0")),
        Dedicated("worker", "a"),
        Replicas((("a/0",), ("a/1",)), isomorphic=True),
    )
    graph = joined([replace(PAIR, constraints=kinds)], ["p"])
    assert graph.constraints == (
        Resource("p.a", ("n1",)),
        Together("node", ("p.a", "p.b/0")),
        Apart("worker", ("p.a", "p.b/0")),
        Dedicated("worker", "p.a"),
        Replicas((("p.a/0",), ("p.a/1",)), isomorphic=True),
    )


def test_workers_are_joined_where_a_node_has_no_slots_for_one_each() -> None:
    many = replace(PAIR, constraints=(), operators=(ps.Operator("a", 4, 0.1), ps.Operator("b", 4, 0.1)))
    of_two = ps.Cluster((ps.Node("n1", 8.0, slots=2, worker_capacity=None),))
    joint = ps.place_together((many, many), of_two, options=ps.Options(tasks_per_worker=1))
    assert [len(workers_of(part)) for part in joint.parts.values()] == [1, 1]
    with pytest.raises(NoPlanFound, match="which has 1 slots"):
        ps.place_together((many, many), ps.Cluster((ps.Node("n1", 8.0, slots=1, worker_capacity=None),)), options=QUICK)


def test_profiles_are_all_or_none_and_take_the_place_of_what_is_declared() -> None:
    measured = ps.Profile(
        {f"{name}/{i}": ps.TaskProfile(0.45) for name in "ab" for i in range(2)}, (ps.EdgeProfile("a/0", "b/1", 70.0),)
    )
    joint = ps.place_together((PAIR, PAIR), ps.parse_cluster("4x1"), profiles=(measured, measured), options=QUICK)
    assert joint.plan.max_utilisation == pytest.approx(0.9)
    both = joined_profile((measured, measured), ("x", "y"))
    assert [edge.source for edge in both.edges] == ["x.a/0", "y.a/0"]
    with pytest.raises(InvalidInput, match="1 profiles for 2 topologies; give one for each"):
        ps.place_together((PAIR, PAIR), ps.parse_cluster("4x1"), profiles=(measured,))


def test_a_topology_under_construction_is_taken_as_it_is() -> None:
    top = ps.Topology("built")
    rows = top.source("rows", ps.io.generator(lambda task, tasks: [], "n bigint"), load=0.2)
    rows.where("n > 1", name="kept", load=0.2).sink("out", ps.io.discard())
    cluster = ps.parse_cluster("2x1")
    graph = top.build().graph()
    for decide in (ps.place, ps.fuse):
        plan = decide(top, cluster)
        assert ps.check_plan(graph, cluster, plan) == ps.check_plan(top, cluster, plan) == []
    assert decide(top.build(), cluster).assignment == plan.assignment
    assert [p.scheduler for p in ps.compare(top, cluster, ["even", "ffd"])[0]] == ["even", "ffd"]
    assert ps.place_together((top, graph), cluster, options=QUICK).parts.keys() == {"built", "built-2"}
    with pytest.raises(InvalidInput, match=r"topology got 'built'; give a penstock\.Topology or"):
        ps.place("built", cluster)  # type: ignore[arg-type]


def small_joint_case(seed: int) -> tuple[list[ps.OperatorGraph], ps.Cluster]:
    """Two or three topologies of up to four tasks, and up to three nodes of one or two slots with little to spare."""
    draw = random.Random(seed)
    graphs = []
    for k in range(draw.randint(2, 3)):
        names = "ab"[: draw.randint(1, 2)]
        operators = tuple(ps.Operator(name, draw.randint(1, 2), round(draw.uniform(0.05, 0.6), 2)) for name in names)
        streams = (ps.Stream("a", "b", rate=5.0),) if len(names) > 1 else ()
        graphs.append(ps.OperatorGraph(f"t{k}", operators, streams))
    load = sum(sum(o.loads()) for graph in graphs for o in graph.operators)
    count = draw.randint(1, 3)
    nodes = (
        ps.Node(
            f"n{k}",
            round(load / count * draw.uniform(1.0, 2.0), 2),
            slots=draw.randint(1, 2),
            worker_capacity=draw.choice([1.0, None]),
        )
        for k in range(count)
    )
    return graphs, ps.Cluster(tuple(nodes))


def fits_together(graphs: list[ps.OperatorGraph], cluster: ps.Cluster) -> bool:
    """Whether there is a way in which no worker holds tasks of two topologies: all are tried."""
    tasks = [(k, load) for k, graph in enumerate(graphs) for o in graph.operators for load in o.loads()]
    seats = [(node, w) for node in cluster.nodes for w in range(node.slots or 0)]
    held: dict[int, list[tuple[int, float]]] = {s: [] for s in range(len(seats))}

    def fits(s: int) -> bool:
        node, here = seats[s][0], held[s]
        on_node = sum(load for other, (at, _) in enumerate(seats) if at is node for _, load in held[other])
        limit = node.worker_capacity
        alone = len(here) == 1 or limit is None or sum(load for _, load in here) <= limit * (1 + 1e-9)
        return alone and len({k for k, _ in here}) == 1 and on_node <= node.capacity * (1 + 1e-9)

    def seated(position: int) -> bool:
        if position == len(tasks):
            return True
        for s, here in held.items():
            here.append(tasks[position])
            if fits(s) and seated(position + 1):
                return True
            here.pop()
        return False

    return seated(0)


@settings(max_examples=60)
@given(st.integers(0, 1_000_000))
def test_topologies_are_placed_together_wherever_they_fit(seed: int) -> None:
    graphs, cluster = small_joint_case(seed)
    try:
        joint = place_together(graphs, cluster, options=QUICK)
    except (Infeasible, NoPlanFound):
        assert not fits_together(graphs, cluster)
        return
    used = [workers_of(part) for part in joint.parts.values()]
    assert len(set().union(*used)) == sum(map(len, used))


@pytest.mark.parametrize(("slots", "nodes", "topologies"), [(1, 2, 2), (1, 3, 2), (1, 3, 3), (2, 2, 3), (2, 3, 3)])
def test_each_topology_gets_a_node_of_few_slots_to_itself(slots: int, nodes: int, topologies: int) -> None:
    light = replace(PAIR, constraints=(), operators=(ps.Operator("a", 2, 0.05), ps.Operator("b", 2, 0.05)))
    cluster = ps.Cluster(tuple(ps.Node(f"n{k}", 4.0, slots=slots) for k in range(nodes)))
    assert place_together([light] * topologies, cluster, options=ps.Options(theta=60.0)).plan.cost == 0  # stops at 0


def test_what_searches_miss_is_packed_for_best_and_a_published_scheduler_names_best() -> None:
    graphs, cluster = small_joint_case(65)
    assert PACKED_NOTE in place_together(graphs, cluster, options=QUICK).plan.notes
    with pytest.raises(NoPlanFound, match="try --scheduler best"):
        place_together(graphs, cluster, "t3", options=QUICK)


def test_packing_keeps_every_rule_or_finds_nothing() -> None:
    apart = ps.separate_nodes("a", "b")
    cluster = ps.Cluster((ps.Node("n1", 1.3, slots=2), ps.Node("n2", 1.3, slots=1)))
    for constraints, there in (
        ((), True),
        (PAIR.constraints, True),
        ((apart,), True),
        ((*PAIR.constraints, apart), False),
    ):
        graph = replace(PAIR, constraints=constraints)
        problem = Problem(TaskGraph.expand(graph), cluster, constraints)
        found = packed(problem, compile_rules(problem))
        assert (found is not None) == there
        if found is not None:
            rules = compile_rules(problem)
            assert keeps(rules, *found)
    problem = Problem(TaskGraph.expand(PAIR), ps.Cluster((ps.Node("n1", 1.3, slots=1),)), PAIR.constraints)
    assert packed(problem, compile_rules(problem)) is None  # 1.2 is more than one thread
    assert packed(problem, compile_rules(problem), steps=0) is None


def test_jobs_that_share_a_worker_are_named() -> None:
    graph = replace(PAIR, constraints=(Jobs((("a",), ("b",))),))
    shared, own = ps.Slot("n1", 0), ps.Slot("n1", 1)
    assignment = {"a/0": shared, "a/1": shared, "b/0": own, "b/1": shared}
    assert constraint_violations(graph, assignment) == ["constraint 0 (jobs): jobs 0 and 1 share worker 0 of 'n1'"]
    with pytest.raises(
        Infeasible, match=r"2 jobs in workers of their own\) cannot be met: 2 must be in different workers"
    ):
        ps.place(graph, ps.Cluster((ps.Node("n1", 4.0, slots=1, worker_capacity=None),)))
    assert ps.place(graph, ps.parse_cluster("1x2"), options=QUICK).constraints == ()  # a deployment's own
