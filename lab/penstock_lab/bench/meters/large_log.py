"""A large metric log, synthetic and said to be: the tables and files that a job writes, with made-up counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.run.engine.meters import TABLES

TASKS = 200  # of each of two operators; with as many pairs, an interval has 600 rows
FILE_ROWS = 1_000_000
SECOND_US = 1_000_000


def write_log(folder: Path, rows: int, seed: int = 1) -> int:
    """Write about so many rows of tasks and pairs, a second apart; answers how many there are."""
    chance = np.random.default_rng(seed)
    sources = [f"a/{i}" for i in range(TASKS)]
    targets = [f"b/{i}" for i in range(TASKS)]
    named = {"tasks": {"task": [*sources, *targets]}, "edges": {"source": sources, "target": targets}}
    intervals, written = max(1, rows // (3 * TASKS)), 0
    for table, columns in named.items():
        (folder / table).mkdir(parents=True)
        width = len(next(iter(columns.values())))
        step = max(1, FILE_ROWS // width)
        for number, first in enumerate(range(0, intervals, step)):
            seconds = np.arange(first, min(intervals, first + step))
            batch = _batch(table, columns, np.repeat(seconds + 1, width), len(seconds), chance)
            pq.write_table(pa.Table.from_batches([batch]), folder / table / f"bench-{number:05d}.parquet")
            written += batch.num_rows
    return written


def _batch(
    table: str, named: dict[str, list[str]], seconds: np.ndarray, times: int, chance: np.random.Generator
) -> pa.RecordBatch:
    columns = []
    for field in TABLES[table]:
        if field.name in named:
            columns.append(pa.array(named[field.name] * times))
        elif field.name == "time_us":
            columns.append(pa.array(seconds * SECOND_US))
        elif field.name == "interval_us":
            columns.append(pa.array(np.full(len(seconds), SECOND_US)))
        elif pa.types.is_string(field.type):
            columns.append(pa.array(["ring" if field.name == "distance" else "n1"] * len(seconds)))
        elif pa.types.is_boolean(field.type):
            columns.append(pa.array(np.zeros(len(seconds), bool)))
        else:
            columns.append(pa.array(chance.integers(0, SECOND_US, len(seconds)), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=TABLES[table])
