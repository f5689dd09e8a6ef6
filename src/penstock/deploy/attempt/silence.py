"""Which workers have fallen silent, are busy in a call that does not return, or cannot keep. Pure: time is given.

A worker's process speaks several times a second over its control line, from a thread of its own (a *beat*), whatever
its loop is at. So a process that is stopped, frozen or cut off says nothing, and a process whose loop is in a function
of the user's goes on speaking and says for how long. The first is lost when a limit is over, the second is only named:
no clock can tell a long computation from one without an end. A function that lets no other thread of Python run says
nothing either; where its process can be seen to compute, it counts as busy.

A beat also says for how long what keeps epochs has made no step: a store that hangs raises no error (decision 43).

Silence is counted from look to look, and a look that comes late counts little. So a driver that was stopped itself, or
a whole machine, does not take its workers for lost on waking (`test_a_driver_that_was_stopped_blames_nobody`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal

BEAT_SECONDS = 0.3
BEATS_A_SECOND_MAX = 400.0  # of all workers, so that the driver of thousands does little else
LOOK_SECONDS = 0.2
LATE_SECONDS = 0.5  # what one look counts at most
BUSY_SECONDS = 10.0  # in one call, before it is worth a note
STILL_SECONDS = 8.0  # without a step of what keeps epochs; likewise
STILL_SECONDS_MIN = 120.0  # before that worker is given up: as long as the driver waits for its own store
STILL_SILENCES = 60  # the same, as a multiple of the silence that is allowed

Kind = Literal["silent", "spoke", "lost", "busy", "free", "still", "stirs", "stuck"]


@dataclass(frozen=True, slots=True, eq=False)
class Beat:
    """A worker's word that its process is there; each is another one, also where it says the same."""

    busy_s: float = 0.0  # for how long its loop has been in one call; 0 at rest
    still_s: float = 0.0  # for how long its keeper has made no step; 0 where there is nothing to keep

    def __post_init__(self) -> None:
        """ValueError where it says what cannot be."""
        for name, seconds in (("busy_s", self.busy_s), ("still_s", self.still_s)):
            if not isfinite(seconds) or seconds < 0:
                msg = f"{name} is {seconds!r}; it must be a number of seconds, 0 or more"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Change:
    """What has become of one worker."""

    kind: Kind  # silent, then spoke or lost; busy, then free; still, then stirs or stuck
    worker: int
    seconds: float  # for how long it has been silent, busy or still, or had been


def beat_seconds(workers: int) -> float:
    """How often each of so many workers speaks."""
    return max(BEAT_SECONDS, workers / BEATS_A_SECOND_MAX)


def notice_seconds(workers: int) -> float:
    """The silence that is told: several beats, so that a busy machine is not taken for a stopped one."""
    return 4 * beat_seconds(workers) + LATE_SECONDS - LOOK_SECONDS


def still_seconds(silence_s: float) -> float:
    """How long a worker's keeper may make no step, where its process may be silent for so long."""
    return max(STILL_SECONDS_MIN, STILL_SILENCES * silence_s)


class _Lasting:
    """One thing that keeps a worker: told once it takes unusually long, and when it is over."""

    def __init__(self, begins: Kind, ends: Kind, notice_s: float) -> None:
        self._begins: Kind = begins
        self._ends: Kind = ends
        self._notice_s = notice_s
        self._now: dict[int, float] = {}  # for how long, of those that were told
        self._usual: dict[int, float] = {}  # the longest that has ended, of those that were told

    def of(self, worker: int, seconds: float) -> list[Change]:
        before = self._now.get(worker)
        if before is not None and seconds < before:
            del self._now[worker]
            self._usual[worker] = before
            return [Change(self._ends, worker, before)]
        if seconds < max(self._notice_s, 2 * self._usual.get(worker, 0.0)):  # what is usual is not told again and again
            return []
        self._now[worker] = seconds
        return [Change(self._begins, worker, seconds)] if before is None else []


class Watch:
    """The workers of one attempt, from the moment that they are sent to work."""

    def __init__(self, workers: int, limit_s: float, now_s: float) -> None:
        self._notice_s = notice_seconds(workers)
        self._limit_s = max(limit_s, self._notice_s)
        self._looked_s = now_s
        self._last: dict[int, Beat | None] = {}
        self._silent: dict[int, float] = {}  # how long since the last beat, by worker
        self._mute: dict[int, float] = {}  # the same, whether it computes or not
        self._told: dict[int, Kind] = {}  # of what a worker was told last, where that is not over
        self._busy = _Lasting("busy", "free", BUSY_SECONDS)
        self._still = _Lasting("still", "stirs", STILL_SECONDS)
        self._still_limit_s, self._stuck = still_seconds(limit_s), set[int]()

    @property
    def quiet(self) -> tuple[int, ...]:
        """Workers that had not spoken at the last look."""
        return tuple(self._silent)

    def look(
        self, now_s: float, beats: Mapping[int, Beat], there: Collection[int], computing: Collection[int] = ()
    ) -> list[Change]:
        """What has changed since the last look, of the workers that have not said goodbye.

        `computing` are those that have used the processor since then, as far as that can be seen from here.
        """
        step = min(now_s - self._looked_s, LATE_SECONDS)
        self._looked_s = now_s
        found: list[Change] = []
        for worker in there:
            found += self._of(worker, beats.get(worker), step, computes=worker in computing)
        return found

    def _of(self, worker: int, beat: Beat | None, step: float, *, computes: bool) -> list[Change]:
        if beat is not None and beat is not self._last.get(worker):
            self._last[worker] = beat
            self._mute.pop(worker, None)
            return self._spoke(worker) + self._busy.of(worker, beat.busy_s) + self._keeping(worker, beat.still_s)
        mute = self._mute[worker] = self._mute.get(worker, 0.0) + step
        if computes:
            told = self._spoke(worker) + self._busy.of(worker, mute)
            self._silent[worker] = 0.0  # it is still to be looked at
            return told
        silent = self._silent[worker] = self._silent.get(worker, 0.0) + step
        if silent >= self._limit_s and self._told.get(worker) != "lost":
            self._told[worker] = "lost"
            return [Change("lost", worker, silent)]
        if silent >= self._notice_s and worker not in self._told:
            self._told[worker] = "silent"
            return [Change("silent", worker, silent)]
        return []

    def _spoke(self, worker: int) -> list[Change]:
        silent = self._silent.pop(worker, 0.0)
        return [] if self._told.pop(worker, None) is None else [Change("spoke", worker, silent)]

    def _keeping(self, worker: int, still_s: float) -> list[Change]:
        told = self._still.of(worker, still_s)
        if still_s >= self._still_limit_s and worker not in self._stuck:
            self._stuck.add(worker)
            told.append(Change("stuck", worker, still_s))
        return told
