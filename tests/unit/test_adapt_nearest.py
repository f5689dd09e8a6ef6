"""Which tasks have to move for a plan: no renaming moves fewer, and no smaller set of moves is as good."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from adapt_kit import MB, measured, pairs_graph, round_robin, three_nodes
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.adapt.contract import AdaptGoals, AdaptSettings, Look
from penstock.adapt.fewest import EXACT_UNITS_MAX, fewest_moves
from penstock.adapt.matching import heaviest
from penstock.adapt.nearest import relabelled
from penstock.adapt.price import Pricer
from penstock.adapt.scene import Places, Scene
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Pin, Resource, Together
from penstock.model.plan import Slot
from penstock.model.profile import Profile
from penstock.model.topology import Operator, OperatorGraph
from penstock.testing import topologies

BYTES = AdaptSettings(goals=AdaptGoals("bytes"))


@given(st.data())
def test_no_assignment_is_heavier(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 4))
    columns = data.draw(st.integers(max(rows, 1), 5))
    amounts = st.integers(-3, 9).map(float) | st.floats(-5, 5)
    cells = data.draw(st.lists(amounts, min_size=rows * columns, max_size=rows * columns))
    weight = np.array(cells).reshape(rows, columns)
    found = heaviest(weight)
    assert len(set(found.tolist())) == rows
    ways = itertools.permutations(range(columns), rows)
    best = max(sum(weight[r, c] for r, c in enumerate(way)) for way in ways)
    assert weight[np.arange(rows), found].sum() == pytest.approx(best)


def loose(tasks: int) -> OperatorGraph:
    return OperatorGraph("loose", (Operator("a", tasks, load=0.01),))


def scene_of(graph: OperatorGraph, cluster: Cluster, assignment: dict[str, Slot], **known: object) -> Scene:
    return Scene.of(Look(0.0, graph, cluster, assignment, Profile(), **known))  # type: ignore[arg-type]


def named(slots: list[tuple[str, int]]) -> dict[str, Slot]:
    return {f"a/{i}": Slot(*slot) for i, slot in enumerate(slots)}


def renamings(cluster: Cluster) -> Iterator[dict[Slot, Slot]]:
    """Every way to rename equal nodes and their workers."""
    names = [node.name for node in cluster.nodes]
    of = {node.name: replace(node, name="") for node in cluster.nodes}
    for order in itertools.permutations(names):
        if all(of[a] == of[b] for a, b in zip(names, order, strict=True)):
            ways = [itertools.permutations(range(node.slots or 1)) for node in cluster.nodes]
            for seats in itertools.product(*ways):
                yield {
                    Slot(a, w): Slot(b, row[w])
                    for a, b, row in zip(names, order, seats, strict=True)
                    for w in range(len(row))
                }


@settings(deadline=None)
@given(st.data())
def test_no_renaming_moves_fewer(data: st.DataObject) -> None:
    sizes = st.sampled_from([(1.0, 2), (1.0, 3), (2.0, 2)])
    nodes = [
        Node(f"n{k}", *[c], slots=s) for k, (c, s) in enumerate(data.draw(st.lists(sizes, min_size=1, max_size=3)))
    ]
    cluster, tasks = Cluster(tuple(nodes)), data.draw(st.integers(1, 7))
    slots = [(node.name, w) for node in nodes for w in range(node.slots or 1)]
    now, then = (named(data.draw(st.lists(st.sampled_from(slots), min_size=tasks, max_size=tasks))) for _ in range(2))
    scene = scene_of(loose(tasks), cluster, now)
    found = scene.assignment(relabelled(scene, scene.places(then)))
    moves = sum(found[task] != now[task] for task in now)
    ways = list(renamings(cluster))
    assert any(all(way[then[t]] == found[t] for t in now) for way in ways)
    assert moves == min(sum(way[then[t]] != now[t] for t in now) for way in ways)


def test_the_heaviest_pair_first_would_move_more() -> None:
    cluster = Cluster.uniform([(2, 4.0)])
    # n1 of the plan has 3 tasks of n1 and 2 of n2; n2 of it has 2 of n1 and none of n2: 3 + 0 < 2 + 2
    now = named([("n1", 0)] * 3 + [("n2", 0)] * 2 + [("n1", 0)] * 2)
    then = named([("n1", 0)] * 5 + [("n2", 0)] * 2)
    scene = scene_of(loose(7), cluster, now)
    found = relabelled(scene, scene.places(then))
    assert found[0].tolist() == [1] * 5 + [0] * 2
    assert len(scene.moved(found)) == 3


def test_less_state_moves_where_as_many_tasks_do() -> None:
    now, then = named([("n1", 0), ("n2", 0)]), named([("n1", 0), ("n1", 0)])
    for heavy, stays in (("a/0", 0), ("a/1", 1)):
        scene = scene_of(loose(2), Cluster.uniform([(2, 4.0)]), now, state_bytes={heavy: 1e6})
        assert relabelled(scene, scene.places(then))[0].tolist() == [stays, stays]


def test_a_node_that_a_constraint_names_and_a_pinned_worker_keep_their_places() -> None:
    graph = replace(loose(3), constraints=(Resource("a/0", ("n1",)),))
    now, then = named([("n1", 0), ("n2", 0), ("n2", 0)]), named([("n1", 0), ("n1", 0), ("n1", 0)])
    scene = scene_of(graph, Cluster.uniform([(2, 4.0)]), now)
    assert relabelled(scene, scene.places(then))[0].tolist() == [0, 0, 0]  # n2 would move one task, and is not allowed
    node = Cluster((Node("n1", 4.0, slots=3),))
    at, to = named([("n1", 2), ("n1", 0), ("n1", 0)]), named([("n1", 2), ("n1", 1), ("n1", 1)])
    pinned = scene_of(loose(3), node, at, demands=(Pin("a/0", "n1", 2),))
    assert relabelled(pinned, pinned.places(to))[1].tolist() == [2, 0, 0]
    crowd = pinned.places(named([("n1", 2), ("n1", 2), ("n1", 2)]))
    assert relabelled(pinned, crowd)[1].tolist() == [2, 2, 2]  # as worker 0 it would move one task


def test_a_slow_worker_is_left_alone_where_there_are_others() -> None:
    node = Cluster((Node("n1", 3.0, slots=3),))
    at, to = named([("n1", 0), ("n1", 1)]), named([("n1", 0), ("n1", 1)])
    scene = scene_of(loose(2), node, at, speed={Slot("n1", 0): 0.2})
    assert sorted(relabelled(scene, scene.places(to))[1].tolist()) == [1, 2]


def pricer_of(
    graph: OperatorGraph, cluster: Cluster, now: dict[str, Slot], chosen: AdaptSettings, noise: float
) -> Pricer:
    profile = measured(graph, now, np.random.default_rng(1), noise)
    state = {task: 1e5 * i for i, task in enumerate(now)}
    look = Look(0.0, graph, cluster, now, profile, usable_share=0.8, state_bytes=state)
    return Pricer(Scene.of(look), chosen)


def by_all_sets(pricer: Pricer, target: Places) -> tuple[int, float]:
    """The fewest tasks whose plan is within the tolerance of the best, and that plan's worth."""
    now = pricer.scene.present
    moved = pricer.scene.moved(target).tolist()
    worth: dict[tuple[int, ...], float] = {(): pricer.price(now).total}
    for size in range(1, min(len(moved), pricer.settings.moves_max) + 1):
        for some in itertools.combinations(moved, size):
            node, worker = now[0].copy(), now[1].copy()
            node[list(some)], worker[list(some)] = target[0][list(some)], target[1][list(some)]
            if pricer.scene.holds((node, worker)):
                cost = pricer.moving((node, worker)) / pricer.settings.horizon_s
                worth[some] = pricer.careful((node, worker)) + cost
    limit = min(worth.values()) * (1 + pricer.settings.tolerance)
    return min((len(some), value) for some, value in worth.items() if value <= limit)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_no_smaller_set_of_moves_is_as_good(data: st.DataObject) -> None:
    graph = data.draw(topologies(max_operators=3, max_tasks=EXACT_UNITS_MAX))
    cluster = Cluster(tuple(Node(f"n{k}", data.draw(st.sampled_from((2.0, 6.0, 40.0))), slots=2) for k in range(3)))
    tasks = [f"{o.name}/{i}" for o in graph.operators for i in range(o.tasks)]
    slots = st.sampled_from([Slot(f"n{k}", w) for k in range(3) for w in range(2)])
    now, then = ({task: data.draw(slots) for task in tasks} for _ in range(2))
    goal, most = data.draw(st.sampled_from(("bytes", "throughput"))), data.draw(st.integers(1, 8))
    pricer = pricer_of(graph, cluster, now, AdaptSettings(goals=AdaptGoals(goal), moves_max=most), 0.1)
    target = pricer.scene.places(then)
    found, _ = fewest_moves(pricer, target)
    count, value = by_all_sets(pricer, target)
    assert len(pricer.scene.moved(found)) == count
    if count:
        cost = pricer.moving(found) / pricer.settings.horizon_s
        assert pricer.careful(found) + cost == pytest.approx(value)


@pytest.mark.parametrize("pairs", [10, 24])
def test_of_many_moves_none_that_is_kept_can_be_left_out(pairs: int) -> None:
    graph = pairs_graph(pairs, load=0.02)
    cluster = three_nodes()
    now = round_robin(graph, cluster)
    then = {task: Slot(f"n{int(task.partition('/')[2]) // 2 % 3}", 0) for task in now}
    pricer = pricer_of(graph, cluster, now, replace(BYTES, moves_max=100), 0.0)
    found, _ = fewest_moves(pricer, pricer.scene.places(then))
    moved = pricer.scene.moved(found)
    assert len(pricer.scene.moved(pricer.scene.places(then))) > EXACT_UNITS_MAX
    limit = (1 + BYTES.tolerance) * worth(pricer, found)
    for task in moved.tolist():
        less = found[0].copy(), found[1].copy()
        less[0][task], less[1][task] = pricer.scene.present[0][task], pricer.scene.present[1][task]
        assert worth(pricer, less) > limit or not pricer.scene.holds(less)


def worth(pricer: Pricer, places: Places) -> float:
    return pricer.careful(places) + pricer.moving(places) / pricer.settings.horizon_s


def test_tasks_of_one_block_move_together_and_full_workers_swap() -> None:
    graph = replace(pairs_graph(2, load=0.35), constraints=(Together("worker", ("source/0", "count/1")),))
    cluster = Cluster((Node("n0", 0.8, slots=1), Node("n1", 0.8, slots=1)))
    now = {"source/0": Slot("n0", 0), "count/1": Slot("n0", 0), "source/1": Slot("n1", 0), "count/0": Slot("n1", 0)}
    then = {task: Slot("n1" if slot.node == "n0" else "n0", 0) for task, slot in now.items()}
    pricer = pricer_of(graph, cluster, now, BYTES, 0.0)
    assert fewest_moves(pricer, pricer.scene.places(then))[0][0].tolist() == pricer.scene.present[0].tolist()
    free = pricer_of(replace(graph, constraints=()), cluster, now, BYTES, 0.0)
    paired = {"source/0": Slot("n0", 0), "count/0": Slot("n0", 0), "source/1": Slot("n1", 0), "count/1": Slot("n1", 0)}
    assert len(free.scene.moved(fewest_moves(free, free.scene.places(paired))[0])) == 2


def test_no_more_tasks_move_at_once_than_the_limit_says() -> None:
    graph, cluster = pairs_graph(12, heavy=10 * MB, light=0.0, load=0.02), three_nodes()
    now = round_robin(graph, cluster) | {f"count/{i}": Slot(f"n{(i + 1) % 3}", 0) for i in range(12)}
    then = {task: Slot(f"n{int(task.partition('/')[2]) % 3}", 0) for task in now}
    for most in (1, 4, 12):
        pricer = pricer_of(graph, cluster, now, replace(BYTES, moves_max=most), 0.0)
        found, _ = fewest_moves(pricer, pricer.scene.places(then))
        assert len(pricer.scene.moved(found)) == most
        assert pricer.price(found).between_nodes == pytest.approx((12 - most) * 10 * MB)
