"""The job of `penstock bench costs`: synthetic readings in batches on a schedule, through two operators.

The schedule is the same for every plan, and so are the batches, so what differs between two runs is where tasks are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.flow import io
from penstock.flow.topology import Topology
from penstock.run.contract import ENDED, Outputs, Polled, SourceTask
from penstock.run.dataflow import Dataflow

SENSORS = 500
SCHEMA = pa.schema([pa.field("sensor", pa.int64()), pa.field("value", pa.float64()), pa.field("site", pa.string())])


@dataclass(frozen=True, slots=True)
class Pace:
    """Batches of so many rows, one every so many microseconds."""

    name: str
    rows: int
    gap_us: int


PACES = (Pace("small batches", 100, 2_000), Pace("large batches", 4_000, 8_000))


class Scheduled(SourceTask):
    """Emits one batch after the other, each when it is due; the first when it is first asked."""

    def __init__(self, pace: Pace, count: int) -> None:
        self._batches, self._gap_us, self._count, self._given = readings(pace.rows), pace.gap_us, count, 0
        self._began_us = 0

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """The next batch, if it is due."""
        self._began_us = self._began_us or now_us
        if now_us >= self._due_us:
            out.emit(self._batches[self._given % len(self._batches)])
            self._given += 1
        return ENDED if self._given == self._count else Polled(wait_until_us=self._due_us)

    @property
    def _due_us(self) -> int:
        return self._began_us + self._given * self._gap_us


def readings(rows: int, seed: int = 7, batches: int = 16) -> list[pa.RecordBatch]:
    """Synthetic batches: a sensor, its value, the site's name."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(batches):
        sensor = random.integers(0, SENSORS, rows)
        site = [f"site number {s % 40}" for s in sensor.tolist()]
        made.append(pa.record_batch([sensor, random.normal(20.0, 5.0, rows), site], schema=SCHEMA))
    return made


def job(pace: Pace, seconds: float) -> Dataflow:
    """Readings -> cleaned by a Python function -> counted by sensor -> nowhere."""
    topology = Topology("readings")
    rows = topology.source("readings", io.generator(_nothing, SCHEMA))
    kept = rows.map(_cleaned, "sensor bigint, value double, site string", name="clean")
    counts = kept.key_by("sensor").aggregate(n="count(*)", most="max(value)", emit="changes", name="count")
    counts.sink("out", io.discard())
    flow = topology.build()
    count = math.ceil(seconds * 1e6 / pace.gap_us)
    source = replace(flow.operator("readings"), build=lambda: Scheduled(pace, count))
    return replace(flow, operators=tuple(source if o.name == "readings" else o for o in flow.operators))


def _nothing(task: int, tasks: int) -> Iterator[pa.RecordBatch]:
    return iter(())


def _cleaned(row: pa.RecordBatch) -> tuple[int, float, str]:
    return row.sensor, max(row.value, 0.0), row.site
