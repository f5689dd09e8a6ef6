"""Collected rows in files: columns by position, in Parquet where Spark reads from it exactly what was written.

Parquet does not take every name and not every type. So columns are named c0, c1, ... and the reader restores their
names, and rows of other types are kept in Arrow's own format. Rejected: dictionaries and compression, which cost more
time than they save where files are read on the machine that wrote them.
"""

from __future__ import annotations

import pyarrow as pa

OPTIONS: dict[str, object] = {
    "compression": "none",
    "use_dictionary": False,
    "write_statistics": False,
    "store_schema": False,
}


def fits_parquet(schema: pa.Schema) -> bool:
    """Whether Spark reads from Parquet exactly what was written, for every type in the schema."""
    return bool(len(schema)) and all(_fits(field.type) for field in schema)


def _fits(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        names = {field.name.lower() for field in kind}  # Spark looks nested fields up by name, in either case
        return 0 < len(names) == kind.num_fields and all(_fits(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _fits(kind.key_type) and _fits(kind.item_type)
    if pa.types.is_list(kind):
        return _fits(kind.value_type)
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us")
    plain = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.date32())
    return kind in (*plain, pa.string(), pa.binary()) or pa.types.is_decimal128(kind)


def positional(schema: pa.Schema) -> pa.Schema:
    """The schema with columns named c0, c1, ..."""
    return pa.schema([field.with_name(f"c{i}") for i, field in enumerate(schema)])


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under this schema's names and types, column by column."""
    pairs = zip(batch.columns, schema, strict=True)
    arrays = [array if array.type == field.type else array.cast(field.type) for array, field in pairs]
    return pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch
