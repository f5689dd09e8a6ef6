"""The stateful operator: a user's class with keyed state and timers, run by a loop in the core.

The core keeps keys, their state and timers (`KeyedTable`) and builds columns of emitted rows (`EmittedRows`). This file
decides which rows and timers come next. Timers fire by time, then in the order of setting. An event-time timer fires
when the watermark has passed its time, not when it has reached it: rows of that time may still come until then
(`test_a_timer_waits_for_the_other_rows_of_its_time`). Figures and rejected ways:
docs/decisions/0023-keyed-python-state.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from penstock._core import Clock, KeyedTable, Timers
from penstock.errors import InvalidInput
from penstock.run.columns.kernels import EmittedRows, raise_fault
from penstock.run.columns.native_schema import layout_of
from penstock.run.columns.unwritten import ArrowRows, InSteps, State
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, LATE, Outputs, Owns, Task, TaskContext
from penstock.run.operators.convert import from_bytes, identity, own_rows, shown
from penstock.run.operators.late import rows_late
from penstock.run.operators.state.event_rows import RowTime, TimeOrdered, split_late
from penstock.run.operators.state.keyed_state import KeyState, decode, encode
from penstock.run.operators.state.saved_keys import being_written, own_keys, put_keys
from penstock.run.operators.state.stateful import Emit, Stateful
from penstock.run.operators.state.timer_moments import delay_us, moment_for, timer_us
from penstock.run.operators.times import Int64Array

__all__ = ["Emit", "KeyState", "Process", "RowTime", "Stateful", "Timers"]

TIMERS_AGAIN_MAX = 1_000_000  # a timer that sets itself again at the same time must not hang the worker


class Process(Task):
    """Runs a `Stateful`; every worker has instances of its own."""

    def __init__(
        self,
        make: Callable[[], Stateful],
        keys: tuple[str, ...],
        schema: pa.Schema,
        time: RowTime | None = None,
    ) -> None:
        self.user = make()
        self._raise_fault = partial(raise_fault, self.user.on_row)
        self.keys = keys
        self.schema = schema
        self.time = time
        self.watermark_us = BEFORE_TIME_US
        self.kept = TimeOrdered(time.column) if time is not None and time.ordered else None
        self._key_types: pa.Schema | None = None  # as rows have them; None: none has come
        self._writing: InSteps | None = None

    def open(self, context: TaskContext) -> None:
        """Open the user's object."""
        super().open(context)
        moments = partial(timer_us, context.operator, self.time)
        in_utc = self.time is not None and self.time.zoned
        # The functions given to the core must not refer to this task: Python cannot collect cycles through the core.
        self.table = KeyedTable(KeyState, identity, moments, delay_us, in_utc)
        self.timers = Timers(self.table)
        self.emitted = EmittedRows(self.schema, partial(_refuse, context.operator, self.schema, self.table))
        self.user.open(context)

    def close(self) -> None:
        """Close the user's object."""
        self.user.close()

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Hand every row that is in time to the user's `on_row`, at once or when its turn comes."""
        if self._key_types is None:
            self._key_types = pa.schema([batch.schema.field(name) for name in self.keys])
        rows: pa.RecordBatch | None = batch
        if self.time is not None:
            rows, late = split_late(batch, self.time.column, self.watermark_us)
            if late is not None and self.time.on_late == "keep":
                rows = self._with_late(batch, out)
            elif late is not None:
                self._put_aside(late, self.time, out)
        if rows is not None and self.kept is not None:
            self.kept.add(rows)
            self._release(out)
        elif rows is not None:
            self._hand_over(rows, None, out)
        self._flush(out)

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """Fire event-time timers that the watermark has passed, then pass it on."""
        self.watermark_us = max(self.watermark_us, watermark_us)
        self._release(out)
        self._fire(Clock.EVENT, watermark_us, out)
        self._flush(out)
        out.watermark(watermark_us)

    def wake_at(self) -> int | None:
        """The next processing-time timer; at once when a delay was set before the time was known."""
        return 0 if self.table.has_delays else self.table.earliest(Clock.PROCESSING)

    def wake(self, now_us: int, out: Outputs) -> None:
        """Fire processing-time timers up to now."""
        self.table.start_delays(now_us)
        self._fire(Clock.PROCESSING, now_us + 1, out)
        self.table.start_delays(now_us)
        self._flush(out)

    def finish(self, out: Outputs) -> None:
        """The last rows and event-time timers, then `on_end` for every key."""
        self.watermark_us = END_OF_TIME_US
        self._release(out)
        self._fire(Clock.EVENT, END_OF_TIME_US, out)
        for key, state in self.table.states():
            self.table.begin(state)
            try:
                self.user.on_end(key, state, self.emitted.emit)
            except Exception as error:
                error.add_note(f"in on_end of key {shown(key)}")
                raise
            self.table.settle(state)
            self._flush_full(out)
        self._flush(out)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _hand_over(self, rows: pa.RecordBatch, times: Int64Array | None, out: Outputs) -> None:
        """Hand rows to `on_row`; where their times are given, timers fire between them."""
        known = layout_of(rows.schema)
        self.table.process_rows(
            known.layout,
            rows,
            known.names,
            [rows.schema.get_field_index(name) for name in self.keys],
            times,
            self.user.on_row,
            self.timers,
            self.emitted.emit,
            self._raise_fault,
            lambda before_us: self._fire(Clock.EVENT, min(before_us, self.watermark_us), out),
        )

    def _release(self, out: Outputs) -> None:
        """Hand over the kept rows up to the watermark: no earlier row can come any more."""
        given = None if self.kept is None else self.kept.release(self.watermark_us)
        if given is not None:
            self._hand_over(*given, out)

    def _with_late(self, batch: pa.RecordBatch, out: Outputs) -> pa.RecordBatch | None:
        """The batch, late rows included; rows without a time have no place in an order and are handed on at once."""
        if self.kept is None or self.time is None:
            return batch
        timed, timeless = split_late(batch, self.time.column, BEFORE_TIME_US)
        if timeless is not None:
            self._hand_over(timeless, None, out)
        return timed

    def _put_aside(self, late: pa.RecordBatch, time: RowTime, out: Outputs) -> None:
        if time.on_late == "error":
            raise rows_late(self.context.operator, late, time.column, self.watermark_us)
        out.emit(late, LATE)

    # -- timers ------------------------------------------------------------------------------------------------------

    def _fire(self, clock: Clock, before_us: int, out: Outputs) -> None:
        """Fire every timer before a time, also those that are set meanwhile."""
        table, first_new, again = self.table, self.table.order(clock) + 1, 0
        shown_as = self.time if clock is Clock.EVENT else None
        while (due := table.pop_due(clock, before_us)) is not None:
            at_us, order, key, state = due
            again += order >= first_new
            if again > TIMERS_AGAIN_MAX:
                msg = (
                    f"more than {TIMERS_AGAIN_MAX} timers were set and due at once, the last for key {shown(key)}; "
                    f"does on_timer set a timer that is already due?"
                )
                raise RuntimeError(msg)
            moment = moment_for(at_us, shown_as)
            try:
                self.user.on_timer(key, moment, state, self.timers, self.emitted.emit)  # type: ignore[arg-type]
            except Exception as error:
                error.add_note(f"in on_timer of key {shown(key)} at {moment.isoformat()}")
                raise
            table.settle(state)
            self._flush_full(out)

    # -- what is emitted ---------------------------------------------------------------------------------------------

    def _flush_full(self, out: Outputs) -> None:
        if len(self.emitted) >= self.context.rows_max:
            self._flush(out)

    def _flush(self, out: Outputs) -> None:
        if len(self.emitted):
            whole = self.emitted.take()
            for at in range(0, whole.num_rows, self.context.rows_max):
                out.emit(whole.slice(at, self.context.rows_max))

    # -- state -------------------------------------------------------------------------------------------------------

    def take_state(self) -> dict[str, State]:
        """Keys with their values and timers, rows that wait for their turn, and the watermark."""
        while self._writing is not None and self._writing.slice():
            pass  # the table writes one state at a time
        self._writing = being_written(self.table)
        kept = [] if self.kept is None else self.kept.batches()
        types = self._key_types
        return {
            "keys": self._writing,
            "types": b"" if types is None else types.serialize().to_pybytes(),
            "delays": json.dumps([[delay, encode(key, "key")] for delay, key in self.table.delays()]).encode(),
            "kept": ArrowRows(kept, kept[0].schema) if kept else b"",
            "watermark": str(self.watermark_us).encode(),
        }

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self._put(state, None)
        self.watermark_us = int(state["watermark"])

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Continue with the keys that are ours."""
        going_on = [state for state in states if state]
        for state in going_on:
            self._put(state, owns)
        self.watermark_us = min(int(state["watermark"]) for state in going_on)

    def _put(self, state: Mapping[str, bytes], owns: Owns | None) -> None:
        types = pa.ipc.read_schema(pa.py_buffer(state["types"])) if state["types"] else None
        self._key_types = types or self._key_types
        put_keys(self.table, state["keys"], types, owns)
        delays = [(delay, decode(key)) for delay, key in json.loads(state["delays"])]
        ours = [True] * len(delays) if owns is None else own_keys([key for _, key in delays], types, owns)
        for (delay, key), is_ours in zip(delays, ours, strict=True):
            if is_ours:
                self.table.put_delay(delay, key)
        if self.kept is not None and state["kept"]:
            kept = from_bytes(state["kept"]) if owns is None else own_rows([state["kept"]], self.keys, owns)
            for batch in kept:
                self.kept.add(batch)


def _refuse(operator: str, schema: pa.Schema, table: KeyedTable, row: object, error: BaseException) -> None:
    """A row that was emitted does not fit the schema."""
    if not isinstance(error, Exception):
        raise error
    declared = ", ".join(f"{field.name} {field.type}" for field in schema)
    who = f"operator {operator!r}, key {shown(table.key)}"
    msg = f"{who}: emit({shown(row)}) does not fit its schema ({declared}): {error}"
    raise InvalidInput(msg) from error
