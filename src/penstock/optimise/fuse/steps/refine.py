"""Refinement: vertices moved and swapped between workers under f(U, C), every rule and limit kept at every step.

A pass moves each vertex at most once, the best move first even when it makes things worse, and goes back to the best
state it saw (Fiduccia and Mattheyses); then single swaps follow where they help, because full nodes admit no moves.
Moving v from worker a to worker b changes SIZE by its load and twice its streams to the worker:

    SIZE(a) falls by w_v + degree_v - 2 conn(v, a)     SIZE(b) grows by w_v + degree_v - 2 conn(v, b)
    C changes by 2 (conn(v, a) - conn(v, b))

Vertices of isomorphic replicas stay where they are, and vertices whose site has others stay on their node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Deadline
from penstock.optimise.fuse.contract import FULL, Case
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph, numbered
from penstock.optimise.fuse.steps.lpt import utilisations
from penstock.optimise.fuse.steps.rules import Flags

PASSES_MAX = 12
PATIENCE = 60  # moves without a new best after which a pass ends
SWAP_VERTICES_MAX = 600  # vertices that swaps look at together
SHORTLIST = 64  # moves for which a user's own f is asked
TIE = 1e-9  # of U in the comparison of moves with equal f


@dataclass(frozen=True, eq=False)
class State:
    """Workers and nodes, with f(U, C) and U to compare by."""

    part: Longs
    host: Ints
    score: tuple[float, float]
    within_workers: bool = True  # whether a worker of its node carries every worker

    @property
    def is_feasible(self) -> bool:
        """Whether nodes and workers carry what they hold."""
        return self.score[1] <= FULL and self.within_workers


def scored(case: Case, graph: FuseGraph, part: Longs, host: Ints) -> State:
    """A state with its score."""
    used = float(utilisations(graph.sizes(part), host, graph.capacity).max())
    return State(part, host, case.score(used, graph.communication(part)), graph.keeps_worker_limits(part, host))


def refined(case: Case, graph: FuseGraph, state: State, deadline: Deadline) -> State:
    """A state that is at least as good, with the same rules kept."""
    for _ in range(PASSES_MAX):
        if deadline.remaining <= 0:
            break
        before = state.score
        state = _pass(case, graph, state, deadline)
        state = _swapped(case, graph, state, deadline)
        if state.score >= before:
            break
    return state


class _Board:
    """Everything a move changes, kept up to date. The last workers are empty ones, one for each node."""

    def __init__(self, graph: FuseGraph, state: State) -> None:
        self.graph = graph
        nodes = len(graph.capacity)
        self.part = state.part.copy()
        self.host = np.concatenate([state.host, np.arange(nodes)]).astype(np.int64)
        self.workers = len(self.host)
        n = graph.count
        self.conn = np.zeros((n, self.workers))
        np.add.at(self.conn, (graph.u, self.part[graph.v]), graph.weight)
        np.add.at(self.conn, (graph.v, self.part[graph.u]), graph.weight)
        self.communication = graph.communication(self.part)
        sizes = np.zeros(self.workers)
        sizes[: len(state.host)] = graph.sizes(self.part)
        self.size, self.held = sizes, np.bincount(self.part, minlength=self.workers)
        self.limit = graph.worker_limit[self.host]
        self.used = np.bincount(self.host, sizes, minlength=nodes)
        self.memory = np.bincount(self.host[self.part], graph.memory_mb, minlength=nodes)
        sites = np.bincount(graph.site)
        self.tied = sites[graph.site] > 1
        self.frozen = np.zeros(n, dtype=bool)
        for mirror in graph.mirrors:
            self.frozen[mirror] = True
        self.worker_ok = np.ones((n, self.workers), dtype=bool)
        self.node_ok = np.ones((n, nodes), dtype=bool)
        for w in range(self.workers):
            self._look_at_worker(w)
        for k in range(nodes):
            self._look_at_node(k)
        self.neighbours: list[tuple[Longs, Floats]] = _neighbours(graph)

    def _look_at_worker(self, w: int) -> None:
        self.worker_ok[:, w] = _admits(self.graph.worker_label, self.part == w)

    def _look_at_node(self, k: int) -> None:
        self.node_ok[:, k] = _admits(self.graph.node_label, self.host[self.part] == k) & self.graph.allowed[:, k]

    def admitted(self, locked: Flags) -> Flags:
        """Which vertex may go to which worker."""
        graph, n = self.graph, self.graph.count
        here = self.host[self.part]
        same_node = here[:, None] == self.host[None, :]
        found = self.worker_ok & (same_node | (self.node_ok[:, self.host] & ~self.tied[:, None]))
        room = self.memory[self.host][None, :] + graph.memory_mb[:, None] <= graph.memory_limit[self.host][None, :]
        found &= same_node | room
        if graph.limits_workers:
            found &= self._carried()
        found[np.arange(n), self.part] = False
        found[self.frozen | locked] = False
        return np.asarray(found, dtype=bool)

    def _carried(self) -> Flags:
        """Which moves leave both workers with what their threads carry; a vertex alone may be more."""
        weight = self.graph.load + self.graph.degree
        left = self.size[self.part] - weight + 2 * self.conn[np.arange(self.graph.count), self.part]
        entered = self.size[None, :] + weight[:, None] - 2 * self.conn
        stays = (left <= self.limit[self.part]) | (self.held[self.part] <= 2)
        return np.asarray(stays[:, None] & ((entered <= self.limit[None, :]) | (self.held == 0)[None, :]), dtype=bool)

    def outcomes(self) -> tuple[Floats, Floats]:
        """U and C after each move of a vertex to a worker."""
        graph, n = self.graph, self.graph.count
        own = self.conn[np.arange(n), self.part]
        weight = graph.load + graph.degree
        leaves, enters = weight - 2 * own, weight[:, None] - 2 * self.conn
        here = self.host[self.part]
        same_node = here[:, None] == self.host[None, :]
        after_here = (self.used[here] - leaves) / graph.capacity[here]
        after_there = (self.used[self.host][None, :] + enters) / graph.capacity[self.host][None, :]
        both = (self.used[here][:, None] - leaves[:, None] + enters) / graph.capacity[here][:, None]
        moved = np.where(same_node, both, np.maximum(after_here[:, None], after_there))
        return np.maximum(moved, self._others(here)), self.communication + 2 * (own[:, None] - self.conn)

    def _others(self, here: Longs) -> Floats:
        """How full the fullest node is beside the two of a move."""
        full = self.used / self.graph.capacity
        order = np.argsort(-full, kind="stable")[:3]
        found = np.zeros((len(here), self.workers))
        for k in reversed(order.tolist()):
            untouched = (here[:, None] != k) & (self.host[None, :] != k)
            found = np.where(untouched, full[k], found)
        return found

    def move(self, v: int, w: int) -> None:
        """Move a vertex to a worker."""
        graph, a = self.graph, int(self.part[v])
        weight = graph.load[v] + graph.degree[v]
        here, there = int(self.host[a]), int(self.host[w])
        self.used[here] -= weight - 2 * self.conn[v, a]
        self.used[there] += weight - 2 * self.conn[v, w]
        self.size[a] -= weight - 2 * self.conn[v, a]
        self.size[w] += weight - 2 * self.conn[v, w]
        self.held[a] -= 1
        self.held[w] += 1
        self.communication += 2 * (self.conn[v, a] - self.conn[v, w])
        self.memory[here] -= graph.memory_mb[v]
        self.memory[there] += graph.memory_mb[v]
        others, weights = self.neighbours[v]
        self.conn[others, a] -= weights
        self.conn[others, w] += weights
        self.part[v] = w
        if len(graph.worker_label):
            self._look_at_worker(a)
            self._look_at_worker(w)
        if len(graph.node_label) and here != there:
            self._look_at_node(here)
            self._look_at_node(there)

    @property
    def utilisation(self) -> float:
        """How full the fullest node is."""
        return float((self.used / self.graph.capacity).max())

    def state(self, case: Case) -> State:
        """The state without empty workers, with sums taken afresh."""
        kept = np.unique(self.part)
        return scored(case, self.graph, numbered(self.part), self.host[kept].astype(np.int32))


def _neighbours(graph: FuseGraph) -> list[tuple[Longs, Floats]]:
    row = np.concatenate([graph.u, graph.v])
    order = np.argsort(row, kind="stable")
    other, weight = np.concatenate([graph.v, graph.u])[order], np.concatenate([graph.weight, graph.weight])[order]
    starts = np.searchsorted(row[order], np.arange(1, graph.count))
    return list(zip(np.split(other, starts), np.split(weight, starts), strict=True))


def _admits(rows: Longs, inside: Flags) -> Flags:
    """Which vertices have no label that differs from one inside."""
    if not len(rows) or not inside.any():
        return np.ones(len(inside), dtype=bool)
    label = rows[:, inside].max(axis=1)[:, None]
    clash: Flags = ((rows >= 0) & (label >= 0) & (rows != label)).any(axis=0)
    return ~clash


def _values(case: Case, utilisation: Floats, communication: Floats, admitted: Flags) -> Floats:
    """The objective of each admitted move that overloads nothing, infinite for all others."""
    fits = admitted & (utilisation <= FULL)
    values = np.full(utilisation.shape, np.inf)
    if case.options.objective is None:
        values[fits] = case.weighted(utilisation[fits], communication[fits]) + TIE * utilisation[fits]
        return values
    at = np.flatnonzero(fits.ravel())
    for key in (communication, utilisation):
        for cell in at[np.argsort(key.ravel()[at], kind="stable")[:SHORTLIST]].tolist():
            used = float(utilisation.ravel()[cell])
            values.ravel()[cell] = case.objective(used, float(communication.ravel()[cell])) + TIE * used
    return values


def _pass(case: Case, graph: FuseGraph, state: State, deadline: Deadline) -> State:
    """One pass of moves; the best state that it saw."""
    board = _Board(graph, state)
    locked = np.zeros(graph.count, dtype=bool)
    moves: list[tuple[int, int]] = []
    best, kept, since = state.score, 0, 0
    while since < PATIENCE and deadline.remaining > 0:
        values = _values(case, *board.outcomes(), board.admitted(locked))
        cell = int(np.argmin(values))
        if not np.isfinite(values.ravel()[cell]):
            break
        v, w = divmod(cell, board.workers)
        moves.append((v, w))
        board.move(v, w)
        locked[v] = True
        since += 1
        if (score := case.score(board.utilisation, board.communication)) < best:
            best, kept, since = score, len(moves), 0
    if not kept:
        return state
    board = _Board(graph, state)
    for v, w in moves[:kept]:
        board.move(v, w)
    found = board.state(case)
    return found if found.score < state.score and found.within_workers else state


def _swapped(case: Case, graph: FuseGraph, state: State, deadline: Deadline) -> State:
    """The best swap again and again while it helps."""
    board = _Board(graph, state)
    for _ in range(graph.count):
        if deadline.remaining <= 0:
            break
        pair = _best_swap(case, board, state.score)
        if pair is None:
            break
        a, b = pair
        to_b, to_a = int(board.part[b]), int(board.part[a])
        board.move(a, to_b)
        board.move(b, to_a)
        found = board.state(case)
        if not found.score < state.score or not found.within_workers:
            break
        state = found
        board = _Board(graph, state)
    return state


def _best_swap(case: Case, board: _Board, score: tuple[float, float]) -> tuple[int, int] | None:
    """Two vertices of different workers whose exchange gives the best f below the score's."""
    graph = board.graph
    chosen = np.flatnonzero(~board.frozen & ~board.tied)
    if len(chosen) > SWAP_VERTICES_MAX:  # those with the most streams to other workers first
        outside = graph.degree - board.conn[np.arange(graph.count), board.part]
        chosen = np.sort(chosen[np.argsort(-outside[chosen], kind="stable")[:SWAP_VERTICES_MAX]])
    if len(chosen) < 2:
        return None
    part, host = board.part[chosen], board.host[board.part[chosen]]
    position = np.full(graph.count, -1, dtype=np.int64)
    position[chosen] = np.arange(len(chosen))
    joint = np.zeros((len(chosen), len(chosen)))
    a, b = position[graph.u], position[graph.v]
    inside = (a >= 0) & (b >= 0)
    joint[a[inside], b[inside]] = joint[b[inside], a[inside]] = graph.weight[inside]
    conn = board.conn[chosen][:, part]  # (a, b): streams of a to b's worker
    own = conn[np.arange(len(chosen)), np.arange(len(chosen))]
    weight = (graph.load + graph.degree)[chosen]
    # What a's worker gains when b takes a's place, and b's worker when a takes b's.
    gain = weight[None, :] - weight[:, None] + 2 * own[:, None] - 2 * conn.T + 2 * joint
    same_node = host[:, None] == host[None, :]  # where a worker is its node, a swap inside it changes nothing
    on_node = np.where(same_node, gain + gain.T, gain)
    after = (board.used[host][:, None] + on_node) / graph.capacity[host][:, None]
    utilisation = np.maximum(np.maximum(after, after.T), _beside(board, host))
    communication = board.communication + 2 * (own[:, None] + own[None, :] - conn - conn.T + 2 * joint)
    memory = graph.memory_mb[chosen]
    room = board.memory[host][:, None] - memory[:, None] + memory[None, :] <= graph.memory_limit[host][:, None]
    admitted = board.worker_ok[chosen][:, part] & board.node_ok[chosen][:, host]
    admitted = admitted & admitted.T & room & room.T & (part[:, None] != part[None, :])
    if graph.limits_workers:
        carried = (board.size[part][:, None] + gain <= board.limit[part][:, None]) | (board.held[part] <= 1)[:, None]
        admitted = admitted & carried & carried.T
    else:
        admitted &= ~same_node
    admitted = np.triu(admitted, 1)
    values = _values(case, utilisation, communication, admitted)
    cell = int(np.argmin(values))
    x, y = divmod(cell, len(chosen))
    if not np.isfinite(values[x, y]) or case.score(float(utilisation[x, y]), float(communication[x, y])) >= score:
        return None
    return int(chosen[x]), int(chosen[y])


def _beside(board: _Board, host: Longs) -> Floats:
    """How full the fullest node is beside the two of a swap."""
    full = board.used / board.graph.capacity
    found = np.zeros((len(host), len(host)))
    for k in reversed(np.argsort(-full, kind="stable")[:3].tolist()):
        found = np.where((host[:, None] != k) & (host[None, :] != k), full[k], found)
    return found
