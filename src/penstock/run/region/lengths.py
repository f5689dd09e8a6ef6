"""How long slices are: for each replica, what it works off in SLICE_SECONDS, up to a whole batch.

Where rows take microseconds a slice is a batch, and splitting costs little. Where they take milliseconds slices are
short, and the replicas' queues, which hold a fixed number of slices, are as long in time for a slow replica as for a
fast one: they fill soon after a replica gets more than it can do, and a probe that fails costs tenths of a second.

First slices are one row long, and grow by what the replica itself has shown
(`test_slices_grow_to_what_a_replica_works_off_and_no_faster`): where a replica is a hundred times slower than thought,
the region waits in order for every row too many. Rejected for the engine: lengths in proportion to weights, as in the
simulation, which give a slow replica a long queue whenever its weight is raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SLICE_SECONDS = 0.02
GROW_AFTER_US = 4_000  # a region of cheap rows begins with slices of one, and should not for long
SHRINK_AFTER_US = 200_000
GROWTH_MAX = 8  # times that slices may become longer at once


class SliceLengths:
    """Rows of the next slices of each replica, from what each has worked off.

    >>> lengths = SliceLengths((0, 1), rows_max=4096)
    >>> lengths.observe(0, {0: 0, 1: 0}), lengths.observe(20_000, {0: 4, 1: 1})
    (False, True)
    >>> lengths.rows  # 200 rows a second, and 50
    {0: 4, 1: 1}
    """

    def __init__(self, replicas: Sequence[int], rows_max: int) -> None:
        self.rows = dict.fromkeys(replicas, 1)
        self._rows_max = rows_max
        self._seen = dict.fromkeys(replicas, 0)
        self._since_us: dict[int, int] = {}
        self._look_at_us = 0

    def observe(self, now_us: int, worked_off: Mapping[int, int]) -> bool:
        """Rows that each replica has worked off so far; whether a length has changed."""
        if now_us < self._look_at_us:
            return False
        self._look_at_us = now_us + GROW_AFTER_US
        before = dict(self.rows)
        for replica, total in worked_off.items():
            elapsed_us = now_us - self._since_us.setdefault(replica, now_us)
            done = total - self._seen[replica]
            grows = elapsed_us >= GROW_AFTER_US and done >= self.rows[replica]
            if grows or elapsed_us >= SHRINK_AFTER_US:
                fitting = round(done / elapsed_us * 1e6 * SLICE_SECONDS)
                self.rows[replica] = max(1, min(fitting, self._rows_max, GROWTH_MAX * self.rows[replica]))
                self._seen[replica], self._since_us[replica] = total, now_us
        return self.rows != before
