"""Files with event time come with exact watermarks: nothing is late, however rows, files and row groups lie."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flow_kit import US, Recorder, opened
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.flow.schema import parse_schema
from penstock.run.contract import END_OF_TIME_US, SourceTask
from penstock.run.dataflow import TimeSpec
from penstock.run.operators.event_time import with_event_time
from penstock.run.operators.sources.files import FilesSource

SCHEMA = parse_schema("time timestamp, n bigint")
TIMES = st.lists(st.one_of(st.none(), st.integers(-30, 30)), max_size=12)


def write(path: Path, kind: str, times: list, *, group: int = 4, statistics: bool = True) -> str:
    table = pa.table({"time": pa.array(times, pa.int64()).cast(US), "n": pa.array(range(len(times)), pa.int64())})
    match kind:
        case "parquet":
            pq.write_table(table, path, row_group_size=max(1, group), write_statistics=statistics)
        case "csv":
            moments = [
                "" if t is None else f"{moment}"
                for t, moment in zip(times, table["time"].cast(pa.string()), strict=True)
            ]
            path.write_text("time,n\n" + "".join(f"{m},{n}\n" for n, m in enumerate(moments)))
        case "json":
            moments = table["time"].cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
            path.write_text("".join(json.dumps({"time": m, "n": n}) + "\n" for n, m in enumerate(moments)))
    return str(path)


def read(files: list[str], kind: str, rows_max: int) -> list[Any]:
    """What the source does: rows as lists of times, and watermarks as numbers."""
    source = opened(
        partial(with_event_time, partial(FilesSource, files, kind, SCHEMA), TimeSpec("time", 0)), rows_max=rows_max
    )
    assert isinstance(source, SourceTask)
    steps: list[Any] = []
    while True:
        out = Recorder()
        polled = source.poll(0, out)
        steps += [[row[0] for row in out.rows()]] if out.rows() else []
        steps += out.watermarks
        if polled.ended:
            return steps


def check(steps: list[Any], files: list[list[Any]]) -> None:
    rows = [time for step in steps if isinstance(step, list) for time in step]
    assert sorted(rows, key=str) == sorted((t for times in files for t in times), key=str)
    marks = [step for step in steps if isinstance(step, int)]
    assert marks == sorted(marks)
    for i, step in enumerate(steps):
        if isinstance(step, int):
            later = [t for after in steps[i:] if isinstance(after, list) for t in after if t is not None]
            assert step == min(later, default=END_OF_TIME_US), "the watermark is exact"


@given(
    files=st.lists(TIMES, min_size=1, max_size=4),
    group=st.integers(1, 5),
    rows_max=st.integers(1, 5),
    statistics=st.booleans(),
)
def test_watermarks_of_parquet_files_are_exact(
    files: list, group: int, rows_max: int, statistics: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    paths = [
        write(folder / f"{i}.parquet", "parquet", times, group=group, statistics=statistics)
        for i, times in enumerate(files)
    ]
    check(read(paths, "parquet", rows_max), files)


@pytest.mark.parametrize("kind", ["csv", "json"])
@given(files=st.lists(TIMES, min_size=1, max_size=3), rows_max=st.integers(1, 5))
def test_watermarks_of_text_files_are_exact(
    kind: str, files: list, rows_max: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    check(read([write(folder / f"{i}.{kind}", kind, times) for i, times in enumerate(files)], kind, rows_max), files)


def test_files_in_order_let_time_go_on_with_every_batch(tmp_path: Path) -> None:
    times = [list(range(0, 100, 2)), list(range(1, 100, 2))]
    steps = read([write(tmp_path / f"{i}.parquet", "parquet", t, group=50) for i, t in enumerate(times)], "parquet", 5)
    rows = 0
    for step in steps:
        if isinstance(step, list):
            rows += len(step)
        elif step != END_OF_TIME_US:
            assert step >= rows - 10  # two files side by side, a batch of each


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 nonsense")
    with pytest.raises(InvalidInput, match=r"source 'op' cannot read '.*broken.parquet' as parquet"):
        read([str(broken)], "parquet", 5)
