"""Synthetic taxi trips in the shape of the DEBS 2015 Grand Challenge, which paper 000, section 6.3 replays.

The data are synthetic. Pick-ups come in order of time, origins and destinations follow a Zipf law over city cells, so
that some routes are frequent, and coordinates are scattered within their cell. A task's trips follow from its index,
the number of tasks and the seed, so a run, its oracle and a replay see the same trips.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.flow.schema import parse_schema

TRIP_SCHEMA = parse_schema(
    "pickup timestamp, dropoff timestamp, pickup_lon double, pickup_lat double, dropoff_lon double, dropoff_lat double"
)
# The challenge's grid: 300 x 300 cells of 500 m, cell 1.1 centred on this point.
GRID_LON, GRID_LAT = -74.913585, 41.474937
CELL_LON, CELL_LAT = 0.005986, 0.004491556
GRID_CELLS = 300
START_US = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp() * 1e6)
CITY_CELLS = 40  # trips stay within a square of this many cells, as taxis do
ZIPF = 1.6


@dataclass(frozen=True)
class Trips:
    """How many trips, how close in time, and from which seed."""

    count: int = 200_000
    per_second: float = 20.0  # of event time; the real data set has about 5
    batch_rows: int = 2_000
    seed: int = 0

    def __call__(self, task: int, tasks: int) -> Iterator[pa.RecordBatch]:
        """The trips of one source task, in order of pick-up."""
        mine = np.arange(task, self.count, tasks)
        for at in range(0, len(mine), self.batch_rows):
            yield self.batch(mine[at : at + self.batch_rows])

    def batch(self, numbers: NDArray[np.int64]) -> pa.RecordBatch:
        """Trips by number; their values follow from the seed, the first number and the number of trips."""
        random = np.random.default_rng([self.seed, int(numbers[0]), len(numbers)])
        pickup = START_US + (numbers / self.per_second * 1e6).astype(np.int64)
        dropoff = pickup + (random.gamma(3.0, 240.0, len(numbers)) * 1e6).astype(np.int64)
        columns: list[pa.Array] = [pa.array(time, TRIP_SCHEMA.field(0).type) for time in (pickup, dropoff)]
        for _ in range(2):
            lon, lat = _points(random, len(numbers))
            columns += [pa.array(lon), pa.array(lat)]
        return pa.RecordBatch.from_arrays(columns, schema=TRIP_SCHEMA)


def _points(random: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates in cells that follow a Zipf law around the middle of the grid."""
    rank = random.zipf(ZIPF, count) % (CITY_CELLS * CITY_CELLS)
    east, south = rank // CITY_CELLS + GRID_CELLS // 2, rank % CITY_CELLS + GRID_CELLS // 2
    scatter = random.uniform(-0.5, 0.5, (2, count))
    return GRID_LON + (east + scatter[0]) * CELL_LON, GRID_LAT - (south + scatter[1]) * CELL_LAT
