"""What workers can do, from what their threads had of their cores, and what is remembered of slow ones. Pure.

Of the time in which a worker had work, its thread ran for some and waited for a core for the rest; what it ran is its
*share*: a fifth beside four busy processes on its core, or under a quota of a fifth. A worker is slow where its share
is well below the best worker's and it had work nearly all the time; then its speed is its share. What all have lost is
not held against anybody: no move brings it back. Who has little to do meets others at each wake-up, so its share is
low by chance, and its waits look like work; but it has idle moments (`BUSY`), and its work is done all the same.

Who was slow and has been relieved does little, and has a fine share by then: under a quota as long as it stays below.
So a better figure is believed when the worker does as much as it did when it was found slow, or when the horizon has
passed; else the load would go back and forth (`test_a_relieved_worker_stays_slow_until_it_shows_otherwise`).
Rejected: CPU per row of a task against its own past; what it counts grows with state and changes with the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.model.plan import Slot

SLOW = 0.6  # of the best share, and below: shares of sound workers on one busy machine differ by less, mostly
# With 5 % of a core to do a worker "had work" for up to 83 % of the time on a crowded machine, because its waits count.
BUSY = 0.95  # of an interval in which a worker had work: below, it gets its work done, and its share is chance
SEEN_MIN = 0.01  # likewise, for a share that others are compared with: chance makes it too low, not too high
STEADY = 0.3  # relative: a new figure of a slow worker that differs by less is the one that is known
AS_MUCH = 0.9  # of what a slow worker did, to count as the same
WANTED_MIN = 0.1  # likewise, of one that was found slow before: it may be so still
FULL = 0.9  # of an interval in which a worker had work: it is held back


@dataclass(frozen=True, slots=True)
class CoreTime:
    """What the thread of one worker had of its core in an interval."""

    interval_s: float
    ran_s: float
    delayed_s: float  # in which it had work and no core

    @property
    def wanted(self) -> float:
        """The part of the interval in which it had work."""
        return (self.ran_s + self.delayed_s) / self.interval_s if self.interval_s > 0 else 0.0

    @property
    def did(self) -> float:
        """The part of the interval in which it ran."""
        return self.ran_s / self.interval_s if self.interval_s > 0 else 0.0

    @property
    def share(self) -> float:
        """What it ran of the time in which it had work."""
        return self.did / self.wanted if self.wanted > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Slow:
    """A worker that was found slow."""

    speed: float
    did: float  # at that speed
    at_s: float  # the last time that it was seen so


def full_workers(times: Mapping[Slot, CoreTime]) -> frozenset[Slot]:
    """Workers that had work all the time: what they do is what they can do."""
    return frozenset(slot for slot, time in times.items() if time.wanted >= FULL)


def able_workers(times: Mapping[Slot, CoreTime]) -> dict[Slot, float]:
    """What each worker could do at the moment, in cores: what it did, and of its idle time what the best would get.

    So one that has work all the time is as busy as can be, whoever else takes its core, and a plan that fills another
    is priced with what that one has left.
    """
    best = _best(times)
    return {slot: min(1.0, time.did + max(0.0, 1.0 - time.wanted) * best) for slot, time in times.items()}


def _best(times: Mapping[Slot, CoreTime]) -> float:
    """The best share."""
    return max((time.share for time in times.values() if time.wanted >= SEEN_MIN), default=1.0)


def slow_after(
    before: Mapping[Slot, Slow], times: Mapping[Slot, CoreTime], now_s: float, horizon_s: float
) -> dict[Slot, Slow]:
    """The slow workers, as of an interval that has ended now, and of what was known before."""
    best = _best(times)
    found = {slot: known for slot, known in before.items() if now_s - known.at_s < horizon_s}
    for slot, time in times.items():
        known = found.get(slot)
        if time.share <= SLOW * best and time.wanted >= (BUSY if known is None else WANTED_MIN):
            found[slot] = _slower(known, Slow(time.share, time.did, now_s))
        elif known is not None and time.did >= AS_MUCH * known.did:
            del found[slot]
    return found


def _slower(known: Slow | None, seen: Slow) -> Slow:
    """The same figure as before where that is within noise, so that a plan which fits today fits at the next look."""
    if known is None:
        return seen
    if abs(seen.speed - known.speed) <= STEADY * known.speed:
        return replace(known, did=max(known.did, seen.did), at_s=seen.at_s)
    return seen if seen.speed < known.speed or seen.did >= AS_MUCH * known.did else known
