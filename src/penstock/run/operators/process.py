"""The stateful operator: a user's class with keyed state and timers.

    class Visits(ps.Stateful):
        schema = "user string, visits bigint"

        def on_row(self, key, row, state, timers, emit):
            state["visits"] = state.get("visits", 0) + 1
            timers.at(row["time"] + timedelta(minutes=30))

        def on_timer(self, key, time, state, timers, emit):
            emit((key, state.pop("visits")))

A key is the value of its column, or a tuple where there are several. Event-time timers fire when the watermark reaches
them, all of them when the stream ends; processing-time timers fire when their time comes and not after the end, where
`on_end` has the last word on every key. Timers fire by time, then in the order of setting.
"""

from __future__ import annotations

import heapq
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.run import kernels
from penstock.run.contract import END_OF_TIME_US, Outputs, Task, TaskContext
from penstock.run.kernels import Row
from penstock.run.operators.convert import identity, rows_to_batch
from penstock.run.operators.keyed_state import KeyState, decode, encode, read_states, write_states
from penstock.run.operators.times import Duration, moment_of, parse_duration_us, time_us

Emit = Callable[[object], None]
TIMERS_PER_STEP_MAX = 1_000_000  # a timer that sets itself again at the same time must not hang the worker


class Stateful(ABC):
    """Subclass this, give `schema` and `on_row`, and override what else is needed."""

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


class Timers:
    """The timers of one key, while its function runs."""

    def __init__(self, task: Process) -> None:
        self._task = task
        self.key: Any = None

    def at(self, time: datetime | int) -> None:
        """Fire when event time reaches this moment (a datetime, or microseconds)."""
        self._task.event_timers.set(time_us(time), self.key)

    def at_processing(self, time: datetime | int) -> None:
        """Fire when the worker's clock reaches this moment."""
        self._task.clock_timers.set(time_us(time), self.key)

    def after(self, delay: Duration) -> None:
        """Fire when so much time has passed on the worker's clock."""
        self._task.delays.append((parse_duration_us(delay, "timer delay"), self.key))

    def clear(self) -> None:
        """Forget all timers of this key."""
        self._task.event_timers.clear(self.key)
        self._task.clock_timers.clear(self.key)
        self._task.delays = [entry for entry in self._task.delays if identity(entry[1]) != identity(self.key)]


class TimerQueue:
    """Timers by time; one per key and time."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []  # time, order of setting, key
        self._live: dict[tuple[int, Any], int] = {}  # (time, key) -> order of setting
        self._order = 0

    def set(self, at_us: int, key: Any) -> None:  # noqa: ANN401 - a key is any value
        """Add one, unless it is there."""
        entry = (at_us, identity(key))
        if entry not in self._live:
            self._order += 1
            self._live[entry] = self._order
            heapq.heappush(self._heap, (at_us, self._order, key))

    def clear(self, key: Any) -> None:  # noqa: ANN401
        """Forget those of one key."""
        wanted = identity(key)
        for entry in [entry for entry in self._live if entry[1] == wanted]:
            del self._live[entry]

    def earliest(self) -> int | None:
        """The next time, if any."""
        while self._heap:
            at_us, order, key = self._heap[0]
            if self._live.get((at_us, identity(key))) == order:
                return at_us
            heapq.heappop(self._heap)
        return None

    def pop(self) -> tuple[int, Any]:
        """The next timer; there must be one."""
        at_us, _, key = heapq.heappop(self._heap)
        del self._live[at_us, identity(key)]
        return at_us, key

    def entries(self) -> list[list[Any]]:
        """All timers as JSON, in the order in which they fire."""
        return [
            [at_us, encode(key, "key")]
            for at_us, order, key in sorted(self._heap, key=lambda entry: entry[:2])
            if self._live.get((at_us, identity(key))) == order
        ]


class Process(Task):
    """Runs a `Stateful`; every worker has instances of its own."""

    def __init__(self, make: Callable[[], Stateful], keys: tuple[str, ...], schema: pa.Schema) -> None:
        self.user = make()
        self.keys = keys
        self.schema = schema
        self.states: dict[Any, tuple[Any, KeyState]] = {}
        self.event_timers = TimerQueue()
        self.clock_timers = TimerQueue()
        self.delays: list[tuple[int, Any]] = []  # waiting for the time to be known
        self.timers = Timers(self)
        self.emitted: list[object] = []

    def open(self, context: TaskContext) -> None:
        """Open the user's object."""
        super().open(context)
        self.user.open(context)

    def close(self) -> None:
        """Close the user's object."""
        self.user.close()

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Every row to the user's `on_row`."""
        positions = [batch.schema.get_field_index(name) for name in self.keys]
        alone = positions[0] if len(positions) == 1 else None
        on_row, timers, emit, states = self.user.on_row, self.timers, self.emitted.append, self.states

        def step(row: Row) -> bool:
            key = row[alone] if alone is not None else tuple([row[position] for position in positions])
            hashed = identity(key)
            known = states.get(hashed)
            state = KeyState() if known is None else known[1]
            timers.key = key
            on_row(key, row, state, timers, emit)
            # A key without state costs nothing: cleared keys must not pile up.
            if state and known is None:
                states[hashed] = (key, state)
            elif not state and known is not None:
                del states[hashed]
            return True

        # A filter that keeps everything is the core's loop over rows, and names the row in an error.
        kernels.filter_rows(step, batch)
        self._flush(out)

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """Fire event-time timers up to the watermark, then pass it on."""
        self._fire(self.event_timers, watermark_us)
        self._flush(out)
        out.watermark(watermark_us)

    def wake_at(self) -> int | None:
        """The next processing-time timer; at once when a delay waits for the time."""
        return 0 if self.delays else self.clock_timers.earliest()

    def wake(self, now_us: int, out: Outputs) -> None:
        """Fire processing-time timers up to now."""
        self._start_delays(now_us)
        self._fire(self.clock_timers, now_us)
        self._start_delays(now_us)
        self._flush(out)

    def finish(self, out: Outputs) -> None:
        """The last timers of event time, then the last word on every key."""
        self._fire(self.event_timers, END_OF_TIME_US)
        for key, state in list(self.states.values()):
            self.user.on_end(key, state, self.emitted.append)
        self._flush(out)

    def _start_delays(self, now_us: int) -> None:
        for delay_us, key in self.delays:
            self.clock_timers.set(now_us + delay_us, key)
        self.delays = []

    def _fire(self, timers: TimerQueue, until_us: int) -> None:
        for _ in range(TIMERS_PER_STEP_MAX):
            earliest = timers.earliest()
            if earliest is None or earliest > until_us:
                return
            at_us, key = timers.pop()
            hashed = identity(key)
            _, state = self.states.setdefault(hashed, (key, KeyState()))
            self.timers.key = key
            self.user.on_timer(key, moment_of(at_us), state, self.timers, self.emitted.append)
            if not state:
                del self.states[hashed]
        msg = f"more than {TIMERS_PER_STEP_MAX} timers fired at once; does on_timer set a timer that is already due?"
        raise RuntimeError(msg)

    def _flush(self, out: Outputs) -> None:
        if self.emitted:
            rows, self.emitted = self.emitted, []
            # `emit` is a bound append of the old list; the next call binds the new one.
            out.emit(rows_to_batch(rows, self.schema))

    def take_state(self) -> dict[str, bytes]:
        """State by key, and timers."""
        timers = {
            "event": self.event_timers.entries(),
            "clock": self.clock_timers.entries(),
            "delays": [[delay_us, encode(key, "key")] for delay_us, key in self.delays],
        }
        return {"states": write_states(self.states.values()), "timers": json.dumps(timers).encode()}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self.states = {identity(key): (key, kept) for key, kept in read_states(state["states"])}
        saved = json.loads(state["timers"])
        self.event_timers, self.clock_timers = TimerQueue(), TimerQueue()
        for queue, name in ((self.event_timers, "event"), (self.clock_timers, "clock")):
            for at_us, key in saved[name]:
                queue.set(at_us, decode(key))
        self.delays = [(delay_us, decode(key)) for delay_us, key in saved["delays"]]
