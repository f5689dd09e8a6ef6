"""A scheduler's plan, with the nodes and workers that are alike renamed so that the fewest tasks have to move.

Schedulers number workers as they come, so two looks at one job may give one plan under two sets of names. Nodes of
equal limits that the constraints treat alike can take each other's places, and so can the workers of a node; pinned
ones and slow ones keep theirs. Each is an assignment problem, and they nest: which worker takes which place depends on
the pair of nodes, and what a pair of nodes is worth on its workers. Both are solved exactly
(`test_no_renaming_moves_fewer`). Of two renamings that move equally many tasks the one that moves less state is taken.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from penstock.adapt.matching import heaviest
from penstock.adapt.scene import Places, Scene
from penstock.adapt.speeds import speeds_of
from penstock.model.taskgraph import Floats, Ints, Longs

NODES_MAX = 200  # alike, that are matched exactly: 8 million steps in arrays; beyond, heaviest pairs first
REFUSED = 1e9  # weight that no number of tasks makes good
SHUNNED = 1e7  # of a slow worker where there are others


def relabelled(scene: Scene, target: Places) -> Places:
    """The same plan under the names that keep most tasks where they are."""
    node, worker = target[0].copy(), target[1].copy()
    worth = _worth(scene)
    for alike in _alike(scene):
        for i, j in _pairs(scene, target, alike, worth):
            tasks = np.flatnonzero(target[0] == i)
            node[tasks] = j
            worker[tasks] = _seats(scene, target[1], tasks, j, worth)[0]
    return node, worker


def _worth(scene: Scene) -> Floats:
    """Of each task that stays: 1, and a little more by its state, all tasks' less than 1 together."""
    state = scene.state
    return np.asarray(1.0 + state / (2.0 * max(1.0, float(state.sum()))))


def _alike(scene: Scene) -> list[list[int]]:
    """Nodes that can take each other's places."""
    groups: dict[object, list[int]] = defaultdict(list)
    rules = scene.rules
    pinned = set() if rules is None else set(np.flatnonzero(rules.allowed[rules.pinned >= 0].any(axis=0)).tolist())
    for k, node in enumerate(scene.problem.cluster.nodes):
        allowed = b"" if rules is None else rules.allowed[:, k].tobytes()
        speeds = tuple(sorted(speeds_of(scene.look, node))) if node.slots is not None else ()
        groups[replace(node, name=""), allowed, speeds, k if k in pinned else -1].append(k)
    return list(groups.values())


def _pairs(scene: Scene, target: Places, alike: list[int], worth: Floats) -> list[tuple[int, int]]:
    """Which node of the plan takes which place."""
    place = {k: row for row, k in enumerate(alike)}
    weight = np.zeros((len(alike), len(alike)))
    common = set(zip(target[0].tolist(), scene.present[0].tolist(), strict=True))
    for i, j in sorted(common):
        if i in place and j in place:
            tasks = np.flatnonzero(target[0] == i)
            weight[place[i], place[j]] = _seats(scene, target[1], tasks, j, worth)[1]
    chosen = heaviest(weight) if len(alike) <= NODES_MAX else _heaviest_first(weight)
    return [(alike[row], alike[int(column)]) for row, column in enumerate(chosen)]


def _heaviest_first(weight: Floats) -> Longs:
    chosen = np.full(len(weight), -1, dtype=np.int64)
    free = np.ones(len(weight), dtype=bool)
    for flat in np.argsort(-weight, axis=None, kind="stable").tolist():
        row, column = divmod(flat, len(weight))
        if chosen[row] < 0 and free[column]:
            chosen[row], free[column] = column, False
    return chosen


def _seats(scene: Scene, worker: Ints, tasks: Longs, there: int, worth: Floats) -> tuple[Ints, float]:
    """The worker of each of a node's tasks if it takes this place, and what the tasks that stay are worth."""
    if len(tasks) == 0:
        return np.empty(0, dtype=np.int32), 0.0
    rows, row = np.unique(worker[tasks], return_inverse=True)
    stated, seats = scene.problem.cluster.nodes[there].slots, scene.pricing.seats
    weight = np.zeros((len(rows), min(stated or seats, seats)))
    stay = scene.present[0][tasks] == there
    np.add.at(weight, (row[stay], scene.present[1][tasks[stay]]), worth[tasks[stay]])
    column = heaviest(_ruled(scene, weight, tasks, row, there))
    kept = stay & (column[row] == scene.present[1][tasks])
    return column[row].astype(np.int32), float(worth[tasks[kept]].sum())


def _ruled(scene: Scene, weight: Floats, tasks: Longs, row: Longs, there: int) -> Floats:
    """The weights with pinned workers where they must be, and slow ones left alone where there are enough others."""
    ruled = weight.copy()
    slow = np.isfinite(scene.slow[there * scene.pricing.seats :][: min(scene.pricing.seats, weight.shape[1])])
    if slow.any() and weight.shape[1] - slow.sum() >= len(weight):
        ruled[:, : len(slow)][:, slow] -= SHUNNED
    if scene.rules is not None:
        for t, r in zip(tasks.tolist(), row.tolist(), strict=True):
            if (own := int(scene.rules.pinned[t])) >= 0:
                ruled[:, own] = ruled[r, :] = -REFUSED
                ruled[r, own] = REFUSED
    return ruled
