"""Keyed aggregates without windows: built-in ones in the core, and a user's reduce function.

What comes out when: `end` gives one row per key when the input ends, `changes` the new value of every key that a run
touched, `each` the running value after every input row.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.columns import kernels
from penstock.run.columns.aggregates import output_schema
from penstock.run.columns.kernels import Aggregate, KeyedAggregate, Row
from penstock.run.columns.unwritten import ArrowRows, InSteps, State
from penstock.run.contract import Outputs, Owns, Task
from penstock.run.operators.convert import from_bytes, identity, own_rows, rows_to_batch, shown

EMITS = ("end", "changes", "each")
# Types whose Python values are the same from a column and from a row, and compare as in Arrow.
_PLAIN = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_binary)

ROWS_A_SLICE = 512  # of a state that is written in slices: some hundred microseconds

ReduceFunction = Callable[[Row, Row], Any]


class Folding(Protocol):
    """Rows into one value per key; `KeyedAggregate` and `Reducer` are two ways."""

    output_schema: pa.Schema

    def update(self, batch: pa.RecordBatch) -> None:
        """Take rows in."""

    def update_each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take rows in and give the value after each."""

    def changed(self) -> pa.RecordBatch:
        """Keys touched since this was last asked."""

    def rows(self) -> pa.RecordBatch:
        """All keys."""

    def take_state(self) -> State:
        """Everything."""

    def put_state(self, state: bytes) -> None:
        """Continue."""

    def put_states(self, states: Sequence[bytes], owns: Owns) -> None:
        """Continue with the keys that are ours, of several states."""


class Fold(Protocol):
    """A factory of `Folding`, as data that travels."""

    keys: tuple[str, ...]
    output_schema: pa.Schema

    def __call__(self) -> Folding:
        """A fresh one."""


class AggregateFold:
    """A factory of `KeyedAggregate`, as data that travels."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
        self.schema = schema
        self.keys = tuple(keys)
        self.aggregates = tuple(aggregates)
        self.output_schema = output_schema(schema, keys, aggregates)

    def __call__(self) -> KeyedAggregate:
        """A fresh one."""
        return KeyedAggregate(self.schema, self.keys, self.aggregates)


class ReduceFold:
    """A factory of `Reducer`."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], function: ReduceFunction) -> None:
        self.output_schema = schema
        self.keys = tuple(keys)
        self.function = function

    def __call__(self) -> Reducer:
        """A fresh one."""
        return Reducer(self.output_schema, self.keys, self.function)


class Reducer:
    """One row per key, folded by `f(so_far, row)`; the first row of a key is its first value."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], function: ReduceFunction) -> None:
        self.output_schema = schema
        self.keys = tuple(keys)
        self.function = function
        self._names = schema.names
        self._rows: dict[Any, Row] = {}
        self._touched: dict[Any, None] = {}

    def update(self, batch: pa.RecordBatch) -> None:
        """Fold."""
        self._fold(batch, None)

    def update_each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Fold and give the value after each row."""
        running: list[object] = []
        self._fold(batch, running)
        return rows_to_batch(running, self.output_schema)

    def _fold(self, batch: pa.RecordBatch, running: list[object] | None) -> None:
        positions = [batch.schema.get_field_index(name) for name in self.keys]
        plain = _plain_keys(batch, positions)
        rows, touched = self._rows, self._touched
        views: set[Any] = set()  # keys whose kept row points into this batch

        def step(row: Row) -> bool:
            key = tuple([identity(row[position]) for position in positions]) if plain is None else next(plain)
            so_far = rows.get(key)
            rows[key] = value = row if so_far is None else self._reduced(so_far, row, key)
            if value is row:
                views.add(key)
            touched[key] = None
            if running is not None:
                running.append(value)
            return True

        # A filter that keeps every row serves as the core's loop over rows; its errors name the row.
        kernels.filter_rows(step, batch)
        # Copy the kept rows: a row that points into its batch keeps the whole batch in memory.
        for key in views:
            rows[key] = rows[key]._apart()

    def _reduced(self, so_far: Row, row: Row, key: tuple[Any, ...]) -> Row:
        """One call of the user's function; its result must have the keys of the row."""
        made = self.function(so_far, row)
        if made is so_far or made is row:
            return made  # it is one of the two rows, so the key is the same
        names = self._names
        if isinstance(made, tuple | list):
            made = Row(**dict(zip(names, made, strict=True)))
        else:
            made = Row(**{name: made[name] for name in names})
        for name, known in zip(self.keys, key, strict=True):
            if identity(made[name]) != known:
                msg = f"reduce changed the key of {shown(row)} to {shown(made)}; return the same key columns"
                raise InvalidInput(msg)
        return made

    def changed(self) -> pa.RecordBatch:
        """Keys touched since this was last asked."""
        touched, self._touched = self._touched, {}
        return rows_to_batch([self._rows[key] for key in touched], self.output_schema)

    def rows(self) -> pa.RecordBatch:
        """All keys."""
        return rows_to_batch(list(self._rows.values()), self.output_schema)

    def take_state(self) -> State:
        """The rows, and a column that numbers the touched ones.

        Rows do not change, but what is nested in them may: the function may keep a list and append to it.
        """
        state = InSteps(self._steps(list(self._rows), list(self._rows.values()), list(self._touched)))
        if any(pa.types.is_nested(kind) for kind in self.output_schema.types):
            while state.slice():
                pass
        return state

    def _steps(self, keys: list[Any], rows: list[Row], touched: list[Any]) -> Generator[None, None, State]:
        schema = self.output_schema.append(pa.field("", pa.int64()))
        order: dict[Any, int] = {}
        for at in range(0, len(touched), ROWS_A_SLICE):
            order.update(zip(touched[at : at + ROWS_A_SLICE], range(at, len(touched)), strict=False))
            yield
        batches = []
        for at in range(0, len(rows), ROWS_A_SLICE):
            part = rows_to_batch(rows[at : at + ROWS_A_SLICE], self.output_schema)
            ranks = pa.array([order.get(key) for key in keys[at : at + ROWS_A_SLICE]], pa.int64())
            batches.append(pa.RecordBatch.from_arrays([*part.columns, ranks], schema=schema))
            yield
        return ArrowRows(batches, schema)

    def put_state(self, state: bytes) -> None:
        """Continue."""
        self._rows, self._touched = {}, {}
        self._put(from_bytes(state))

    def put_states(self, states: Sequence[bytes], owns: Owns) -> None:
        """Continue with the keys that are ours, of several states."""
        self._rows, self._touched = {}, {}
        for state in states:
            self._put(own_rows([state], self.keys, owns))

    def _put(self, batches: Iterable[pa.RecordBatch]) -> None:
        pairs = []
        for batch in batches:
            rows = [Row(**values) for values in batch.select(self.output_schema.names).to_pylist()]
            keys = [tuple(identity(row[name]) for name in self.keys) for row in rows]
            self._rows.update(zip(keys, rows, strict=True))
            touched = batch.column(batch.num_columns - 1).to_pylist()
            pairs += [(i, key) for i, key in zip(touched, keys, strict=True) if i is not None]
        self._touched.update(dict.fromkeys(key for _, key in sorted(pairs, key=lambda pair: pair[0])))


def _plain_keys(batch: pa.RecordBatch, positions: Sequence[int]) -> Iterator[tuple[Any, ...]] | None:
    """The keys of all rows at once where every key column has a plain type; else None."""
    columns = [batch.column(position) for position in positions]
    if not all(any(known(column.type) for known in _PLAIN) for column in columns):
        return None
    return zip(*(column.to_pylist() for column in columns), strict=True)


def of_no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """The result of aggregates without keys over no rows: NOT NULL columns, the counts, are 0 and all others null."""
    columns = [pa.array([None if field.nullable else 0], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class KeyedFold(Task):
    """A fold over the whole stream."""

    def __init__(self, fold: Fold, emit: str, whole: bool = False) -> None:
        self.fold = fold()
        self.emit = emit
        self.whole = whole  # one group of all rows, which exists even without rows, as in SQL

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Take rows in and say what has changed, if that is wanted."""
        if self.emit == "each":
            out.emit(self.fold.update_each(batch))
            return
        self.fold.update(batch)
        if self.emit == "changes":
            out.emit(self.fold.changed())

    def finish(self, out: Outputs) -> None:
        """One row per key, where that is wanted."""
        if self.emit == "end":
            rows = self.fold.rows()
            if self.whole and not rows.num_rows:
                rows = of_no_rows(self.fold.output_schema)
            for start in range(0, rows.num_rows, self.context.rows_max):
                out.emit(rows.slice(start, self.context.rows_max))

    def take_state(self) -> dict[str, State]:
        """The fold's state."""
        return {"fold": self.fold.take_state()}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self.fold.put_state(state["fold"])

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Continue with the keys that are ours."""
        self.fold.put_states([state["fold"] for state in states if state], owns)
