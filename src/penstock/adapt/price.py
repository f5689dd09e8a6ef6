"""What a plan costs for each second in which it runs, in one number, and how sure a difference of two such numbers is.

    price = waste + (share of the work that is not done, or not in time) x (all that the job does)

Under the goal throughput all of it is CPU: waste is what communication takes, and the job does the work of its tasks.
Under the goal bytes waste is bytes between nodes, and the job does all its traffic. Beyond `busy` of its busiest
worker or node a job waits for that one, and what it cannot do grows with the pressure; so an overloaded node and a slow
worker are worth a move under any goal, by how much they cost. Decision 37 refuses such a sum for plans that are made
before a job runs, because its weight is how fast the job could be. Here that is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.adapt.contract import AdaptSettings
from penstock.adapt.latency import Latency
from penstock.adapt.scene import Places, Scene, relative_spread
from penstock.model.taskgraph import Floats
from penstock.optimise.communication import SOCKET, distances, seat_loads
from penstock.optimise.contract import BYTES

Bools = NDArray[np.bool_]
SPREAD_UNKNOWN = 0.15  # of a load of which one interval was measured
CAREFUL = 2.0  # standard deviations of loads that a plan should bear
STEADY_S = 10.0  # measurements nearer to each other than this rise and fall together


class Price(NamedTuple):
    """Of one plan, for each second."""

    waste: float
    short: float  # share of the job's work that is not done, or not in time
    whole: float  # what the job does
    pressure: float
    between_nodes: float  # bytes
    latency_us: float  # 0 where none is known

    @property
    def total(self) -> float:
        """The one number."""
        return self.waste + self.short * self.whole


@dataclass(frozen=True, eq=False)
class Pricer:
    """Prices of plans at one look."""

    scene: Scene
    settings: AdaptSettings

    def price(self, places: Places) -> Price:
        """What this plan costs."""
        price, pressure = self.scene.pricing.priced(*places)
        latency = self._latency_us(places)
        return Price(
            waste=price.between_nodes if self._bytes else price.communication,
            short=self._short(pressure, latency),
            whole=self.whole,
            pressure=pressure,
            between_nodes=price.between_nodes,
            latency_us=latency,
        )

    def careful(self, places: Places) -> float:
        """The price with the pressure as high as it is now and then, by the noise of the loads."""
        price = self.price(places)
        return price.total + self.whole * self._doubt(places, CAREFUL)

    def moving(self, places: Places) -> float:
        """What it costs to get there: the state that is carried over, and what waits meanwhile."""
        return float(self.move_costs[self.scene.moved(places)].sum())

    @cached_property
    def move_costs(self) -> Floats:
        """Of each task. All of the job may have to wait for one that stands still, so all is counted."""
        state, settings = self.scene.state, self.settings
        socket = self.scene.problem.graph.costs.socket
        of_byte = 1.0 if self._bytes else (socket.send.byte_ns + socket.receive.byte_ns) * 1e-9
        measured = self.scene.look.pause_s
        pause = (settings.pause_s if measured is None else measured) + state / settings.state_bytes_per_s
        return np.asarray(state * of_byte + pause * self.whole)

    @cached_property
    def whole(self) -> float:
        """What the job does in a second."""
        graph = self.scene.problem.graph
        return graph.total_rate if self._bytes else float(graph.load.sum())

    def noise(self, now: Places, then: Places, looks: int = 1) -> float:
        """How far off the difference of two prices may be: the settings' number of standard deviations, of many looks.

        Streams vary by themselves, each as its two tasks do; those that both plans put equally far apart do not count.
        Of the pressure the present plan's is taken as low as it may be, and the other's as high. A worker that had work
        all the time is as busy as it looks, however its load came and went.
        """
        graph = self.scene.problem.graph
        changed = self._waste_of_edges(now) - self._waste_of_edges(then)
        apart = (self._spread[graph.source] + self._spread[graph.target]) / 2
        sigmas = self.settings.sigmas / math.sqrt(looks)
        waste = sigmas * float(np.sqrt(((changed * apart) ** 2).sum()))
        return waste + self.whole * (self._doubt(now, -sigmas, self._full) + self._doubt(then, sigmas))

    def _doubt(self, places: Places, sigmas: float, sure: Bools | None = None) -> float:
        """By how much the share may be less, or more, than it looks; there is no doubt about these seats."""
        latency = self._latency_us(places)
        straight = self._short(self.scene.pricing.pressure(*places), latency)
        return abs(self._short(self._leaning(places, sigmas, sure), latency) - straight)

    def _leaning(self, places: Places, sigmas: float, sure: Bools | None = None) -> float:
        """The pressure if every worker had so many standard deviations more load, but for these seats."""
        problem, pricing, (node, worker) = self.scene.problem, self.scene.pricing, places
        seats = seat_loads(problem, node, worker)
        variance = (problem.graph.load * self._spread) ** 2
        on_seat = np.bincount(seats.seat_of, variance, minlength=len(seats.node))
        seat = seats.node.astype(np.int64) * pricing.seats + seats.worker
        thread = pricing.thread[seat]
        if sure is not None:
            on_seat[sure[seat]] = 0.0
        busiest = ((seats.load + sigmas * np.sqrt(on_seat)) / thread).max()
        on_node = np.sqrt(np.bincount(node, variance, minlength=problem.node_count))
        load = np.bincount(seats.node, seats.load, minlength=problem.node_count)
        return float(max(busiest, ((load + sigmas * on_node) / pricing.cores).max()))

    def _waste_of_edges(self, places: Places) -> Floats:
        apart = distances(self.scene.problem.graph, *places)
        if self._bytes:
            crossing: Floats = self.scene.problem.graph.rate * (apart == SOCKET)
            return crossing
        send, receive, edges = self.scene.pricing.send, self.scene.pricing.receive, self.scene.pricing.edges
        both: Floats = send[apart, edges] + receive[apart, edges]
        return both

    @cached_property
    def _full(self) -> Bools:
        """Of each seat, whether it had work all the time."""
        found = np.zeros(self.scene.problem.node_count * self.scene.pricing.seats, dtype=bool)
        for k, node in enumerate(self.scene.problem.cluster.nodes):
            for slot in self.scene.look.full:
                if slot.node == node.name and slot.worker < self.scene.pricing.seats:
                    found[k * self.scene.pricing.seats + slot.worker] = True
        return found

    @cached_property
    def _spread(self) -> Floats:
        """The relative spread of each task's load, in the mean over the time that was measured."""
        profile = self.scene.look.profile
        pieces = max(1.0, (profile.seconds or 0.0) / STEADY_S)
        each = [relative_spread(profile.tasks.get(task), SPREAD_UNKNOWN) for task in self.scene.problem.graph.ids]
        return np.array(each, dtype=np.float64) / math.sqrt(pieces)

    @property
    def _bytes(self) -> bool:
        return self.settings.goals.what == BYTES

    def _short(self, pressure: float, latency_us: float) -> float:
        lost = max(0.0, 1.0 - self.settings.busy / pressure) if pressure > 0 else 0.0
        bound = self.settings.goals.latency_us
        late = 0.0 if bound is None or latency_us <= bound else 1.0 - bound / latency_us
        return 1.0 - (1.0 - lost) * (1.0 - late)

    def _latency_us(self, places: Places) -> float:
        measured = self.scene.look.latency_us
        if measured is None or self.settings.goals.latency_us is None:
            return measured or 0.0
        now = self._modelled_now
        return measured if now <= 0 else measured * self._model.modelled_us(places) / now

    @cached_property
    def _model(self) -> Latency:
        return Latency.of(self.scene)

    @cached_property
    def _modelled_now(self) -> float:
        return self._model.modelled_us(self.scene.present)
