"""Costs of streams under a placement, against plain loops over the files and by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.cluster import Cluster
from penstock.model.costs import DISTANCES, Distance, DistanceCost, EndCost, StreamCosts
from penstock.model.plan import Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.model.traffic import BATCH_BYTES, ROW_BYTES, estimated
from penstock.optimise.communication import predicted_cpu, rates_are_cpu, seat_loads
from penstock.optimise.contract import Problem
from penstock.testing import counted_profiles, topologies

COSTS = StreamCosts(
    call=DistanceCost(EndCost(1.0, 2.0, 0.0), EndCost(2.0, 1.0, 0.0)),
    ring=DistanceCost(EndCost(10.0, 5.0, 0.5), EndCost(20.0, 3.0, 0.25)),
    socket=DistanceCost(EndCost(40.0, 6.0, 1.0), EndCost(50.0, 4.0, 2.0)),
)
PAIR = OperatorGraph("pair", (Operator("a"), Operator("b")), (Stream("a", "b"),))
PLACES = {
    "call": {"a/0": Slot("n1", 0), "b/0": Slot("n1", 0)},
    "ring": {"a/0": Slot("n1", 0), "b/0": Slot("n1", 1)},
    "socket": {"a/0": Slot("n1", 0), "b/0": Slot("n2", 0)},
}


@pytest.mark.parametrize("load", [0.5, 1.0, 2.0, 8.0])
def test_rates_of_a_program_are_not_taken_for_cpu_however_loads_are_declared(load: float) -> None:
    """Declared loads say how tasks compare: doubling all of them must not make each stream a core."""
    program = OperatorGraph(
        "p", (Operator("a", load=load), Operator("b", load=load)), (Stream("a", "b"),), relative=True
    )
    stated = replace(program, relative=False)
    assert not rates_are_cpu(TaskGraph.expand(program))
    assert rates_are_cpu(TaskGraph.expand(stated)) == (load >= 1.0)
    measured = Profile({}, (EdgeProfile("a/0", "b/0", 0.25),))
    assert rates_are_cpu(TaskGraph.expand(program, measured)) == rates_are_cpu(TaskGraph.expand(stated, measured))


def edge_cpu(edge: EdgeProfile, distance: Distance, costs: StreamCosts) -> tuple[float, float]:
    """Both ends of one line of a profile, by the definition."""
    rows = edge.rate / ROW_BYTES if edge.tuples is None else edge.tuples
    batches = min(rows, edge.rate / BATCH_BYTES) if edge.batches is None else edge.batches
    found = []
    for measured, cost in ((edge.send_cpu, costs.at(distance).send), (edge.receive_cpu, costs.at(distance).receive)):
        known = measured is not None and edge.distance == distance
        found.append(measured if known and measured is not None else cost.cpu(batches, rows, edge.rate))
    return found[0], found[1]


def test_each_distance_costs_what_its_figures_say() -> None:
    # 100 batches of 1,000 rows of 10 bytes: batches 1e2, rows 1e5, bytes 1e6 a second
    edge = EdgeProfile("a/0", "b/0", 1e6, 1e5, 100.0)
    profile = Profile({"a/0": TaskProfile(0.5), "b/0": TaskProfile(0.25)}, (edge,), COSTS)
    by_hand = {
        "call": (100e-6 + 2e-4, 200e-6 + 1e-4),
        "ring": (1e-3 + 5e-4 + 5e-4, 2e-3 + 3e-4 + 2.5e-4),
        "socket": (4e-3 + 6e-4 + 1e-3, 5e-3 + 4e-4 + 2e-3),
    }
    for distance, where in PLACES.items():
        send, receive = by_hand[distance]
        found = predicted_cpu(PAIR, profile, where)
        assert found.work == 0.75
        assert found.communication == pytest.approx(send + receive, rel=1e-12)
        assert found.total == pytest.approx(0.75 + send + receive, rel=1e-12)
        if distance != "call":
            workers = [found.workers[where[task]] for task in ("a/0", "b/0")]
            assert workers == pytest.approx([0.5 + send, 0.25 + receive], rel=1e-12)


def test_what_was_measured_at_the_same_distance_comes_before_the_model() -> None:
    edge = EdgeProfile("a/0", "b/0", 1e6, 1e5, 100.0, distance="ring", send_cpu=0.1, receive_cpu=None)
    tasks = TaskGraph.expand(PAIR, Profile({}, (edge,), COSTS))
    (send,), (receive,) = tasks.ends("ring")
    assert send == 0.1
    assert receive == pytest.approx(2.55e-3)  # nobody measured this end: the model
    (send,), _ = tasks.ends("socket")
    assert send == pytest.approx(5.6e-3)  # nor this distance


def test_parts_measured_at_different_distances_add_up_in_a_quotient() -> None:
    graph = OperatorGraph("three", (Operator("a", 2), Operator("b")), (Stream("a", "b", rate=((1e6,), (1e6,))),))
    edges = (
        EdgeProfile("a/0", "b/0", 1e6, 1e5, 100.0, distance="ring", send_cpu=0.1, receive_cpu=0.2),
        EdgeProfile("a/1", "b/0", 1e6, 1e5, 100.0, distance="socket", send_cpu=0.3, receive_cpu=0.4),
    )
    whole = TaskGraph.expand(graph, Profile({}, edges, COSTS))
    fused = whole.quotient(np.array([0, 0, 1]))
    assert fused.ends("ring")[0] == pytest.approx([0.1 + 2e-3])
    assert fused.ends("socket")[1] == pytest.approx([7.4e-3 + 0.4])


def test_rows_and_batches_that_nobody_counted_are_estimated() -> None:
    assert estimated(BATCH_BYTES) == (BATCH_BYTES / ROW_BYTES, 1.0)
    assert estimated(BATCH_BYTES, tuples=3.0) == (3.0, 1.0)
    assert estimated(10 * BATCH_BYTES, tuples=3.0) == (3.0, 3.0)  # no batch has less than a row
    assert estimated(10.0, tuples=3.0, batches=7.0) == (3.0, 7.0)


def test_rates_that_may_be_cpu_are_what_a_cut_costs() -> None:
    graph = OperatorGraph("cpu", (Operator("a", load=0.5), Operator("b", load=0.3)), (Stream("a", "b", rate=0.2),))
    cost = {d: predicted_cpu(graph, None, where, COSTS).communication for d, where in PLACES.items()}
    assert cost == {"call": 0.0, "ring": 0.4, "socket": 0.4}
    # a profile that counted rows speaks of bytes, however few
    counted = Profile({}, (EdgeProfile("a/0", "b/0", 0.2, tuples=0.1, batches=0.1),))
    assert predicted_cpu(graph, counted, PLACES["ring"], COSTS).communication == pytest.approx(
        0.1 * 30e-6 + 0.1 * 8e-9 + 0.2 * 0.75e-9
    )


@given(st.data())
def test_seat_loads_are_those_of_plain_loops(data: st.DataObject) -> None:
    graph = data.draw(topologies())
    profile = data.draw(counted_profiles(graph))
    edges = tuple(replace(edge, rate=1000.0 * edge.rate) for edge in profile.edges)  # bytes, not CPU
    marked = tuple(replace(edge, tuples=1.0) for edge in edges[:1])
    profile = replace(profile, edges=(*marked, *edges[1:]), costs=COSTS)
    problem = Problem(TaskGraph.expand(graph, profile), Cluster.uniform([(3, 100.0)]))
    if not profile.edges:
        return
    count = problem.task_count
    node = np.array(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), dtype=np.int32)
    worker = np.array(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), dtype=np.int32)
    seat = dict(zip(problem.graph.ids, zip(node.tolist(), worker.tolist(), strict=True), strict=True))
    expected = dict.fromkeys(seat.values(), 0.0)
    for task, load in zip(problem.graph.ids, problem.graph.load.tolist(), strict=True):
        expected[seat[task]] += load
    for edge in profile.edges:
        if edge.rate == 0:  # pairs without traffic are left out
            continue
        a, b = seat[edge.source], seat[edge.target]
        distance = DISTANCES[0 if a == b else 1 if a[0] == b[0] else 2]
        send, receive = edge_cpu(edge, distance, COSTS)
        expected[a] += send
        expected[b] += receive
    found = seat_loads(problem, node, worker)
    loads = dict(zip(zip(found.node.tolist(), found.worker.tolist(), strict=True), found.load.tolist(), strict=True))
    assert loads == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert [found.seat_of[t] for t in range(count)] == [list(loads).index(seat[task]) for task in problem.graph.ids]


@given(st.data())
def test_a_quotient_costs_what_its_cut_edges_cost(data: st.DataObject) -> None:
    graph = data.draw(topologies())
    whole = TaskGraph.expand(graph, data.draw(counted_profiles(graph)), COSTS)
    label = np.array(data.draw(st.lists(st.integers(0, 2), min_size=whole.task_count, max_size=whole.task_count)))
    label = np.unique(label, return_inverse=True)[1]
    fused, cut = whole.quotient(label), label[whole.source] != label[whole.target]
    for distance in DISTANCES:
        for mine, parts in zip(fused.ends(distance), whole.ends(distance), strict=True):
            assert float(mine.sum()) == pytest.approx(float(parts[cut].sum()), rel=1e-9, abs=1e-12)
    assert float(fused.tuples.sum()) == pytest.approx(float(whole.tuples[cut].sum()))
    assert float(fused.batches.sum()) == pytest.approx(float(whole.batches[cut].sum()))
