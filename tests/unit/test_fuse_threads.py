"""A worker is one thread: no method puts more into one than its node says that a worker carries."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fuse_kit import graph_of, random_case

from penstock import cli
from penstock.errors import Infeasible, InternalError, NoPlanFound, UserError
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Together
from penstock.model.plan import Plan
from penstock.optimise.fuse.contract import METHODS, FuseOptions
from penstock.optimise.fuse.door import fuse, prepared
from penstock.optimise.fuse.exhaustive import least
from penstock.optimise.fuse.steps.placed import places

FREE_KINDS = ("resource", "cw", "cn", "sw", "sn", "dw", "dn", "replicas")  # the exact model knows no mirrored blocks
every_method = pytest.mark.parametrize("method", list(METHODS))
# Three pairs with heavy streams inside, a light one between each pair and the next.
PAIRS = graph_of(
    dict.fromkeys("abcdef", 0.4),
    {("a", "b"): 0.1, ("c", "d"): 0.1, ("e", "f"): 0.1, ("b", "c"): 0.02, ("d", "e"): 0.02},
)


def loads(plan: Plan, load: float) -> list[float]:
    """What each worker holds."""
    slots = list(plan.assignment.values())
    return [slots.count(slot) * load for slot in set(slots)]


@pytest.mark.parametrize("method", ["best", "cola", "cola-basic", "fint"])
def test_one_node_has_as_many_workers_as_its_threads_take(method: str) -> None:
    one = Cluster((Node("n1", 8.0),))
    plan = fuse(PAIRS, one, method)
    assert sorted(loads(plan, 0.4)) == pytest.approx([0.8, 0.8, 0.8])
    assert plan.inter_worker_cost == pytest.approx(0.04)
    many = fuse(PAIRS, Cluster((replace(one.nodes[0], worker_capacity=None),)), method)
    assert loads(many, 0.4) == pytest.approx([2.4])


@every_method
def test_a_task_that_is_more_than_a_thread_is_alone_and_a_note_says_so(method: str) -> None:
    graph = graph_of({"a": 0.2, "big": 1.5, "c": 0.2}, {("a", "big"): 0.3, ("big", "c"): 0.3})
    plan = fuse(graph, Cluster.uniform([(2, 4.0)]), method)
    assert [task for task, slot in plan.assignment.items() if slot == plan.assignment["big/0"]] == ["big/0"]
    told = [note for note in plan.notes if "'big/0' alone is of SIZE 2.1, more than the 1 that a worker" in note]
    assert len(told) == 1


@every_method
def test_a_colocation_that_is_more_than_a_thread_is_refused_by_name(method: str) -> None:
    both = replace(PAIRS, constraints=(Together("worker", ("a", "b")), Together("worker", ("b", "c"))))
    with pytest.raises(Infeasible, match=r"'a/0', 'b/0', 'c/0' must share a worker and need load 1.2 but one .* 1"):
        fuse(both, Cluster.uniform([(2, 4.0)]), method)
    assert fuse(replace(both, constraints=both.constraints[:1]), Cluster.uniform([(2, 4.0)]), "best")


@pytest.mark.parametrize("method", ["best", "cola", "fint", "none"])
def test_slots_are_kept_without_filling_a_worker_too_far(method: str) -> None:
    three = Cluster((Node("n1", 8.0, slots=3),))
    assert sorted(loads(fuse(PAIRS, three, method), 0.4)) == pytest.approx([0.8, 0.8, 0.8])
    with pytest.raises((NoPlanFound, Infeasible), match="slots"):
        fuse(PAIRS, Cluster((Node("n1", 8.0, slots=2),)), method)


def test_a_node_with_larger_workers_takes_the_larger_worker() -> None:
    graph = graph_of({"a": 0.7, "b": 0.7, "c": 0.3}, {("a", "b"): 0.2})
    cluster = Cluster((Node("small", 4.0), Node("large", 4.0, worker_capacity=2.0)))
    for method in ("best", "cola", "cola-basic", "fint"):
        plan = fuse(graph, cluster, method)
        assert plan.assignment["a/0"] == plan.assignment["b/0"]
        assert plan.assignment["a/0"].node == "large"


@pytest.mark.parametrize("seed", range(200, 240))
def test_methods_against_the_exact_model(seed: int) -> None:
    graph, cluster = random_case(seed, 2, kinds=FREE_KINDS, worker_capacity=(0.4, 0.6, 0.8, None))
    truth = least(graph, cluster)
    found: dict[str, float] = {}
    for method in METHODS:
        try:
            plan = fuse(
                graph, cluster, method, options=METHODS[method].heard(FuseOptions(balance=0.0, stream_cost=1.0))
            )
        except InternalError:
            raise
        except UserError:
            continue
        assert check_plan(graph, cluster, plan) == []
        found[method] = 2 * (plan.cost + plan.inter_worker_cost)
    if truth is None:
        assert not found
        return
    assert all(cost >= truth[0] - 1e-9 for cost in found.values())
    if found:
        assert found["best"] == min(found.values())
        assert found["best"] <= truth[0] * 1.5 + 1e-9


def test_a_node_is_as_many_places_as_it_has_workers() -> None:
    nodes = (
        Node("a", 2.5, memory_mb=30.0),
        Node("b", 2.5, slots=2),
        Node("c", 2.5, worker_capacity=None),
        Node("d", 0.5),
    )
    cluster, node_of = places(prepared(PAIRS, Cluster(nodes)).problem, 1.0)
    assert node_of.tolist() == [0, 0, 0, 1, 1, 2, 3]
    assert [node.capacity for node in cluster.nodes] == pytest.approx([2.5 / 3] * 3 + [1.0] * 2 + [2.5, 0.5])
    assert [node.memory_mb for node in cluster.nodes][:4] == [10.0, 10.0, 10.0, None]


def test_routes_on_large_nodes_has_no_worker_that_is_more_than_a_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["penstock", "fuse", "routes", "3x16", "--method", "cola", "--format", "json"])
    assert cli.run_command() == 0
    plan = json.loads(capsys.readouterr().out)
    from penstock.apps import find_topology

    load = {f"{o.name}/{i}": value for o in find_topology("routes").operators for i, value in enumerate(o.loads())}
    held: dict[tuple[str, int], list[float]] = {}
    for task, slot in plan["assignment"].items():
        held.setdefault((slot["node"], slot["worker"]), []).append(load[task])
    assert all(sum(values) <= 1.0 + 1e-9 or len(values) == 1 for values in held.values())
