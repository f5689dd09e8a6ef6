"""Random topologies, each with the same question in Spark SQL; a function for each shape of `random_cases.SHAPES`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oracle_kit import SESSIONS_SQL, Sessions
from random_cases import SHAPES, Case
from random_streams import BOUNDS, Asked, Builder, Questions, in_sql, members


def keyed(build: Builder) -> None:
    """Aggregates of each key over everything."""
    asked = build.rows(timed=build.rng.random() < 0.5)
    if build.rng.random() < 0.3:
        parts = asked.stream.key_by("key").partial_key().count(tasks=build.tasks())
        made = parts.key_by("key").aggregate(tasks=build.tasks(), rows="sum(count)")
        build.ask("parts", made, f"select key, count(*) as rows from ({asked.sql}) group by key")
    wanted = build.aggregates()
    made = asked.stream.key_by("key").aggregate(tasks=build.tasks(), **wanted)
    build.ask("keyed", made, f"select key, {in_sql(wanted)} from ({asked.sql}) group by key")


def windowed(build: Builder) -> None:
    """Aggregates of each key and window; and, beside them, the rows themselves."""
    asked = build.rows()
    window, spans = build.window()
    wanted = build.aggregates()
    made = asked.stream.key_by("key").aggregate(window=window, tasks=build.tasks(), **wanted)
    sql = f"select {BOUNDS}, key, {in_sql(wanted)} from {members(asked.sql, spans)} group by w, key"
    result = build.timed(made, sql, asked)
    build.ask("windowed", result.stream, result.sql)
    if build.rng.random() < 0.3:
        build.ask("rows", asked.stream, asked.sql)


def reduced(build: Builder) -> None:
    """A function of two rows, with a window or without."""
    asked = build.rows()
    chosen = replace(asked, stream=asked.stream.select("key", "n", "time", tasks=build.tasks()))
    chosen = replace(chosen, sql=f"select key, n, time from ({asked.sql})")
    if build.rng.random() < 0.3:
        chosen = replace(chosen, stream=chosen.stream.filter(lambda row: row.time is not None))
        made = chosen.stream.key_by("key").reduce(smaller, tasks=build.tasks())
        sql = f"select key, sum(n) as n, min(time) as time from ({chosen.sql}) where time is not null group by key"
        build.ask("reduced", made, sql)
        return
    window, spans = build.window()
    made = chosen.stream.key_by("key").reduce(smaller, window=window, tasks=build.tasks())
    sql = f"select {BOUNDS}, key, sum(n) as n, min(time) as time from {members(chosen.sql, spans)} group by w, key"
    build.ask("reduced", build.timed(made, sql, chosen).stream, sql)


def smaller(a: Any, b: Any) -> tuple[object, ...]:  # noqa: ANN401 - rows
    return a.key, a.n + b.n, min(a.time, b.time)


def ranked(build: Builder) -> None:
    """The best keys of each window."""
    counts = build.counted(build.rows())
    best = counts.stream.top(2, tasks=build.tasks()).top(2)
    place = "row_number() over (partition by window_start order by count desc, key nulls last)"
    ranks = f"select *, {place} as place from ({counts.sql})"
    build.ask("ranked", best, f"select window_start, window_end, key, count from ({ranks}) where place <= 2")
    if build.rng.random() < 0.5:
        build.ask("counted", counts.stream, counts.sql)


def twice(build: Builder) -> None:
    """Windows over what windows gave."""
    again(build, build.counted(build.rows(), named="some"), "some")


def again(build: Builder, asked: Asked, column: str) -> None:
    """Windows over rows that are results of windows."""
    names = {"window_start": "started", "window_end": "ended"}
    renamed = asked.stream.rename(names, tasks=build.tasks())
    sql = f"select * from ({asked.sql}) t(started, ended, {', '.join(renamed.schema.names[2:])})"
    window, spans = build.window()
    wanted = {"rows": "count(*)", "total": f"sum({column})", "latest": "max(started)"}
    made = renamed.key_by("key").aggregate(window=window, tasks=build.tasks(), **wanted)
    build.ask(
        "again", made, f"select {BOUNDS}, key, {in_sql(wanted)} from {members(sql, spans, 'started')} group by w, key"
    )


def union(build: Builder) -> None:
    """Two sources as one; event time goes through where both have it, and is declared on the union otherwise."""
    at_sources = build.rng.random() < 0.6
    first, second = (build.rows(which, timed=at_sources) for which in (0, 1))
    both = first.stream.union(second.stream, tasks=build.tasks())
    if not at_sources:
        both = both.event_time("time")
    asked = Asked(both, f"{first.sql} union all {second.sql}", (*first.timeless, *second.timeless))
    counts = build.counted(asked)
    build.ask("union", counts.stream, counts.sql)


def joined(build: Builder) -> Asked:
    """Rows of two sources with equal keys in the same window."""
    first, second = build.rows(0), build.rows(1)
    tasks, how = build.tasks(), build.rng.choice(("inner", "left", "right", "full"))
    left = replace(first, stream=first.stream.select("key", "time", "n", "number", tasks=tasks))
    left = replace(left, sql=f"select key, time, n, number from ({first.sql})")
    others = second.stream.select("n", "time", "price", "key", tasks=tasks)
    right = replace(second, stream=others.rename({"n": "m", "time": "at", "key": "name"}, tasks=tasks))
    right = replace(right, sql=f"select n as m, time as at, price, key as name from ({second.sql})")
    window, spans = build.window()
    made = left.stream.key_by("key").join(right.stream.key_by("name"), window=window, how=how, tasks=build.tasks())
    sql = (
        "select coalesce(l.w, r.w).start as window_start, coalesce(l.w, r.w).end as window_end, "
        "coalesce(l.key, r.name) as key, l.time, l.n, l.number, r.m, r.at, r.price "
        f"from {members(left.sql, spans)} l {how} join {members(right.sql, spans, 'at')} r "
        "on l.w = r.w and l.key = r.name"
    )
    return build.timed(made, sql, left, right)


def join(build: Builder) -> None:
    """A join and nothing behind it."""
    asked = joined(build)
    build.ask("join", asked.stream, asked.sql)


def join_then_window(build: Builder) -> None:
    """Windows over what a join gave."""
    again(build, joined(build), "m")


def sessions(build: Builder) -> None:
    """State and timers written by hand; visits end when a key has been silent for a while."""
    asked = build.rows()
    known = asked.stream.filter(lambda row: row.time is not None, tasks=build.tasks())
    build.ask(
        "sessions", known.key_by("key").process(Sessions, tasks=build.tasks()), SESSIONS_SQL.format(f"({asked.sql})")
    )


BUILDS: dict[str, Callable[[Builder], None]] = {
    shape.__name__: shape
    for shape in (windowed, join, keyed, union, ranked, join_then_window, reduced, twice, sessions)
}
assert set(BUILDS) == set(SHAPES)


def add(questions: Questions, case: Case) -> None:
    """The case's topology beside the others of the job."""
    BUILDS[case.shape](Builder(questions, case, random.Random(case.number)))
