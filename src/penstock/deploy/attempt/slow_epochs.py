"""Epochs that take long: which one is under way, since when, and for whom it waits. Pure: time is given.

An epoch waits for the last of its tasks, so one that takes long may be all right: a marker stands behind the rows that
wait before a slow function, a large state is written. No clock tells that from one that will never come, so it is told
and nothing is ended by it; what can be seen to stand still is (`silence.py`: a process, a keeper's store).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from penstock.checkpoint.coordinator import Awaited

SLOW_SECONDS = 8.0  # before it is worth a note, which is to be there within 10 s


class SlowEpoch(NamedTuple):
    """An epoch that has been told of, or has a little less to wait for, or is over by now."""

    kind: Literal["slow", "over"]
    awaited: Awaited  # as it was last
    seconds: float  # since it began


class EpochWatch:
    """The epochs of one attempt."""

    def __init__(self) -> None:
        self._told: Awaited | None = None
        self._usual_s = 0.0  # the longest of those that were told: what is usual is not told again and again

    def look(self, now_us: int, awaited: Awaited | None) -> list[SlowEpoch]:
        """What has changed since the last look."""
        found = []
        if self._told is not None and (awaited is None or awaited.epoch != self._told.epoch):
            seconds = (now_us - self._told.began_us) / 1e6
            self._usual_s = max(self._usual_s, seconds)
            found.append(SlowEpoch("over", self._told, seconds))
            self._told = None
        if awaited is not None and awaited != self._told:
            seconds = (now_us - awaited.began_us) / 1e6
            if self._told is not None or seconds >= max(SLOW_SECONDS, 2 * self._usual_s):
                self._told = awaited
                found.append(SlowEpoch("slow", awaited, seconds))
        return found
