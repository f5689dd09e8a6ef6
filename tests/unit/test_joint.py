"""Several topologies in one placement: one certified plan, its parts, and no worker that two of them share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import Infeasible, InvalidInput, NoPlanFound
from penstock.model.constraints import Apart, Dedicated, Replicas, Resource, Together
from penstock.optimise.joint import distinct, joined, joined_profile, place_together
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
