"""Top frequent routes (paper 000, section 6.3; DEBS 2015, query 1): the ten routes most taken in the last half hour.

    source (16) -> pre-process (16) -> rolling count (8) -> intermediate rank (4) -> final rank (1)

Pre-processing turns coordinates into cells and drops trips outside the grid. The rolling count is a sliding window per
route. Each intermediate rank keeps the best ten of its share of routes, and the final one merges them. `answer_sql`
asks Spark SQL the same question (`test_the_main_jobs_answer_is_spark_sqls`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.apps import applications
from penstock.apps.trips import CELL_LAT, CELL_LON, GRID_CELLS, GRID_LAT, GRID_LON, TRIP_SCHEMA, Trips
from penstock.flow import io
from penstock.flow.schema import parse_schema
from penstock.flow.windows import sliding
from penstock.jobs import Topology

TASKS = {"source": 16, "pre-process": 16, "rolling-count": 8, "intermediate-rank": 4, "final-rank": 1}
ROUTES = parse_schema("route string, pickup timestamp")
WINDOW, SLIDE, RANKS = "30 minutes", "10 minutes", 10


def build(trips: Trips | None = None, source: io.Source | None = None) -> Topology:
    """The topology over generated trips, or over another source of the same schema."""
    topology = Topology("routes")
    given = source or io.generator(trips or Trips(), TRIP_SCHEMA)
    # Each source's trips are in order, but sources run ahead of each other. So event time is declared at the source,
    # before a shuffle mixes trips of several sources.
    trip = topology.source("source", given, tasks=TASKS["source"]).event_time("pickup", lateness="0 seconds")
    routes = trip.map_batches(to_routes, ROUTES, name="pre-process", tasks=TASKS["pre-process"])
    counts = routes.key_by("route").count(
        window=sliding(WINDOW, SLIDE), name="rolling-count", tasks=TASKS["rolling-count"]
    )
    best = counts.top(RANKS, name="intermediate-rank", tasks=TASKS["intermediate-rank"])
    best.top(RANKS, name="final-rank", tasks=TASKS["final-rank"]).sink("routes", io.collect())
    for operator in applications.routes().operators:  # as `penstock place routes` has them
        topology.declare(operator.name, operator.loads()[0])
    return topology


def to_routes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Cells of both ends as one route name, e.g. `154.162-155.160`; trips that leave the grid are dropped."""
    cells = []
    inside = None
    for end in ("pickup", "dropoff"):
        east = _cell(pc.subtract(batch[f"{end}_lon"], GRID_LON), CELL_LON)
        south = _cell(pc.subtract(GRID_LAT, batch[f"{end}_lat"]), CELL_LAT)
        for number in (east, south):
            within = pc.and_(pc.greater_equal(number, 1), pc.less_equal(number, GRID_CELLS))
            inside = within if inside is None else pc.and_(inside, within)
            cells.append(pc.cast(number, pa.string()))
    start = pc.binary_join_element_wise(cells[0], cells[1], ".")
    end_cell = pc.binary_join_element_wise(cells[2], cells[3], ".")
    route = pc.binary_join_element_wise(start, end_cell, "-")
    return pa.RecordBatch.from_arrays([route, batch["pickup"]], schema=ROUTES).filter(inside)


def _cell(distance: pa.Array, size: float) -> pa.Array:
    """The number of the cell, counted from 1, at this distance from the centre of cell 1."""
    return pc.cast(pc.add(pc.floor(pc.add(pc.divide(distance, size), 0.5)), 1), pa.int32())


def answer_sql(view: str) -> str:
    """The same question for Spark SQL, over a view of trips."""

    def cell(end: str) -> str:
        east = f"cast(floor(({end}_lon - {GRID_LON!r}) / {CELL_LON!r} + 0.5) + 1 as int)"
        south = f"cast(floor(({GRID_LAT!r} - {end}_lat) / {CELL_LAT!r} + 0.5) + 1 as int)"
        return f"{east} as {end}_east, {south} as {end}_south"

    ends = ("pickup", "dropoff")
    inside = " and ".join(f"{end}_{way} between 1 and {GRID_CELLS}" for end in ends for way in ("east", "south"))
    return f"""
        with cells as (select pickup, {cell("pickup")}, {cell("dropoff")} from {view}),
        routes as (select pickup, concat(pickup_east, '.', pickup_south, '-', dropoff_east, '.', dropoff_south) as route
                   from cells where {inside}),
        counts as (select window(pickup, '{WINDOW}', '{SLIDE}') as w, route, count(*) as count
                   from routes group by 1, 2),
        ranked as (select w.start as window_start, w.end as window_end, route, count,
                          row_number() over (partition by w order by count desc, route) as place from counts)
        select window_start, window_end, route, count from ranked where place <= {RANKS}
    """  # noqa: S608 - the view's name is the caller's own
