"""Topology, cluster and profile name their faults; TaskGraph.expand keeps every task and every unit of traffic."""

from __future__ import annotations

import doctest
import importlib.util
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from penstock import testing
from penstock.errors import InvalidInput
from penstock.model import task_id, topology
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart, Constraint, Dedicated, Replicas, Resource, Together
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.task_id import TaskId, operator_of
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.testing import clusters, instances, profiles, random_cluster, random_topology, topologies

NAN, INFINITE = float("nan"), float("inf")
GRAPH = OperatorGraph("t", (Operator("a", 2), Operator("b", 3)), (Stream("a", "b", rate=2.0),))

KNOWN = "known: a, b; a task is named as in a/0"


def with_operator(**changes: object) -> OperatorGraph:
    return replace(GRAPH, operators=(replace(GRAPH.operators[0], **changes), GRAPH.operators[1]))


def with_stream(**changes: object) -> OperatorGraph:
    return replace(GRAPH, streams=(replace(GRAPH.streams[0], **changes),))


class TestTopologyFaults:
    def test_a_sound_graph_has_none_and_is_returned(self) -> None:
        assert GRAPH.faults() == []
        assert GRAPH.validated() is GRAPH

    @pytest.mark.parametrize(
        ("graph", "fault"),
        [
            (OperatorGraph("t", ()), "topology 't' has no operators; give at least one"),
            (with_operator(name="b"), "operator name 'b' is used twice; names must be unique"),
            (with_operator(tasks=0), "operator 'a' has tasks 0; the least is 1"),
            (with_operator(tasks=-3), "operator 'a' has tasks -3; the least is 1"),
            (with_operator(tasks=1.5), "operator 'a' has tasks 1.5; the least is 1"),
            (with_operator(tasks=True), "operator 'a' has tasks True; the least is 1"),
            (with_operator(tasks=2_000_000), "operator 'a' has 2000000 tasks; the limit is 1000000"),
            (with_operator(load=-1.0), "load of operator 'a' is -1; it must be finite, 0 or more and at most 1e+15"),
            (with_operator(load=NAN), "load of operator 'a' is nan; it must be finite, 0 or more and at most 1e+15"),
            (
                with_operator(load=(1.0, INFINITE)),
                "load of task 'a/1' is inf; it must be finite, 0 or more and at most 1e+15",
            ),
            (with_operator(load=(1.0,)), "operator 'a' has 2 tasks but 1 load values; give one per task"),
            (
                with_operator(memory_mb=-5.0),
                "memory_mb of operator 'a' is -5; it must be finite, 0 or more and at most 1e+15",
            ),
            (with_stream(source="zz"), "stream 'zz' -> 'b' names unknown operator 'zz'"),
            (with_stream(target="zz"), "stream 'a' -> 'zz' names unknown operator 'zz'"),
            (with_stream(grouping="odd"), "stream 'a' -> 'b' has unknown grouping 'odd'; known: "),
            (with_stream(rate=-1.0), "rate of stream 'a' -> 'b' is -1; it must be finite, 0 or more and at most 1e+15"),
            (
                with_stream(rate=INFINITE),
                "rate of stream 'a' -> 'b' is inf; it must be finite, 0 or more and at most 1e+15",
            ),
            (
                with_stream(rate=((1.0, 1.0), (1.0, 1.0))),
                "stream 'a' -> 'b' has a rate matrix of 2 rows of 2; it must be 2 rows of 3",
            ),
            (with_stream(rate=((1.0, 1.0, 1.0),)), "rate matrix of 1 rows of 3; it must be 2 rows of 3"),
            (with_stream(rate=()), "rate matrix of 0 rows of 0; it must be 2 rows of 3"),
            (
                with_stream(rate=((1.0, 1.0, -1.0), (0.0, 0.0, 0.0))),
                "rate 0,2 of stream 'a' -> 'b' is -1; it must be finite, 0 or more and at most 1e+15",
            ),
        ],
    )
    def test_each_fault_is_named_alone(self, graph: OperatorGraph, fault: str) -> None:
        faults = graph.faults()
        assert fault in faults[0]
        with pytest.raises(InvalidInput) as caught:
            graph.validated()
        assert caught.value.faults == tuple(faults)

    @pytest.mark.parametrize(
        ("name", "fault"),
        [
            ("", "has an empty name"),
            (" ", "has an empty name"),
            ("x" * 201, "a name of 201 characters; the limit is 200"),
            ("a/0", "contains '/'"),
            ("a\x1b[31m", "control character"),
            ("a\nb", "control character"),
            ("\ud800", "half a character"),
        ],
    )
    def test_names_that_cannot_be_read_back_are_refused(self, name: str, fault: str) -> None:
        assert fault in OperatorGraph("t", (Operator(name),)).faults()[0]
        if "/" not in name:
            assert fault in Cluster((Node(name, 1.0),)).faults()[0]

    def test_all_faults_are_named_at_once(self) -> None:
        graph = OperatorGraph(
            "bad",
            (Operator("a", 0), Operator("a", 2, load=NAN), Operator("c", load=-1.0)),
            (Stream("a", "zz"), Stream("c", "c", rate=-2.0)),
        )
        text = " | ".join(graph.faults())
        for part in ("used twice", "tasks 0", "is nan", "is -1", "unknown operator 'zz'", "is -2", "cycle: c -> c"):
            assert part in text

    @pytest.mark.parametrize(
        ("ends", "cycle"),
        [
            ([("a", "b"), ("b", "c"), ("c", "a")], "a -> b -> c -> a"),
            ([("a", "b"), ("b", "c"), ("c", "b")], "b -> c -> b"),  # `a` only leads into it
            ([("b", "c"), ("c", "b"), ("c", "d")], "b -> c -> b"),  # `d` only hangs off it
            ([("a", "a")], "a -> a"),
        ],
    )
    def test_a_cycle_is_walked_through(self, ends: list[tuple[str, str]], cycle: str) -> None:
        graph = OperatorGraph("t", tuple(Operator(n) for n in "abcd"), tuple(Stream(a, b) for a, b in ends))
        assert graph.faults() == [f"streams form a cycle: {cycle}; remove one of them"]

    @given(st.integers(2, 7), st.data())
    def test_a_cycle_that_is_named_exists(self, count: int, data: st.DataObject) -> None:
        ends = data.draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=12))
        names = [f"o{k}" for k in range(count)]
        streams = {(names[a], names[b]) for a, b in ends}
        graph = OperatorGraph("t", tuple(map(Operator, names)), tuple(Stream(a, b) for a, b in sorted(streams)))
        faults = graph.faults()
        assert bool(faults) == _has_cycle(names, streams)
        if faults:
            walk = faults[0].removeprefix("streams form a cycle: ").removesuffix("; remove one of them").split(" -> ")
            assert walk[0] == walk[-1]
            assert all(step in streams for step in pairwise(walk))

    def test_sizes_are_limited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(topology, "EDGES_MAX", 5)
        assert GRAPH.faults() == ["topology 't' has 6 task pairs; the limit is 5"]
        monkeypatch.setattr(topology, "TASKS_MAX", 4)
        assert "topology 't' has 5 tasks; the limit is 4" in GRAPH.faults()
        monkeypatch.setattr(topology, "OPERATORS_MAX", 1)
        assert GRAPH.faults() == ["topology 't' has 2 operators; the limit is 1"]

    @pytest.mark.parametrize(
        ("constraint", "fault"),
        [
            (Resource("zz", ("n1",)), "constraint 0 (resource) names unknown operator or task 'zz'; " + KNOWN),
            (Resource("a", ()), "constraint 0 (resource) lists no nodes and no tags; name at least one"),
            (Together("node", ("a",)), "constraint 0 (colocate-node) lists 1 operators; it needs 2 or more"),
            (
                Apart("worker", ("a", "a/9")),
                "constraint 0 (separate-workers) names unknown operator or task 'a/9'; " + KNOWN,
            ),
            (Apart("node", ("a", "a")), "constraint 0 (separate-nodes) names 'a' twice"),
            (
                Dedicated("node", "a/-1"),
                "constraint 0 (dedicated-node) names unknown operator or task 'a/-1'; " + KNOWN,
            ),
            (Replicas((("a",),)), "constraint 0 (replicas) needs at least 2 groups, none of them empty"),
            (Replicas((("a",), ())), "constraint 0 (replicas) needs at least 2 groups, none of them empty"),
            (
                Replicas((("a/0", "a/1"), ("b/0",)), isomorphic=True),
                "constraint 0 (replicas) is isomorphic but its groups have 2/1 members; make them equal",
            ),
        ],
    )
    def test_constraints(self, constraint: Constraint, fault: str) -> None:
        assert replace(GRAPH, constraints=(constraint,)).faults() == [fault]


def _has_cycle(names: list[str], streams: set[tuple[str, str]]) -> bool:
    """By transitive closure, which shares nothing with Kahn's algorithm."""
    reach = set(streams)
    for middle in names:
        reach |= {(a, b) for a in names for b in names if (a, middle) in reach and (middle, b) in reach}
    return any((name, name) in reach for name in names)


class TestClusterFaults:
    @pytest.mark.parametrize(
        ("nodes", "fault"),
        [
            ((), "the cluster has no nodes; give at least one"),
            ((Node("n", 1), Node("n", 2)), "node name 'n' is used twice; names must be unique"),
            ((Node("", 1),), "node '' has an empty name; name it"),
            ((Node("n", 0),), "capacity of node 'n' is 0; it must be finite, at least 1e-12 and at most 1e+15"),
            ((Node("n", -1.5),), "capacity of node 'n' is -1.5; it must be finite, at least 1e-12 and at most 1e+15"),
            ((Node("n", NAN),), "capacity of node 'n' is nan; it must be finite, at least 1e-12 and at most 1e+15"),
            (
                (Node("n", INFINITE),),
                "capacity of node 'n' is inf; it must be finite, at least 1e-12 and at most 1e+15",
            ),
            (
                (Node("n", 1, memory_mb=0),),
                "memory_mb of node 'n' is 0; it must be finite, at least 1e-12 and at most 1e+15",
            ),
            (
                (Node("n", 1, bandwidth_mbps=-1),),
                "bandwidth_mbps of node 'n' is -1; it must be finite, at least 1e-12 and at most 1e+15",
            ),
            ((Node("n", 1, slots=0),), "slots of node 'n' is 0; it must be from 1 to 100000"),
        ],
    )
    def test_each_fault_is_named_alone(self, nodes: tuple[Node, ...], fault: str) -> None:
        cluster = Cluster(nodes)
        assert cluster.faults() == [fault]
        with pytest.raises(InvalidInput, match="node"):
            cluster.validated()

    def test_all_faults_are_named_at_once(self) -> None:
        assert len(Cluster((Node("n", -1, memory_mb=-1, slots=-1), Node("n", NAN))).faults()) == 5

    def test_workers_follow_from_the_capacity_unless_slots_are_given(self) -> None:
        assert [Node("n", c).workers_max for c in (0.3, 1.0, 3.9)] == [1, 1, 3]
        assert Node("n", 3.9, slots=7).workers_max == 7


class TestProfileFaults:
    @pytest.mark.parametrize(
        ("profile", "fault"),
        [
            (Profile({"a/7": TaskProfile(1.0)}), "profile names unknown task 'a/7' of topology 't'"),
            (Profile({"a": TaskProfile(1.0)}), "profile names unknown task 'a' of topology 't'"),
            (
                Profile({"a/0": TaskProfile(-1.0)}),
                "profile load of task 'a/0' is -1; it must be finite, 0 or more and at most 1e+15",
            ),
            (
                Profile({"a/0": TaskProfile(1.0, memory_mb=NAN)}),
                "profile memory_mb of task 'a/0' is nan; it must be finite, 0 or more and at most 1e+15",
            ),
            (
                Profile(edges=(EdgeProfile("a/0", "b/3", 1.0),)),
                "profile edge 'a/0' -> 'b/3' names a task that the topology lacks",
            ),
            (
                Profile(edges=(EdgeProfile("b/0", "a/0", 1.0),)),
                "profile edge 'b/0' -> 'a/0' follows no stream of the topology",
            ),
            (
                Profile(edges=(EdgeProfile("a/0", "b/0", INFINITE),)),
                "profile rate of 'a/0' -> 'b/0' is inf; it must be finite, 0 or more and at most 1e+15",
            ),
        ],
    )
    def test_each_fault_is_named_alone(self, profile: Profile, fault: str) -> None:
        assert profile.faults(GRAPH) == [fault]
        with pytest.raises(InvalidInput):
            profile.validated(GRAPH)

    @pytest.mark.parametrize("name", ["a/00", "a/01", "a/+1", "a/ 1", "a/1_0", "a/" + "1" * 5000])
    def test_a_task_has_one_spelling(self, name: str) -> None:
        assert Profile({name: TaskProfile(1.0)}).faults(GRAPH) != []


class TestExpand:
    def test_a_number_is_a_rate_for_every_pair(self) -> None:
        tasks = TaskGraph.expand(GRAPH)
        assert tasks.ids == ["a/0", "a/1", "b/0", "b/1", "b/2"]
        assert _edges(tasks) == {(a, b): 2.0 for a in ("a/0", "a/1") for b in ("b/0", "b/1", "b/2")}
        assert tasks.total_rate == 12.0

    def test_parallel_streams_are_added_up_and_empty_pairs_left_out(self) -> None:
        matrix = ((1.0, 0.0, 0.0), (0.0, 0.0, 5.0))
        graph = replace(GRAPH, streams=(Stream("a", "b", rate=matrix), Stream("a", "b", rate=matrix)))
        assert _edges(TaskGraph.expand(graph)) == {("a/0", "b/0"): 2.0, ("a/1", "b/2"): 10.0}

    def test_a_profile_replaces_loads_it_names_and_all_rates_once_it_names_any(self) -> None:
        loads_only = Profile({"b/1": TaskProfile(0.25, memory_mb=64.0), "a/0": TaskProfile(0.5)})
        tasks = TaskGraph.expand(GRAPH, loads_only)
        assert tasks.load.tolist() == [0.5, 1.0, 1.0, 0.25, 1.0]
        assert tasks.memory_mb.tolist() == [0.0, 0.0, 0.0, 64.0, 0.0]
        assert tasks.total_rate == 12.0
        twice = Profile(edges=(EdgeProfile("a/1", "b/0", 3.0), EdgeProfile("a/1", "b/0", 4.0)))
        assert _edges(TaskGraph.expand(GRAPH, twice)) == {("a/1", "b/0"): 7.0}

    @given(st.data())
    def test_every_task_and_every_unit_of_traffic_survives(self, data: st.DataObject) -> None:
        graph = data.draw(topologies())
        tasks = TaskGraph.expand(graph)
        assert tasks.ids == [f"{o.name}/{i}" for o in graph.operators for i in range(o.tasks)]
        assert tasks.load.tolist() == [load for o in graph.operators for load in o.loads()]
        expected: dict[tuple[str, str], float] = defaultdict(float)
        size = {o.name: o.tasks for o in graph.operators}
        for stream in graph.streams:
            for i in range(size[stream.source]):
                for j in range(size[stream.target]):
                    if stream.grouping == "forward" and i != j:  # from each task to its like alone
                        continue
                    rate = stream.rate[i][j] if isinstance(stream.rate, tuple) else stream.rate
                    expected[f"{stream.source}/{i}", f"{stream.target}/{j}"] += rate
        assert _edges(tasks) == pytest.approx({pair: rate for pair, rate in expected.items() if rate > 0})

    def test_the_kit_draws_streams_from_each_task_to_its_like(self) -> None:
        def several(graph: OperatorGraph) -> bool:
            sizes = {o.name: o.tasks for o in graph.operators}
            return any(s.grouping == "forward" and sizes[s.source] > 1 for s in graph.streams)

        # The first will do: it need not be the smallest.
        graph = find(topologies(), several, settings=settings(max_examples=2000, phases=[Phase.generate]))
        assert graph.faults() == []

    @given(topologies())
    def test_adjacency_is_the_same_graph_without_direction(self, graph: OperatorGraph) -> None:
        tasks = TaskGraph.expand(graph)
        adjacency = tasks.adjacency
        n = tasks.task_count
        weight, outward = np.zeros((n, n)), np.zeros((n, n))
        for i in range(n):
            row = slice(adjacency.start[i], adjacency.start[i + 1])
            assert np.all(np.diff(adjacency.neighbour[row]) > 0)
            weight[i, adjacency.neighbour[row]] = adjacency.weight[row]
            outward[i, adjacency.neighbour[row]] = adjacency.outward[row]
        directed = np.zeros((n, n))
        directed[tasks.source, tasks.target] = tasks.rate
        assert np.array_equal(weight, weight.T)
        assert np.array_equal(weight, directed + directed.T)
        assert np.array_equal(outward, directed)

    @given(st.data())
    def test_a_sound_profile_changes_only_what_it_names(self, data: st.DataObject) -> None:
        graph = data.draw(topologies())
        profile = data.draw(profiles(graph))
        assert profile.faults(graph) == []
        declared, measured = TaskGraph.expand(graph), TaskGraph.expand(graph, profile)
        for i, task in enumerate(declared.ids):
            expected = profile.tasks[task].load if task in profile.tasks else declared.load[i]
            assert measured.load[i] == expected
        if profile.edges:
            sums: Counter[tuple[str, str]] = Counter()
            for edge in profile.edges:
                sums[edge.source, edge.target] += edge.rate
            assert _edges(measured) == pytest.approx({pair: rate for pair, rate in sums.items() if rate > 0})
        else:
            assert _edges(measured) == _edges(declared)


def _edges(tasks: TaskGraph) -> dict[tuple[str, str], float]:
    edges = {
        (tasks.ids[a], tasks.ids[b]): rate
        for a, b, rate in zip(tasks.source, tasks.target, tasks.rate.tolist(), strict=True)
    }
    assert len(edges) == len(tasks.rate)  # merged: no pair twice
    return edges


class TestTheTestKit:
    @given(instances())
    def test_what_is_drawn_is_sound_and_the_cluster_could_hold_it(
        self, instance: tuple[OperatorGraph, Cluster]
    ) -> None:
        graph, cluster = instance
        assert graph.faults() == []
        assert cluster.faults() == []
        loads = [load for operator in graph.operators for load in operator.loads()]
        assert sum(loads) <= cluster.capacity * (1 + 1e-9)
        assert max(loads) <= max(node.capacity for node in cluster.nodes)
        assert graph.task_count <= 12
        assert len(graph.operators) <= 5

    @given(clusters(for_load=7.5))
    def test_a_cluster_for_an_amount_of_load(self, cluster: Cluster) -> None:
        assert cluster.faults() == []
        assert cluster.capacity >= 7.5 * (1 - 1e-9)

    def test_seeded_instances_are_the_same_for_the_same_seed(self) -> None:
        graph = random_topology(7)
        assert graph == random_topology(7) != random_topology(8)
        assert graph.faults() == []
        cluster = random_cluster(7, graph)
        assert cluster == random_cluster(7, graph)
        assert TaskGraph.expand(graph).load.sum() <= 0.75 * cluster.capacity

    def test_without_hypothesis_the_kit_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "hypothesis", None)
        spec = importlib.util.spec_from_file_location("kit_without_hypothesis", testing.__file__)
        assert spec is not None
        assert spec.loader is not None
        with pytest.raises(ImportError, match=r"needs Hypothesis, which is not installed; run: pip install"):
            spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_a_task_id_is_its_name_and_knows_its_parts() -> None:
    task = TaskId.of("a/b", 12)
    assert task == "a/b/12"
    assert {"a/b/12": 1}[task] == 1
    assert (task.operator, task.number, operator_of("a/b/12")) == ("a/b", 12, "a/b")
    assert not doctest.testmod(task_id).failed


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        (Profile({"a/0": TaskProfile(0.5, spread=0.1)}, seconds=0.04), "covers 0.04 s: too short to say what a second"),
        (Profile({"a/0": TaskProfile(0.5, spread=0.0)}, seconds=2.0), "of one metric interval"),
        (Profile({"a/0": TaskProfile(0.5, spread=0.1), "b/0": TaskProfile(0.0, spread=0.0)}, seconds=1.0), ""),
        (Profile({"a/0": TaskProfile(0.5)}), ""),  # of another system, or written by hand
        (Profile(), ""),
    ],
)
def test_a_profile_of_almost_no_time_says_so(profile: Profile, said: str) -> None:
    assert [said in note for note in profile.notes] == ([True] if said else [])
