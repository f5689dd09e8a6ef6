"""How long a row takes through a plan, by a simple model: good for comparing two plans of one job, not for promises.

The longest way through the tasks: what each does with a batch, longer where its worker is busy (1 / (1 - pressure)),
and for each edge what its distance takes. What was measured at a distance is taken in the mean; the guesses for others
are round numbers. A plan's latency is then the measured one times the model's ratio of the two plans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.adapt.scene import Places, Scene
from penstock.model.costs import DISTANCES
from penstock.model.taskgraph import Floats, Longs
from penstock.model.topology import OperatorGraph
from penstock.optimise.communication import distances, seat_loads

GUESSED_US = (1.0, 50.0, 200.0)  # of a hop, by distance, where none was measured
PRESSURE_MAX = 0.95  # a queue in front of a busier worker grows without end; the model stops here


@dataclass(frozen=True, eq=False)
class Latency:
    """The model for one look."""

    scene: Scene
    execute_us: Floats  # of each task
    hop_us: Floats  # of each distance
    ways: tuple[Longs, ...]  # edges in an order in which each comes after all that lead to it

    @classmethod
    def of(cls, scene: Scene) -> Latency:
        """From what the profile measured."""
        profile, ids = scene.look.profile, scene.problem.graph.ids
        execute = [profile.tasks[t].execute_us or 0.0 if t in profile.tasks else 0.0 for t in ids]
        hops = []
        for distance, guess in zip(DISTANCES, GUESSED_US, strict=True):
            seen = [e.latency_us for e in profile.edges if e.distance == distance and e.latency_us is not None]
            hops.append(sum(seen) / len(seen) if seen else guess)
        return cls(scene, np.array(execute), np.array(hops), _ways(scene))

    def modelled_us(self, places: Places) -> float:
        """The longest way through a plan."""
        graph, (node, worker) = self.scene.problem.graph, places
        seats = seat_loads(self.scene.problem, node, worker)
        thread = self.scene.pricing.thread[node.astype(np.int64) * self.scene.pricing.seats + worker]
        busy = np.minimum(seats.load[seats.seat_of] / thread, PRESSURE_MAX)
        own = self.execute_us / (1.0 - busy)
        hop = self.hop_us[distances(graph, node, worker)]
        through = own.copy()
        for edges in self.ways:
            a, b = graph.source[edges], graph.target[edges]
            np.maximum.at(through, b, through[a] + hop[edges] + own[b])
        return float(through.max())


def _ways(scene: Scene) -> tuple[Longs, ...]:
    graph = scene.problem.graph
    operator = graph.operator_of[graph.source]
    number = {name: k for k, name in enumerate(graph.operators)}
    return tuple(np.flatnonzero(operator == number[name]) for name in _in_order(scene.look.graph))


def _in_order(graph: OperatorGraph) -> list[str]:
    """Operators, each after all that send to it."""
    waits = {
        operator.name: {s.source for s in graph.streams if s.target == operator.name} for operator in graph.operators
    }
    found: list[str] = []
    while waits:
        free = [name for name, before in waits.items() if not before & waits.keys()]
        found += free
        waits = {name: before for name, before in waits.items() if name not in free}
        if not free:
            break  # a cycle, which no topology has
    return found
