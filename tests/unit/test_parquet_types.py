"""Times of 96 bits, as Spark writes them, are moments in microseconds; all other types are what the file says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.run.operators.convert import conform
from penstock.run.operators.sources.parquet_types import open_parquet, parquet_schema

MOMENTS = [datetime(1, 1, 1, tzinfo=UTC), None, datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)]
MOMENT, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def table(moment: pa.DataType) -> pa.Table:
    """The moments alone, in a list, in a struct and in a map, beside columns of other types."""
    columns = {
        "n": pa.array([1, 2, 3]),
        "at": pa.array(MOMENTS, moment),
        "list": pa.array([[at] for at in MOMENTS], pa.list_(moment)),
        "struct": pa.array([{"s": "x", "at": at} for at in MOMENTS], pa.struct([("s", pa.string()), ("at", moment)])),
        "map": pa.array([[("k", at)] for at in MOMENTS], pa.map_(pa.string(), moment)),
    }
    return pa.table(columns)


def test_times_of_96_bits_are_moments(tmp_path: Path) -> None:
    path = str(tmp_path / "old.parquet")
    pq.write_table(table(LOCAL), path, use_deprecated_int96_timestamps=True)
    schema = parquet_schema(path)
    assert [schema.field(name).type for name in ("at", "list", "map")] == [
        MOMENT,
        pa.list_(MOMENT),
        pa.map_(pa.string(), MOMENT),
    ]
    assert ps.io.files(path).schema == schema
    with open_parquet(path) as file:
        (found,) = [conform(batch, schema, "files") for batch in file.iter_batches(10)]
    assert found.to_pylist() == table(MOMENT).to_pylist()


def test_other_times_are_what_the_file_says(tmp_path: Path) -> None:
    path = str(tmp_path / "new.parquet")
    for kind in (MOMENT, LOCAL):
        pq.write_table(table(kind), path)
        assert parquet_schema(path).field("at").type == kind
