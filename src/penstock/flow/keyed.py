"""KeyedStream: the operators over rows with equal keys.

Aggregates are written as in Spark SQL: `aggregate(trips="count(*)", total="sum(fare)")`. Results have the bounds of
the window first (`window_start`, `window_end`), where there is one, then keys, then aggregates in the order given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn

import pyarrow as pa

from penstock.errors import InvalidInput, NoSuchOperator
from penstock.flow.aggregates import aggregate_fold, columns_read
from penstock.flow.checks import choose_emit, require_callable, require_choice, usage
from penstock.flow.columns import Passes
from penstock.flow.folds import FoldPlan, JoinPlan, MakeFold, ranking_words
from penstock.flow.schema import parse_schema, to_ddl
from penstock.flow.stream import DataStream, Emit, require_rankable
from penstock.flow.unknown import is_field_or_private, no_operator, public_names
from penstock.flow.windows import window_words
from penstock.model.kinds import require_kind
from penstock.run.contract import LATE, MAIN, Build
from penstock.run.dataflow import ColumnUse, Grouping, Input, StateFacts
from penstock.run.operators.keyed.join import HOW, Side
from penstock.run.operators.keyed.top import TopWindows
from penstock.run.operators.keyed.top_per_key import KeyedRanking, TopFold
from penstock.run.operators.keyed.unwindowed import EMITS, ReduceFold, ReduceFunction
from penstock.run.operators.keyed.windowed import WINDOW_START
from penstock.run.operators.late import ON_LATE, SIDE
from penstock.run.operators.state.event_rows import ON_LATE_ROWS, RowTime
from penstock.run.operators.state.process import Process, Stateful
from penstock.run.operators.times import Window


@dataclass(frozen=True, eq=False)
class KeyedStream:
    """A stream and the columns that key it."""

    stream: DataStream
    keys: tuple[str, ...]
    kind: str = "fields"

    if not TYPE_CHECKING:  # with __getattr__ a type checker would accept every misspelt name

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(name) if is_field_or_private(type(self), name) else self._unknown(name)

    def _unknown(self, name: str) -> NoSuchOperator:
        known = public_names(KeyedStream)
        who = f"stream {self.stream.operator!r} keyed by {', '.join(map(repr, self.keys))}"
        if name in public_names(DataStream):
            hint = f"known: {', '.join(known)}; call {name} before key_by or on their result"
            return NoSuchOperator(f"{who} has no operator {name!r}; {hint}")
        return no_operator(who, name, known)

    def partial_key(self) -> KeyedStream:
        """Two tasks for each key; each batch goes to the less loaded one. A second step must merge their results."""
        return replace(self, kind="partial-key")

    def count(
        self,
        *,
        window: Window | None = None,
        emit: Emit | None = None,
        on_late: str = SIDE,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """Rows per key, in a column `count`."""
        made = self._aggregated("count", {"count": "count(*)"}, window, emit, on_late, name, tasks)
        return made.declared(load, memory_mb)

    def aggregate(
        self,
        *unnamed: object,
        window: Window | None = None,
        emit: Emit | None = None,
        on_late: str = SIDE,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
        **columns: str,
    ) -> DataStream:
        """Aggregates per key, in Spark SQL: `total="sum(price * 2)", bidders="count(distinct bidder)"`.

        Functions are count, count_if, sum, avg, min, max, first, last, min_by(value, order) and max_by; their arguments
        are columns or expressions, and `filter (where ...)` after any of them says which rows count. Of rows that are
        equal in their order, min_by and max_by take the last. Rows behind the watermark of a window go to `.late`, or
        end the job with `on_late="error"`.
        """
        who = f"aggregate of {self.stream.operator!r}"
        if unnamed:
            msg = f"{who} got {unnamed[0]!r} without a name; write total={unnamed[0]!r}"
            raise InvalidInput(msg)
        if texts := [what for what, given in (("load", load), ("memory_mb", memory_mb)) if isinstance(given, str)]:
            msg = (
                f"{who}: {texts[0]}= says what each task takes, as a number; call the column otherwise, and rename it "
                "afterwards"
            )
            raise InvalidInput(msg)
        if not columns:
            msg = f"{who} computes nothing; write for example total='sum(fare)'"
            raise InvalidInput(msg)
        made = self._aggregated("aggregate", columns, window, emit, on_late, name, tasks)
        return made.declared(load, memory_mb)

    def reduce(
        self,
        function: ReduceFunction,
        *,
        window: Window | None = None,
        emit: Emit | None = None,
        on_late: str = SIDE,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """One row per key: `function(so_far, row)` gives a row of the same schema with the same keys."""
        require_callable(function, f"reduce of {self.stream.operator!r}", "a function of two rows")
        fold = partial(_reduce_fold, self.keys, function)
        made = self._folded("reduce", fold, None, {}, window, emit, on_late, name, tasks)
        return made.declared(load, memory_mb)

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
        """The best rows of each task's share of the keys; the newest row of a key counts. A second `top` merges."""
        keyed = replace(self.stream, keys=self.keys, grouping=self._grouping())
        return keyed.top(
            count, by, ascending=ascending, emit=emit, name=name, tasks=tasks, load=load, memory_mb=memory_mb
        )

    def top_per_key(
        self,
        count: int,
        by: str,
        *,
        ascending: bool = False,
        window: Window | None = None,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """The best rows of each key: of each window, where there are windows, else of the whole stream at its end.

        >>> import penstock as ps
        >>> rows = ps.Topology("t").source("rows", ps.io.generator(lambda i, n: [], "category string, price bigint"))
        >>> rows.key_by("category").top_per_key(3, by="price").schema.names
        ['category', 'price']

        As in `top`, rows with equal values are ranked by their other columns, so the answer does not depend on the
        order in which they came; nulls are last.
        """
        who = f"top_per_key of {self.stream.operator!r}"
        require_rankable(self.stream.schema, count, by, who)
        fold = partial(TopFold, keys=self.keys, count=count, by=by, descending=not ascending)
        if self.stream.windowed and window is None:
            ranked = ranking_words(count, by, ascending, self.stream.time_column)
            return self._top_of_windows(fold(self.stream.schema).ranking, ranked, name, tasks).declared(load, memory_mb)
        if window is None and not self.stream.bounded:
            msg = f"{who} never ends, because its source does not; give window=ps.tumbling(size)"
            raise InvalidInput(msg)
        ranked = ranking_words(count, by, ascending)
        made = self._folded("top_per_key", fold, None, ranked, window, None, SIDE, name, tasks, keep_keys=False)
        return made.declared(load, memory_mb)

    def _top_of_windows(self, ranking: KeyedRanking, words: dict[str, str], name: str | None, tasks: int) -> DataStream:
        """Of rows that are results of windows: a ranking for each window."""
        stream = self.stream
        build = partial(TopWindows, replace(ranking, window_column=stream.time_column))
        state = StateFacts((self.keys,), others=words)
        made = self._then("top_per_key", build, {MAIN: stream.schema, LATE: stream.schema}, name, tasks, state)
        return replace(made, time_column=stream.time_column, windowed=True)

    def process(
        self,
        operator: type[Stateful] | Callable[[], Stateful],
        *,
        on_late: Literal["side", "keep", "error"] | None = None,
        ordered: bool | None = None,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """A stateful operator: a subclass of `ps.Stateful`, or a function without arguments that makes one.

        On a stream with event time, rows behind the watermark and rows without a time are late. `on_late="side"`, the
        default, sends them to `.late` instead of `on_row`; "keep" hands them to `on_row` all the same, and "error"
        ends the job with `RowsLate`.

        With event time on a stream that ends, rows are kept until the watermark reaches their time and then handed on
        in order of time, rows of one time as they came, and timers fire between them: the answer does not depend on
        batches and workers. On an endless stream rows come as they arrive, which with several source tasks is not
        their order, and timers fire after the batch that moved time past them. `ordered=True` or False asks for either.
        """
        who = f"process of {self.stream.operator!r}"
        require_callable(operator, who, "a subclass of ps.Stateful itself, for every task makes an object of its own")
        if inspect.isabstract(operator):
            msg = f"{who}: {operator.__name__} has no on_row; define on_row(self, key, row, state, timers, emit)"
            raise InvalidInput(msg)
        sample = operator()
        require_kind(sample, Stateful, who, "a subclass of ps.Stateful, or a function that makes one")
        if not sample.schema:
            msg = f"{who}: {type(sample).__name__} has no schema; set schema = 'column type, ...' in the class"
            raise InvalidInput(msg)
        schema = parse_schema(sample.schema)
        time = self._stateful_time(who, on_late, ordered)
        late = {LATE: self.stream.schema} if time is not None and time.on_late == "side" else {}
        build = partial(Process, operator, self.keys, schema, time)
        order = f"by column {time.column!r}" if time is not None and time.ordered else "as rows come"
        state = StateFacts((self.keys,), None if time is not None and time.ordered else (), {"order": order})
        made = self._then("process", build, {MAIN: schema, **late}, name, tasks, state)
        # A user's operator may emit rows of any time at any moment, so the input's event time does not carry over.
        return replace(made.declared(load, memory_mb), time_column=None, windowed=False)

    @usage("join(other.key_by('user'), window=ps.tumbling('1 hour'))")
    def join(
        self,
        other: KeyedStream,
        *,
        window: Window,
        how: str = "inner",
        on_late: str = SIDE,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """Rows of both streams with equal keys within the same event-time window; how: inner, left, right or full."""
        require_kind(other, KeyedStream, f"join of {self.stream.operator!r}", "a keyed stream: other.key_by(...)")
        who = f"join of {self.stream.operator!r} and {other.stream.operator!r}"
        if other.stream.topology is not self.stream.topology:
            msg = f"{who}: they are not streams of the same topology"
            raise InvalidInput(msg)
        require_choice(how, tuple(HOW), f"how of {who}")
        require_choice(on_late, ON_LATE, f"on_late of {who}")
        require_kind(window, Window, who, "window=ps.tumbling(size) or ps.sliding(size, slide)")
        if window.time == "processing":
            msg = f"{who} needs an event-time window; processing time would join whatever happens to arrive together"
            raise InvalidInput(msg)
        types = [[side.stream.schema.field(key).type for key in side.keys] for side in (self, other)]
        if types[0] != types[1]:
            msg = f"{who}: keys are {_typed(self)} and {_typed(other)}; they must have the same types in the same order"
            raise InvalidInput(msg)
        left, right = (Side(s.stream.schema, s.keys, s.event_column(who)) for s in (self, other))
        plan = JoinPlan(left, right, window, how, who, on_late)
        build, outputs = plan.over(left.schema, right.schema)
        also = [(other.stream, replace(other.stream, grouping=None).read(other._grouping()))]
        words = {**window_words(window, left.time_column), "time of the right side": repr(right.time_column)}
        state = StateFacts((self.keys, other.keys), others=words)
        made = self._then("join", build, outputs, name, tasks, state, also, plan)
        return replace(made.declared(load, memory_mb), time_column=WINDOW_START, windowed=True)

    def event_column(self, who: str) -> str:
        """The event-time column of the stream, which must have one."""
        if self.stream.time_column is None:
            operator = self.stream.operator
            missing = f"{operator!r} has no event time; call .event_time(column, lateness=...) before"
            if (column := self.stream.topology.event_time_of(operator)) is not None:
                missing = f"this is {operator!r} without event time; go on with what event_time({column!r}) returned"
            msg = f"{who}: {missing}"
            raise InvalidInput(msg)
        return self.stream.time_column

    # -- inside ------------------------------------------------------------------------------------------------------

    def _stateful_time(self, who: str, on_late: str | None, ordered: bool | None) -> RowTime | None:
        """What a stateful operator does with event time; None where its input has none."""
        require_choice(SIDE if on_late is None else on_late, ON_LATE_ROWS, f"on_late of {who}")
        if self.stream.time_column is None and on_late is None and not ordered:
            return None
        asked = f"ordered={ordered}" if ordered else f"on_late={on_late!r}"
        column = self.stream.time_column or self.event_column(f"{who} with {asked}")
        zoned = self.stream.schema.field(column).type.tz is not None
        if ordered is None:  # late rows that are kept have no place in an order
            ordered = self.stream.bounded and on_late != "keep"
        return RowTime(column, zoned, on_late or SIDE, ordered)

    def _aggregated(
        self,
        kind: str,
        columns: dict[str, str],
        window: Window | None,
        emit: Emit | None,
        on_late: str,
        name: str | None,
        tasks: int,
    ) -> DataStream:
        if not self.keys and tasks != 1:
            msg = f"{kind} of {self.stream.operator!r} has no keys: one task sees all rows; leave tasks={tasks!r} out"
            raise InvalidInput(msg)
        fold = partial(aggregate_fold, keys=self.keys, columns=columns)
        reads = columns_read(self.stream.schema, self.keys, columns)
        texts = ", ".join(f"{column}={' '.join(text.split())}" for column, text in columns.items())
        return self._folded(kind, fold, reads, {"aggregates": texts}, window, emit, on_late, name, tasks)

    def _folded(
        self,
        kind: str,
        fold: MakeFold,
        reads: tuple[str, ...] | None,
        words: dict[str, str],
        window: Window | None,
        emit: Emit | None,
        on_late: str,
        name: str | None,
        tasks: int,
        *,
        keep_keys: bool = True,
    ) -> DataStream:
        who = f"{kind} of {self.stream.operator!r}"
        require_choice(on_late, ON_LATE, f"on_late of {who}")
        if window is None:
            emits = EMITS if keep_keys else ("end",)
            plan = FoldPlan(fold, who, choose_emit(emit, self.stream.bounded, who, emits), whole=not self.keys)
        else:
            require_kind(window, Window, who, "window=ps.tumbling(size) or ps.sliding(size, slide)")
            choose_emit(emit, True, f"{who} in windows", ("end",))
            on_event_time = self._on_event_time(window, who)
            column = self.event_column(f"{who} in event-time windows") if on_event_time else None
            plan = FoldPlan(fold, who, window=window, time_column=column, on_late=on_late)
        own = None if reads is None else (*reads, *([] if plan.time_column is None else [plan.time_column]))
        use = None if own is None else Passes(own, (LATE,), plan)
        by_clock = window is not None and plan.time_column is None  # rows wait for their window
        facts = {**words, **window_words(window, plan.time_column)}
        state = StateFacts((self.keys,), None if own is None or by_clock else own, facts)
        made = self._then(kind, *plan(self.stream.schema), name, tasks, state, columns=use)
        keys = self.keys if keep_keys else ()
        if window is None:
            return replace(made, keys=keys, time_column=None)
        return replace(made, keys=keys, time_column=WINDOW_START, windowed=True)

    def _on_event_time(self, window: Window, who: str) -> bool:
        """Whether a window goes by event time; input that ends goes by the run's clock only if that is asked for."""
        if window.time is not None or self.stream.time_column is not None or not self.stream.bounded:
            return window.time == "event" or (window.time is None and self.stream.time_column is not None)
        msg = (
            f"{who} has a window, but {self.stream.operator!r} has no event time, and its rows end, so the clock of "
            "the run says nothing about them; call .event_time(column) before, or give the window time='processing' if "
            "the clock is meant"
        )
        raise InvalidInput(msg)

    def _then(
        self,
        kind: str,
        build: Build,
        outputs: dict[str, pa.Schema],
        name: str | None,
        tasks: int,
        state: StateFacts,
        also: Sequence[tuple[DataStream, Input]] = (),
        columns: ColumnUse | None = None,
    ) -> DataStream:
        return replace(self.stream, grouping=None).then(
            kind,
            build,
            outputs,
            name=name,
            tasks=tasks,
            state=state,
            grouping=self._grouping(),
            also=also,
            columns=columns,
        )

    def _grouping(self) -> Grouping:
        return Grouping(self.kind, self.keys) if self.keys else Grouping("global")


def _reduce_fold(keys: tuple[str, ...], function: ReduceFunction, schema: pa.Schema) -> ReduceFold:
    return ReduceFold(schema, keys, function)


def _typed(keyed: KeyedStream) -> str:
    return to_ddl(pa.schema([keyed.stream.schema.field(key) for key in keyed.keys]))
