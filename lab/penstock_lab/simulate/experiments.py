"""The experiments of the balancing paper (section 6) as models of a region.

The paper gives tuple costs in integer multiplies and says that with 1,000 of them throughput stops growing at 8
replicas, so the splitter costs an eighth of that per tuple. A multiply is taken for a nanosecond, and a connection's
two TCP buffers hold 1,300 tuples; neither is printed, but results depend on ratios alone. One simulated row stands for
100 tuples of 1,000 multiplies or for 10 of the heavier ones, which keeps a run of minutes within seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.run.region.contract import Decision, Policy
from penstock.run.region.policies import find_policy
from penstock_lab.simulate.region import Buffers, Phase, RegionModel, Trace, simulate

MULTIPLY_S = 1e-9
SPLIT_MULTIPLIES = 1_000 / 8  # what a tuple costs the splitter
BUFFER_TUPLES = 1_300
SLOW_HOST_THREADS, FAST_HOST_THREADS = 8, 16
FAST_HOST_SPEED = 65 / 35  # the split on which the paper's two hosts settle (6.5)
RUN_S = 300.0  # what the oracle takes for a run


def tuples_per_row(multiplies: int) -> int:
    """How many tuples one simulated row stands for."""
    return 100 if multiplies <= 1_000 else 10


def region(
    multiplies: int,
    factors: Sequence[float],
    later: Sequence[float] = (),
    *,
    from_s: float = 0.0,
    from_row: int = 0,
    seed: int = 0,
    buffer_tuples: int = BUFFER_TUPLES,
) -> RegionModel:
    """Replicas that take `factors` times the base cost, and `later` times from a time and row on."""
    scale = tuples_per_row(multiplies)
    base_s = multiplies * MULTIPLY_S * scale
    phases = [Phase(tuple(base_s * factor for factor in factors))]
    if later:
        phases.append(Phase(tuple(base_s * factor for factor in later), from_s, from_row))
    rows = max(1, buffer_tuples // scale)
    return RegionModel(
        tuple(phases),
        send_s=SPLIT_MULTIPLIES * MULTIPLY_S * scale,
        buffers=Buffers(rows, max(1, rows // 3)),
        seed=seed,
    )


def half_loaded(replicas: int, factor: float) -> tuple[float, ...]:
    """What a row costs on each replica: `factor` on the first half, 1 on the others."""
    return tuple(factor if i < replicas // 2 else 1.0 for i in range(replicas))


def constant_load(replicas: int, multiplies: int, factor: float, run_s: float = RUN_S) -> tuple[RegionModel, int]:
    """Half of the replicas loaded throughout (figures 9 and 10, left): the model, and the rows of a run."""
    model = region(multiplies, half_loaded(replicas, factor))
    return model, int(run_s * model.capacity())


def removed_load(replicas: int, multiplies: int, factor: float, run_s: float = RUN_S) -> tuple[RegionModel, int]:
    """Half of the replicas loaded for an eighth of the rows (figures 9, 10 and 13)."""
    loaded = half_loaded(replicas, factor)
    before, after = region(multiplies, loaded).capacity(), region(multiplies, (1.0,) * replicas).capacity()
    rows = int(run_s / (0.125 / before + 0.875 / after))
    return region(multiplies, loaded, (1.0,) * replicas, from_row=rows // 8), rows


def three_with_one_loaded(removed_s: float, seed: int = 0) -> RegionModel:
    """Figure 8, top: one of three replicas takes 100 times as long until the load is removed."""
    return region(1_000, (100.0, 1.0, 1.0), (1.0, 1.0, 1.0), from_s=removed_s, seed=seed)


def three_alike(seed: int = 0) -> RegionModel:
    """Figure 8, bottom: three equal replicas that block whatever the weights."""
    return region(10_000, (1.0, 1.0, 1.0), seed=seed)


CLASSES = (0,) * 20 + (1,) * 20 + (2,) * 24  # 100 times, 5 times, once the base cost


SHALLOW_TUPLES = 100  # a buffer from which a replica 100 times slower takes a third in less than a sample
BOUNDED = {"rise_max": 2.0, "least": 1.0}  # "typically incrementally from the current weights"; a "minimum weight"


def three_classes(seed: int = 0, buffer_tuples: int = BUFFER_TUPLES) -> RegionModel:
    """Figure 12: 64 replicas in three classes."""
    factors = tuple((100.0, 5.0, 1.0)[c] for c in CLASSES)
    return region(60_000, factors, seed=seed, buffer_tuples=buffer_tuples)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Replicas on the paper's two kinds of host (6.5)."""

    fast: int
    slow: int

    def model(self, multiplies: int = 20_000) -> RegionModel:
        """A host with more replicas than threads slows all of its replicas down alike."""
        fast = max(1.0, self.fast / FAST_HOST_THREADS) / FAST_HOST_SPEED
        slow = max(1.0, self.slow / SLOW_HOST_THREADS)
        return region(multiplies, (fast,) * self.fast + (slow,) * self.slow)


def policy_named(name: str, model: RegionModel) -> Policy:
    """A fresh policy; the oracle is told the model."""
    return model.oracle() if name == "oracle" else find_policy(name).build()


def run_rows(name: str, model: RegionModel, rows: int) -> Trace:
    """A policy's run over a number of rows."""
    return simulate(model, policy_named(name, model), rows=rows)


def run_seconds(name: str, model: RegionModel, seconds: float) -> Trace:
    """A policy's run over a stretch of virtual time."""
    return simulate(model, policy_named(name, model), seconds=seconds)


def settled_after(trace: Trace, ideal: Sequence[int], tolerance: float, from_s: float = 0.0) -> float | None:
    """Seconds from a time to the first decision whose weights are all within the tolerance of the ideal ones."""
    for decision in trace.decisions:
        if decision.time_s > from_s and _near(decision, ideal, tolerance):
            return decision.time_s - from_s
    return None


def kept_within(trace: Trace, ideal: Sequence[int], tolerance: float, from_s: float, until_s: float) -> float | None:
    """The share of the decisions between two times that are that near; None when there are none.

    The first that is near may be there by chance, or be left by the next probe: this tells.
    """
    near = [_near(decision, ideal, tolerance) for decision in trace.decisions if from_s <= decision.time_s < until_s]
    return sum(near) / len(near) if near else None


def _near(decision: Decision, ideal: Sequence[int], tolerance: float) -> bool:
    return all(abs(w - i) <= max(tolerance * i, 0.5) for w, i in zip(decision.weights, ideal, strict=True))


def farthest_from(trace: Trace, ideal: Sequence[int], from_s: float) -> float:
    """The largest relative distance of any weight from the ideal one after a time."""
    later = [decision.weights for decision in trace.decisions if decision.time_s >= from_s]
    return max(abs(w - i) / i for weights in later for w, i in zip(weights, ideal, strict=True))


def last_mixed_s(trace: Trace, classes: Sequence[int]) -> float | None:
    """When a cluster last held replicas of two classes; None when none did."""
    last = None
    for decision in trace.decisions:
        members: dict[int, set[int]] = {}
        for cluster, kind in zip(decision.clusters, classes, strict=True):
            members.setdefault(cluster, set()).add(kind)
        if any(len(kinds) > 1 for kinds in members.values()):
            last = decision.time_s
    return last
