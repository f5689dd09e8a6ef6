"""Every mistake that can be seen while a topology is built is refused on its own line, and named."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import penstock as ps
from penstock.errors import InvalidInput
from penstock.run.operators.times import parse_duration_us

Streams = tuple[ps.Topology, ps.DataStream, ps.DataStream]


def streams() -> Streams:
    top = ps.Topology("t")
    stream = top.source("s", ps.io.generator(lambda task, tasks: [], "a string, n bigint, t timestamp, l array<int>"))
    timed = stream.select("a", "n", "t", name="timed").event_time("t")
    return top, stream, timed


class NoRow(ps.Stateful):
    """It forgets what it is for."""

    schema = "a bigint"


class NoSchema(ps.Stateful):
    def on_row(self, key: object, row: ps.Row, state: object, timers: object, emit: object) -> None:
        pass


MISTAKES: list[tuple[Callable[[Streams], object], str]] = [
    (
        lambda s: s[0].source("timed", ps.io.rate(1)),
        r"topology 't' has an operator 'timed' already; names must be unique, so choose another or call remove",
    ),
    (lambda s: s[0].source("x/y", ps.io.rate(1)), r"has the name 'x/y'; give text of 1 to 200 characters without '/'"),
    (lambda s: s[0].source("x", "file.csv"), r"source 'x' got 'file.csv'; give ps.io.dataframe"),  # type: ignore[arg-type]
    (lambda s: s[0].source("x", ps.io.rate(1), tasks=0), r"tasks of rate 'x' is 0; give a whole number from 1"),
    (lambda s: s[0].source("x", ps.io.dataframe(1, "a int"), tasks=3), r"one task on every worker; leave tasks=3 out"),
    (lambda s: ps.Topology(""), r"topology has the name ''"),
    (lambda s: s[1].map(3, "a int"), r"map of 's' got 3; give a function"),  # type: ignore[arg-type]
    (lambda s: s[1].map(str, "a integerish"), r"schema 'a integerish': unknown type 'integerish'"),
    (lambda s: s[1].map(str, ""), r"schema is ''; give a DDL string"),
    (lambda s: s[1].filter(bool, on_error="ignore"), r"on_error of filter of 's' is 'ignore'; it is 'fail' or 'quara"),  # type: ignore[arg-type]
    (lambda s: s[1].map(str, "a int", tasks=True), r"tasks of map 'map1' is True"),
    (lambda s: s[1].map(str, "a int", name="s"), r"has an operator 's' already"),
    (lambda s: s[1].map_batches(None), r"map_batches of 's' got None"),  # type: ignore[arg-type]
    (lambda s: s[1].select("a", "zz"), r"there is no column 'zz' at position 1; the columns are a, n, t, l"),
    (lambda s: s[1].select(), r"select of 's' names no columns"),
    (lambda s: s[1].select("a", "a"), r"select of 's' names a, a; name each column once"),
    (lambda s: s[1].split("n"), r"split of 's' needs text but column 'n' is int64"),
    (lambda s: s[1].split("a", "word", ""), r"split of 's' has separator ''"),
    (lambda s: s[1].fields("zz"), r"fields of 's' names column 'zz' but the stream has a, n, t, l"),
    (lambda s: s[1].fields(), r"fields of 's' names no columns; name at least one of a, n, t, l"),
    (lambda s: s[1].partial_key("zz"), r"partial_key of 's' names column 'zz'"),
    (lambda s: s[1].direct(2), r"direct of 's' got 2; give a function from a row to a task's index"),  # type: ignore[arg-type]
    (lambda s: s[1].reduce(max), r"reduce of 's' needs keys; write key_by\('column'\).reduce"),  # type: ignore[attr-defined]
    (lambda s: s[1].count(tasks=2), r"count of 's' has no keys: one task sees all rows; leave tasks=2 out"),
    (lambda s: s[1].aggregate("sum(n)"), r"aggregate of 's' got 'sum\(n\)' without a name; write total='sum\(n\)'"),
    (lambda s: s[1].key_by("a").aggregate("sum(n)"), r"got 'sum\(n\)' without a name; write total='sum\(n\)'"),
    (lambda s: s[1].key_by("a").top_per_key(0, by="n"), r"number of rows of top_per_key of 's' is 0"),
    (lambda s: s[1].key_by("a").top_per_key(1, by="l"), r"top_per_key of 's' ranks by 'l', but list.* has no order"),
    (lambda s: s[1].limit(5), r"'s' has no operator 'limit'; here it is top\(count, by='column'\)"),  # type: ignore[attr-defined]
    (lambda s: s[1].withColumn("x", "n"), r"'withColumn'; here it is with_column\('name', 'expression'\)"),  # type: ignore[attr-defined]
    (lambda s: s[1].key_by("a").agg(x="n"), r"'agg'; here it is aggregate\(total='sum\(column\)'\)"),  # type: ignore[attr-defined]
    (lambda s: s[1].where(bool), r"where of 's' got a function; write filter\(function\)"),  # type: ignore[arg-type]
    (lambda s: s[1].where("n + 1"), r"where of 's': 'n \+ 1' is bigint; write a condition such as 'price > 100'"),
    (lambda s: s[1].where("n > 1 as x"), r"where of 's': 'n > 1 as x' names its result; leave 'as x' out"),
    (lambda s: s[1].filter("n > 1", on_error="quarantine"), r"a condition as text has no on_error"),
    (lambda s: s[1].where("m > 1"), r"there is no column 'm' at position 1; the columns are a, n, t, l"),
    (lambda s: s[1].select("n * 2"), r"select of 's': 'n \* 2' has no name; write 'n \* 2 as name'"),
    (lambda s: s[1].select("n * as x"), r"is no Spark SQL expression: an operand is missing, found 'as' at position 5"),
    (lambda s: s[1].select("n + + (2 as x"), r"is no Spark SQL expression: Expecting \), found 'x' at position 13"),
    (lambda s: s[1].select("shiny(n) as x"), r"the function shiny is not known here; .*use map or map_batches"),
    (lambda s: s[1].select("uper(a) as x"), r"the function uper is not known here; did you mean upper\?"),
    (lambda s: s[1].select("exp(n) as x"), r"the function exp is not known here; .*use map or map_batches"),
    (lambda s: s[1].select("a + 1 as x"), r"'\+' needs numbers but got string and int; write a cast"),
    (lambda s: s[1].select("try_cast(a as int) as x"), r"try_cast has no exact counterpart"),
    (lambda s: s[1].select("n over () as x"), r"select of 's'"),
    (lambda s: s[1].select("a rlike '(?=x)' as x"), r"rlike with the pattern '\(\?=x\)': .* use map or map_batches"),
    (lambda s: s[1].select("regexp_replace(a, 'x*', 'y') as z"), r"an empty match .* use map or map_batches"),
    (lambda s: s[1].select("round(double(n), 2) as x"), r"round of double has no exact counterpart"),
    (lambda s: s[1].select("n | n & 3 as x"), r"'n \| n & 3' may be read in two ways; put brackets around"),
    (lambda s: s[1].select("n = 1 < true as x"), r"may be read in two ways; put brackets around its inner part"),
    (lambda s: s[1].select("upper(a, n) as x"), r"upper takes 1 arguments and got 2"),
    (lambda s: s[1].select("t + interval 1 month as x"), r"INTERVAL '1' MONTH has no exact counterpart; write a whole"),
    (lambda s: s[1].with_column("x", "n +"), r"with_column of 's': .* is no Spark SQL expression"),
    (lambda s: s[1].drop("zz"), r"drop of 's' names column 'zz'"),
    (lambda s: s[1].drop("a", "n", "t", "l"), r"drop of 's' leaves 0 of 4 columns"),
    (
        lambda s: s[1].key_by("a").aggregate(x="min_by(n)"),
        r"min_by takes two arguments, a value and what it is chosen by",
    ),
    (lambda s: s[1].key_by("a").aggregate(x="count(distinct *)"), r"count needs a column"),
    (lambda s: s[1].key_by("a").aggregate(x="max_by(n, l)"), r"max_by chooses by list<.*>, which has no order"),
    (lambda s: s[1].key_by("a").aggregate(x="n + 1"), r"write function\(column\), such as x='sum\(fare\)'"),
    (lambda s: s[1].key_by("a").aggregate(x="sum(a || 'x')"), r"sum of column .* needs numbers but the type is string"),
    (lambda s: s[1].mapp(str), r"stream 's' has no operator 'mapp'; did you mean 'map'"),  # type: ignore[attr-defined]
    (lambda s: s[1].groupBy("a"), r"stream 's' has no operator 'groupBy'; here it is key_by\('column'\)"),  # type: ignore[attr-defined]
    (
        lambda s: s[1].key_by("a").filter(bool),
        r"'s' keyed by 'a' has no operator 'filter'; .*; call filter before key_",
    ),  # type: ignore[attr-defined]
    (lambda s: s[1].key_by("a").cuont(), r"'s' keyed by 'a' has no operator 'cuont'; did you mean 'count'"),  # type: ignore[attr-defined]
    (
        lambda s: s[1].parallel(2).count(),
        r"'parallel1': .*; leave parallel\(\) out and write key_by\('column'\).count\(..., tasks=2\)$",
    ),  # type: ignore[attr-defined]
    (
        lambda s: s[1].parallel(2).filter(bool).count(),  # type: ignore[attr-defined]
        r"inside the ordered region 'parallel1': .*; write merge\(\).key_by\('column'\).count\(...\)$",
    ),
    (lambda s: s[1].parallel(2).key_by("a"), r"; write the region's operators and merge\(\) before it$"),
    (lambda s: s[1].parallel(2).map(str, "a int", tasks=3), r"all operators there have 2 tasks, .*; leave tasks= out$"),
    (
        lambda s: s[1].parallel(2).event_time("t"),
        r"makes none; call event_time before parallel\(\) or after merge\(\)$",
    ),
    (
        lambda s: s[1].parallel(2, balance="static", weights=[0.5, 0.5]),
        r"parallel of 's' has balance='static' and weights=\[0.5, 0.5\], .*; leave one of them out",
    ),
    (
        lambda s: [s[1].event_time("t"), s[1].join(s[2], "a", window=ps.tumbling("1 s"))],
        r"this is 's' without event time; go on with what event_time\('t'\) returned$",
    ),
    (
        lambda s: [s[1].event_time("t"), s[1].event_time("t", "1 second")],
        r"'s' has event time on 't' already; go on with the stream that event_time\('t'\) returned, or put a map",
    ),
    (lambda s: s[1].parallel(2).map(str, "a int", tasks="2"), r"map with tasks='2' of 'parallel1.split' is inside"),  # type: ignore[arg-type]
    (lambda s: ps.io.parquet(None), r"parquet sink got None; give the path of a folder"),  # type: ignore[arg-type]
    (lambda s: ps.io.parquet(""), r"parquet sink got ''; give the path of a folder"),
    (lambda s: ps.io.files(None), r"files source got None; give a folder, a file or a pattern"),  # type: ignore[arg-type]
    (lambda s: s[0].run(None, metric="m"), r"run and start have no option 'metric'; did you mean 'metrics'"),
    (lambda s: s[0].start(None, colour=3), r"run and start have no option 'colour'; known: scheduler, "),
    (lambda s: s[1].key_by(), r"key_by of 's' names no columns"),
    (lambda s: s[1].key_by("word"), r"key_by of 's' names column 'word' but the stream has a, n, t, l"),
    (lambda s: s[1].key_by("a").aggregate(x="sum(a)"), r"aggregate 'x': sum of column 'a' needs numbers"),
    (
        lambda s: s[1].key_by("a").aggregate(x="sum(zz)"),
        r"aggregate x='sum\(zz\)': there is no column 'zz' at position 5",
    ),
    (lambda s: s[1].key_by("a").aggregate(x="sum(*)"), r"aggregate 'x': sum needs a column"),
    (
        lambda s: s[1].key_by("a").aggregate(x="median(n)"),
        r"unknown function in aggregate x='median\(n\)'.*known: count",
    ),
    (lambda s: s[1].key_by("a").aggregate(x="n + 1"), r"aggregate x='n \+ 1'; write function\(column\)"),
    (lambda s: s[1].key_by("a").aggregate(x="min(l)"), r"aggregate 'x': min has no order for column 'l'"),
    (lambda s: s[1].key_by("a").aggregate(), r"aggregate of 's' computes nothing"),
    (lambda s: s[1].key_by("a").aggregate(a="count(*)"), r"gives column 'a' twice"),
    (lambda s: s[1].key_by("a").count(emit="often"), r"emit of count of 's' is 'often'; it is 'end' or 'changes'"),  # type: ignore[arg-type]
    (lambda s: s[1].key_by("a").count(window="10 s"), r"count of 's' got '10 s'; give window=ps.tumbling"),  # type: ignore[arg-type]
    (
        lambda s: s[1].key_by("a").count(window=ps.tumbling("1 s", time="event")),
        r"count of 's' in event-time windows: 's' has no event time; call .event_time",
    ),
    (
        lambda s: s[2].key_by("a").count(window=ps.tumbling("1 s"), emit="each"),
        r"emit of count .* is 'each'; it is 'end'",
    ),
    (lambda s: s[1].key_by("a").reduce(1), r"reduce of 's' got 1; give a function of two rows"),  # type: ignore[arg-type]
    (lambda s: s[1].event_time("n"), r"event_time of 's' needs a timestamp but column 'n' is int64"),
    (lambda s: s[1].event_time("zz"), r"event_time of 's' names column 'zz' but the stream has a, n, t, l"),
    (lambda s: s[1].event_time("t", lateness="soon"), r"lateness in event_time of 's' is 'soon'; write a number"),
    (lambda s: s[2].event_time("t", "1 second"), r"'timed' has event time on 't' already; go on with the stream"),
    (
        lambda s: s[2].key_by("a").count(window=ps.tumbling("1 s")).late.event_time("t"),
        r"event_time of 'count1' reads its side output 'late', which has no watermarks",
    ),
    (lambda s: s[1].late, r"'s' has no output 'late'; only event-time windows, joins and process"),
    (lambda s: s[1].errors, r"'s' has no output 'errors'; give on_error='quarantine'"),
    (lambda s: s[1].late_right, r"'s' has no output 'late_right'; only joins"),
    (lambda s: s[1].union(s[2]), r"union of 's' \(.*\) and 'timed' \(.*\): schemas must be equal"),
    (lambda s: s[1].union(streams()[1]), r"are not streams of the same topology"),
    (lambda s: s[1].top(0, by="n"), r"number of rows of top of 's' is 0; give a whole number from 1"),
    (lambda s: s[1].top(3), r"top of 's' names column 'count' but the stream has a, n, t, l"),
    (lambda s: s[1].top(3, by="l"), r"top of 's' ranks by 'l', but list<.*> has no order"),
    (lambda s: s[1].top(3, by="n", emit="each"), r"emit of top of 's' is 'each'"),
    (lambda s: s[1].sink("o", "path"), r"sink 'o' got 'path'; give ps.io.collect\(\)"),  # type: ignore[arg-type]
    (lambda s: s[1].key_by("a").process(NoRow), r"NoRow has no on_row; define on_row\(self, key"),  # type: ignore[type-abstract]
    (lambda s: s[1].key_by("a").process(NoSchema), r"NoSchema has no schema; set schema ="),
    (lambda s: s[1].key_by("a").process(NoSchema()), r"process of 's' got .*; give a subclass of ps.Stateful itself"),  # type: ignore[arg-type]
    (lambda s: s[1].key_by("a").process(dict), r"process of 's' got \{\}; give a subclass of ps.Stateful"),  # type: ignore[arg-type]
    (lambda s: s[1].join(s[2], "a", window=ps.tumbling("1 s")), r"join of 's' and 'timed': 's' has no event time"),
    (lambda s: s[2].join(s[2], "a", window=ps.tumbling("1 s")), r"join gives column 'n' twice; rename it on one side"),
    (
        lambda s: s[2].join(s[2], "a", window=ps.tumbling("1 s"), how="cross"),
        r"how of join .* is 'cross'; it is 'inner'",
    ),
    (lambda s: s[2].join(s[2], "zz", window=ps.tumbling("1 s")), r"key_by of 'timed' names column 'zz'"),
    (lambda s: s[2].join(s[2], "a", window=None), r"join of 'timed' and 'timed' got None; give window=ps.tum"),
    (
        lambda s: s[2].join(s[2], "a", window=ps.tumbling("1 s", time="processing")),
        r"join of 'timed' and 'timed' needs an event-time window",
    ),
    (
        lambda s: s[2].key_by("a").join(s[2].key_by("n"), window=ps.tumbling("1 s")),
        r"keys are `a` string and `n` bigint; they must have the same types",
    ),
    (lambda s: s[2].key_by("a").join(s[2], window=ps.tumbling("1 s")), r"give a keyed stream: other.key_by"),  # type: ignore[arg-type]
    (lambda s: ps.tumbling("ten seconds"), r"window size is 'ten seconds'; write a number and a unit"),
    (lambda s: ps.tumbling("10 parsecs"), r"window size is '10 parsecs': unknown unit 'parsecs'"),
    (lambda s: ps.tumbling(10), r"window size is 10; give text such as '10 seconds'"),  # type: ignore[arg-type]
    (lambda s: ps.tumbling("0 s"), r"both must be at least one microsecond"),
    (lambda s: ps.sliding("1 s", "2 s"), r"slides by '2 s' and would skip rows"),
    (lambda s: ps.sliding("1 day", "1 s"), r"puts a row into 86400 windows; the limit is 1000"),
    (lambda s: ps.tumbling("1 s", time="wall"), r"window time is 'wall'; it is 'event' or 'processing'"),  # type: ignore[arg-type]
    (lambda s: ps.io.rate(0), r"rows_per_second=0; give a number above 0"),
    (lambda s: ps.io.rate(1, rows=-1), r"rows=-1; give a whole number from 0"),
    (lambda s: ps.io.generator(1, "a int"), r"generator source got 1; give a function"),  # type: ignore[arg-type]
    (lambda s: ps.io.callback(None), r"callback sink got None; give a function"),  # type: ignore[arg-type]
    (lambda s: ps.io.dataframe([1]), r"dataframe source got list without a schema"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_mistakes_are_named(mistake: Callable[[Streams], object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        mistake(streams())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("10 seconds", 10_000_000),
        ("1 second", 1_000_000),
        ("1 minute 30 seconds", 90_000_000),
        ("500 ms", 500_000),
        ("0.5 hours", 1_800_000_000),
        ("interval 2 days", 172_800_000_000),
        ("3us", 3),
        (timedelta(milliseconds=1), 1000),
    ],
)
def test_durations(given: str | timedelta, expected: int) -> None:
    assert parse_duration_us(given, "it") == expected


@pytest.mark.parametrize("given", ["", "5", "seconds", "5 seconds!", "-1 second", "4000 days", timedelta(seconds=-1)])
def test_what_is_no_duration(given: str | timedelta) -> None:
    with pytest.raises(InvalidInput, match="it is"):
        parse_duration_us(given, "it")


def test_names_that_a_stream_lacks_are_missing_attributes_to_python_as_well() -> None:
    _, stream, _ = streams()
    assert not hasattr(stream, "process")
    assert not hasattr(stream.key_by("a"), "map")
    assert repr(copy.copy(stream)) == repr(stream)  # asks for names that are not there, on objects half made


CALLS: list[tuple[Callable[[Streams], object], str]] = [
    (lambda s: s[1].map(str), r"map: missing a required argument: 'schema'; write for example map\(parse, 'word str"),  # type: ignore[call-arg]
    (lambda s: s[1].flat_map(str), r"flat_map: missing a required argument: 'schema'; write for example flat_map\("),  # type: ignore[call-arg]
    (lambda s: s[1].filter(), r"filter: missing a required argument: 'function'; write for example filter\(lambda"),  # type: ignore[call-arg]
    (lambda s: s[1].sink(ps.io.collect()), r"sink: missing a required argument: 'sink'; write for example sink\('out'"),  # type: ignore[call-arg, arg-type]
    (lambda s: s[1].join(s[2], "a"), r"join: missing a required argument: 'window'; .* window=ps.tumbling\('1 hour'\)"),  # type: ignore[call-arg]
    (lambda s: s[0].source("x"), r"source: missing a required argument: 'source'; write for example source\('lines',"),  # type: ignore[call-arg]
    (lambda s: s[1].key_by("a").agg(), r"no operator 'agg'"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message[:40] for _, message in CALLS])
def test_calls_that_do_not_fit_are_told_with_one_that_does(call: Callable[[Streams], Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call(streams())


def test_methods_with_an_example_keep_their_signature() -> None:
    assert list(inspect.signature(ps.DataStream.map).parameters)[:3] == ["self", "function", "schema"]
    assert ps.DataStream.map.__doc__


def test_schemas_of_spark_are_schemas() -> None:
    struct = StructType([StructField("a b", StringType()), StructField("n", LongType(), nullable=False)])
    top = ps.Topology("struct")
    rows = top.source("rows", ps.io.generator(lambda task, tasks: [], struct))  # type: ignore[arg-type]
    assert rows.schema == pa.schema([pa.field("a b", pa.string()), pa.field("n", pa.int64(), nullable=False)])
