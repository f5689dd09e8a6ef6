"""Random jobs that go on for as long as a test wants, and what happens to them meanwhile, for Hypothesis to draw.

Sources number their rows and give them slowly until a gate is there, so that whatever moves, moves among rows. An
answer is known from the numbers alone. Behind a source its rows are counted in their order: one that was lost, came
twice or overtook another has a wrong count for ever.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import penstock as ps
from penstock.flow import io
from penstock.flow.stream import DataStream

ROWS, BATCH, HELD_BACK = 2_000, 10, 300  # of each source task; the last of them come when the gate is there
KEYS = 11
SCHEMA = "source int, n bigint, key bigint, at timestamp"
WINDOW_S = 100  # a row a second
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
CHANGES_MAX = 5

Row = tuple[int, int, int]  # source, n, key
Answer = Counter[tuple[Any, ...]]


class Slowly:
    """Numbered rows in small batches, a pause before each until the gate is there."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __call__(self, task: int, tasks: int) -> Iterator[pa.RecordBatch | None]:
        """The rows of one task."""
        is_open = False
        for first in range(0, ROWS, BATCH):
            yield None
            while not (is_open := is_open or self.gate.exists()) and first >= ROWS - HELD_BACK:
                yield None
            rows = [(task, n, key_of(task, n)) for n in range(first, first + BATCH)]
            columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), TYPES, strict=True)]
            times = pa.array([EPOCH + dt.timedelta(seconds=n) for _, n, _ in rows], pa.timestamp("us", "UTC"))
            yield pa.record_batch([*columns, times], names=["source", "n", "key", "at"])


TYPES = (pa.int32(), pa.int64(), pa.int64())


def key_of(source: int, n: int) -> int:
    """The key of a row."""
    return (7 * n + n // 13 + source) % KEYS


class InOrder(ps.Stateful):
    """The place that each row has among those of its source."""

    schema = "source int, n bigint, key bigint, at timestamp, place bigint"

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Callable[..., None]) -> None:  # noqa: ANN401
        """One more."""
        state["seen"] = place = state.get("seen", 0) + 1
        emit((row.source, row.n, row.key, row.at, place))


# -- operators between: a stream to a stream, and the same of rows -----------------------------------------------------


def kept(row: Any) -> bool:  # noqa: ANN401 - a row
    return row.n % 3 != 1


def shifted(row: Any) -> tuple[object, ...]:  # noqa: ANN401 - a row
    return row.source, row.n, (row.key + 1) % KEYS, row.at


def doubled(row: Any) -> Iterator[tuple[object, ...]]:  # noqa: ANN401 - a row
    yield row.source, row.n, row.key, row.at
    if row.n % 5 == 0:
        yield row.source, row.n, (row.key + 3) % KEYS, row.at


def halves(stream: DataStream, tasks: int) -> DataStream:
    """Two ways that meet again."""
    return stream.where("n % 2 = 0", tasks=tasks).union(stream.where("n % 2 = 1", tasks=1), tasks=tasks)


BETWEEN: dict[str, tuple[Callable[[DataStream, int], DataStream], Callable[[Row], Iterable[Row]]]] = {
    "shuffle": (lambda stream, tasks: stream.shuffle(), lambda row: [row]),
    "where": (lambda stream, tasks: stream.where("n % 4 <> 2", tasks=tasks), lambda row: [row] * (row[1] % 4 != 2)),
    "filter": (lambda stream, tasks: stream.filter(kept, tasks=tasks), lambda row: [row] * (row[1] % 3 != 1)),
    "map": (
        lambda stream, tasks: stream.map(shifted, SCHEMA, tasks=tasks),
        lambda row: [(row[0], row[1], (row[2] + 1) % KEYS)],
    ),
    "flat map": (
        lambda stream, tasks: stream.flat_map(doubled, SCHEMA, tasks=tasks),
        lambda row: [row] if row[1] % 5 else [row, (row[0], row[1], (row[2] + 3) % KEYS)],
    ),
    "halves": (halves, lambda row: [row]),
}


# -- ends: an answer of a stream, and the same of rows -----------------------------------------------------


def counted(stream: DataStream, tasks: int) -> DataStream:
    return stream.key_by("key").aggregate(rows="count(*)", total="sum(n)", tasks=tasks)


def counted_rows(rows: list[Row]) -> Answer:
    found = {key: [n for _, n, at in rows if at == key] for _, _, key in rows}
    return Counter((key, len(numbers), sum(numbers)) for key, numbers in found.items())


def windows(stream: DataStream, tasks: int) -> DataStream:
    keyed = stream.key_by("key").count(window=ps.tumbling(f"{WINDOW_S} seconds"), tasks=tasks)
    return keyed.select("unix_seconds(window_start) as begin", "key", "count")


def windows_rows(rows: list[Row]) -> Answer:
    begin = int(EPOCH.timestamp())
    found = Counter((begin + n // WINDOW_S * WINDOW_S, key) for _, n, key in rows)
    return Counter((*at, count) for at, count in found.items())


def plain(stream: DataStream, tasks: int) -> DataStream:
    return stream.select("source", "n", "key", tasks=tasks)


ENDS: dict[str, tuple[Callable[[DataStream, int], DataStream], Callable[[list[Row]], Answer]]] = {
    "count": (counted, counted_rows),
    "windows": (windows, windows_rows),
    "rows": (plain, Counter),
}


@dataclass(frozen=True)
class Change:
    """Something that is done to a job while it runs; numbers choose among what is there then."""

    kind: str  # of KINDS
    which: int
    where: int
    epochs: int  # that are committed before it


@dataclass(frozen=True)
class MovedJob:
    """A job and what happens to it."""

    sources: int
    tasks: tuple[int, ...]  # of operators, in turn
    between: tuple[str, ...]
    end: str
    sink: str
    workers: int
    transport: str
    changes: tuple[Change, ...]

    def topology(self, gate: Path, out: Path) -> ps.Topology:
        """Every source's rows in their order; and all rows through what is between, to an answer."""
        top, tasks = ps.Topology("moved"), iter(self.tasks)
        rows = top.source("numbers", io.generator(Slowly(gate), SCHEMA, tasks=self.sources))
        rows = rows.event_time("at", "0 seconds")
        ordered = rows.key_by("source").process(InOrder, tasks=next(tasks), name="order")
        ordered.select("source", "n", "place").sink("order out", io.collect())
        stream = rows
        for name in self.between:
            stream = BETWEEN[name][0](stream, next(tasks))
        sink = io.collect() if self.sink == "collect" else io.parquet(out)
        ENDS[self.end][0](stream, next(tasks)).sink("out", sink)
        return top

    def answers(self) -> dict[str, Answer]:
        """What has to come out at each sink."""
        rows = [(source, n, key_of(source, n)) for source in range(self.sources) for n in range(ROWS)]
        ordered = Counter((source, n, n + 1) for source, n, _ in rows)
        for name in self.between:
            rows = [made for row in rows for made in BETWEEN[name][1](row)]
        return {"order out": ordered, "out": ENDS[self.end][1](rows)}


def changes(kinds: tuple[str, ...]) -> st.SearchStrategy[Change]:
    """Any of these kinds, at any time."""
    return st.builds(Change, st.sampled_from(kinds), st.integers(0, 99), st.integers(0, 99), st.integers(0, 3))


def moved_jobs(kinds: tuple[str, ...]) -> st.SearchStrategy[MovedJob]:
    """Jobs to which such things happen."""
    return st.builds(
        MovedJob,
        sources=st.integers(1, 2),
        tasks=st.lists(st.integers(1, 3), min_size=5, max_size=5).map(tuple),
        between=st.lists(st.sampled_from(sorted(BETWEEN)), max_size=3).map(tuple),
        end=st.sampled_from(sorted(ENDS)),
        sink=st.sampled_from(("collect", "parquet")),
        workers=st.integers(2, 3),
        transport=st.sampled_from(("auto", "auto", "socket")),
        changes=st.lists(changes(kinds), min_size=2, max_size=CHANGES_MAX).map(tuple),
    )
