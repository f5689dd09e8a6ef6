"""Splitting and merging workers under the rules: mirrored replicas are split and merged together.

A partition is valid for workers when no worker holds two labels of one row (worker rows and node rows alike, because a
worker is on one node) and some node is allowed for all of its vertices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from penstock.model.taskgraph import Ints, Longs
from penstock.optimise.fuse.contract import FULL
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph, numbered
from penstock.optimise.fuse.steps.rules import Flags

PAIRS_PER_LABEL_MAX = 50


def conflicting(graph: FuseGraph, vertices: Longs) -> Flags:
    """Which of the vertices cannot stay in one worker with all the others."""
    found = np.zeros(len(vertices), dtype=bool)
    for rows in (graph.worker_label, graph.node_label):
        label = rows[:, vertices]
        if not len(label):
            continue
        high = label.max(axis=1, keepdims=True)
        low = np.where(label >= 0, label, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
        found |= ((label >= 0) & (low < high)).any(axis=0)
    if not graph.allowed[vertices].all(axis=0).any():
        found |= ~graph.allowed[vertices].all(axis=1)
    return found


def pairs_to_part(graph: FuseGraph, vertices: Longs) -> Longs:
    """Pairs of the vertices that cannot share a worker, (2, pairs); of many, some of every row."""
    found: list[tuple[int, int]] = []
    for row in (*graph.worker_label, *graph.node_label):
        label = row[vertices]
        for value in np.unique(label[label >= 0]).tolist():
            own, others = vertices[label == value], vertices[label > value]
            pairs = itertools.islice(itertools.product(own.tolist(), others.tolist()), PAIRS_PER_LABEL_MAX)
            found += pairs
    allowed = graph.allowed[vertices]
    if not allowed.all(axis=0).any():
        narrow = np.flatnonzero(~allowed.all(axis=1))
        for i, j in itertools.islice(itertools.combinations(narrow.tolist(), 2), PAIRS_PER_LABEL_MAX):
            if not (allowed[i] & allowed[j]).any():
                found.append((int(vertices[i]), int(vertices[j])))
    return np.array(sorted(set(found)), dtype=np.int64).reshape(-1, 2).T


def compatible(graph: FuseGraph, a: Longs, b: Longs) -> bool:
    """Whether two valid workers could be one."""
    if not (graph.allowed[a].all(axis=0) & graph.allowed[b].all(axis=0)).any():
        return False
    for rows in (graph.worker_label, graph.node_label):
        if len(rows):
            x, y = rows[:, a].max(axis=1), rows[:, b].max(axis=1)
            if ((x >= 0) & (y >= 0) & (x != y)).any():
                return False
    return True


def first_partition(graph: FuseGraph) -> Longs:
    """The pre-processor's workers: one for each replica and each dedicated operator, and one for all the rest."""
    everywhere = (graph.worker_label >= 0).all(axis=1)
    rows = graph.worker_label[everywhere]
    if not len(rows):
        return np.zeros(graph.count, dtype=np.int64)
    return np.unique(rows, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def members(part: Longs) -> list[Longs]:
    """The vertices of each worker, ascending."""
    order = np.argsort(part, kind="stable")
    return np.split(order, np.searchsorted(part[order], np.arange(1, int(part.max()) + 1)))


def images(graph: FuseGraph, vertices: Iterable[int]) -> list[list[int]]:
    """The vertices, and what stands in their places in every mirrored group; each list in the same order."""
    found = [list(vertices)]
    seen = {tuple(found[0])}
    at = 0
    while at < len(found):
        current = found[at]
        at += 1
        for mirror in graph.mirrors:
            for group in mirror:
                where = {int(v): p for p, v in enumerate(group.tolist())}
                if all(v in where for v in current):
                    for other in mirror:
                        image = [int(other[where[v]]) for v in current]
                        if tuple(image) not in seen:
                            seen.add(tuple(image))
                            found.append(image)
    return found


def split_worker(graph: FuseGraph, part: Longs, vertices: Longs, side: Flags) -> Longs:
    """The partition with a worker split, and its images with it."""
    after, fresh = part.copy(), int(part.max()) + 1
    chosen = np.flatnonzero(side)
    for image in images(graph, vertices.tolist()):
        after[np.array(image)[chosen]] = fresh
        fresh += 1
    return numbered(after)  # images that overlap may have emptied a worker


def merge_workers(graph: FuseGraph, part: Longs, a: int, b: int) -> tuple[Longs, list[tuple[int, int]]] | None:
    """The partition with two workers merged, and their images with them; None where the rules forbid it."""
    if not graph.mirrors:
        if not compatible(graph, np.flatnonzero(part == a), np.flatnonzero(part == b)):
            return None
        after = part.copy()
        after[part == b] = a
        return after, [(a, b)]
    one, other = np.flatnonzero(part == a), np.flatnonzero(part == b)
    both = np.concatenate([one, other]).tolist()
    pairs: list[tuple[int, int]] = []
    after = part.copy()
    for image in images(graph, both):
        x, y = int(part[image[0]]), int(part[image[-1]])
        if not compatible(graph, np.flatnonzero(part == x), np.flatnonzero(part == y)):
            return None
        pairs.append((x, y))
        after[part == y] = x
    # A worker of two mirrored pairs would chain them, so these merges are left alone.
    ends = [w for pair in pairs for w in pair]
    return (after, pairs) if len(set(ends)) == len(ends) else None


def keeps_rules(graph: FuseGraph, part: Longs, host: Ints) -> bool:
    """Whether a schedule keeps labels, sites, allowed nodes and memory; CPU is not looked at."""
    where = host[part]
    if not graph.allowed[np.arange(graph.count), where].all():
        return False
    memory = np.bincount(where, graph.memory_mb, minlength=len(graph.capacity))
    if (memory > graph.memory_limit * FULL).any():
        return False
    lowest = np.full(int(graph.site.max()) + 1, len(graph.capacity))
    np.minimum.at(lowest, graph.site, where)
    if (lowest[graph.site] != where).any():
        return False
    return _labels_kept(graph.worker_label, part) and _labels_kept(graph.node_label, where)


def numbers_on_nodes(host: Ints, pinned: Longs) -> Ints:
    """Each worker's number on its node: the one that it is pinned to, or the lowest that is free (-1 is not pinned)."""
    number: Ints = np.full(len(host), -1, dtype=np.int32)
    for k in np.unique(host).tolist():
        here = np.flatnonzero(host == k)
        number[here] = pinned[here]
        taken = set(pinned[here].tolist())
        free = (n for n in itertools.count() if n not in taken)
        for w in here[pinned[here] < 0].tolist():
            number[w] = next(free)
    return number


def pinned_workers(part: Longs, pinned: Longs) -> Longs:
    """The number that each worker of a partition of tasks is pinned to, or -1."""
    found = np.full(int(part.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(found, part, pinned)
    return found


def _labels_kept(rows: Longs, part: Longs | Ints) -> bool:
    for row in rows:
        highest = np.full(int(part.max()) + 1, -1)
        np.maximum.at(highest, part, row)
        if ((row >= 0) & (row != highest[part])).any():
            return False
    return True


def keeps_mirrors(graph: FuseGraph, part: Longs) -> bool:
    """Whether mirrored groups are cut into workers alike."""
    for mirror in graph.mirrors:
        shapes = {tuple(np.unique(part[group], return_index=True)[1][_ranks(part[group])]) for group in mirror}
        if len(shapes) > 1:
            return False
    return True


def _ranks(workers: Longs) -> Longs:
    return np.unique(workers, return_inverse=True)[1].astype(np.int64)
