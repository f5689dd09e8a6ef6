"""Parquet files with the times that Spark and Hive write: 96 bits, which are moments although the file does not say so.

Read as they come, they would be local times in nanoseconds, which reach from 1677 to 2262 and wrap beyond. Spark takes
them for `timestamp`, and that is what they are here: microseconds in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.run.contract import BATCH_BYTES_MAX
from penstock.run.operators.summed import SummedFile, SummedReader

Given = str | SummedFile  # a path, or one with checksums
_MOMENT = pa.timestamp("us", tz="UTC")


def open_parquet(file: Given) -> Any:  # noqa: ANN401 - pyarrow.parquet is imported where files are read
    """A `pyarrow.parquet.ParquetFile` that tells such times in microseconds; with sums it is checked as it is read."""
    import pyarrow.parquet as pq

    source = file if isinstance(file, str) else SummedReader(file)
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")


def parquet_schema(path: str) -> pa.Schema:
    """The schema of a file, with moments where it has times of 96 bits."""
    with open_parquet(path) as file:
        columns = file.schema
        leaves = iter([columns.column(i).physical_type == "INT96" for i in range(len(columns))])
        fields = [field.with_type(_told(field.type, leaves)) for field in file.schema_arrow]
    return pa.schema(fields)


def _told(kind: pa.DataType, leaves: Iterator[bool]) -> pa.DataType:
    """The type with its leaves, which come in the order in which the file has them, as what they mean."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_told(field.type, leaves)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_told(key.type, leaves)), item.with_type(_told(item.type, leaves)))
    if pa.types.is_list(kind):
        field = kind.value_field
        return pa.list_(field.with_type(_told(field.type, leaves)))
    return _MOMENT if next(leaves) else kind


def rows_at_once(file: Any, rows_max: int) -> int:  # noqa: ANN401 - a ParquetFile
    """Rows of a batch that takes BATCH_BYTES_MAX in the row group with the longest rows, by the file's own word."""
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    longest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(rows_max, BATCH_BYTES_MAX // (longest + 1)))
