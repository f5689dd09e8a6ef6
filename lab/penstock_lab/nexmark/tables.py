"""Nexmark events as Parquet files: a folder for each of person, auction and bid, its files in order of time.

File i of every folder covers the same span of event time, so that readers of several folders go through time together.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InvalidInput
from penstock_lab.nexmark.events import BLOCK_EVENTS, SCHEMAS, Events

FILES = 8  # by default; at least two for each of a few readers
TABLES = tuple(SCHEMAS)


def write_tables(events: Events, folder: str | Path, files: int = FILES) -> dict[str, Path]:
    """Write the events below a folder; the path of each table."""
    if not 1 <= files <= 100_000:
        msg = f"nexmark events go to {files} files a table; give 1 to 100000"
        raise InvalidInput(msg)
    paths = {name: Path(folder) / name for name in TABLES}
    for path in paths.values():
        path.mkdir(parents=True, exist_ok=True)
    bounds = [events.count * number // files for number in range(files + 1)]
    for number, (first, end) in enumerate(pairwise(bounds)):
        parts = _span(events, first, end)
        for name, table in parts.items():
            pq.write_table(table, paths[name] / f"{number:05d}.parquet", compression="zstd")
    return paths


def _span(events: Events, first: int, end: int) -> dict[str, pa.Table]:
    """The rows of events from `first` up to `end`, by table."""
    found: dict[str, list[pa.RecordBatch]] = {name: [] for name in TABLES}
    for number in range(first // BLOCK_EVENTS, -(-end // BLOCK_EVENTS)):
        block, base = events.block(number), number * BLOCK_EVENTS
        before, upto = events.rows(max(first - base, 0)), events.rows(min(end - base, BLOCK_EVENTS))
        for name, batch in block.items():
            found[name].append(batch.slice(before[name], upto[name] - before[name]))
    return {name: pa.Table.from_batches(batches, SCHEMAS[name]) for name, batches in found.items()}
