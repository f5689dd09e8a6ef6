"""Basic and Advanced COLA, the driver and the command line, each on cases small enough to be followed by hand."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fuse_kit import graph_of
from hypothesis import given
from hypothesis import strategies as st

from penstock import cli
from penstock.errors import Infeasible, NoPlanFound, PenstockError
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart, Replicas
from penstock.model.costs import DistanceCost, EndCost, StreamCosts
from penstock.model.plan import Plan
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.fuse.contract import METHODS, FuseOptions
from penstock.optimise.fuse.door import fuse, prepared
from penstock.optimise.fuse.steps.averages import averaged
from penstock.optimise.fuse.steps.profile_iterations import GAMMAS, chosen, iterate

# Two tight clusters of three, joined by one thin stream.
DUMBBELL = graph_of(
    dict.fromkeys("abcdef", 0.3),
    {("a", "b"): 0.2, ("b", "c"): 0.2, ("a", "c"): 0.2, ("c", "d"): 0.01, ("d", "e"): 0.2, ("e", "f"): 0.2},
)

LEAST_CUT = FuseOptions(balance=0.0)


def workers(plan: Plan) -> set[str]:
    """Operators of each worker, as words."""
    return {
        "".join(sorted(task[0] for task, other in plan.assignment.items() if other == slot))
        for slot in plan.assignment.values()
    }


@pytest.mark.parametrize("method", ["cola", "cola-basic", "best"])
class TestBothVariants:
    def test_the_thin_stream_is_cut(self, method: str) -> None:
        plan = fuse(DUMBBELL, Cluster.uniform([(2, 1.0)]), method)
        assert workers(plan) == {"abc", "def"}
        assert plan.cost == pytest.approx(0.01)

    def test_one_node_is_enough_when_everything_fits_it(self, method: str) -> None:
        cluster = Cluster.uniform([(5, 2.0)], worker_capacity=None)
        plan = fuse(DUMBBELL, cluster, method, options=METHODS[method].heard(LEAST_CUT))
        assert workers(plan) == {"abcdef"}
        assert plan.nodes_used == 1

    def test_memory_counts(self, method: str) -> None:
        heavy = replace(DUMBBELL, operators=tuple(replace(o, memory_mb=50.0) for o in DUMBBELL.operators))
        cluster = Cluster(tuple(Node(f"n{k}", 2.0, memory_mb=160.0) for k in range(2)))
        assert workers(fuse(heavy, cluster, method)) == {"abc", "def"}

    def test_streams_that_cost_too_much_leave_no_plan(self, method: str) -> None:
        graph = graph_of({"a": 0.9, "b": 0.9}, {("a", "b"): 0.2})
        with pytest.raises(PenstockError, match=r"--stream-cost"):
            fuse(graph, Cluster.uniform([(2, 1.0)]), method)
        assert fuse(graph, Cluster.uniform([(2, 1.0)]), method, options=FuseOptions(stream_cost=0.5)).cost == 0.2

    def test_stated_slots_are_kept(self, method: str) -> None:
        cluster = Cluster(tuple(Node(f"n{k}", 1.0, slots=1) for k in range(2)))
        plan = fuse(DUMBBELL, cluster, method)
        assert {slot.worker for slot in plan.assignment.values()} == {0}


def test_balance_buys_utilisation_for_streams() -> None:
    graph = graph_of(dict.fromkeys("abcd", 0.2), {("a", "b"): 0.02, ("b", "c"): 0.01, ("c", "d"): 0.02})
    cluster = Cluster.uniform([(2, 1.0)])
    together = fuse(graph, cluster, "cola", options=LEAST_CUT)
    assert together.nodes_used == 1
    balanced = fuse(graph, cluster, "cola")  # phase 4 is on unless it is asked to be off
    assert workers(balanced) == {"ab", "cd"}
    assert balanced.max_utilisation < together.max_utilisation


def test_the_threshold_is_how_much_more_may_be_cut() -> None:
    # The first split that phase 4 tries cuts 0.01, the next ones 0.02 more each; a threshold of 1 stops at twice 0.01.
    graph = graph_of(dict.fromkeys("abcd", 0.2), {("a", "b"): 0.02, ("b", "c"): 0.01, ("c", "d"): 0.02})
    cluster = Cluster.uniform([(4, 1.0)])
    assert workers(fuse(graph, cluster, "cola", options=FuseOptions(balance=1.0))) == {"ab", "cd"}
    assert workers(fuse(graph, cluster, "cola", options=FuseOptions(balance=1.0, threshold=5.0))) == set("abcd")


def test_a_threshold_of_zero_leaves_phase_4_out() -> None:
    graph = graph_of(dict.fromkeys("abcd", 0.4), {("a", "b"): 0.02, ("b", "c"): 0.01, ("c", "d"): 0.02})
    cluster = Cluster.uniform([(4, 1.0)])
    strict = fuse(graph, cluster, "cola", options=FuseOptions(balance=0.9, threshold=0.0))
    assert workers(strict) == {"ab", "cd"}
    loose = fuse(graph, cluster, "cola", options=FuseOptions(balance=0.9, threshold=1e6))
    assert workers(loose) == {"a", "b", "c", "d"}


def test_any_callable_is_an_objective() -> None:
    asked: list[tuple[float, float]] = []

    def objective(utilisation: float, communication: float) -> float:
        asked.append((utilisation, communication))
        return utilisation**2 + communication

    graph = graph_of(dict.fromkeys("abcd", 0.2), {("a", "b"): 0.02, ("b", "c"): 0.01, ("c", "d"): 0.02})
    cluster = Cluster.uniform([(2, 1.0)])
    for method in ("cola", "best"):
        asked.clear()
        plan = fuse(graph, cluster, method, options=FuseOptions(objective=objective, threshold=1e6))
        assert workers(plan) == {"ab", "cd"}  # 0.41^2 + 0.02 is less than 0.8^2
        assert asked


def test_replicas_are_cut_by_their_averages() -> None:
    graph = graph_of(
        {"a1": 0.1, "b1": 0.3, "a2": 0.3, "b2": 0.5},
        {("a1", "b1"): 0.02, ("a2", "b2"): 0.04},
        Replicas((("a1", "b1"), ("a2", "b2")), isomorphic=True),
    )
    seen = averaged(prepared(graph, Cluster.uniform([(2, 1.0)])).graph)
    assert seen.load.tolist() == [0.2, 0.4, 0.2, 0.4]
    assert np.allclose(seen.weight, 0.03)


def test_rates_that_may_be_cpu_are_what_streams_cost() -> None:
    """Both ends of the stream cost 1, no more than the two tasks: the paper's convention."""
    case = prepared(graph_of({"a": 1.0, "b": 1.0}, {("a", "b"): 0.5}), Cluster.uniform([(2, 2.0)]))
    assert case.stream_cost == 1.0
    assert case.graph.weight.tolist() == [0.5]
    silent = prepared(graph_of({"a": 1.0, "b": 1.0}, {("a", "b"): 0.0}), Cluster.uniform([(2, 2.0)]))
    assert silent.stream_cost == 1.0


BYTES = graph_of({"a": 1.0, "b": 0.5, "c": 0.25}, {("a", "b"): 1e6, ("b", "c"): 1e5})
COUNTED = Profile(
    {},
    (
        # 100 batches of 1,000 rows, 1 MB in all: a socket takes 1e-3 + 2e-4 of a CPU to send, 2e-3 + 4e-4 to receive
        EdgeProfile("a/0", "b/0", 1e6, tuples=1e5, batches=100.0),
        EdgeProfile("b/0", "c/0", 1e5, tuples=1e4, batches=10.0, distance="socket", send_cpu=0.1, receive_cpu=0.3),
    ),
    StreamCosts(
        ring=DistanceCost(EndCost(batch_us=5.0), EndCost(batch_us=7.0)),
        socket=DistanceCost(EndCost(batch_us=10.0, byte_ns=0.2), EndCost(batch_us=20.0, byte_ns=0.4)),
        origin="planted",
    ),
)


def test_bytes_cost_what_the_two_ends_of_a_socket_cost_in_the_mean() -> None:
    case = prepared(BYTES, Cluster.uniform([(2, 2.0)]), COUNTED)
    assert case.graph.weight.tolist() == pytest.approx([(1.2e-3 + 2.4e-3) / 2, (0.1 + 0.3) / 2])
    assert case.graph.communication(np.array([0, 1, 2])) == pytest.approx(1.2e-3 + 2.4e-3 + 0.4)
    assert case.unfused == pytest.approx(1.2e-3 + 2.4e-3 + 0.4)
    alone = prepared(BYTES, Cluster.uniform([(1, 4.0)]), COUNTED)  # one node: all workers share its memory
    assert alone.graph.weight[0] == pytest.approx(100 * 6e-6)
    told = fuse(BYTES, Cluster.uniform([(2, 2.0)]), "fint", profile=COUNTED).notes[-1]
    assert "(planted; first of all what the profile measured at that distance)" in told
    stated = prepared(BYTES, Cluster.uniform([(2, 2.0)]), COUNTED, FuseOptions(stream_cost=1e-8))
    assert stated.graph.weight.tolist() == pytest.approx([1e-2, 1e-3])


@given(st.floats(1.0, 100.0), st.booleans())
def test_stream_costs_do_not_depend_on_the_cluster_s_capacity(factor: float, with_profile: bool) -> None:
    profile = COUNTED if with_profile else None
    small, large = (prepared(BYTES, Cluster.uniform([(2, c)]), profile) for c in (2.0, 2.0 * factor))
    assert small.graph.weight.tolist() == large.graph.weight.tolist()


def test_too_few_slots_for_what_must_be_apart_is_said() -> None:
    apart = replace(DUMBBELL, constraints=(Apart("worker", tuple("abc")),))
    few = (Node("n1", 9.0, slots=1), Node("n2", 1.0, slots=1))
    with pytest.raises(Infeasible, match=r"3 must be in different workers but the nodes have only 2 slots"):
        fuse(apart, Cluster(few), "cola")
    with pytest.raises(NoPlanFound, match=r"node 'n1' has 1 slots but .* must stay apart"):
        fuse(apart, Cluster((*few, Node("n3", 1e-3, slots=1))), "cola")


class TestProfileIterations:
    @staticmethod
    def run_with(costs: dict[str, float], seen: list[Plan]) -> object:
        def run(plan: Plan) -> tuple[Profile, float]:
            seen.append(plan)
            edges = (EdgeProfile("a/0", "b/0", 0.05), EdgeProfile("b/0", "c/0", 0.2))
            return Profile({f"{name}/0": TaskProfile(load) for name, load in costs.items()}, edges), float(len(seen))

        return run

    def test_gamma_rises_from_a_half_to_one(self) -> None:
        graph = graph_of(dict.fromkeys("abc", 0.1), {("a", "b"): 0.01, ("b", "c"): 0.01})
        seen: list[Plan] = []
        run = self.run_with({"a": 0.4, "b": 0.3, "c": 0.1}, seen)
        cluster = Cluster.uniform([(2, 1.0)])
        done = iterate(graph, cluster, run, "cola", options=LEAST_CUT)  # type: ignore[arg-type]
        assert [iteration.step.gamma for iteration in done[1:]] == list(GAMMAS) == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
        assert seen[0].scheduler == "none"
        found = [iteration.measured for iteration in done if iteration.measured is not None]
        assert len(found) == len(done) == 7
        # At gamma 0.5 nodes hold 0.5: a (0.4 + 0.05) on one, b and c (0.4 + 0.05) on the other. At 1.0 all share one.
        assert workers(found[1].plan) == {"a", "bc"}
        assert workers(found[6].plan) == {"abc"}
        for before, after in itertools.pairwise(found):
            assert check_plan(graph, cluster, after.plan, before.profile) == []
        assert chosen(done) is done[-1]  # each run was quicker than the one before

    def test_an_iteration_without_a_fusion_says_so_and_goes_on(self) -> None:
        graph = graph_of(dict.fromkeys("abc", 0.1), {("a", "b"): 0.01, ("b", "c"): 0.01})
        run = self.run_with({"a": 0.7, "b": 0.1, "c": 0.1}, [])
        done = iterate(graph, Cluster.uniform([(2, 1.0)]), run, "cola")  # type: ignore[arg-type]
        assert done[1].measured is None
        assert "'a/0' needs load 0.7" in done[1].note
        assert done[-1].measured is not None


class TestCommandLine:
    @pytest.fixture(autouse=True)
    def _streams(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def run(self, *arguments: str) -> tuple[int, str]:
        self.monkeypatch.setattr("sys.argv", ["penstock", *arguments])
        status = cli.run_command()
        captured = self.capsys.readouterr()
        return status, captured.out + captured.err

    def test_json_is_the_plan_itself(self, tmp_path: Path) -> None:
        file = tmp_path / "plan.json"
        status, text = self.run("fuse", "linear:6", "2x9", "--method", "cola", "--format", "json", "-o", str(file))
        assert status == 0
        plan = json.loads(text)
        assert plan["scheduler"] == "cola"
        assert len(plan["assignment"]) == 6
        assert json.loads(file.read_text())["assignment"] == plan["assignment"]
        status, text = self.run("check", "linear:6", "2x9", "--plan", str(file))
        assert status == 0

    @pytest.mark.parametrize(
        ("constraints", "words"),
        [
            ([{"type": "colocate-worker", "operators": ["a", "nobody"]}], "unknown operator or task 'nobody'"),
            ([{"type": "resource", "operator": "a", "nodes": ["n9"]}], "node 'n9', which the cluster lacks"),
            (
                [
                    {"type": "colocate-worker", "operators": ["a", "b"]},
                    {"type": "separate-workers", "operators": ["a", "b"]},
                ],
                "2 constraints clash: constraint 0 ('a', 'b' in one worker); constraint 1",
            ),
            (
                [
                    {"type": "colocate-node", "operators": ["a", "b"]},
                    {"type": "separate-nodes", "operators": ["a", "c"]},
                    {"type": "colocate-node", "operators": ["b", "c"]},
                ],
                "3 constraints clash",
            ),
            (
                [{"type": "replicas", "groups": [["a"], ["b", "c"]], "isomorphic": True}],
                "isomorphic but its groups have 1/2 members",
            ),
            (
                [{"type": "replicas", "groups": [["a"], ["d"]], "isomorphic": True}],
                "group 0 has 1 tasks and group 1 has 2",
            ),
        ],
    )
    def test_bad_input_exits_2_with_the_clash_in_words(
        self, tmp_path: Path, constraints: list[dict[str, object]], words: str
    ) -> None:
        operators = [{"name": name, "load": 0.1} for name in "abc"] + [{"name": "d", "load": 0.1, "tasks": 2}]
        streams = [{"from": "a", "to": "b", "rate": 0.1}]
        file = tmp_path / "topology.json"
        file.write_text(json.dumps({"operators": operators, "streams": streams, "constraints": constraints}))
        for method in ("best", "cola"):
            status, text = self.run("fuse", str(file), "2x1", "--method", method)
            assert status == 2
            assert words in text
            assert "Traceback" not in text
            assert len(text.strip().splitlines()) == 1

    def test_an_operator_too_large_for_every_host(self, tmp_path: Path) -> None:
        file = tmp_path / "topology.json"
        file.write_text(json.dumps({"operators": [{"name": "a", "load": 3}], "streams": []}))
        status, text = self.run("fuse", str(file), "2x2")
        assert status == 2
        assert "task 'a/0' needs load 3 but the largest node offers 2" in text

    def test_rates_in_bytes_are_no_obstacle_and_a_note_says_what_they_were_taken_to_cost(self) -> None:
        status, text = self.run("fuse", "routes", "2x16,2x8", "--method", "cola-basic")
        assert status == 0
        assert "nothing is measured: streams count as next to nothing" in " ".join(text.split())
        status, text = self.run("fuse", "routes", "2x16,2x8", "--method", "cola-basic", "--stream-cost", "1")
        assert status == 2

    def test_unknown_method_and_cut(self) -> None:
        status, text = self.run("fuse", "linear:4", "2x9", "--method", "magic")
        assert (status, "known: best, cola" in text) == (2, True)
        status, text = self.run("fuse", "linear:4", "2x9", "--cut", "scissors")
        assert (status, "known: leighton-rao" in text) == (2, True)


def test_streams_that_nobody_measured_are_said_to_count_as_next_to_nothing() -> None:
    two = OperatorGraph("two", (Operator("a"), Operator("b")), (Stream("a", "b", rate=2.0),))
    notes = fuse(two, Cluster.uniform([(1, 4.0)])).notes
    assert notes[-1].startswith("nothing is measured: streams count as next to nothing; a profile of a run says what ")
    heavy = OperatorGraph("heavy", two.operators, (Stream("a", "b", rate=1e8),))
    notes = fuse(heavy, Cluster.uniform([(1, 4.0)])).notes
    assert notes[-1].startswith("rates are bytes and not CPU, so a stream between workers costs CPU for its batches")
    measured = Profile(edges=(EdgeProfile("a/0", "b/0", 2.0),))
    notes = fuse(two, Cluster.uniform([(1, 4.0)]), profile=measured).notes
    assert notes[-1].startswith("rates are bytes and not CPU")
