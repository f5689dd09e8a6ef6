"""Every operator against Spark SQL: the same question over the same rows gives the same answer, order aside.

A job takes half a second and answers many questions, so each test is one topology with a sink for each of them; what
varies is the rows, the tasks, the workers, the plan and the size of batches.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, example, given, settings
from oracle_kit import LATENESS_S, SESSIONS_SQL, Case, Questions, Sessions, cases, quick_questions
from pyspark.sql import SparkSession

from penstock.flow.stream import DataStream
from penstock.flow.windows import sliding, tumbling
from penstock.run.columns.kernels import Row
from penstock.run.operators.state.keyed_state import KeyState
from penstock.run.operators.state.process import Emit, Stateful, Timers
from penstock_lab.same_rows import row_differences, same_rows

# Shrinking would run hundreds of jobs; the first failing case is small enough to read.
few = settings(max_examples=4, phases=(Phase.explicit, Phase.generate))
one_session = pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
LATENESS = f"{LATENESS_S} seconds"


@pytest.fixture(scope="module", autouse=True)
def quick_sql(spark: SparkSession) -> Iterator[None]:
    with quick_questions(spark):
        yield


# -- the comparison itself -------------------------------------------------------------------------------------------


@one_session
def test_the_oracle_sees_every_difference(spark: SparkSession) -> None:
    frame = spark.sql(
        "select * from values (1, 'a', double('nan')), (1, 'a', double('nan')), (2, null, -0.0D) t(n, s, x)"
    )
    assert same_rows(
        frame,
        spark.sql("select * from values (2L, null, 0D), (1L, 'a', double('nan')), (1L, 'a', double('nan')) t(n, s, x)"),
    )
    for sql in (
        "select distinct * from found",
        "select n, s, x from found where n = 2",
        "select n as m, s, x from found",
        "select n, coalesce(s, '') as s, x from found",
        "select double(n) as n, s, x from found",
        "select n, s, x from found union all select 3, 'b', 1D",
    ):
        frame.createOrReplaceTempView("found")
        assert row_differences(frame, spark.sql(sql)), sql


# -- rows and batches ------------------------------------------------------------------------------------------------


def add_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    kept = batch.filter(pc.is_valid(batch["amount"]))
    schema = pa.schema([batch.schema.field("n"), pa.field("more", pa.float64())])
    return pa.RecordBatch.from_arrays([kept["n"], pc.add(kept["amount"], 1.0)], schema=schema)


def refuse_sevens(row: Row) -> tuple[int, int | None]:
    if row.n % 7 == 0:
        msg = "a multiple of seven"
        raise ValueError(msg)
    return row.n, row.number


@one_session
@few
@given(case=cases)
@example(Case(1, 150, 3, 3, 4, 1))
@example(Case(2, 150, 2, 1, 3, 64, from_frame=True))
def test_rows_and_batches(spark: SparkSession, case: Case) -> None:
    ask = Questions(spark, case)
    rows, tasks = ask.source("rows", may_be_frame=True), case.tasks
    twice = rows.map(lambda r: (r.n, None if r.number is None else 2 * r.number), "n bigint, twice bigint", tasks=tasks)
    ask.ask("map", twice, "select n, number * 2 as twice from rows")
    large = rows.filter(lambda r: r.number is not None and r.number > 5, tasks=tasks)
    ask.ask("filter", large, "select * from rows where number > 5")
    many = rows.flat_map(lambda r: [(r.n, i) for i in range((r.number or 0) % 4)], "n bigint, i bigint", tasks=tasks)
    counted = "select n, id as i from rows join range(4) on id < pmod(coalesce(number, 0), 4)"
    ask.ask("flat_map", many, counted)
    batches = rows.map_batches(add_one, "n bigint not null, more double", tasks=tasks)
    ask.ask("map_batches", batches, "select n, amount + 1 as more from rows where amount is not null")
    pieces = "select word, n from rows lateral view explode(split(line, ' ')) t as word where word <> ''"
    ask.ask("split", rows.split("line", keep=["n"], tasks=tasks), pieces)
    ask.ask("select", rows.select("price", "key", tasks=tasks), "select price, key from rows")
    both = rows.union(large, rows.filter(lambda r: r.flag, tasks=tasks), tasks=tasks)
    ask.ask(
        "union",
        both,
        "select * from rows union all select * from rows where number > 5 union all select * from rows where flag",
    )
    careful = rows.map(refuse_sevens, "n bigint, number bigint", tasks=tasks, on_error="quarantine")
    ask.ask("quarantine", careful, "select n, number from rows where n % 7 <> 0")
    ask.ask("errors", careful.errors, "select n, key from rows where n % 7 = 0", told="select n, key from found")
    ask.check()


@one_session
@few
@given(case=cases)
@example(Case(3, 150, 3, 2, 4, 3))
def test_groupings_lose_and_repeat_nothing(spark: SparkSession, case: Case) -> None:
    ask = Questions(spark, case)
    tasks = case.tasks
    rows = ask.source("rows", may_be_frame=True).select("n", "key", "amount", tasks=tasks)
    read: dict[str, DataStream] = {
        "shuffle": rows.shuffle(),
        "local": rows.local_or_shuffle(),
        "global": rows.global_(),
        "fields": rows.fields("key", "amount"),
        "partial": rows.partial_key("key"),
        "direct": rows.direct(lambda row: row.n % tasks),
    }
    for name, stream in read.items():
        ask.ask(name, stream.select("n", "key", tasks=tasks), "select n, key from rows")
    everywhere = rows.broadcast().select("n", "key", tasks=tasks)
    ask.ask("all", everywhere, f"select n, key from rows cross join range({tasks})")
    ask.check()


# -- keys ------------------------------------------------------------------------------------------------------------


class Totals(Stateful):
    """What an aggregate would say, by hand."""

    schema = "key string, rows bigint, total bigint, largest double"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        state["rows"] = state.get("rows", 0) + 1
        if row.number is not None:
            state["total"] = (state.get("total") or 0) + row.number

    def on_end(self, key: object, state: KeyState, emit: Emit) -> None:
        emit((key, state["rows"], state.get("total"), None))


NUMBERS = {
    f"{op}_{column}": f"{op}({column})"
    for op in ("count", "sum", "min", "max", "avg")
    for column in ("number", "amount", "price")
}
ORDERED = {f"{op}_{column}": f"{op}({column})" for op in ("min", "max") for column in ("line", "flag", "time")}


def in_sql(columns: dict[str, str]) -> str:
    return ", ".join(f"{text} as {name}" for name, text in columns.items())


@one_session
@few
@given(case=cases)
@example(Case(4, 150, 3, 3, 4, 1))
@example(Case(5, 150, 2, 3, 2, 10_000, from_frame=True))
def test_keyed_operators(spark: SparkSession, case: Case) -> None:
    ask = Questions(spark, case)
    rows, tasks = ask.source("rows", may_be_frame=True), case.tasks
    ask.ask("count", rows.key_by("key").count(tasks=tasks), "select key, count(*) as count from rows group by key")
    two = rows.key_by("flag", "amount").count(tasks=tasks)
    ask.ask("two_keys", two, "select flag, amount, count(*) as count from rows group by flag, amount")
    wanted = {"rows": "count(*)", **NUMBERS, **ORDERED}
    all_of_them = rows.key_by("key").aggregate(tasks=tasks, **wanted)
    ask.ask("aggregate", all_of_them, f"select key, {in_sql(wanted)} from rows group by key")
    parts = rows.key_by("key").partial_key().count(tasks=tasks)
    merged = parts.key_by("key").aggregate(tasks=tasks, rows="sum(count)")
    ask.ask("partial_key", merged, "select key, count(*) as rows from rows group by key")
    known = rows.filter(lambda r: r.number is not None, tasks=tasks).select("key", "number", "n", tasks=tasks)
    smallest = known.key_by("key").reduce(lambda a, b: (a.key, a.number + b.number, min(a.n, b.n)), tasks=tasks)
    ask.ask(
        "reduce",
        smallest,
        "select key, sum(number) as number, min(n) as n from rows where number is not null group by key",
    )
    each = rows.key_by("key").count(emit="each", tasks=tasks)
    ask.ask(
        "each",
        each,
        "select key, row_number() over (partition by key order by n) as count from rows",
        told="select key, int(count) as count from found",
    )
    changes = rows.key_by("key").count(emit="changes", tasks=tasks)
    ask.ask(
        "changes",
        changes,
        "select key, count(*) as count from rows group by key",
        told="select key, max(count) as count from found group by key",
    )
    totals = rows.key_by("key").process(Totals, tasks=tasks)
    ask.ask(
        "process",
        totals,
        "select key, count(*) as rows, sum(number) as total, double(null) as largest from rows group by key",
    )
    ask.check()


@one_session
@few
@given(case=cases)
@example(Case(6, 150, 3, 3, 3, 3))
def test_order_and_rank(spark: SparkSession, case: Case) -> None:
    """First and last have an answer where one task reads the rows in order; ties of rankings fall by key."""
    ask = Questions(spark, case)
    rows, tasks = ask.source("rows", tasks=1), case.tasks
    columns = ("number", "amount", "price", "line", "flag", "time")
    wanted = {f"{op}_{column}": f"{op}({column})" for op in ("first", "last") for column in columns}
    sql = ", ".join(
        f"{by}({column}, n) filter (where {column} is not null) as {op}_{column}"
        for op, by in (("first", "min_by"), ("last", "max_by"))
        for column in columns
    )
    ask.ask(
        "first_last", rows.key_by("key").aggregate(tasks=tasks, **wanted), f"select key, {sql} from rows group by key"
    )
    counts = rows.key_by("key", "flag").count(tasks=tasks)
    ask.ask(
        "top",
        counts.top(4, tasks=tasks).top(4),
        "select key, flag, count(*) as count from rows group by key, flag "
        "order by count desc, key nulls last, flag nulls last limit 4",
    )
    few_columns = rows.select("amount", "n", tasks=tasks)
    for name, ascending in (("best", False), ("worst", True)):
        ask.ask(
            name,
            few_columns.top(9, by="amount", ascending=ascending, tasks=tasks).top(9, by="amount", ascending=ascending),
            f"select amount, n from rows order by amount {'asc' if ascending else 'desc'} nulls last, n limit 9",
        )
    newest = rows.select("key", "number", "n").key_by("key").top(3, by="number", tasks=tasks).top(3, by="number")
    ask.ask(
        "newest",
        newest,
        "select key, number, n from (select *, row_number() over (partition by key order by n desc) as age from rows) "
        "where age = 1 order by number desc nulls last, key nulls last limit 3",
    )
    ask.check()


# -- event time ------------------------------------------------------------------------------------------------------

WINDOWS = {
    "tumbling": (tumbling("10 seconds"), "window(time, '10 seconds')"),
    "sliding": (sliding("30 seconds", "10 seconds"), "window(time, '30 seconds', '10 seconds')"),
    "uneven": (sliding("25 seconds", "10 seconds"), "window(time, '25 seconds', '10 seconds')"),
}
BOUNDS = "w.start as window_start, w.end as window_end"


@one_session
@few
@given(case=cases)
@example(Case(7, 150, 3, 3, 4, 1))
@example(Case(8, 150, 2, 2, 3, 64))
def test_event_time_windows(spark: SparkSession, case: Case) -> None:
    ask = Questions(spark, case)
    rows, tasks = ask.source("rows").event_time("time", lateness=LATENESS), case.tasks
    for name, (window, sql) in WINDOWS.items():
        members = f"(select {sql} as w, * from rows where time is not null)"
        counts = rows.key_by("key").count(window=window, tasks=tasks)
        ask.ask(f"{name}_count", counts, f"select {BOUNDS}, key, count(*) as count from {members} group by w, key")
        ask.ask(
            f"{name}_top",
            counts.top(2, tasks=tasks).top(2),
            f"select window_start, window_end, key, count from (select {BOUNDS}, key, count(*) as count, row_number() "
            f"over (partition by w order by count(*) desc, key nulls last) as place from {members} group by w, key) "
            "where place <= 2",
        )
    window, sql = WINDOWS["sliding"]
    members = f"(select {sql} as w, * from rows where time is not null)"
    ask.ask(
        "aggregate",
        rows.key_by("flag").aggregate(window=window, tasks=tasks, rows="count(*)", **NUMBERS),
        f"select {BOUNDS}, flag, count(*) as rows, {in_sql(NUMBERS)} from {members} group by w, flag",
    )
    pairs = rows.select("key", "n", "time", tasks=tasks)
    ask.ask(
        "reduce",
        pairs.key_by("key").reduce(lambda a, b: (a.key, a.n + b.n, min(a.time, b.time)), window=window, tasks=tasks),
        f"select {BOUNDS}, key, sum(n) as n, min(time) as time from {members} group by w, key",
    )
    late = rows.key_by("key").count(window=window, name="with_late", tasks=tasks)
    ask.ask("late", late.late, "select * from rows where time is null")
    ask.ask("not_late", late, f"select {BOUNDS}, key, count(*) as count from {members} group by w, key")
    ask.ask(
        "sessions",
        rows.key_by("key").process(Sessions, tasks=tasks),
        SESSIONS_SQL.format("rows"),
    )
    ask.check()


@one_session
@few
@given(case=cases)
@example(Case(9, 60, 3, 3, 4, 1))
@example(Case(10, 150, 2, 2, 3, 10_000))
def test_windowed_joins(spark: SparkSession, case: Case) -> None:
    ask = Questions(spark, case)
    tasks = case.tasks
    lefts = ask.source("lefts", 1).event_time("time", lateness=LATENESS)
    left = lefts.select("flag", "key", "time", "n", tasks=tasks)
    rights = ask.source("rights", 2).event_time("time", lateness=LATENESS)
    others = {"n": "m", "time": "at", "key": "name"}
    right = rights.rename(others, tasks=tasks).select("m", "at", "flag", "name", tasks=tasks)
    for how in ("inner", "left", "right", "full"):
        for name in ("tumbling", "sliding"):
            window, sql = WINDOWS[name]
            ask.ask(
                f"{how}_{name}",
                left.key_by("key", "flag").join(right.key_by("name", "flag"), window=window, how=how, tasks=tasks),
                f"select coalesce(l.w, r.w).start as window_start, coalesce(l.w, r.w).end as window_end, "
                f"coalesce(l.key, r.name) as key, coalesce(l.flag, r.flag) as flag, l.time, l.n, r.m, r.at "
                f"from (select {sql} as w, * from lefts where time is not null) l {how} join "
                f"(select {sql} as w, flag, n as m, time as at, key as name from rights where time is not null) r "
                "on l.w = r.w and l.key = r.name and l.flag = r.flag",
            )
    ask.check()


@one_session
@few
@given(case=cases)
@example(Case(11, 150, 2, 1, 3, 64, True))
@example(Case(12, 0, 1, 1, 2, 1, True))
def test_several_frames(spark: SparkSession, case: Case) -> None:
    """Whatever each source is; Spark hands frames in shuffled, so every row is in time only if all may be late."""
    ask = Questions(spark, case)
    tasks = case.tasks
    lefts = ask.source("lefts", 3, may_be_frame=True).event_time("time", lateness="1 day")
    rights = ask.source("rights", 4, may_be_frame=True)
    fewer = rights.select("key", "n", "time", tasks=tasks).rename({"key": "name", "n": "m"})
    ask.ask("lefts_all", lefts, "select * from lefts")
    ask.ask("rights_all", fewer, "select key as name, n as m, time from rights")
    ask.ask(
        "counts",
        lefts.union(rights, tasks=tasks).key_by("key").count(tasks=tasks),
        "select key, count(*) as count from (select key from lefts union all select key from rights) group by key",
    )
    late = rights.select("key", "n", "time").event_time("time", lateness="1 day").rename({"n": "m", "time": "at"})
    ask.ask(
        "join",
        lefts.key_by("key")
        .join(late.key_by("key"), window=tumbling("10 seconds"), tasks=tasks)
        .select("key", "n", "m"),
        "select l.key, l.n, r.n as m from (select window(time, '10 seconds') as w, * from lefts) l join "
        "(select window(time, '10 seconds') as w, * from rights) r on l.w = r.w and l.key = r.key",
    )
    ask.check()
