"""What random topologies are built of: sources in time and operators between, each stream with its rows in SQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession
from random_cases import Case
from random_rows import SCHEMA, spark_frame

from penstock.flow import io
from penstock.flow.schema import to_ddl
from penstock.flow.stream import DataStream
from penstock.flow.windows import sliding
from penstock.jobs import Topology
from penstock.run.operators.times import Window

SPANS = (("10 seconds", "10 seconds"), ("30 seconds", "10 seconds"), ("25 seconds", "10 seconds"), ("1 minute",) * 2)
BOUNDS = "w.start as window_start, w.end as window_end"
PLAIN = {
    "rows": "count(*)",
    "known": "count(number)",
    "total": "sum(number)",
    "least": "min(number)",
    "paid": "sum(price)",
    "dearest": "max(price)",
    "latest": "max(time)",
}
COMPUTED = {
    "kinds": "count(distinct number)",
    "gained": "sum(price) filter (where price > 0)",
    "twice": "max(number * 2)",
}


@dataclass(frozen=True)
class Asked:
    """A stream, the same rows in SQL, and those of them that have no time."""

    stream: DataStream
    sql: str
    timeless: tuple[Any, ...] = ()


@dataclass
class Questions:
    """Random topologies side by side in one job, and a question in SQL for each of its sinks."""

    spark: SparkSession
    folder: Path
    topology: Topology = field(default_factory=lambda: Topology("random"))
    expected: dict[str, str] = field(default_factory=dict)  # sink -> SQL
    late: dict[str, int] = field(default_factory=dict)  # operator -> rows without a time


@dataclass
class Builder:
    """One case on its way into a topology."""

    questions: Questions
    case: Case
    rng: random.Random

    def tasks(self) -> int:
        """Of some operator."""
        return self.rng.randint(1, 3)

    def ask(self, name: str, stream: DataStream, sql: str) -> None:
        """A sink and its question."""
        name = f"case {self.case.number} {name}"
        stream.sink(name, io.collect(), tasks=self.rng.choice((None, 1, 2)))
        self.questions.expected[name] = sql

    def aggregates(self) -> dict[str, str]:
        """Some that the core computes, and some that need columns computed first."""
        return {**PLAIN, **COMPUTED} if self.rng.random() < 0.4 else PLAIN

    def on_late(self, asked: Asked) -> str:
        """Where no row is without a time, none may be late."""
        return "side" if asked.timeless else self.rng.choice(("side", "error"))

    def timed(self, made: DataStream, sql: str, *inputs: Asked) -> Asked:
        """What an operator with event-time windows made; rows without a time are late there, and sometimes read."""
        timeless = [row for asked in inputs for row in asked.timeless]
        if timeless:
            self.questions.late[made.operator] = len(timeless)
        for asked, late in zip(inputs, ("late", "late_right"), strict=False):
            if self.rng.random() < 0.4:
                columns = ", ".join(asked.stream.schema.names)
                rows = f"select {columns} from ({asked.sql}) where {asked.stream.time_column} is null"
                self.ask(f"{late} of {made.operator}", getattr(made, late), rows)
        return Asked(made, sql)

    def rows(self, which: int = 0, *, timed: bool = True) -> Asked:
        """A source, with event time if wanted, and a few operators behind it."""
        given = self.case.given(which)
        table = given.rows.table(self.case.at_most)
        name = f"rows_{self.case.number}_{which}"
        spark = self.questions.spark
        spark_frame(spark, table).createOrReplaceTempView(name)
        timeless = tuple(SimpleNamespace(**row) for row in table.to_pylist() if row["time"] is None)
        source = given.way.source(spark, table, self.questions.folder / name)
        asked = Asked(self.questions.topology.source(name, source), f"select * from {name}", timeless)
        if timed and not given.behind:
            asked = replace(asked, stream=asked.stream.event_time("time", given.lateness))
        if timed and given.behind:
            asked = self.changed(asked, self.rng.choice(list(CHANGES)))
            asked = replace(asked, stream=asked.stream.event_time("time", given.lateness))
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            asked = self.changed(asked, self.rng.choice(list(CHANGES)))
        return asked

    def changed(self, asked: Asked, change: str) -> Asked:
        """Through an operator that looks at rows one by one."""
        stream = asked.stream
        if self.rng.random() < 0.3:
            regroup = self.rng.choice((DataStream.shuffle, DataStream.local_or_shuffle, DataStream.global_))
            stream = regroup(stream)
        return CHANGES[change](asked, stream, self.tasks())

    def window(self) -> tuple[Window, str]:
        """Tumbling or sliding, and how Spark writes it over a column."""
        size, slide = self.rng.choice(SPANS)
        return sliding(size, slide), f"'{size}', '{slide}'"

    def counted(self, asked: Asked, *, named: str = "count", column: str = "time") -> Asked:
        """Rows of each key and window."""
        window, spans = self.window()
        keyed = asked.stream.key_by("key")
        late = self.on_late(asked)
        made = keyed.aggregate(window=window, on_late=late, tasks=self.tasks(), **{named: "count(*)"})
        sql = f"select {BOUNDS}, key, count(*) as {named} from {members(asked.sql, spans, column)} group by w, key"
        return self.timed(made, sql, asked)


def members(sql: str, spans: str, column: str = "time") -> str:
    """Rows with the windows that they belong to; without a time to none."""
    return f"(select window({column}, {spans}) as w, * from ({sql}) where {column} is not null)"


def in_sql(columns: dict[str, str]) -> str:
    """Aggregates as Spark writes them, which is as they are written here."""
    return ", ".join(f"{text} as {name}" for name, text in columns.items())


# -- operators between: each keeps the columns ------------------------------------------------------------------------


def is_kept(row: Any) -> bool:  # noqa: ANN401 - a row
    return row.number is None or row.number % 3 != 0


def with_more(row: Any) -> tuple[object, ...]:  # noqa: ANN401 - a row
    return row.n, row.key, None if row.number is None else row.number + 1, row.price, row.time


KEPT = "number is null or number % 3 <> 0"


def kept(asked: Asked, stream: DataStream) -> Asked:
    return Asked(stream, f"select * from ({asked.sql}) where {KEPT}", tuple(filter(is_kept, asked.timeless)))


def more(asked: Asked, stream: DataStream) -> Asked:
    sql = f"select n, key, number + 1 as number, price, time from ({asked.sql})"
    timeless = [SimpleNamespace(**dict(zip(SCHEMA.names, with_more(row), strict=True))) for row in asked.timeless]
    return Asked(stream, sql, tuple(timeless))


def through_filter(asked: Asked, stream: DataStream, tasks: int) -> Asked:
    return kept(asked, stream.filter(is_kept, tasks=tasks))


def through_where(asked: Asked, stream: DataStream, tasks: int) -> Asked:
    return kept(asked, stream.where(KEPT, tasks=tasks))


def through_map(asked: Asked, stream: DataStream, tasks: int) -> Asked:
    return more(asked, stream.map(with_more, to_ddl(SCHEMA), tasks=tasks))


def through_expression(asked: Asked, stream: DataStream, tasks: int) -> Asked:
    return more(asked, stream.with_column("number", "number + 1", tasks=tasks))


def through_select(asked: Asked, stream: DataStream, tasks: int) -> Asked:
    return replace(asked, stream=stream.select(*SCHEMA.names, tasks=tasks))


def through_batches(asked: Asked, stream: DataStream, tasks: int) -> Asked:
    return replace(asked, stream=stream.map_batches(lambda batch: batch, tasks=tasks))


CHANGES: dict[str, Callable[[Asked, DataStream, int], Asked]] = {
    "filter": through_filter,
    "map": through_map,
    "where": through_where,
    "expression": through_expression,
    "select": through_select,
    "batches": through_batches,
}
