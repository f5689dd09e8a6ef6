"""For how long each task was observed: what its CPU and its traffic are divided by. Pure.

    observed = length of its intervals + time before its first one ever + time behind its last one, if its worker ended

All three within the run, or within the window that was asked for. Before a task began and after its worker ended it
needed nothing, and that is known; so a task that was done early has the same load whether it had a worker of its own or
not, and loads times seconds add up to the CPU that was used. A worker that is alive may report up to an interval later
than another; of that time nothing is known yet, so it does not count. Neither does a recovery, while which nobody
measured anything. Rejected: one span for all, which made rates of short windows a third too small where workers report
at different moments; the task's intervals alone, by which a task that worked for a tenth of the run had ten times the
load that it has with a worker that lives on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Observed:
    """The intervals of one task within a run or a window, and whether there are more."""

    covered_us: int = 0  # their length
    began_us: int | None = None  # when the first of them began; None: the window has none
    is_first: bool = True  # whether the task had no interval before that one
    last_us: int = 0  # when its newest interval ended, in the window or before
    last_interval_us: int = 0
    ended: bool = False  # its worker has said that it was the last

    def add(self, row: Mapping[str, int]) -> None:
        """One interval."""
        began_us = row["time_us"] - row["interval_us"]
        self.covered_us += row["interval_us"]
        self.began_us = began_us if self.began_us is None else min(self.began_us, began_us)
        if row["time_us"] >= self.last_us:
            self.last_us, self.last_interval_us, self.ended = row["time_us"], row["interval_us"], bool(row["ended"])

    def before_window(self) -> Observed:
        """Of a task that has no interval in a window: all of them came before."""
        return Observed(0, None, False, self.last_us, self.last_interval_us, self.ended)

    def is_over(self, newest_us: int) -> bool:
        """Whether its worker has ended; one that was silent for two intervals has died, or its log is an old one."""
        return self.ended or newest_us - self.last_us >= 2 * self.last_interval_us


def observed_us(tasks: Mapping[str, Observed]) -> dict[str, int]:
    """For how long each task was observed, in the time from the first interval's begin to the newest interval's end."""
    newest_us = max((task.last_us for task in tasks.values()), default=0)
    from_us = min((task.began_us for task in tasks.values() if task.began_us is not None), default=newest_us)
    return {name: _observed_us(task, from_us, newest_us) for name, task in tasks.items()}


def _observed_us(task: Observed, from_us: int, newest_us: int) -> int:
    if task.began_us is None:
        return newest_us - from_us  # it had ended before
    before_us = task.began_us - from_us if task.is_first else 0
    return before_us + task.covered_us + (newest_us - task.last_us if task.is_over(newest_us) else 0)
