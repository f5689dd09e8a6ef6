"""The one signature of minimum-ratio cuts, their answer, and the registry of methods.

A method is asked about graphs on which the question is open: connected by streams that weigh something, with a cut of
finite ratio. The rest is answered here: what streams do not connect is parted for nothing, and where no cut can part
weight every ratio is infinite.
Rejected: the ratio cut / (w(S) * w(V - S)) that the flow relaxes. It differs from equation (2) by a factor between 1
and 2 that depends on the cut, so its best cut is not the paper's; flow methods search with it and judge with (2).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from penstock.errors import InvalidInput
from penstock.optimise.contract import Deadline
from penstock.optimise.fuse.ratio_cut.cut_graph import CutGraph, Side, checked_graph

BOUND_SLACK = 1e-9  # of a bound: what rounding of sums may have added to it
SECONDS_MAX = 60.0  # of a cut without a time limit of its own


@dataclass(frozen=True, eq=False)
class Cut:
    """Two sides and how good they are: `bound` is a proven lower bound on the ratio of any cut of the graph."""

    side: Side  # True for the side without vertex 0
    ratio: float
    weight: float  # of the streams between the sides
    bound: float
    proved: bool  # no cut has a smaller ratio
    method: str


@dataclass(frozen=True)
class CutOptions:
    """What a method may need beside the graph."""

    epsilon: float
    seed: int
    deadline: Deadline


@dataclass(frozen=True, eq=False)
class Found:
    """A method's answer; the door computes ratio and weight from the side."""

    side: Side
    bound: float = 0.0
    proved: bool = False


Method = Callable[[CutGraph, CutOptions], Found]

# Name to module, which is imported when it is first used: solvers are heavy.
METHODS: dict[str, str] = {
    "leighton-rao": "penstock.optimise.fuse.ratio_cut.leighton_rao",
    "refined": "penstock.optimise.fuse.ratio_cut.refined",
    "lp": "penstock.optimise.fuse.ratio_cut.linear_program",
    "exact": "penstock.optimise.fuse.ratio_cut.sparsest",
}


def minimum_ratio_cut(
    vertex_weights: ArrayLike,
    edges_u: ArrayLike,
    edges_v: ArrayLike,
    edge_weights: ArrayLike,
    *,
    method: str = "leighton-rao",
    epsilon: float = 0.1,
    seed: int = 0,
    seconds: float | None = None,
    demands: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
) -> Cut:
    """A cut of small ratio, with a bound on how small a ratio can be.

    Edges have no direction; parallel ones add up. `epsilon` is the gap at which flow methods may stop, `seconds` only
    caps. `demands` are (u, v, amount) arrays of pairs that ought to be parted: a cut that parts a pair gains as much as
    if its lighter side weighed that amount more.
    """
    if method not in METHODS:
        raise InvalidInput.unknown_name(kind="cut method", name=method, known=METHODS)
    if not 0 < epsilon <= 1:
        msg = f"epsilon is {epsilon:g}; it must be above 0 and at most 1"
        raise InvalidInput(msg)
    if seconds is not None and not seconds > 0:
        msg = f"a cut has {seconds:g} seconds; it must be more than 0"
        raise InvalidInput(msg)
    graph = checked_graph(vertex_weights, (edges_u, edges_v, edge_weights), demands)
    options = CutOptions(epsilon, seed, Deadline.after(SECONDS_MAX if seconds is None else seconds))
    found = _trivial(graph) or _search(graph, METHODS[method], options)
    return _certified(graph, found, method)


def _certified(graph: CutGraph, found: Found, method: str) -> Cut:
    """The answer with figures computed from its side, and a bound that rounding cannot have lifted above the truth."""
    side = ~found.side if found.side[0] else found.side
    ratio = graph.ratio(side)
    bound = found.bound if math.isinf(found.bound) else found.bound * (1 - BOUND_SLACK)
    return Cut(side, ratio, graph.streams.parted(side), min(bound, ratio), found.proved, method)


def _trivial(graph: CutGraph) -> Found | None:
    """A cut that costs nothing where streams leave the graph in parts that weigh something."""
    component = graph.component
    parts = int(component.max()) + 1
    if parts == 1:
        return None
    weights = np.bincount(component, weights=graph.weight, minlength=parts)
    for side in (_balanced(weights)[component], *_demanding(graph)):
        if graph.gain(side) > 0:
            return Found(side, 0.0, proved=True)
    return None


def _balanced(weights: np.ndarray) -> Side:
    """Heaviest first, each to the lighter of two sides."""
    side = np.zeros(len(weights), dtype=np.bool_)
    loads = [0.0, 0.0]
    for part in np.argsort(-weights, kind="stable").tolist():
        lighter = int(loads[1] < loads[0])
        side[part] = bool(lighter)
        loads[lighter] += float(weights[part])
    return side


def _demanding(graph: CutGraph) -> list[Side]:
    """The part of a vertex that has demand towards another part, if there is one."""
    component = graph.component
    apart = np.flatnonzero(component[graph.demands.source] != component[graph.demands.target])
    return [component == component[graph.demands.source[apart[0]]]] if len(apart) else []


def _search(graph: CutGraph, module: str, options: CutOptions) -> Found:
    """Ask the method about every part that is worth cutting: a cut of two of them is no better than one of the two."""
    parts = [members for members in _parts(graph) if graph.restricted(members).is_divisible]
    if not parts:
        return _weightless(graph)
    solve: Method = importlib.import_module(module).solve
    answers: list[Found] = []
    for members in parts:
        found = solve(graph.restricted(members), options)
        side = np.zeros(graph.size, dtype=np.bool_)
        side[members] = found.side
        answers.append(Found(side, found.bound, found.proved))
    best = min(answers, key=lambda found: graph.ratio(found.side))
    return Found(best.side, min(found.bound for found in answers), all(found.proved for found in answers))


def _parts(graph: CutGraph) -> list[Side]:
    """What streams connect, for each part that has a stream."""
    return [graph.component == part for part in np.unique(graph.component[graph.streams.source]).tolist()]


def _weightless(graph: CutGraph) -> Found:
    """The cheapest single vertex or part where no cut parts weight: every ratio is infinite, so any is the best."""
    if int(graph.component.max()) > 0:
        return Found(graph.component > 0, math.inf, proved=True)
    degree = np.bincount(graph.streams.source, weights=graph.streams.weight, minlength=graph.size)
    degree += np.bincount(graph.streams.target, weights=graph.streams.weight, minlength=graph.size)
    return Found(np.arange(graph.size) == int(np.argmin(degree)), math.inf, proved=True)
