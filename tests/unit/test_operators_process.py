"""The stateful operator: state, timers of both times, and what cannot be saved."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum
from functools import partial
from time import process_time_ns
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from flow_kit import US, Recorder, cut, cuts, drive, opened
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock._core import Clock, KeyedTable
from penstock.errors import InvalidInput, RowError
from penstock.flow.schema import parse_schema
from penstock.run.columns.kernels import Row
from penstock.run.columns.unwritten import in_bytes
from penstock.run.operators.convert import identity
from penstock.run.operators.state import keyed_state
from penstock.run.operators.state.keyed_state import KeyState
from penstock.run.operators.state.process import Emit, Process, RowTime, Stateful, Timers
from penstock.run.operators.state.saved_keys import being_written, put_keys
from penstock.run.operators.state.timer_moments import delay_us
from penstock.run.operators.times import time_us

SCHEMA = parse_schema("user string, time timestamp")
GAP = timedelta(microseconds=10)


class Sessions(Stateful):
    """A visit ends when its user has been silent for the gap."""

    schema = "user string, visits bigint, last timestamp"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        state["visits"] = state.get("visits", 0) + 1
        state["last"] = max(state.get("last", row.time), row.time)
        timers.clear()
        timers.at(state["last"] + GAP)

    def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        assert time == state["last"] + GAP
        emit((key, state["visits"], state["last"]))
        state.clear()


def batch_of(values: list) -> pa.RecordBatch:
    columns = [pa.array([v[0] for v in values], pa.string()), pa.array([v[1] for v in values], pa.int64()).cast(US)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def build(kind: type[Stateful], keys: tuple[str, ...] = ("user",)) -> partial:
    return partial(Process, kind, keys, parse_schema(kind.schema), RowTime("time", on_late="keep"))


@given(
    values=st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 100)), max_size=30),
    sizes=cuts,
    move_at=st.one_of(st.none(), st.integers(0, 10)),
)
def test_sessions_by_event_time(values: list, sizes: list, move_at: int | None) -> None:
    """The same by hand: rows of a batch first, then whoever the watermark has left behind."""
    steps: list = []
    expected: Counter = Counter()
    open_sessions: dict = {}
    seen, newest = 0, -1
    for piece in cut(batch_of(values), sizes):
        for user, time in values[seen : seen + piece.num_rows]:
            visits, last = open_sessions.get(user, (0, time))
            open_sessions[user] = (visits + 1, max(last, time))
            newest = max(newest, time)
        seen += piece.num_rows
        steps += [piece, newest]
        for user, (visits, last) in list(open_sessions.items()):
            if last + 10 < newest:
                expected[user, visits, last] += 1
                del open_sessions[user]
    expected.update((user, *session) for user, session in open_sessions.items())
    assert drive(build(Sessions), steps, move_at=move_at).bag() == expected


class Reminder(Stateful):
    schema = "user string, at timestamp"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        timers.after("5 us")

    def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        emit({"at": time, "user": key})


def test_processing_timers_count_from_when_the_time_is_known() -> None:
    task, out = opened(build(Reminder)), Recorder()
    assert task.wake_at() is None
    task.process(batch_of([("a", 0), ("a", 1), ("b", 2)]), 0, out)
    assert task.wake_at() == 0
    task.wake(100, out)
    assert task.wake_at() == 105
    state = in_bytes(task.take_state())
    task = opened(build(Reminder))
    task.put_state(state)
    task.wake(104, out)
    assert out.rows() == []
    task.wake(105, out)
    assert out.rows() == [("a", 105), ("b", 105)]
    assert task.wake_at() is None
    task.process(batch_of([("c", 0)]), 0, out)
    task.finish(out)
    assert len(out.rows()) == 2, "processing time ends with the stream"


class Totals(Stateful):
    schema = "user string, time timestamp, n bigint"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        assert key == (row.user, row.time)
        state["n"] = state.get("n", 0) + 1

    def on_end(self, key: object, state: KeyState, emit: Emit) -> None:
        emit((*key, state["n"]))


@given(
    values=st.lists(st.tuples(st.sampled_from(["a", None]), st.integers(0, 3)), max_size=30),
    sizes=cuts,
    move_at=st.one_of(st.none(), st.integers(0, 10)),
)
def test_keys_of_several_columns_and_the_last_word(values: list, sizes: list, move_at: int | None) -> None:
    out = drive(build(Totals, ("user", "time")), cut(batch_of(values), sizes), move_at=move_at)
    assert out.bag() == Counter((*key, n) for key, n in Counter(values).items())


def test_keys_without_state_are_forgotten() -> None:
    task, out = opened(build(Sessions)), Recorder()
    task.process(batch_of([("a", 0)]), 0, out)
    assert len(task.table.states()) == 1
    task.advance(10, out)
    assert len(task.table.states()) == 1, "rows of time 10 may still come"
    task.advance(11, out)
    assert not task.table.states()
    assert out.watermarks == [10, 11]


class Broken(Stateful):
    schema = "user string"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        state["f"] = lambda: None if key == "a" else 1 / 0


class Raising(Stateful):
    schema = "user string"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        raise KeyError(key)


class Wrong(Stateful):
    schema = "user bigint"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        emit((key,))


class Restless(Stateful):
    schema = "user string"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        timers.at(row.time)

    def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        timers.at(time)


def test_values_that_cannot_be_saved_are_refused_at_once() -> None:
    with pytest.raises(RowError, match=r"row 0, .*state 'f' is <function .* of type function, which cannot be saved"):
        opened(build(Broken)).process(batch_of([("a", 0)]), 0, Recorder())
    with pytest.raises(InvalidInput, match=r"state has text names but got 3"):
        KeyState()[3] = 1  # type: ignore[index]


def test_errors_name_the_row() -> None:
    with pytest.raises(RowError, match=r"row 0, Row\(user='a'.*KeyError: 'a'"):
        opened(build(Raising)).process(batch_of([("a", 0)]), 0, Recorder())
    said = r"row 0, .*operator 'op', key 'a': emit\(\('a',\)\) does not fit its schema \(user int64\): column 'user' is"
    with pytest.raises(RowError, match=said):
        opened(build(Wrong)).process(batch_of([("a", 0)]), 0, Recorder())


def test_a_timer_that_sets_itself_again_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.run.operators.state.process.TIMERS_AGAIN_MAX", 50)
    task = opened(build(Restless))
    task.process(batch_of([("a", 0)]), 0, Recorder())
    with pytest.raises(RuntimeError, match="more than 50 timers were set and due at once, the last for key 'a'"):
        task.advance(5, Recorder())


def test_as_many_keys_as_there_are_may_fire_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.run.operators.state.process.TIMERS_AGAIN_MAX", 50)
    out = drive(build(Sessions), [batch_of([(str(i), 0) for i in range(200)])], rows_max=64)
    assert len(out.rows()) == 200
    assert [batch.num_rows for batch in out.batches["out"]] == [64, 64, 64, 8]


simple = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
)
values = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.dates()), inner, max_size=3),
    ),
    max_leaves=8,
)


def table() -> KeyedTable:
    return KeyedTable(KeyState, identity, lambda moment, clock: 0, delay_us, False)


def written_and_read(key: object, state: KeyState) -> list[tuple]:
    before, after = table(), table()
    before.put(key, state)
    put_keys(after, bytes(being_written(before).written()))
    return after.states()


@given(kept=st.dictionaries(st.text(max_size=4), values, max_size=4), key=simple)
def test_every_allowed_value_survives(kept: dict, key: object) -> None:
    state = KeyState()
    state.update(kept)
    assume(kept)  # a key without values is no key
    ((found_key, found),) = written_and_read(key, state)
    assert found_key == key
    assert type(found_key) is type(key)
    assert dict(found) == kept
    assert [type(value) for value in found.values()] == [type(value) for value in kept.values()]


def test_a_value_changed_inside_a_list_is_checked_when_it_is_saved() -> None:
    state = KeyState()
    state["list"] = []
    state["list"].append(object())
    with pytest.raises(InvalidInput, match=r"state 'list' of key 'k' is <object"):
        written_and_read("k", state)


@pytest.mark.parametrize(
    "value",
    [
        [object()],
        [*range(100), object()],
        (1, [2, {"x": object()}]),
        {i: i for i in range(100)} | {"last": object()},
        {object(): 1},
        {1, 2},
    ],
    ids=lambda value: type(value).__name__,
)
def test_containers_with_something_that_cannot_be_saved_are_refused_when_put_in(value: object) -> None:
    state = KeyState()
    with pytest.raises(InvalidInput, match=r"state 'x' is .* of type \w+, which cannot be saved"):
        state["x"] = value
    with pytest.raises(InvalidInput, match="cannot be saved"):
        state.update(x=value)
    with pytest.raises(InvalidInput, match="cannot be saved"):
        state.setdefault("x", value)
    assert not state


def test_a_list_that_holds_itself_is_refused() -> None:
    inside: list = []
    inside.append(inside)
    with pytest.raises(InvalidInput, match="nests more than 50 deep"):
        KeyState()["x"] = inside


def test_a_long_list_is_not_looked_through_at_every_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10,000 elements a put sees the ends: what is wrong in the middle is found when it is written."""
    state, seen = KeyState(), list(range(10_000))
    seen[5_000] = object()  # type: ignore[call-overload]
    with monkeypatch.context() as patch:
        patch.setattr(keyed_state, "encode", lambda *_: pytest.fail("a put looked through everything"))
        state["seen"] = seen
        state["by_name"] = {str(i): i for i in range(10_000)}
    with pytest.raises(InvalidInput, match="state 'seen' of key 'k' is <object"):
        written_and_read("k", state)


class Colour(IntEnum):
    RED = 3


class Point(NamedTuple):
    x: int
    y: int


SUBCLASSES = [
    (Colour.RED, "int"),
    (np.float64(1.5), "float"),
    (np.str_("text"), "str"),
    (Point(1, 2), "tuple"),
    (defaultdict(int, a=1), "dict"),
    (Counter("aab"), "dict"),
    (OrderedDict(a=1), "dict"),
]


@pytest.mark.parametrize(("value", "plain"), SUBCLASSES, ids=[type(value).__name__ for value, _ in SUBCLASSES])
def test_what_would_come_back_as_another_type_is_refused_when_put_in(value: object, plain: str) -> None:
    state = KeyState()
    said = rf"of type {type(value).__name__}, which cannot be saved: it would come back as a plain {plain}; put a"
    for held in (value, [value], {"inside": (value,)}):
        with pytest.raises(InvalidInput, match=said):
            state["x"] = held
    assert not state


class Fixed(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(hours=1)


def test_a_time_in_a_zone_that_cannot_be_saved_is_refused_when_put_in() -> None:
    with pytest.raises(InvalidInput, match=r"state 't' is 2026-.* in a time zone of type Fixed, which cannot be saved"):
        KeyState()["t"] = datetime(2026, 1, 1, tzinfo=Fixed())


def test_values_come_back_as_they_were_put_in() -> None:
    vienna = ZoneInfo("Europe/Vienna")
    values = [
        None, True, 3, 1 << 80, 1.5, "text", b"bytes", date(2026, 1, 1), timedelta(1, 2, 3), Decimal("1.50"),
        datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 3, 28, 12, tzinfo=vienna), datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=vienna),
        [1, (2, {"x": date(2026, 1, 1)})], {1: "a", (2, "b"): [None]},
    ]  # fmt: skip
    state = KeyState()
    state["all"] = values
    ((_, found),) = written_and_read("k", state)
    assert repr(found) == repr({"all": values})


def test_cleared_timers_cost_no_memory_and_are_not_saved() -> None:
    """1,000 keys whose timer is set anew 100 times: 1,000 live ones, and at most so many dead ones and 1,024 more."""
    task, out = opened(build(Sessions)), Recorder()
    for round_ in range(100):
        task.process(batch_of([(str(i), round_) for i in range(1000)]), 0, out)
        assert task.table.entries(Clock.EVENT) <= 2 * 1000 + 1024
    assert len(task.table.timers(Clock.EVENT)) == 1000
    moved = opened(build(Sessions))
    moved.put_state(in_bytes(task.take_state()))
    assert moved.table.entries(Clock.EVENT) == 1000
    assert in_bytes(moved.take_state()) == in_bytes(task.take_state())


def test_clearing_timers_costs_the_same_with_many_keys() -> None:
    """20,000 keys with a timer each beside 200: it was a hundred times as much when `clear` looked at all of them."""

    def cpu_ns(keys: int) -> int:
        task, out = opened(build(Sessions)), Recorder()
        batches = [batch_of([(str(i % keys), 0) for i in range(at, at + 1000)]) for at in range(0, 20_000, 1000)]
        began = process_time_ns()
        for batch in batches:
            task.process(batch, 0, out)
        return process_time_ns() - began

    assert min(cpu_ns(20_000) for _ in range(2)) < 20 * max(cpu_ns(200), 1_000_000)


def test_moments() -> None:
    assert time_us(datetime(1970, 1, 2, tzinfo=UTC)) == time_us(date(1970, 1, 2)) == 86_400_000_000
    assert time_us(datetime(1970, 1, 1, 0, 0, 1)) == 1_000_000
    assert Decimal(time_us(5)) == 5
