"""Trips at a steady rate for as long as somebody watches, and of which it is known afterwards which there were.

    pace = PacedTrips(Trips(per_second=5.0, batch_rows=50), rows_per_second=10_000.0, gate="/tmp/watched")
    pace.close(after_s=12.0)  # in the driver, so many seconds after the job was asked for

A job that is watched lasts until that is over, and a slow machine takes longer for it. So the gate, a file that the
processes of one machine see, says up to which trip all sources go on: one that none of them can have reached yet.
Rejected: to stop the job, because nobody can say then which trips it has read, and its answer cannot be checked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.apps import routes
from penstock.apps.trips import TRIP_SCHEMA, Trips
from penstock.flow import io
from penstock.jobs import Topology

SECONDS_MAX = 600.0  # of a gate that nobody closes: its driver has died
AHEAD_S = 1.0  # of trips beyond those that can be due: a clock in seconds is read twice


@dataclass(frozen=True)
class PacedTrips:
    """The source's function; how many trips there are is decided by whoever closes the gate."""

    trips: Trips
    rows_per_second: float  # of all tasks together
    gate: str  # path of a file that is not there yet

    def __call__(self, task: int, tasks: int, start: int) -> Iterator[pa.RecordBatch | None]:
        """Batches of one task when they are due, from number `start` on; None while the next one is not."""
        began, at = time.monotonic(), start
        batch_s = self.trips.batch_rows * tasks / self.rows_per_second
        while True:
            while (last := self.last) is None and time.monotonic() < began + (at - start + 1) * batch_s:
                yield None
            mine = np.arange(task + at * self.trips.batch_rows * tasks, self._end(last), tasks)
            if not len(mine):
                return
            yield self.trips.batch(mine[: self.trips.batch_rows])
            at += 1

    def topology(self) -> Topology:
        """Routes over these trips."""
        return routes.build(source=io.generator(self, TRIP_SCHEMA))

    def close(self, after_s: float) -> int:
        """Have the sources end, so many seconds after their job was asked for; answers how many trips there are."""
        last = min(self._end(None), int((after_s + AHEAD_S) * self.rows_per_second))
        hidden = Path(f"{self.gate}.writing")
        hidden.write_text(str(last), encoding="ascii")
        hidden.replace(self.gate)
        return last

    @property
    def last(self) -> int | None:
        """How many trips there are, once that is known."""
        if not os.path.exists(self.gate):
            return None
        return int(Path(self.gate).read_text(encoding="ascii"))

    def all(self, tasks: int) -> pa.Table:
        """Every trip that so many sources have given when they have ended."""
        whole = replace(self.trips, count=self._end(self.last))
        return pa.Table.from_batches([batch for task in range(tasks) for batch in whole(task, tasks)])

    def _end(self, last: int | None) -> int:
        return int(SECONDS_MAX * self.rows_per_second) if last is None else last
