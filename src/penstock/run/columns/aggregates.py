"""What a keyed aggregate computes: its specification, the types it gives, and a plain Python form for rare types.

Types are those of Spark SQL (`test_types_are_those_of_spark_sql`). A count is bigint NOT NULL, a sum of integers
bigint, a sum of floats double. Of decimal(p, s) a sum is decimal(p + 10, s) and an avg decimal(p + 4, s + 4), up to 38
digits; any other avg is double. min, max, first and last have their column's type. Nulls are ignored by all but
count(*). NaN is larger than any other number and equal to itself, -0.0 equals 0.0, and a result that does not fit its
type is an error, as in Spark's ANSI mode. Dictionary columns come out decoded: Spark has no dictionary type.

`PlainAggregate` works for every type; `running_aggregates.KeyedAggregate` prefers the native form where there is one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.run.columns.unwritten import ArrowRows

Op = Literal["count", "sum", "min", "max", "avg", "first", "last", "min_by", "max_by"]
OPS: tuple[Op, ...] = ("count", "sum", "min", "max", "avg", "first", "last", "min_by", "max_by")
PAIRED = frozenset({"min_by", "max_by"})  # over a column of pairs: a value, and what it is chosen by
PAIR = ["value", "by"]
STATE_VERSION = 1
TOUCHED = "touched"
RANKS_MAX = 1 << 40  # above the number of keys of any task
DIGITS_MAX = 38  # of a decimal in Spark


@dataclass(frozen=True)
class Aggregate:
    """One output column: an operation over a column, or over whole rows where `column` is None (count only)."""

    op: Op
    column: str | None
    name: str


def decoded(kind: pa.DataType) -> pa.DataType:
    """The type of the values behind a dictionary, a run-end encoding or a view."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return decoded(kind.value_type)
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def column_type(schema: pa.Schema, name: str, who: str) -> pa.DataType:
    """The decoded type of a column, or an error that names the columns there are."""
    if schema.names.count(name) != 1:
        times = "twice" if name in schema.names else "which is not there"
        msg = f"{who} names column {name!r}, {times}; the columns are {', '.join(schema.names) or 'none'}"
        raise InvalidInput(msg)
    return decoded(schema.field(name).type)


def result_field(aggregate: Aggregate, schema: pa.Schema) -> pa.Field:
    """The output column of one aggregate, as Spark SQL types it."""
    if aggregate.op not in OPS:
        error = InvalidInput.unknown_name("aggregate", aggregate.op, OPS)
        raise error
    if aggregate.column is None:
        if aggregate.op != "count":
            msg = f"aggregate {aggregate.name!r}: {aggregate.op} needs a column; only count takes whole rows"
            raise InvalidInput(msg)
        return pa.field(aggregate.name, pa.int64(), nullable=False)
    kind = column_type(schema, aggregate.column, f"aggregate {aggregate.name!r}")
    if aggregate.op == "count":
        return pa.field(aggregate.name, pa.int64(), nullable=False)
    if aggregate.op in {"sum", "avg"}:
        return pa.field(
            aggregate.name, _sum_type(aggregate, kind) if aggregate.op == "sum" else _avg_type(aggregate, kind)
        )
    if aggregate.op in PAIRED:
        if not pa.types.is_struct(kind) or [field.name for field in kind] != PAIR:
            msg = f"aggregate {aggregate.name!r}: {aggregate.op} takes two arguments, a value and what it is chosen by"
            raise InvalidInput(msg)
        return pa.field(aggregate.name, kind.field(0).type)
    if aggregate.op in {"min", "max"} and (pa.types.is_nested(kind) or pa.types.is_null(kind)):
        msg = (
            f"aggregate {aggregate.name!r}: {aggregate.op} has no order for column {aggregate.column!r} of type {kind}"
        )
        raise InvalidInput(msg)
    return pa.field(aggregate.name, kind)


def _sum_type(aggregate: Aggregate, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(DIGITS_MAX, kind.precision + 10), kind.scale)
    who = f"aggregate {aggregate.name!r}: {aggregate.op} of column {aggregate.column!r}"
    msg = f"{who} needs numbers but the type is {kind}"
    raise InvalidInput(msg)


def _avg_type(aggregate: Aggregate, kind: pa.DataType) -> pa.DataType:
    _sum_type(aggregate, kind)
    if not pa.types.is_decimal(kind):
        return pa.float64()
    return pa.decimal128(min(DIGITS_MAX, kind.precision + 4), min(DIGITS_MAX, kind.scale + 4))


def output_schema(schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> pa.Schema:
    """Keys with their types, then the aggregates; raises on unknown columns and on names that occur twice."""
    fields = [pa.field(key, column_type(schema, key, "key"), schema.field(key).nullable) for key in keys]
    fields += [result_field(aggregate, schema) for aggregate in aggregates]
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            msg = f"keyed aggregate gives column {name!r} twice; rename one of {', '.join(names)}"
            raise InvalidInput(msg)
    return pa.schema(fields)


def overflow(aggregate: Aggregate, kind: pa.DataType) -> InvalidInput:
    """The error for a sum or an average that does not fit its type."""
    who = f"aggregate {aggregate.name!r}: the {aggregate.op} of column {aggregate.column!r}"
    return InvalidInput(f"{who} does not fit {kind}; cast the column to a type that leaves it room first")


def write_state(batch: pa.RecordBatch, aggregates: Sequence[Aggregate]) -> ArrowRows:
    """A state batch that becomes Arrow IPC; its metadata name the version and the aggregates it belongs to."""
    head = json.dumps([STATE_VERSION, [[a.op, a.column, a.name] for a in aggregates]])
    marked = batch.replace_schema_metadata({"penstock.keyed_aggregate": head})
    return ArrowRows([marked], marked.schema)


def read_state(state: bytes, schema: pa.Schema, aggregates: Sequence[Aggregate]) -> pa.RecordBatch:
    """The state batch again, checked against what this aggregate expects."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(state)) as reader:
            found = dict(reader.schema.metadata or {}).get(b"penstock.keyed_aggregate", b"")
            batch = pa.Table.from_batches(list(reader), reader.schema).combine_chunks()
        batch.validate(full=True)
        version, specification = json.loads(found or b"[0, []]")
    except (pa.ArrowException, ValueError, OSError) as error:
        msg = f"keyed aggregate state of {len(state)} bytes is not readable: {error}"
        raise InvalidInput(msg) from error
    expected = [[a.op, a.column, a.name] for a in aggregates]
    if version != STATE_VERSION or specification != expected or not batch.schema.equals(schema):
        then, now = _told(version, specification, batch.schema), _told(STATE_VERSION, expected, schema)
        msg = f"it is of other aggregates: {then}; here are {now}"
        raise InvalidInput(msg)
    batches = batch.to_batches()
    return batches[0] if batches else empty_batch(schema)


def _told(version: int, specification: Sequence[Sequence[str | None]], schema: pa.Schema) -> str:
    """The aggregates of a state, for people."""
    aggregates = [f"{name}={op}({'*' if column is None else column})" for op, column, name in specification]
    columns = [f"{field.name} {field.type}" for field in schema]
    return f"{', '.join(aggregates)} as {', '.join(columns)} (version {version})"


def merged_states(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """States over different keys as one; the keys that were touched keep their order, state by state."""
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if not whole:
        return batches[0]
    at = whole[0].num_columns - 1
    ranks = [batch.column(at).drop_null().to_numpy() for batch in batches]
    order = np.argsort(np.concatenate([rank + i * RANKS_MAX for i, rank in enumerate(ranks)]))
    touched = whole[0].column(at).is_valid().to_numpy(zero_copy_only=False)
    found = np.zeros(len(touched), np.int64)
    found[np.flatnonzero(touched)[order]] = np.arange(len(order))
    return whole[0].set_column(at, whole[0].schema.field(at), pa.array(found, mask=~touched))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


# -- the plain form --------------------------------------------------------------------------------------------------

_NAN = ("nan",)


def key_of(value: Any) -> Any:  # noqa: ANN401 - any Arrow value
    """A hashable stand-in under which equal Arrow values are equal and different ones are not."""
    if isinstance(value, float):
        return _NAN if math.isnan(value) else (float, value + 0.0)
    if isinstance(value, list | tuple):
        return (list, *map(key_of, value))
    if isinstance(value, dict):
        return (dict, *((name, key_of(item)) for name, item in value.items()))
    return (type(value), value)


def normalised(value: Any) -> Any:  # noqa: ANN401 - any Arrow value
    """A key as results show it: -0.0 becomes 0.0, as in Spark."""
    return value + 0.0 if isinstance(value, float) else value


def plain_column(column: pa.Array) -> pa.Array:
    """A column without dictionary or run-end encoding."""
    kind = decoded(column.type)
    return column if kind == column.type else column.cast(kind)


def plain_key(column: pa.Array) -> pa.Array:
    """A key column whose values are equal as in Spark where their bits are: -0.0 as 0.0, and every NaN the same."""
    column = plain_column(column)
    if not pa.types.is_floating(column.type):
        return column
    column = column.cast(pa.float32()) if pa.types.is_float16(column.type) else column
    return pc.if_else(pc.is_nan(column), pa.scalar(math.nan, column.type), pc.add(column, pa.scalar(0, column.type)))


def python_values(column: pa.Array) -> list[Any]:
    """Python values that compare as Arrow's do; dates and times become integers, so that no precision is lost."""
    column = plain_column(column)
    if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column.to_pylist()  # type: ignore[no-any-return]


def arrow_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The way back from `python_values`."""
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


class _Cell:
    """The running value of one aggregate for one key."""

    __slots__ = ("count", "value")

    def __init__(self, value: Any = None, count: int = 0) -> None:  # noqa: ANN401 - any Arrow value
        self.value = value
        self.count = count

    def add(self, op: Op, value: Any) -> None:  # noqa: ANN401 - any Arrow value
        """Take one non-null value in."""
        self.count += 1
        if op == "count":
            return
        if op in {"sum", "avg"}:
            self.value = value if self.value is None else _added(self.value, value)
        elif op in PAIRED:
            self._add_pair(op, value)
        elif (
            self.value is None
            or op == "last"
            or (op == "min" and _less(value, self.value))
            or (op == "max" and _less(self.value, value))
        ):
            self.value = value

    def _add_pair(self, op: Op, pair: dict[str, Any]) -> None:
        """The pair with the smallest or largest second part; of equal ones the last."""
        by = pair["by"]
        if by is None:
            return
        held = None if self.value is None else self.value["by"]
        if held is None or not (_less(held, by) if op == "min_by" else _less(by, held)):
            self.value = pair


def _less(a: Any, b: Any) -> bool:  # noqa: ANN401 - any ordered Arrow value
    if isinstance(a, float) and (math.isnan(a) or math.isnan(b)):
        return not math.isnan(a)
    return bool(a < b)


class PlainAggregate:
    """A keyed aggregate in Python: it takes every type and costs a microsecond or more per row."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
        self.output_schema = output_schema(schema, keys, aggregates)
        self._keys = tuple(keys)
        self._aggregates = tuple(aggregates)
        self._kinds = [None if a.column is None else decoded(schema.field(a.column).type) for a in aggregates]
        self._groups: dict[Any, tuple[list[Any], list[_Cell]]] = {}
        self._touched: dict[Any, None] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def clear(self) -> None:
        """Forget every key."""
        self._groups.clear()
        self._touched.clear()

    def update(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch in."""
        self._update(batch, None)

    def update_each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take the rows in and give the running values after each."""
        running: list[list[Any]] = [[] for _ in self._aggregates]
        self._update(batch, running)
        keys = [plain_column(batch.column(key)) for key in self._keys]
        fields = list(self.output_schema)[len(keys) :]
        values = [arrow_column(column, field.type) for column, field in zip(running, fields, strict=True)]
        return pa.RecordBatch.from_arrays(keys + values, schema=self.output_schema)

    def _update(self, batch: pa.RecordBatch, running: list[list[Any]] | None) -> None:
        keys = [python_values(batch.column(key)) for key in self._keys]
        inputs = [
            [True] * batch.num_rows if a.column is None else self._numbers(a, batch.column(a.column))
            for a in self._aggregates
        ]
        for row in range(batch.num_rows):
            values = [normalised(column[row]) for column in keys]
            key = tuple(map(key_of, values))
            _, cells = self._groups.setdefault(key, (values, [_Cell() for _ in inputs]))
            self._touched[key] = None
            for cell, aggregate, column in zip(cells, self._aggregates, inputs, strict=True):
                if column[row] is not None:
                    cell.add(aggregate.op, column[row])
            if running is not None:
                for column, value in zip(running, self._results(cells), strict=True):
                    column.append(value)

    def _numbers(self, aggregate: Aggregate, column: pa.Array) -> list[Any]:
        values = python_values(column)
        if aggregate.op == "avg" and not pa.types.is_decimal(decoded(column.type)):
            return [None if value is None else float(value) for value in values]
        return values

    def changed(self) -> pa.RecordBatch:
        """The keys touched since the last call, in the order in which they were touched first."""
        touched, self._touched = self._touched, {}
        return self._batch([self._groups[key] for key in touched])

    def rows(self) -> pa.RecordBatch:
        """All keys, in the order in which they came."""
        return self._batch(list(self._groups.values()))

    def _batch(self, groups: Sequence[tuple[list[Any], list[_Cell]]]) -> pa.RecordBatch:
        rows = [values + self._results(cells) for values, cells in groups]
        columns = [arrow_column([row[i] for row in rows], f.type) for i, f in enumerate(self.output_schema)]
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)

    def _results(self, cells: Sequence[_Cell]) -> list[Any]:
        found: list[Any] = []
        fields = list(self.output_schema)[len(self._keys) :]
        for cell, aggregate, field in zip(cells, self._aggregates, fields, strict=True):
            if aggregate.op == "count":
                found.append(cell.count)
            elif aggregate.op in {"sum", "avg"} and cell.value is not None:
                value = cell.value if aggregate.op == "sum" else _average(cell.value, cell.count, field.type)
                found.append(_fitting(value, aggregate, field.type))
            elif aggregate.op in PAIRED:
                found.append(None if cell.value is None else cell.value["value"])
            else:
                found.append(cell.value)
        return found

    def state_schema(self) -> pa.Schema:
        """Keys, then value and count of every aggregate, then when the key was touched."""
        keys = list(self.output_schema)[: len(self._keys)]
        fields = [pa.field(f"key {i}", field.type) for i, field in enumerate(keys)]
        for i, aggregate in enumerate(self._aggregates):
            fields += [pa.field(f"value {i}", self._value_type(aggregate, i)), pa.field(f"count {i}", pa.int64())]
        return pa.schema([*fields, pa.field(TOUCHED, pa.int64())])

    def _value_type(self, aggregate: Aggregate, index: int) -> pa.DataType:
        kind = self._kinds[index]
        if aggregate.op == "count" or kind is None:
            return pa.null()
        if aggregate.op in {"sum", "avg"}:
            if pa.types.is_decimal(kind):
                return pa.decimal256(76, kind.scale)
            return pa.int64() if pa.types.is_integer(kind) and aggregate.op == "sum" else pa.float64()
        return kind

    def take_state(self) -> ArrowRows:
        """Everything, as it is now."""
        order = {key: i for i, key in enumerate(self._touched)}
        rows = []
        for key, (values, cells) in self._groups.items():
            cell_values = [item for cell in cells for item in (cell.value, cell.count)]
            rows.append([*values, *cell_values, order.get(key)])
        schema = self.state_schema()
        columns = [arrow_column([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
        return write_state(pa.RecordBatch.from_arrays(columns, schema=schema), self._aggregates)

    def read(self, state: bytes) -> pa.RecordBatch:
        """The rows of a state: the keys, and what is known about each."""
        return read_state(state, self.state_schema(), self._aggregates)

    def put(self, batch: pa.RecordBatch) -> None:
        """Continue from the rows of a state."""
        columns = [python_values(column) for column in batch.columns]
        self.clear()
        touched: list[tuple[int, Any]] = []
        for row in zip(*columns, strict=True):
            values = list(row[: len(self._keys)])
            cells = [_Cell(*row[at : at + 2]) for at in range(len(values), len(row) - 1, 2)]
            key = tuple(map(key_of, values))
            self._groups[key] = (values, cells)
            if row[-1] is not None:
                touched.append((row[-1], key))
        self._touched = dict.fromkeys(key for _, key in sorted(touched, key=lambda entry: entry[0]))


# By default Python rounds decimals to 28 digits. In this context sums are exact and averages round as in Spark.
_EXACT = Context(prec=200, rounding=ROUND_HALF_UP)
_QUOTIENT = Decimal(1).scaleb(-DIGITS_MAX - 1)


def _added(a: Any, b: Any) -> Any:  # noqa: ANN401 - int, float or Decimal
    return _EXACT.add(a, b) if isinstance(a, Decimal) else a + b


def _average(total: Any, count: int, kind: pa.DataType) -> Any:  # noqa: ANN401 - float or Decimal
    if not isinstance(total, Decimal):
        return float(total / count)
    quotient = _EXACT.divide(total, Decimal(count)).quantize(_QUOTIENT, context=_EXACT)  # 39 digits, as in Spark
    return quotient.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)


def _fitting(value: Any, aggregate: Aggregate, kind: pa.DataType) -> Any:  # noqa: ANN401 - int, float or Decimal
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise overflow(aggregate, kind)
    if isinstance(value, Decimal) and abs(value) >= Decimal(10) ** (kind.precision - kind.scale):
        raise overflow(aggregate, kind)
    return value
