"""DataStream: rows of one schema on their way, and the operators that can read them.

A stream is a value: every method gives a new one and leaves this one as it was, so a stream can be read many times.
What it knows besides its schema: whether it ends, which column is its event time, which columns identify a row (after a
keyed aggregate) and whether it holds the results of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn, Self

import pyarrow as pa

from penstock.errors import InvalidInput, NoSuchOperator
from penstock.flow.checks import choose_emit, require_count, usage
from penstock.flow.columns import Renames, Unites
from penstock.flow.folds import ranking_words
from penstock.flow.io import Sink
from penstock.flow.schema import require_columns, to_ddl
from penstock.flow.transforms import Transforms
from penstock.flow.unknown import KEYED, is_field_or_private, no_operator, public_names, without_keys
from penstock.model.kinds import require_kind
from penstock.run.contract import ERRORS, LATE, LATE_RIGHT, MAIN, Build
from penstock.run.dataflow import AttachedSink, ColumnUse, Grouping, Input, StateFacts
from penstock.run.operators.keyed.top import Ranking, TopAll, TopWindows
from penstock.run.operators.late import SIDE
from penstock.run.operators.rename import Rename
from penstock.run.operators.times import Duration, Window, parse_duration_us
from penstock.run.operators.union import Union
from penstock.run.region.blocking_rate import Charged
from penstock.run.region.contract import Policy

if TYPE_CHECKING:
    from penstock.flow.keyed import KeyedStream
    from penstock.flow.region import RegionStream
    from penstock.flow.topology import Topology

Emit = Literal["end", "changes", "each"]
TOP_MAX = 1_000_000


@dataclass(frozen=True, eq=False, repr=False)
class DataStream(Transforms):
    """One output of one operator."""

    topology: Topology
    operator: str
    schema: pa.Schema
    output: str = MAIN
    bounded: bool = True
    time_column: str | None = None
    keys: tuple[str, ...] = ()  # columns that identify a row, after keyed operators
    windowed: bool = False  # rows are results of windows, as old as their window_start
    grouping: Grouping | None = None  # how the next operator reads; None: its own default
    edition: int | None = None  # of the operator, which may be defined again under its name

    def __post_init__(self) -> None:
        if self.edition is None:
            object.__setattr__(self, "edition", self.topology.edition(self.operator))

    def __repr__(self) -> str:
        output = "" if self.output == MAIN else f".{self.output}"
        return f"DataStream({self.operator}{output}: {to_ddl(self.schema)})"

    if not TYPE_CHECKING:  # else a type checker would let every misspelt name pass

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(name) if is_field_or_private(type(self), name) else self._unknown(name)

    def _unknown(self, name: str) -> NoSuchOperator:
        """What to say about a name that this stream does not have."""
        if name in KEYED:
            return without_keys(self.operator, name)
        return no_operator(f"stream {self.operator!r}", name, public_names(type(self)))

    def regrouped(self, grouping: Grouping) -> DataStream:
        """This stream, read another way."""
        return replace(self, grouping=grouping)

    # -- several streams -----------------------------------------------------------------------------------------------

    def union(
        self,
        *others: DataStream,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """This stream and others of the same schema as one."""
        for other in others:
            self._require_same_topology(other)
            if not other.schema.equals(self.schema):
                msg = (
                    f"union of {self.operator!r} ({to_ddl(self.schema)}) and {other.operator!r} "
                    f"({to_ddl(other.schema)}): schemas must be equal"
                )
                raise InvalidInput(msg)
        alike = all(
            (other.time_column, other.keys, other.windowed) == (self.time_column, self.keys, self.windowed)
            for other in others
        )
        made = self.then(
            "union",
            Union,
            {MAIN: self.schema},
            name=name,
            tasks=tasks,
            also=[(other, other.read()) for other in others],
            columns=Unites(self.schema),
        )
        made = made.declared(load, memory_mb)
        return replace(made, keys=self.keys) if alike else replace(made, time_column=None, windowed=False)

    def parallel(
        self,
        replicas: int,
        *,
        at_most: int | None = None,
        ordered: bool = True,
        balance: str | Callable[[], Policy] | None = None,
        blocking: Charged = "laggard",
        weights: Sequence[float] | None = None,
        sample_s: float = 1.0,
        slice_rows: int | None = None,
        name: str | None = None,
    ) -> RegionStream:
        """Begin a parallel region: what follows runs in `replicas` copies, until `merge()` restores the rows' order.

        The shares of the replicas follow their speed, by the policy `balance`, from how long sends to them block; or
        they stay at `weights`, which add up to 1. `knee`, the default, is our own and counts rows worked off as well;
        `adaptive` and `static` are the paper's. In an ordered region a wait counts for the replica that the merger
        waits for; with `blocking="connection"`, as in the paper, for the connection that takes nothing more. A policy
        looks every `sample_s` seconds. Slices have `slice_rows` rows
        for the replica with the largest share; without it, as many as a replica works off in 20 ms. With `at_most`,
        replicas up to it can join while the job runs, and leave again (`Job.scale`); each needs a slot from the
        start.
        """
        from penstock.flow.region import parallel

        return parallel(
            self,
            replicas,
            at_most=at_most,
            ordered=ordered,
            balance=balance,
            blocking=blocking,
            weights=weights,
            sample_s=sample_s,
            slice_rows=slice_rows,
            name=name,
        )

    # -- time and keys -----------------------------------------------------------------------------------------------

    def event_time(self, column: str, lateness: Duration | None = None) -> DataStream:
        """This stream with event time: rows may be up to `lateness` behind the newest of the same source task.

        Files and DataFrames know what is still to come: right behind such a source no row is late, whatever its order.
        Elsewhere rows further behind are late once one of their windows closed. Without `lateness` it is 0 at a source
        and on endless streams; behind other operators of streams that end, windows wait for the end instead.
        """
        who = f"event_time of {self.operator!r}"
        require_columns(self.schema, (column,), who)
        kind = self.schema.field(column).type
        if not pa.types.is_timestamp(kind):
            msg = (
                f"{who} needs a timestamp but column {column!r} is {kind}; make one with map(..., '{column} timestamp')"
            )
            raise InvalidInput(msg)
        if self.output != MAIN:
            msg = f"{who} reads its side output {self.output!r}, which has no watermarks; put a map or select between"
            raise InvalidInput(msg)
        lateness_us = None if lateness is None else parse_duration_us(lateness, f"lateness in {who}")
        self.topology.add_event_time(self.operator, column, lateness_us)
        return replace(self, time_column=column, windowed=False)

    def rename(
        self,
        names: Mapping[str, str],
        *,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """Columns under new names, as `withColumnsRenamed`: {old: new}; event time and keys go with their columns."""
        who = f"rename of {self.operator!r}"
        require_kind(names, Mapping, who, "{old name: new name, ...}")
        require_columns(self.schema, tuple(names), who)
        new = [names.get(column, column) for column in self.schema.names]
        if odd := [column for column in new if not isinstance(column, str) or not column or new.count(column) > 1]:
            msg = f"{who} makes a column {odd[0]!r}; names are text, not empty, and no two columns share one"
            raise InvalidInput(msg)
        fields = [field.with_name(column) for field, column in zip(self.schema, new, strict=True)]
        schema = pa.schema(fields)
        keys = tuple(names.get(key, key) for key in self.keys)
        build = partial(Rename, schema)
        use = Renames(dict(names))
        made = self.then("rename", build, {MAIN: schema}, name=name, tasks=tasks, keys=keys, columns=use)
        time_column = None if self.time_column is None else names.get(self.time_column, self.time_column)
        return replace(made.declared(load, memory_mb), time_column=time_column, windowed=self.windowed)

    def key_by(self, *columns: str) -> KeyedStream:
        """Rows with equal values in these columns belong together from here on."""
        from penstock.flow.keyed import KeyedStream

        return KeyedStream(self, self._columns("key_by", columns))

    def count(
        self,
        *,
        window: Window | None = None,
        emit: Emit | None = None,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """Rows in all, or of each window, in a column `count`; one task sees them all."""
        keyed = self._all_rows()
        return keyed.count(window=window, emit=emit, name=name, tasks=tasks, load=load, memory_mb=memory_mb)

    def aggregate(
        self,
        *unnamed: object,
        window: Window | None = None,
        emit: Emit | None = None,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
        **columns: str,
    ) -> DataStream:
        """Aggregates over all rows, or of each window: see `KeyedStream.aggregate`; one task sees them all."""
        return self._all_rows().aggregate(
            *unnamed, window=window, emit=emit, name=name, tasks=tasks, load=load, memory_mb=memory_mb, **columns
        )

    def _all_rows(self) -> KeyedStream:
        from penstock.flow.keyed import KeyedStream

        return KeyedStream(self, ())

    @usage("join(other, on='user', window=ps.tumbling('1 hour'))")
    def join(
        self,
        other: DataStream,
        on: str | Sequence[str],
        *,
        window: Window,
        how: str = "inner",
        on_late: str = SIDE,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """Rows of two streams with equal values in `on` within the same event-time window."""
        columns = (on,) if isinstance(on, str) else tuple(on)
        keyed, others = self.key_by(*columns), other.key_by(*columns)
        return keyed.join(
            others, window=window, how=how, on_late=on_late, name=name, tasks=tasks, load=load, memory_mb=memory_mb
        )

    def top(
        self,
        count: int,
        by: str = "count",
        *,
        ascending: bool = False,
        emit: Emit | None = None,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """The best rows by one column, of each window on a windowed stream and overall elsewhere; ties fall by key."""
        who = f"top of {self.operator!r}"
        require_rankable(self.schema, count, by, who)
        window_column = self.time_column if self.windowed else None
        ranking = Ranking(self.schema, count, by, not ascending, self.keys, window_column)
        outputs = {MAIN: self.schema}
        if window_column is None:
            chosen = choose_emit(emit, self.bounded, who, ("end", "changes"))
            build: Build = partial(TopAll, ranking, chosen)
        else:
            choose_emit(emit, True, who, ("end",))
            build = partial(TopWindows, ranking)
            outputs[LATE] = self.schema
        # Tasks that each rank a share must see all rows of a key; without keys any share will do.
        grouping = Grouping("fields", self.keys) if self.keys else Grouping("shuffle")
        default = Grouping("global") if tasks == 1 else grouping
        state = StateFacts((self.keys,), others=ranking_words(count, by, ascending, window_column))
        made = self.then("top", build, outputs, name=name, tasks=tasks, keys=self.keys, state=state, grouping=default)
        return made.declared(load, memory_mb)

    # -- ends and side outputs ---------------------------------------------------------------------------------------

    @usage("sink('out', ps.io.collect())")
    def sink(
        self,
        name: str,
        sink: Sink,
        tasks: int | None = None,
        *,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> None:
        """Send the rows out; see `ps.io` for where to.

        Without `tasks` the sink is part of every task that produces the rows, and plans, metrics and profiles know
        those tasks alone. With `tasks`, or after a grouping such as `.global_()`, it has tasks of its own, of which
        each takes `load` cores and `memory_mb` until a profile has measured that.
        """
        require_kind(sink, Sink, f"sink {name!r}", "ps.io.collect(), parquet(path), callback(f) or discard()")
        build = partial(sink.make, self.schema)
        self.require_current()
        if tasks is None and self.grouping is None:
            if load is not None or memory_mb is not None:
                msg = (
                    f"sink {name!r} has no tasks of its own, so that it takes nothing either; give it tasks=, or "
                    f"declare what {self.operator!r} takes"
                )
                raise InvalidInput(msg)
            self.topology.attach(self.operator, AttachedSink(name, sink.kind, build, self.output, sink.facts))
        else:
            tasks = 1 if tasks is None else tasks
            inputs = [self.read()]
            self.topology.add(sink.kind, build, name=name, tasks=tasks, inputs=inputs, role="sink", sink=sink.facts)
            self.topology.declare_new(name, load, memory_mb)

    @property
    def late(self) -> DataStream:
        """Rows that came after a window of theirs had closed, or had no time, as they came in.

        Of windows that slide, those that were still open have counted them.
        """
        return self.side(LATE, "only event-time windows, joins and process on event time have late rows")

    @property
    def late_right(self) -> DataStream:
        """Late rows of the second stream of a join."""
        return self.side(LATE_RIGHT, "only joins have late rows of a second stream")

    @property
    def errors(self) -> DataStream:
        """Rows whose function raised, with the error as text."""
        return self.side(ERRORS, "give on_error='quarantine' to its map, flat_map or filter")

    def side(self, output: str, hint: str) -> DataStream:
        """Another output of the operator that made this stream."""
        outputs = self.topology.operator(self.operator).outputs
        if output not in outputs:
            msg = f"{self.operator!r} has no output {output!r}; {hint}"
            raise InvalidInput(msg)
        return DataStream(self.topology, self.operator, outputs[output], output, self.bounded)

    def declared(self, load: float | None = None, memory_mb: float | None = None) -> Self:
        """This stream, of whose operator each task is said to take `load` cores and `memory_mb` of memory.

        Every method that makes an operator takes both, for plans that are made before a profile has measured them.
        """
        self.topology.declare_new(self.operator, load, memory_mb)
        return self

    # -- for other streams -------------------------------------------------------------------------------------------

    def read(self, default: Grouping | None = None) -> Input:
        """An operator's input from this stream."""
        self.require_current()
        return Input(self.operator, self.output, self.grouping or default or Grouping())

    def require_current(self) -> None:
        """Refuse a stream of an operator that has been defined again since: its rows would be another's."""
        if self.topology.edition(self.operator) != self.edition:
            msg = (
                f"this stream is of {self.operator!r} as it was before it was defined again; go on from the stream "
                "that its new definition returned, or give one of the two another name"
            )
            raise InvalidInput(msg)

    def then(
        self,
        kind: str,
        build: Build,
        outputs: dict[str, pa.Schema],
        *,
        name: str | None,
        tasks: int,
        keys: tuple[str, ...] = (),
        state: StateFacts | None = None,
        grouping: Grouping | None = None,
        also: Sequence[tuple[DataStream, Input]] = (),
        columns: ColumnUse | None = None,
    ) -> DataStream:
        """The main output of a new operator that reads this stream, and others also."""
        inputs = [self.read(grouping), *(given for _, given in also)]
        spec = self.topology.add(
            kind, build, name=name, tasks=tasks, inputs=inputs, outputs=outputs, state=state, columns=columns
        )
        bounded = self.bounded and all(stream.bounded for stream, _ in also)
        time_column = self._kept_time(outputs[MAIN])
        windowed = self.windowed and time_column is not None
        return DataStream(self.topology, spec.name, outputs[MAIN], MAIN, bounded, time_column, keys, windowed)

    def _kept_time(self, schema: pa.Schema) -> str | None:
        """Event time goes on where the column does."""
        column = self.time_column
        if column is None or column not in schema.names:
            return None
        return column if schema.field(column).type == self.schema.field(column).type else None

    def _require_same_topology(self, other: object) -> None:
        if not isinstance(other, DataStream) or other.topology is not self.topology:
            msg = f"{self.operator!r} and {other!r} are not streams of the same topology"
            raise InvalidInput(msg)


def require_rankable(schema: pa.Schema, count: object, by: str, who: str) -> None:
    """Refuse a ranking by a column that is not there or has no order."""
    require_columns(schema, (by,), who)
    require_count(count, 1, TOP_MAX, f"number of rows of {who}")
    if pa.types.is_nested(schema.field(by).type):
        msg = f"{who} ranks by {by!r}, but {schema.field(by).type} has no order"
        raise InvalidInput(msg)
