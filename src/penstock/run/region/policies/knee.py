"""`knee`, our own policy: a connection that blocks is full, so the rows that it takes show its replica's capacity.

The paper climbs along functions of blocking and gives per-connection throughput up (002, section 4.3), because under an
ordered merge all connections see the same throughput. That holds for connections that have room. A connection that
blocks is full all the while: one sample gives the knee of its function, at any weight, where the paper needs points on
both sides of it. Connections that do not block give a lower bound. Weights are then the minimax of predicted
utilisation, weight over capacity, by the paper's greedy.

How a full connection is told from a burst, how replicas that have not blocked are judged, and when a slow replica is
probed for a load that has gone: docs/decisions/0016-balance.md, section "`knee`, beyond the paper".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.run.region.blocking_rate import BlockingRate
from penstock.run.region.clustering import CLUSTER_FROM, NEAR, clusters_of
from penstock.run.region.contract import (
    REPLICAS_MAX,
    UNITS,
    Decision,
    Policy,
    Routing,
    Sample,
    Weights,
    checked_settings,
    even_weights,
    units_of,
)
from penstock.run.region.minimax import allocate

SETTINGS = {"grow": 3.0, "probe_cost": 0.04, "cluster_from": float(CLUSTER_FROM)}
LIMITS = {"grow": (1.0, 1000.0), "probe_cost": (0.001, 1.0), "cluster_from": (1.0, REPLICAS_MAX + 1.0)}
BLOCKED_MIN = 0.01  # when all connections together block for less of the time, no replica is slow
FULL = 0.5  # of the longest wait per row: a connection whose rows wait longer was full all the time
GROW_AFTER_NEW = 1.5
SLOWER = 0.9  # below this share of the best capacity a replica may have been slowed down
LADDER_SLOW = (1.15, 1.5, 3.0, 5.0)  # how much more a probed replica gets, the last again and again
LADDER_EVEN = (1.04, 1.08, 1.2, 1.5)  # small steps for one as fast as the best: a miss costs the whole region
IDLE_SAMPLES = 20  # a replica that has not been full for this long is probed, however fast it is
SURE = 0.25  # of the best capacity: a slow replica that has shown this for a second has really become faster
ALIKE = 2.0  # replicas at most this many times as fast as the probed one was
PAUSE_MIN, PAUSE_MAX = 2, 40  # samples between probes
AFTERMATH, AFTERMATH_FLOW = 10, 0.9  # samples after a probe in which less flow than this share is still its cost
ROWS_MIN = 1e-3  # per second; what a connection that took nothing is taken to have done
JOINING = 0.1  # of the median capacity: where a newcomer begins
RISING_SAMPLES_MAX = 64  # far beyond what any limit lets through, and short of what floats hold
RISEN = 1.25  # a replica that shows this many times its capacity has become faster; less moves the mean alone
BUSY = 0.95  # of the time: a replica that had rows for longer may have waited for the merger
GROW_SHOWN = 1.2  # a replica that has shown its speed gets this much more, for the way there and back
GROW_WAITING = 1.03  # the same once it has been read, while one of the others is what is waited for
HELD_BACK_MAX = 40  # steps of that by which slow ones can be held back
SHOWN_SAMPLES = 8  # over which what is shown is averaged
NEAR_MINIMAX = 1.05  # capacities are known to a few per cent: this much more predicted utilisation is no difference
MEAN_SAMPLES = 4  # over which successive readings are averaged


@dataclass(slots=True)
class _Replica:
    capacity: float = 0.0  # rows per second: a reading once it has led, what it has shown before
    measured: bool = False  # read while it was full, or seen at its own speed twice
    last_full: int = 0  # number of the sample
    streak: int = 0  # samples in a row in which it was full
    last_probed: int = 0
    shown: float = 0.0  # rows per second while it had any, averaged
    own_speed: bool = False  # was idle for a part of a sample, so what it has shown is its own speed
    joined: int | None = None  # number of the sample, where others had been read before it came

    def shows(self, shown: float, taken: float) -> None:
        """A lower bound of its speed: in the mean, or at once where it is so far above that the mean is history."""
        mean = self.shown + (shown - self.shown) / SHOWN_SAMPLES
        self.shown = shown if not self.shown or shown > RISEN * max(self.shown, self.capacity) else mean
        self.capacity = max(self.capacity, self.shown)
        if taken < BUSY * shown:
            self.measured |= self.own_speed  # the second time it has had enough rows to be seen at work
            self.own_speed = True


class Knee:
    """Capacities of one region's replicas."""

    routing: Routing = "turns"

    def __init__(self, grow: float, probe_cost: float, cluster_from: int) -> None:
        self._grow, self._probe_cost, self._cluster_from = grow, probe_cost, cluster_from
        self._rate = BlockingRate(smoothing=1.0)
        self._replicas: dict[int, _Replica] = {}
        self._sent: dict[int, float] = {}
        self._took_s: dict[int, float] = {}
        self._time_s = 0.0
        self._sample = 0
        self._growth = grow
        self._last_full = 0  # number of the last sample in which a connection was full
        self._held_back = 0  # steps by which replicas slower than the best are held back
        self._probed: dict[int, int] = {}  # replica -> step of its ladder
        self._before = 0.0  # what the first of them could do before
        self._pause_until = 0
        self._probe_ended = -AFTERMATH - 1
        self._usual = 0.0  # rows per second of the whole region while nothing is probed
        self._lost = 0.0  # of the usual rows of one sample, by the present probe

    def start(self, replicas: Sequence[int]) -> Weights:
        """Even weights: nothing is known yet."""
        self._replicas = {replica: _Replica() for replica in replicas}
        return even_weights(len(replicas))

    def decide(self, sample: Sample) -> Decision:
        """Read connections that blocked, raise the others, probe, and weigh by capacity."""
        self._sample += 1
        self._follow_members(sample.replicas)
        rates = self._rate.observe(sample.time_s, sample.replicas, sample.blocked_s)
        blocking = dict(zip(sample.replicas, rates, strict=True))
        shown = self._shown(sample)
        taken = self._taken(sample)
        full = self._full(taken, blocking)
        self._learn(taken, shown, full)
        clusters = self._clusters(sample.replicas)
        self._probe(full, shown, sum(taken.values()))
        self._hold_back(full)
        weights = self._allocate(sample.replicas)
        return Decision(sample.time_s, sample.replicas, weights, rates, clusters)

    def _follow_members(self, replicas: Sequence[int]) -> None:
        """New replicas begin low where the others are known; replicas that have gone are forgotten."""
        if tuple(replicas) == tuple(self._replicas):
            return
        known = any(self._replicas[r].measured for r in replicas if r in self._replicas)
        joined = self._sample if known else None
        self._replicas = {r: self._replicas.get(r) or _Replica(joined=joined) for r in replicas}
        self._usual = 0.0  # what was usual for others is no measure of what a probe costs these

    # -- learning ----------------------------------------------------------------------------------------------------

    def _taken(self, sample: Sample) -> dict[int, float]:
        """Rows per second along each connection since the last sample."""
        elapsed = sample.time_s - self._time_s
        taken = {}
        for replica, total in zip(sample.replicas, sample.sent, strict=True):
            before = self._sent.get(replica, 0.0)
            taken[replica] = (total - before if total >= before else total) / elapsed
        self._sent = dict(zip(sample.replicas, sample.sent, strict=True))
        self._time_s = sample.time_s
        return taken

    def _shown(self, sample: Sample) -> dict[int, float]:
        """Rows per second of each replica in the time in which it had rows; to be called before `_taken`."""
        shown = {}
        for replica, took, total in zip(sample.replicas, sample.took_s, sample.sent, strict=bool(sample.took_s)):
            rows, seconds = total - self._sent.get(replica, 0.0), took - self._took_s.get(replica, 0.0)
            if rows > 0 and seconds > 0:
                shown[replica] = rows / seconds
        self._took_s = dict(zip(sample.replicas, sample.took_s, strict=False))
        return shown

    def _learn(self, taken: Mapping[int, float], shown: Mapping[int, float], full: set[int]) -> None:
        if full:
            self._last_full = self._sample
            self._growth = self._grow if all(self._replicas[r].measured for r in full) else GROW_AFTER_NEW
        for r, replica in self._replicas.items():
            if r in full:
                # The first reading counts rows that filled the buffer; from the second on they are what was done.
                replica.streak = replica.streak + 1 if replica.last_full == self._sample - 1 else 1
                step = 1 / min(MEAN_SAMPLES, max(1, replica.streak - 1))
                replica.capacity += step * (shown.get(r, taken[r]) - replica.capacity)
                replica.measured = True
                replica.last_full = self._sample
                replica.shown = replica.capacity if r in shown else 0.0
            elif not replica.measured or r in self._probed:
                replica.capacity = max(replica.capacity, taken[r], shown.get(r, 0.0))
            if r in shown:
                replica.shows(shown[r], taken[r])

    @staticmethod
    def _full(taken: Mapping[int, float], blocking: Mapping[int, float]) -> set[int]:
        """Connections that were full for the whole interval: whose rows wait about as long as any."""
        if sum(blocking.values()) < BLOCKED_MIN:
            return set()
        wait = {r: blocking[r] / max(taken[r], ROWS_MIN) for r in blocking}
        longest = max(wait.values())
        return {r for r in wait if wait[r] >= FULL * longest}

    def _clusters(self, replicas: Sequence[int]) -> tuple[int, ...]:
        if len(replicas) < self._cluster_from:
            return tuple(range(len(replicas)))
        known = [self._replicas[r].measured for r in replicas]
        logs = np.array([math.log(max(ROWS_MIN, self._replicas[r].capacity)) for r in replicas])
        apart = np.abs(logs[:, None] - logs[None, :])
        apart[~np.outer(known, known)] = np.inf  # a replica that has not been read is like no other
        return clusters_of(apart, NEAR)

    # -- exploring ---------------------------------------------------------------------------------------------------

    def _probe(self, full: set[int], shown: Mapping[int, float], flow: float) -> None:
        """Go on with the probes that did not block, end the others, and begin one when it is time."""
        if not full:
            self._probed.clear()  # the splitter does not wait: there is nothing to gain
            return
        if self._probed:
            self._lost += max(0.0, 1.0 - flow / self._usual) if self._usual else 0.0
            self._go_on(full)
            return
        if self._sample <= self._probe_ended + AFTERMATH and flow < AFTERMATH_FLOW * self._usual:
            # The buffer that a probe has filled is still worked off, and that belongs to its cost.
            pause = self._pause_until + round((1.0 - flow / self._usual) / self._probe_cost)
            self._pause_until = min(self._sample + PAUSE_MAX, pause)
            return
        self._usual += (flow - self._usual) / MEAN_SAMPLES
        if not all(replica.measured for replica in self._replicas.values()):
            return  # replicas that have not been read grow with every sample, which is probe enough
        candidates = [r for r in self._replicas if r not in full and r not in shown and self._may_be_faster(r)]
        if self._sample >= self._pause_until and candidates:
            chosen = min(candidates, key=lambda r: (self._replicas[r].last_probed, r))
            self._probed = {chosen: 0}
            self._before = self._replicas[chosen].capacity
            self._lost = 0.0

    def _go_on(self, full: set[int]) -> None:
        best = self._best()
        going = {}
        for r, step in self._probed.items():
            if r not in self._replicas:
                continue
            self._replicas[r].last_probed = self._sample
            if r not in full and (step < len(LADDER_SLOW) - 1 or not self._is_best(r, best)):
                going[r] = step + 1
        if max((self._replicas[r].capacity for r in going), default=0.0) >= max(SURE * best, 3 * self._before):
            going |= {r: 0 for r in self._replicas if r not in self._probed and r not in full and self._was_alike(r)}
        self._probed = going
        if not going:
            self._probe_ended = self._sample
            pause = self._lost / self._probe_cost
            self._pause_until = self._sample + round(min(PAUSE_MAX, max(PAUSE_MIN, pause)))

    def _was_alike(self, r: int) -> bool:
        """Whether a replica is about as slow as the one that was probed used to be."""
        replica = self._replicas[r]
        return replica.measured and replica.capacity <= ALIKE * max(self._before, ROWS_MIN)

    def _may_be_faster(self, r: int) -> bool:
        replica = self._replicas[r]
        return not self._is_best(r, self._best()) or self._sample - replica.last_full >= IDLE_SAMPLES

    def _best(self) -> float:
        return max(replica.capacity for replica in self._replicas.values())

    def _is_best(self, r: int, best: float) -> bool:
        return self._replicas[r].capacity >= SLOWER * best

    def _hold_back(self, full: set[int]) -> None:
        """Hold slow replicas back further while they alone are waited for, and less when one of the best is."""
        if full:
            best = self._best()
            step = -2 if any(self._is_best(r, best) for r in full) else 1
            self._held_back = min(HELD_BACK_MAX, max(0, self._held_back + step))

    def _in_favour(self, r: int) -> float:
        """What one that was read gets of its capacity, where times are known that tell when it is too much."""
        replica = self._replicas[r]
        if not replica.shown:
            return 1.0
        if not self._is_best(r, self._best()):
            return float(GROW_WAITING**-self._held_back)
        return GROW_WAITING if replica.last_full < self._sample == self._last_full else 1.0

    # -- weighing ----------------------------------------------------------------------------------------------------

    def _assumed(self, r: int) -> float:
        """The capacity to weigh by: a reading, a guess for one that has not led yet, a little more for the probed."""
        replica, best = self._replicas[r], self._best()
        known = [x.capacity for x in self._replicas.values() if x.measured]
        if not any(known):
            return 1.0
        if not replica.measured and replica.shown:
            # What others can do says nothing of one that has been seen at work: it may be as slow as it looks.
            return (GROW_SHOWN if replica.own_speed else self._growth) * replica.capacity
        if not replica.measured:
            return min(self._growth * max(replica.capacity, *known), self._risen(replica, known))
        capacity = max(replica.capacity, 1e-9 * best)
        if r not in self._probed:
            return capacity * self._in_favour(r)
        slow = not self._is_best(r, best)
        ladder = LADDER_SLOW if slow else LADDER_EVEN
        # One that took nothing while it was read would stay at nothing, however high the ladder.
        raised = max(replica.capacity, best / UNITS) * ladder[min(self._probed[r], len(ladder) - 1)]
        return min(raised, best) if slow else raised

    def _risen(self, replica: _Replica, known: Sequence[float]) -> float:
        """How far one that joined has risen by now, from a tenth of the middle one."""
        if replica.joined is None:
            return math.inf
        middle = max(statistics.median(known), max(known) / UNITS)
        steps = min(self._sample - replica.joined, RISING_SAMPLES_MAX)
        return float(JOINING * middle * self._grow**steps)

    def _allocate(self, replicas: Sequence[int]) -> Weights:
        """Minimax of utilisation. One that is too slow for a single unit gets none, except while it is probed.

        Minimax rounds a slow replica's share down, perhaps by nearly a unit, which may be a fifth. Where rounding
        to the nearest is as good within what is known, that is done instead.
        """
        units = np.arange(UNITS + 1, dtype=np.float64)
        assumed = [self._assumed(r) for r in replicas]
        low = [int(r in self._probed) for r in replicas]
        minimax = allocate([units / capacity for capacity in assumed], low=low)
        nearest = units_of(assumed)
        # Without the times readings are coarser than a unit.
        if not self._took_s or any(w < least for w, least in zip(nearest, low, strict=True)):
            return minimax
        most = [max(w / c for w, c in zip(weights, assumed, strict=True)) for weights in (minimax, nearest)]
        return nearest if most[1] <= NEAR_MINIMAX * most[0] else minimax


def build(settings: Mapping[str, float]) -> Policy:
    """A policy that reads capacities at the connections that block."""
    found = checked_settings("knee", SETTINGS, settings, LIMITS)
    return Knee(found["grow"], found["probe_cost"], int(found["cluster_from"]))
