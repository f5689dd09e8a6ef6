"""Which columns an operator reads, given what is wanted of its output, and how it is built over fewer.

Each class is one way in which operators deal with columns. An operator without one (a user's function, a ranking, whose
ties fall by whole rows) reads every column. `pruning` puts the classes together for a whole topology.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from penstock.run.columns.expressions.compiled import Compiled
from penstock.run.contract import MAIN, Build
from penstock.run.dataflow import Needed, Outputs
from penstock.run.operators.batches import Split
from penstock.run.operators.expressions import Project
from penstock.run.operators.rename import Rename
from penstock.run.operators.union import Union

Made = tuple[Build, Outputs]


def smallest(schema: pa.Schema) -> str:
    """The column that is cheapest to carry, for readers that need only the number of rows: a batch needs a column."""
    return str(min(schema, key=_width).name)


def _width(field: pa.Field) -> int:
    try:
        return int(field.type.bit_width)
    except ValueError:
        return 1 << 20  # no fixed width


def chosen(schema: pa.Schema, wanted: frozenset[str]) -> pa.Schema:
    """The wanted columns in the schema's order, at least one."""
    names = [name for name in schema.names if name in wanted] or [smallest(schema)]
    return pa.schema([schema.field(name) for name in names])


@dataclass(frozen=True, slots=True)
class Passes:
    """Hands on some outputs as they came in, and reads columns of its own: where, and late rows of windows."""

    own: tuple[str, ...]
    passed: tuple[str, ...]  # outputs whose rows are rows of the input
    make: Callable[[pa.Schema], Made]  # the operator over an input of this schema

    def reads(self, needed: Needed, inputs: Sequence[pa.Schema]) -> tuple[frozenset[str], ...]:
        """The operator's own columns, and the wanted columns of the rows that it hands on."""
        return (frozenset(self.own).union(*(needed.get(output, frozenset()) for output in self.passed)),)

    def narrowed(self, needed: Needed, inputs: Sequence[pa.Schema]) -> Made:
        """Over fewer columns."""
        return self.make(inputs[0])


@dataclass(frozen=True, slots=True)
class Projects:
    """Makes every column by itself: select, with_column, drop."""

    parts: Mapping[str, str | Compiled]  # by name
    schema: pa.Schema

    def _kept(self, needed: Needed) -> pa.Schema:
        return chosen(self.schema, needed.get(MAIN, frozenset()))

    def reads(self, needed: Needed, inputs: Sequence[pa.Schema]) -> tuple[frozenset[str], ...]:
        """What the wanted columns are made of."""
        parts = [self.parts[name] for name in self._kept(needed).names]
        return (frozenset[str]().union(*((p,) if isinstance(p, str) else p.columns() for p in parts)),)

    def narrowed(self, needed: Needed, inputs: Sequence[pa.Schema]) -> Made:
        """Only the wanted columns."""
        schema = self._kept(needed)
        return partial(Project, tuple(self.parts[name] for name in schema.names), schema), {MAIN: schema}


@dataclass(frozen=True, slots=True)
class Renames:
    """The same columns under other names."""

    names: Mapping[str, str]  # old: new

    def reads(self, needed: Needed, inputs: Sequence[pa.Schema]) -> tuple[frozenset[str], ...]:
        """Wanted columns under their old names."""
        old = {self.names.get(name, name): name for name in inputs[0].names}
        return (frozenset(old[name] for name in needed.get(MAIN, ())),)

    def narrowed(self, needed: Needed, inputs: Sequence[pa.Schema]) -> Made:
        """All columns that there are."""
        schema = pa.schema([field.with_name(self.names.get(field.name, field.name)) for field in inputs[0]])
        return partial(Rename, schema), {MAIN: schema}


@dataclass(frozen=True, slots=True)
class Splits:
    """Pieces of a text column, beside columns that are kept."""

    column: str
    into: str
    separator: str
    keep: tuple[str, ...]

    def _kept(self, needed: Needed) -> tuple[str, ...]:
        return tuple(name for name in self.keep if name in needed.get(MAIN, frozenset()))

    def reads(self, needed: Needed, inputs: Sequence[pa.Schema]) -> tuple[frozenset[str], ...]:
        """The text column and the kept columns that are wanted."""
        return (frozenset((self.column, *self._kept(needed))),)

    def narrowed(self, needed: Needed, inputs: Sequence[pa.Schema]) -> Made:
        """Keep less."""
        keep = self._kept(needed)
        schema = inputs[0]
        fields = [pa.field(self.into, schema.field(self.column).type, nullable=False), *map(schema.field, keep)]
        return partial(Split, self.column, self.into, self.separator, keep), {MAIN: pa.schema(fields)}


@dataclass(frozen=True, slots=True)
class Unites:
    """Several streams of one schema; each hands on just the wanted columns, so that their schemas stay equal."""

    schema: pa.Schema

    def reads(self, needed: Needed, inputs: Sequence[pa.Schema]) -> tuple[frozenset[str], ...]:
        """The same of every stream."""
        wanted = frozenset(chosen(self.schema, needed.get(MAIN, frozenset())).names)
        return (wanted,) * len(inputs)

    def narrowed(self, needed: Needed, inputs: Sequence[pa.Schema]) -> Made:
        """Only the wanted columns."""
        schema = chosen(self.schema, needed.get(MAIN, frozenset()))
        return partial(Union, schema.names), {MAIN: schema}


@dataclass(frozen=True, slots=True)
class Reads:
    """A source that can leave columns out."""

    schema: pa.Schema
    make: Callable[[pa.Schema], Build]

    def reads(self, needed: Needed, inputs: Sequence[pa.Schema]) -> tuple[frozenset[str], ...]:
        """A source has no inputs."""
        return ()

    def narrowed(self, needed: Needed, inputs: Sequence[pa.Schema]) -> Made:
        """Only the wanted columns."""
        schema = chosen(self.schema, needed.get(MAIN, frozenset()))
        return self.make(schema), {MAIN: schema}
