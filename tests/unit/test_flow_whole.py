"""Whole topologies, run by plain calls, against a few lines of Python; task counts and batch sizes do not matter."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import timedelta

from flow_kit import US, WholeFlow
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

import penstock as ps

tasks = st.integers(1, 3)
lines = st.lists(st.text("abc  ", max_size=12), max_size=20)


def generated(rows: list) -> ps.io.Source:
    return ps.io.generator(lambda task, tasks: iter(rows[task::tasks]), "line string", tasks=2)


@given(texts=lines, rows_max=st.integers(1, 8), a=tasks, b=tasks, built_in=st.booleans())
@settings(max_examples=40)
def test_word_count(texts: list[str], rows_max: int, a: int, b: int, built_in: bool) -> None:
    top = ps.Topology("words")
    source = top.source("lines", generated(texts))
    if built_in:
        words = source.split("line", tasks=a)
    else:
        words = source.flat_map(lambda row: [(w,) for w in row.line.split()], "word string", tasks=a)
    counts = words.key_by("word").count(tasks=b)
    counts.sink("out", ps.io.collect())
    counts.top(2, tasks=b).top(2).sink("best", ps.io.collect())
    words.key_by("word").partial_key().count(tasks=3).key_by("word").aggregate(count="sum(count)").sink(
        "merged", ps.io.collect()
    )
    expected = Counter(word for text in texts for word in text.split())
    ran = WholeFlow(top.build(), rows_max=rows_max).run()
    assert Counter(dict(ran.rows())) == expected == Counter(dict(ran.rows("merged")))
    assert ran.rows("best") == sorted(expected.items(), key=lambda item: (-item[1], item[0]))[:2]


trips = st.lists(
    st.tuples(st.sampled_from(["r1", "r2", "r3"]), st.integers(0, 90), st.integers(1, 50)), min_size=1, max_size=40
)
SCHEMA = "route string, time timestamp, fare bigint"


@given(rows=trips, rows_max=st.integers(1, 8), a=tasks, b=tasks, lateness=st.sampled_from([0, 15, 100]))
@settings(max_examples=40)
def test_ranking_of_windows(rows: list, rows_max: int, a: int, b: int, lateness: int) -> None:
    """Nothing is lost: rows are counted in their windows or come out late, and with lateness enough none are late."""
    top = ps.Topology("routes")
    source = top.source("trips", ps.io.generator(lambda task, tasks: iter(rows[task::tasks]), SCHEMA, tasks=a))
    timed = source.filter(lambda row: row.fare > 5, tasks=b).event_time(
        "time", lateness=timedelta(microseconds=lateness)
    )
    counts = timed.key_by("route").aggregate(window=ps.tumbling("20 us"), trips="count(*)", income="sum(fare)", tasks=b)
    counts.sink("out", ps.io.collect())
    counts.late.sink("late", ps.io.collect())
    counts.filter(lambda row: True).top(1, by="income", tasks=b).top(1, by="income").sink("best", ps.io.collect())
    ran = WholeFlow(top.build(), rows_max=rows_max).run()
    late = Counter(ran.rows("late"))
    expected: dict = defaultdict(lambda: (0, 0))
    for row in (Counter(row for row in rows if row[2] > 5) - late).elements():
        start = row[1] // 20 * 20
        n, income = expected[start, start + 20, row[0]]
        expected[start, start + 20, row[0]] = (n + 1, income + row[2])
    assert Counter(ran.rows()) == Counter((*key, *value) for key, value in expected.items())
    if lateness == 100:
        assert not late
    best: dict = {}
    for start, end, route, n, income in sorted(ran.rows(), key=lambda row: (-row[4], row[2])):
        best.setdefault(start, (start, end, route, n, income))
    assert sorted(ran.rows("best")) == sorted(best.values())


def test_errors_and_good_rows_part_ways() -> None:
    top = ps.Topology("parse")
    parsed = top.source("lines", generated(['{"n": 1}', "oops", '{"n": "x"}', '{"n": 4}'])).map(
        lambda row: json.loads(row.line), "n bigint", on_error="quarantine", tasks=2
    )
    parsed.sink("out", ps.io.collect())
    parsed.errors.map(lambda row: (row.line, row.error.split(":")[0]), "line string, why string").sink(
        "bad", ps.io.collect()
    )
    ran = WholeFlow(top.build()).run()
    assert sorted(ran.rows()) == [(1,), (4,)]
    assert sorted(ran.rows("bad")) == [("oops", "JSONDecodeError"), ('{"n": "x"}', "TypeError")]


def test_processing_time_windows_and_rate() -> None:
    top = ps.Topology("ticks")
    ticks = top.source("ticks", ps.io.rate(1000, rows=10, tasks=2))
    parity = ticks.map(lambda row: (row.value % 2,), "parity bigint")
    parity.key_by("parity").count(window=ps.tumbling("1 hour", time="processing")).top(1).sink("out", ps.io.collect())
    assert [row[2:] for row in WholeFlow(top.build(), now_us=7_200_000_000).run().rows()] == [(0, 5)]


def test_a_flow_travels_in_sparks_closure() -> None:
    """Functions, schemas, windows, event time and groupings arrive whole in another process."""
    top = ps.Topology("travels")
    limit = 1
    timed = top.source(
        "lines", ps.io.generator(lambda task, tasks: [("a b", 5), ("a", 7)], "line string, at timestamp")
    )
    words = timed.event_time("at").flat_map(
        lambda row: [(w, row.at) for w in row.line.split()], "word string, at timestamp"
    )
    counts = words.key_by("word").count(window=ps.tumbling("10 us")).filter(lambda row: row.count > limit)
    counts.direct(lambda row: 0).top(1).sink("out", ps.io.collect())
    words.key_by("word").reduce(lambda a, b: a).sink("first", ps.io.collect())
    flow = cloudpickle.loads(cloudpickle.dumps(top.build()))
    ran = WholeFlow(flow).run()
    assert ran.rows() == [(0, 10, "a", 2)]
    assert sorted(ran.rows("first")) == [("a", 5), ("b", 5)]


class Pairs(ps.Stateful):
    schema = "user string, first timestamp, second timestamp"

    def on_row(self, key: object, row: ps.Row, state: dict, timers: object, emit: object) -> None:
        if "first" in state:
            emit((key, state.pop("first"), row.time))  # type: ignore[operator]
        else:
            state["first"] = row.time


@given(rows=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 99)), max_size=20), n=tasks)
@settings(max_examples=30)
def test_union_join_and_process(rows: list, n: int) -> None:
    top = ps.Topology("mixed")
    schema = "user string, time timestamp"
    left = top.source("left", ps.io.generator(lambda task, tasks: iter(rows), schema))
    right = top.source("right", ps.io.generator(lambda task, tasks: iter(rows[::-1]), schema))
    both = left.union(right, tasks=n)
    both.key_by("user").process(Pairs, tasks=n).sink("pairs", ps.io.collect())
    other = right.map(lambda row: (row.user, row.time), "user string, at timestamp").event_time("at", "100 us")
    left.event_time("time", "100 us").join(other, "user", window=ps.tumbling("50 us"), tasks=n).sink(
        "out", ps.io.collect()
    )
    flow = top.build()
    assert flow.operator("join1").outputs["out"].field("time").type == US
    ran = WholeFlow(flow, rows_max=3).run()
    assert len(ran.rows("pairs")) == sum(Counter(user for user, _ in rows).values())
    expected = Counter(
        (t // 50 * 50, t // 50 * 50 + 50, u, t, at) for u, t in rows for v, at in rows if u == v and t // 50 == at // 50
    )
    assert Counter(ran.rows()) == expected
