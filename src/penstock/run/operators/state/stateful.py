"""What users subclass for an operator with keyed state and timers; `process.py` runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock._core import Timers
from penstock.run.columns.kernels import Row
from penstock.run.contract import TaskContext
from penstock.run.operators.state.keyed_state import KeyState

Emit = Callable[[object], None]


class Stateful(ABC):
    """Subclass this, give `schema` and `on_row`, and override what else is needed.

        class Visits(ps.Stateful):
            schema = "user string, visits bigint"           # of what is emitted

            def open(self, context):                        # once in each task, before the first row
                self.gap = timedelta(minutes=30)

            def on_row(self, key, row, state, timers, emit):
                state["visits"] = state.get("visits", 0) + 1
                timers.clear()                              # of this key
                timers.at(row.ts + self.gap)                # event time; timers.after("5 seconds") by the clock

            def on_timer(self, key, time, state, timers, emit):
                emit((key, state.pop("visits")))            # a key without state and timers is forgotten

            def on_end(self, key, state, emit):             # the input has ended: for every key that has state
                emit((key, state["visits"]))

            def close(self):                                # once, also after an error
                ...

    A key is the value of its column, or a tuple where there are several. `state` is a dict with text names; see
    `KeyState` for what it takes. A row is emitted as a tuple or dict, or a bare value where there is one column.

    Event-time timers need `event_time` before `key_by`. One at t fires when the watermark is later than t, after every
    row of time t that is not late, and all of them fire when the stream ends. Timers of the worker's clock
    (`at_processing`, `after`) fire when their time comes, and not after the end, where `on_end` has the last word.
    There is one timer for each key and time: setting it again changes nothing.

    Rows of a key come in the order in which they arrive: where several source tasks feed the operator, that is not the
    order of the input, and differs from run to run. `process(..., ordered=True)` hands them on in order of event time.
    """

    schema: str | pa.Schema = ""

    def open(self, context: TaskContext) -> None:  # noqa: B027 - nothing to do is a fine default
        """Called once in the worker before the first row."""

    @abstractmethod
    def on_row(self, key: Any, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:  # noqa: ANN401 - a key is any value
        """A row of this key has come."""

    def on_timer(self, key: Any, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:  # noqa: ANN401, B027
        """A timer of this key has fired."""

    def on_end(self, key: Any, state: KeyState, emit: Emit) -> None:  # noqa: ANN401, B027
        """The input has ended; called for every key that has state."""

    def close(self) -> None:  # noqa: B027 - nothing to do is a fine default
        """Called once at the end, also after an error."""
