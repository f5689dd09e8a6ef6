"""Small graphs for cuts, and the oracle that tries every cut."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from hypothesis import strategies as st


class Instance(NamedTuple):
    """Plain lists, so that the oracle shares no code with what it judges."""

    weights: list[float]
    edges: list[tuple[int, int, float]]
    demands: tuple[tuple[int, int, float], ...] = ()

    @property
    def arrays(self) -> tuple[list[float], list[int], list[int], list[float]]:
        return self.weights, [e[0] for e in self.edges], [e[1] for e in self.edges], [e[2] for e in self.edges]

    @property
    def demand_arrays(self) -> tuple[list[int], list[int], list[float]]:
        return ([d[0] for d in self.demands], [d[1] for d in self.demands], [d[2] for d in self.demands])


def cut_weight(instance: Instance, inside: set[int]) -> float:
    return sum(w for u, v, w in instance.edges if (u in inside) != (v in inside))


def ratio(instance: Instance, inside: set[int]) -> float:
    """Equation (2) of the paper, with demand parted added below; infinite where nothing is parted."""
    outside = set(range(len(instance.weights))) - inside
    gain = min(sum(instance.weights[v] for v in inside), sum(instance.weights[v] for v in outside))
    gain += sum(w for u, v, w in instance.demands if (u in inside) != (v in inside))
    return cut_weight(instance, inside) / gain if gain > 0 else math.inf


def least_ratio(instance: Instance) -> float:
    """The smallest ratio of all cuts, by trying them."""
    others = range(1, len(instance.weights))
    sets = (set(chosen) for size in range(1, len(instance.weights)) for chosen in itertools.combinations(others, size))
    return min(ratio(instance, inside) for inside in sets)


@st.composite
def instances(draw: st.DrawFn, vertices_max: int = 12, with_demands: bool = False) -> Instance:
    """Anything goes: weights of 0, no edges, loops, parallel edges, parts that nothing joins."""
    count = draw(st.integers(2, vertices_max))
    amount = st.one_of(st.just(0.0), st.integers(1, 5).map(float), st.floats(0.01, 10.0))
    vertex = st.integers(0, count - 1)
    weights = draw(st.lists(amount, min_size=count, max_size=count))
    tree = [(v, draw(st.integers(0, v - 1)), draw(amount)) for v in range(1, count)] if draw(st.booleans()) else []
    edges = tree + draw(st.lists(st.tuples(vertex, vertex, amount), max_size=2 * count))
    demands = draw(st.lists(st.tuples(vertex, vertex, amount), max_size=3)) if with_demands else []
    return Instance(weights, edges, tuple(demands))
