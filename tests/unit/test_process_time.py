"""A stateful operator and event time: ties, late rows, rows in order of time, and what timers take."""

from __future__ import annotations

import copy
import heapq
import itertools
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flow_kit import US, Recorder, WholeFlow, cut, cuts, drive, opened
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._core import Clock
from penstock.errors import InvalidInput, RowError, RowsLate
from penstock.flow.schema import parse_schema
from penstock.run.columns.kernels import Row
from penstock.run.columns.unwritten import in_bytes
from penstock.run.contract import END_OF_TIME_US, LATE
from penstock.run.operators.state.event_rows import RowTime, TimeOrdered
from penstock.run.operators.state.process import Emit, KeyState, Process, Stateful, Timers

SCHEMA = parse_schema("user string, time timestamp")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch_of(values: list) -> pa.RecordBatch:
    columns = [pa.array([v[0] for v in values], pa.string()), pa.array([v[1] for v in values], pa.int64()).cast(US)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def build(kind: type[Stateful], on_late: str = "side", ordered: bool = False) -> partial:
    return partial(Process, kind, ("user",), parse_schema(kind.schema), RowTime("time", True, on_late, ordered))


class PerMoment(Stateful):
    """Rows of each key and time, told when the time is over."""

    schema = "user string, time timestamp, n bigint"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        state[str(row.time)] = state.get(str(row.time), 0) + 1
        timers.at(row.time)

    def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        emit((key, time, state.pop(str(time))))


# -- ties --------------------------------------------------------------------------------------------------------------


def test_a_timer_waits_for_the_other_rows_of_its_time() -> None:
    steps = [batch_of([("a", 5)]), 5, batch_of([("a", 5)]), 6]
    assert drive(build(PerMoment), steps, end=False).rows() == [("a", 5, 2)]


moments = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6)), max_size=30).map(
    lambda rows: sorted(rows, key=lambda row: row[1])
)


@given(rows=moments, rows_max=st.integers(1, 5), ordered=st.booleans())
def test_every_key_and_time_closes_once_wherever_batches_end(rows: list, rows_max: int, ordered: bool) -> None:
    top = ps.Topology("ties")
    source = top.source("rows", ps.io.generator(lambda task, tasks: iter(rows), "user string, time timestamp"))
    seen = source.event_time("time").key_by("user").process(PerMoment, ordered=ordered)
    seen.sink("out", ps.io.collect())
    seen.late.sink("late", ps.io.collect())
    ran = WholeFlow(top.build(), rows_max=rows_max).run()
    assert Counter(ran.rows()) == Counter((user, time, n) for (user, time), n in Counter(rows).items())
    assert ran.rows("late") == []


def test_files_in_order_close_each_time_once(tmp_path: Path) -> None:
    """Ten rows of each time in row groups of three: nearly every group ends between rows of one time."""
    rows = [(user, time) for time in range(7) for user in "ababababab"]
    pq.write_table(pa.Table.from_batches([batch_of(rows)]), tmp_path / "rows.parquet", row_group_size=3)
    top = ps.Topology("ties")
    source = top.source("rows", ps.io.files(str(tmp_path / "rows.parquet"), schema="user string, time timestamp"))
    source.event_time("time").key_by("user").process(PerMoment).sink("out", ps.io.collect())
    ran = WholeFlow(top.build(), rows_max=4).run()
    assert Counter(ran.rows()) == Counter((user, time, 5) for time in range(7) for user in "ab")


# -- late rows ---------------------------------------------------------------------------------------------------------

LATE_STEPS = [batch_of([("a", 9)]), 5, batch_of([("a", 4), ("b", 5), ("c", None), ("d", 6)])]


class Names(Stateful):
    schema = "user string"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        emit(key)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("move_at", [None, 2])
def test_late_rows_and_rows_without_a_time_go_aside(ordered: bool, move_at: int | None) -> None:
    out = drive(build(Names, "side", ordered), LATE_STEPS, move_at=move_at)
    assert out.rows(LATE) == [("a", 4), ("c", None)]
    assert sorted(out.rows()) == [("a",), ("b",), ("d",)]


def test_late_rows_are_handed_on_where_that_is_asked_for() -> None:
    assert drive(build(Names, "keep"), LATE_STEPS).rows() == [("a",), ("a",), ("b",), ("c",), ("d",)]
    kept = drive(build(Names, "keep", ordered=True), LATE_STEPS, end=False)
    assert kept.rows() == [("c",), ("a",), ("b",)], "without a time at once, then what the watermark has reached"
    assert kept.rows(LATE) == []


def test_late_rows_are_an_error_where_that_is_asked_for() -> None:
    with pytest.raises(RowsLate) as caught:
        drive(build(Names, "error"), LATE_STEPS)
    said = "operator 'op': a row of 1970-01-01T00:00:00.000004+00:00 is late and 1 more with it: the watermark is 1970"
    assert str(caught.value).startswith(said)
    assert str(copy.copy(caught.value)) == str(caught.value), "an error survives a journey"
    with pytest.raises(RowsLate, match="'op': a row has no time; filter out rows without a time"):
        drive(build(Names, "error"), [batch_of([("c", None)])])


def test_without_event_time_nothing_is_late() -> None:
    out = drive(partial(Process, Names, ("user",), parse_schema(Names.schema)), LATE_STEPS)
    assert len(out.rows()) == 5
    assert LATE not in out.batches


# -- rows in order of time ---------------------------------------------------------------------------------------------


class Log(Stateful):
    """Tells what it sees, as it sees it; each row sets two timers, one of them in its own past."""

    schema = "what string, user string, time timestamp"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        emit(("row", key, row.time))
        timers.at(row.time + timedelta(microseconds=3))
        timers.at(row.time - timedelta(microseconds=1))

    def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        emit(("timer", key, time))


def in_order(rows: list[tuple[str, int]]) -> list[tuple[str, str, int]]:
    """What `Log` should see: rows by time, then as they came; before each, the timers of an earlier time."""
    seen: list[tuple[str, str, int]] = []
    timers: list[tuple[int, int, str]] = []
    numbers = itertools.count()

    def fire(before: float) -> None:
        while timers and timers[0][0] < before:
            at, _, user = heapq.heappop(timers)
            seen.append(("timer", user, at))

    for user, time in sorted(rows, key=lambda row: row[1]):
        fire(time)
        seen.append(("row", user, time))
        for at in (time + 3, time - 1):
            if (at, user) not in {(set_at, who) for set_at, _, who in timers}:
                heapq.heappush(timers, (at, next(numbers), user))
    fire(float("inf"))
    return seen


@given(
    values=st.lists(st.tuples(st.sampled_from("ab"), st.integers(2, 30)), max_size=30),
    sizes=cuts,
    lateness=st.integers(0, 10),
    move_at=st.one_of(st.none(), st.integers(0, 10)),
)
def test_rows_in_order_of_time(values: list, sizes: list, lateness: int, move_at: int | None) -> None:
    steps: list = []
    in_time, late = [], []
    at, watermark = 0, -1
    for piece in cut(batch_of(values), sizes):
        came = values[at : at + piece.num_rows]
        in_time += [row for row in came if row[1] >= watermark]
        late += [row for row in came if row[1] < watermark]
        at += piece.num_rows
        watermark = max(watermark, max(time for _, time in came) - lateness)
        steps += [piece, watermark]
    out = drive(build(Log, ordered=True), steps, move_at=move_at)
    assert out.rows() == in_order(in_time)
    assert out.rows(LATE) == late


def test_kept_rows_are_state_and_come_out_as_soon_as_the_watermark_reaches_them() -> None:
    task, out = opened(build(Names, ordered=True)), Recorder()
    task.process(batch_of([("c", 9), ("a", 3), ("b", 5)]), 0, out)
    assert out.rows() == []
    moved = opened(build(Names, ordered=True))
    moved.put_state(in_bytes(task.take_state()))
    moved.advance(5, out)
    assert out.rows() == [("a",), ("b",)]
    assert moved.kept is not None
    assert len(moved.kept) == 1
    moved.finish(out)
    assert out.rows() == [("a",), ("b",), ("c",)]


def test_few_runs_are_kept_and_none_holds_much_more_than_its_rows() -> None:
    """300 batches of one row in falling order of time, then given back from the oldest: memory follows what is left."""
    kept = TimeOrdered("time")
    for time in range(300, 0, -1):
        kept.add(batch_of([("a", time)]))
        assert len(kept.batches()) <= 10
    for until in range(1, 301):
        given = kept.release(until)
        assert given is not None
        assert given[1].tolist() == [until]
        assert len(kept) == 300 - until
        assert sum(run.buffered for run in kept._runs) <= 2 * len(kept) + 1
    assert kept.release(END_OF_TIME_US) is None


# -- what timers take --------------------------------------------------------------------------------------------------


def setting(call: str, moment: object) -> type[Stateful]:
    class Sets(Stateful):
        schema = "user string"

        def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
            getattr(timers, call)(moment)

    return Sets


NOW_US = 1_700_000_000_000_000
refused: list[tuple[str, Any, str]] = [
    (
        "at",
        60,
        r"timers.at\(60\) of 'op': give a datetime, or row.time \+ timedelta\(...\); for a delay .*timers.after",
    ),
    ("at", NOW_US // 1000, r"an int is microseconds since 1970 and from 100000000000000 to"),
    ("at", NOW_US * 1000, r"an int is microseconds since 1970 and from 100000000000000 to"),
    ("at", timedelta(minutes=1), r"timers.at\(datetime.timedelta\(seconds=60\)\) of 'op': give a datetime"),
    ("at", "10 seconds", r"for a delay on the worker's clock there is timers.after"),
    ("at", None, r"timers.at\(None\) of 'op': give a datetime, or row.time \+ timedelta"),
    ("at", True, r"timers.at\(True\) of 'op': give a datetime"),
    ("at", date(2024, 1, 1), r"timers.at\(datetime.date\(2024, 1, 1\)\) of 'op': give a datetime"),
    ("at", datetime(2024, 1, 1), r"has no zone; give one, as column 'time' has: .*tzinfo=UTC"),
    (
        "at_processing",
        datetime(2024, 1, 1),
        r"timers.at_processing\(.*\) of 'op' has no zone; .*, as the clock does",
    ),
    ("at_processing", 60, r"timers.at_processing\(60\) of 'op': give a datetime"),
    ("after", 60, r"timer delay is 60; give text such as '10 seconds'"),
]


@pytest.mark.parametrize(("call", "moment", "said"), refused, ids=[f"{call}-{moment}" for call, moment, _ in refused])
def test_timers_refuse_what_is_no_moment(call: str, moment: object, said: str) -> None:
    with pytest.raises(RowError, match=said) as caught:
        drive(build(setting(call, moment)), [batch_of([("a", 0)])])
    assert isinstance(caught.value.__cause__, InvalidInput)


def test_event_timers_need_event_time() -> None:
    Sets = setting("at", EPOCH)
    without = partial(Process, Sets, ("user",), parse_schema(Sets.schema))
    with pytest.raises(RowError, match=r"the stream has no event time, .* call .event_time\(column, lateness=...\)"):
        drive(without, [batch_of([("a", 0)])])


@pytest.mark.parametrize("moment", [NOW_US, EPOCH, datetime(2024, 1, 1, tzinfo=UTC).astimezone()], ids=str)
def test_moments_that_timers_take(moment: Any) -> None:  # noqa: ANN401 - of several types
    task = opened(build(setting("at", moment)))
    task.process(batch_of([("a", 0)]), 0, Recorder())
    expected = moment if isinstance(moment, int) else (moment - EPOCH) // timedelta(microseconds=1)
    assert task.table.timers(Clock.EVENT) == [(expected, "a")]


def test_times_without_a_zone_stay_without_one() -> None:
    class Later(Stateful):
        schema = "user string, time timestamp_ntz"

        def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
            timers.at(row.time + timedelta(microseconds=1))

        def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
            assert time.tzinfo is None
            emit((key, time))

    top = ps.Topology("ntz")
    rows = [("a", datetime(1970, 1, 1))]
    source = top.source("rows", ps.io.generator(lambda task, tasks: iter(rows), "user string, time timestamp_ntz"))
    source.event_time("time").key_by("user").process(Later).sink("out", ps.io.collect())
    assert WholeFlow(top.build()).run().rows() == [("a", 1)]
    zoned = partial(Process, setting("at", EPOCH), ("user",), parse_schema("user string"), RowTime("time", zoned=False))
    with pytest.raises(RowError, match=r"has a zone but column 'time' has none; write moment.replace\(tzinfo=None\)"):
        drive(zoned, [batch_of([("a", 0)])])


def test_timers_are_no_use_outside_the_functions_of_a_key() -> None:
    task = opened(build(Names))
    with pytest.raises(RuntimeError, match="set them while its on_row or on_timer runs"):
        task.timers.clear()


# -- errors ------------------------------------------------------------------------------------------------------------


class Misfit(Stateful):
    schema = "user string, n bigint"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        state["n"] = 1
        timers.at(row.time)

    def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        emit((key, time, 3))


class LastMisfit(Misfit):
    def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        pass

    def on_end(self, key: object, state: KeyState, emit: Emit) -> None:
        emit((key, "one"))


def test_a_wrong_row_names_operator_key_value_and_schema() -> None:
    said = r"operator 'op', key 'a': emit\(\('a', .*\) does not fit its schema \(user string, n int64\): the row is"
    with pytest.raises(InvalidInput, match=said) as caught:
        drive(build(Misfit), [batch_of([("a", 5)])])
    assert caught.value.__notes__ == ["in on_timer of key 'a' at 1970-01-01T00:00:00.000005+00:00"]
    said = r"operator 'op', key 'a': emit\(\('a', 'one'\)\) does not fit .*: column 'n' is declared int64 but got 'one'"
    with pytest.raises(InvalidInput, match=said) as caught:
        drive(build(LastMisfit), [batch_of([("a", 5)])])
    assert caught.value.__notes__ == ["in on_end of key 'a'"]


# -- building ----------------------------------------------------------------------------------------------------------


def test_what_needs_event_time_says_so() -> None:
    top = ps.Topology("flow")
    plain = top.source("rows", ps.io.generator(lambda task, tasks: iter([]), "user string, time timestamp"))
    with pytest.raises(InvalidInput, match=r"process of 'rows' with ordered=True: 'rows' has no event time; call"):
        plain.key_by("user").process(Names, ordered=True)
    with pytest.raises(InvalidInput, match=r"process of 'rows' with on_late='keep': 'rows' has no event time"):
        plain.key_by("user").process(Names, on_late="keep")
    with pytest.raises(InvalidInput, match=r"on_late of process of 'rows' is 'drop'; it is 'side' or 'keep'"):
        plain.key_by("user").process(Names, on_late="drop")  # type: ignore[arg-type]
    timed = plain.event_time("time").key_by("user")
    assert timed.process(Names).late.schema.equals(plain.schema)
    for made in (timed.process(Names, on_late="error"), plain.key_by("user").process(Names)):
        with pytest.raises(InvalidInput, match="has no output 'late'"):
            _ = made.late


def test_on_a_stream_that_ends_rows_and_timers_come_in_order_unless_asked_otherwise() -> None:
    """Visits an hour apart are four stays, though they come in one batch: each timer fires before the next row."""

    class Stays(ps.Stateful):
        schema = "user string, visits bigint"

        def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401
            state["visits"] = state.get("visits", 0) + 1
            timers.clear()
            timers.at(row.time + timedelta(minutes=1))

        def on_timer(self, key: Any, time: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401
            emit((key, state.pop("visits")))

    rows = [("u", datetime(2024, 1, 1, hour, tzinfo=UTC)) for hour in range(4)]
    for bounded, ordered in ((True, True), (False, False)):
        top = ps.Topology("stays")
        source = top.source(
            "s", ps.io.generator(lambda task, tasks: rows, "user string, time timestamp", bounded=bounded)
        )
        source.event_time("time").key_by("user").process(Stays).sink("out", ps.io.collect())
        (process,) = [o for o in top.build().operators if o.kind == "process"]
        task = process.build()
        assert task.inner.time.ordered == ordered  # type: ignore[attr-defined]
        if bounded:
            assert WholeFlow(top.build()).run().rows() == [("u", 1)] * 4
