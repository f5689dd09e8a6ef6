"""Sources give every row once, share them over tasks, stop when told and go on where they were."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from flow_kit import Recorder, opened
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.flow import io
from penstock.flow.schema import parse_schema
from penstock.flow.topology import Topology
from penstock.run.columns.unwritten import in_bytes
from penstock.run.contract import ENDED, Polled, SourceTask
from penstock.run.operators.sources.files import FilesSource
from penstock.run.operators.sources.generated import GATHER_NS, PAUSE_US, TICK_US, GeneratorSource

SCHEMA = parse_schema("n bigint, text string")


def drain(task: SourceTask, out: Recorder, now: int = 0, polls: int = 10_000) -> int:
    """Poll until the end; time jumps to whenever the source wants to be asked again."""
    for _ in range(polls):
        polled = task.poll(now, out)
        if polled.ended:
            return now
        now = max(now, polled.wait_until_us or now)
    pytest.fail("the source does not end")


def numbered(task: int, tasks: int) -> Iterator[object]:
    for n in range(task, 23, tasks):
        if n % 5 == 0:
            yield None
        yield pa.RecordBatch.from_pydict({"n": [n], "text": [None]}, SCHEMA) if n % 3 == 0 else (n, str(n))


@given(tasks=st.integers(1, 3), rows_max=st.integers(1, 7), moved=st.integers(0, 9))
def test_generators_are_shared_and_go_on_where_they_were(tasks: int, rows_max: int, moved: int) -> None:
    out = Recorder()
    for index in range(tasks):
        build = partial(GeneratorSource, numbered, SCHEMA)
        task = opened(build, rows_max=rows_max, tasks=tasks, index=index)
        for _ in range(moved):
            task.poll(0, out)
        state = in_bytes(task.take_state())
        task = opened(build, rows_max=rows_max, tasks=tasks, index=index)
        task.put_state(state)
        drain(task, out)
    assert sorted(row[0] for row in out.rows()) == list(range(23))
    assert all(batch.num_rows <= rows_max and batch.schema == SCHEMA for batch in out.batches["out"])


@given(before=st.lists(st.integers(0, 3), max_size=8), after=st.lists(st.integers(0, 3), max_size=20))
def test_pauses_that_come_otherwise_again_lose_and_repeat_nothing(before: list[int], after: list[int]) -> None:
    pauses: list[int] = []

    def paused(task: int, tasks: int) -> Iterator[object]:
        for n in range(12):
            yield from [None] * (pauses[n] if n < len(pauses) else 0)
            yield n, "a"

    out, build = Recorder(), partial(GeneratorSource, paused, SCHEMA)
    task, pauses = opened(build, rows_max=1), before
    for _ in range(len(before) + sum(before)):
        task.poll(0, out)
    state = task.take_state()
    task, pauses = opened(build, rows_max=1), after
    task.put_state(state)
    drain(task, out)
    assert [row[0] for row in out.rows()] == list(range(12))


def test_rows_of_a_slow_generator_go_out_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, GATHER_NS + 1)  # every look at it finds that the time is over
    monkeypatch.setattr("penstock.run.operators.sources.generated.time.monotonic_ns", lambda: next(clock))
    task, out = opened(partial(GeneratorSource, lambda task, tasks: [(n, "a") for n in range(5)], SCHEMA)), Recorder()
    for n in range(5):
        assert task.poll(n, out) == Polled()
        assert out.rows() == [(m, "a") for m in range(n + 1)]
    assert task.poll(5, out) == ENDED


def test_a_generator_pauses_and_stops() -> None:
    def endless(task: int, tasks: int) -> Iterator[object]:
        while True:
            yield (1, "a")
            yield None
            yield None

    task, out = opened(partial(GeneratorSource, endless, SCHEMA)), Recorder()
    assert task.poll(7, out) == Polled()
    assert out.rows() == [(1, "a")]
    assert task.poll(7, out) == Polled(wait_until_us=7 + PAUSE_US)
    task.stop()
    assert task.poll(8, out) == ENDED


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1,), r"a row has 1 values but the declared schema has 2: n, text"),
        ({"n": 1, "txt": "a"}, r"columns n, txt but declared are n, text"),
        (("x", "a"), r"column 'n' is declared int64 but got 'x'"),
        (7, r"a row is 7; give a dict or a tuple with n, text"),
    ],
)
def test_rows_that_do_not_fit_are_refused(row: object, message: str) -> None:
    task = opened(partial(GeneratorSource, lambda task, tasks: [row], SCHEMA))
    with pytest.raises(InvalidInput, match=message):
        task.poll(0, Recorder())


def test_not_null_is_kept() -> None:
    task = opened(partial(GeneratorSource, lambda task, tasks: [(None,)], parse_schema("n bigint not null")))
    with pytest.raises(InvalidInput, match="'n' is declared NOT NULL but got a null"):
        task.poll(0, Recorder())


def test_a_source_that_shrank_cannot_go_on() -> None:
    task = opened(partial(GeneratorSource, lambda task, tasks: [(1, "a")], SCHEMA))
    task.put_state({"taken": b"5"})
    with pytest.raises(InvalidInput, match=r"'op/0' cannot continue at item 5: it has fewer now"):
        task.poll(0, Recorder())


def test_handed_batches() -> None:
    batch = pa.RecordBatch.from_pydict({"text": ["a"], "n": pa.array([1], pa.int32())})
    source = io.dataframe(pa.table({"n": pa.array([], pa.int64()), "text": pa.array([], pa.string())}))
    task, out = opened(source.build, inputs={"op": iter([None, batch])}), Recorder()
    drain(task, out)
    assert out.rows() == [(1, "a")]
    idle, nothing = opened(source.build), Recorder()
    drain(idle, nothing)
    assert nothing.rows() == []


def write(folder: Path, kind: str, name: str, rows: list[dict]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    path = folder / f"{name}.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=4)
    elif kind == "csv":
        pacsv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.parametrize("declared", [None, "n bigint, text string", "text string"])
def test_files_are_shared_out_sorted_and_streamed(tmp_path: Path, kind: str, declared: str | None) -> None:
    rows = [[{"n": 10 * file + i, "text": f"t{i}"} for i in range(10)] for file in range(5)]
    for file, content in enumerate(rows):
        write(tmp_path, kind, f"f{file}", content)
    write(tmp_path, kind, "_hidden", rows[0])
    write(tmp_path, kind, ".hidden", rows[0])
    source = io.files(str(tmp_path), kind, declared)
    found = []
    for index in range(2):
        out = Recorder()
        task = opened(source.build, rows_max=3, tasks=2, index=index)
        task.poll(0, out)
        state = in_bytes(task.take_state())
        task = opened(source.build, rows_max=3, tasks=2, index=index)
        task.put_state(state)
        drain(task, out)
        names = source.schema.names
        assert [dict(zip(names, row, strict=True)) for row in out.rows()] == [
            {name: row[name] for name in names} for file in rows[index::2] for row in file
        ]
        assert all(b.num_rows <= 3 and b.schema == source.schema for b in out.batches["out"])
        found += out.rows()
    assert len(found) == 50


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_files_without_a_byte_have_no_rows(tmp_path: Path, kind: str) -> None:
    """Spark writes such for partitions without rows, and Arrow calls them errors."""
    (tmp_path / f"a.{kind}").touch()
    write(tmp_path, kind, "b", [{"n": 1, "text": "a"}])
    out, task = Recorder(), opened(io.files(str(tmp_path), kind, "n bigint, text string").build)
    drain(task, out)
    assert out.rows() == [(1, "a")]


def test_files_that_are_missing_or_broken_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no parquet files at .*nothing.*; give a folder"):
        io.files(str(tmp_path / "nothing*"))
    with pytest.raises(InvalidInput, match="unknown file format 'orc'; known: parquet, csv, json"):
        io.files(str(tmp_path), "orc")
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(InvalidInput, match=r"cannot read the schema of .*broken.parquet"):
        io.files(str(tmp_path))
    task = opened(io.files(str(tmp_path), schema="n bigint").build)
    with pytest.raises(InvalidInput, match=r"source 'op' cannot read .*broken.parquet"):
        task.poll(0, Recorder())
    write(tmp_path, "parquet", "a", [{"n": 1, "text": "a"}])
    task = opened(io.files(str(tmp_path / "a.parquet"), schema="z bigint").build)
    with pytest.raises(InvalidInput, match="no column 'z'; it has n, text"):
        task.poll(0, Recorder())


@given(
    per_second=st.sampled_from([0.5, 3.0, 1000.0, 1_000_000.0]),
    rows=st.integers(0, 40),
    tasks=st.integers(1, 3),
    moved=st.integers(0, 3),
)
def test_rate_gives_each_value_once_and_on_time(per_second: float, rows: int, tasks: int, moved: int) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    source = io.rate(per_second, rows=rows, start=start)
    found = []
    for index in range(tasks):
        out = Recorder()
        task, now = opened(source.build, rows_max=4, tasks=tasks, index=index), 1_000_000
        for _ in range(moved):
            polled = task.poll(now, out)
            now = polled.wait_until_us or now
        state = in_bytes(task.take_state())
        task = opened(source.build, rows_max=4, tasks=tasks, index=index)
        task.put_state(state)
        end = drain(task, out, now)
        assert all(batch.num_rows <= 4 for batch in out.batches.get("out", []))
        last = max((row[1] for row in out.rows()), default=0)
        assert abs(end - 1_000_000 - last * 1e6 / per_second) <= max(
            rows + 3, TICK_US
        )  # rows of one tick come together
        found += out.rows()
    base = int(start.timestamp() * 1e6)
    assert sorted(row[1] for row in found) == list(range(rows))
    assert all(abs(time - base - value * 1e6 / per_second) <= 1 for time, value in found)


def test_rate_without_rows_is_endless() -> None:
    source = io.rate(10)
    assert not source.bounded
    task, out = opened(source.build), Recorder()
    assert task.poll(0, out) == Polled(wait_until_us=100_000)
    assert task.poll(50_000, out) == Polled(wait_until_us=100_000)
    assert task.poll(100_000, out) == Polled(wait_until_us=200_000)
    assert [value for _, value in out.rows()] == [0, 1]


@pytest.mark.parametrize("attached", [False, True])
def test_rows_of_a_rate_are_as_old_as_their_schedule_however_late_they_are_asked_for(attached: bool) -> None:
    top = Topology("late")
    stream = top.source("rate", io.rate(10, rows=100), tasks=2).event_time("timestamp")
    stream.sink("out", io.discard(), tasks=None if attached else 1)
    task, out = opened(top.build().operator("rate").build, rows_max=4, tasks=2, index=1), Recorder()
    assert task.due_us() is None  # nobody has started the clock
    task.poll(1_000_000, out)
    assert task.due_us() == 1_100_000  # value 1 of the second of two tasks, ten values a second
    task.poll(60_000_000, out)  # a slow job asks a minute later, and four rows fit: values 1, 3, 5, 7
    assert [value for _, value in out.rows()] == [1, 3, 5, 7]
    assert task.due_us() == 1_900_000


def test_csv_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    """Nothing is null, also between quotes and in text, and nothing else is; a moment without a zone is UTC."""
    path = tmp_path / "rows.csv"
    path.write_text(
        'k,v,t\na,1,2024-01-01 00:00:00\n,2,2024-01-01T02:00:00+02:00\n"",3,\nNA,4,2024-01-01T00:00:00.5Z\n'
    )
    schema = parse_schema("k string, v int, t timestamp")
    out, task = Recorder(), opened(partial(FilesSource, [str(path)], "csv", schema))
    while not task.poll(0, out).ended:  # type: ignore[attr-defined]
        pass
    new_year = 1_704_067_200_000_000
    assert out.rows() == [("a", 1, new_year), (None, 2, new_year), (None, 3, None), ("NA", 4, new_year + 500_000)]
