"""Sinks deliver every row, and files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flow_kit import Recorder, opened

from penstock.errors import InvalidInput, RowError
from penstock.flow import io
from penstock.flow.schema import parse_schema
from penstock.run.operators.sinks import row_groups

SCHEMA = parse_schema("n bigint")
BATCH = pa.RecordBatch.from_pydict({"n": [1, 2]}, SCHEMA)


def test_collect_hands_over_under_its_name() -> None:
    taken: list = []
    task = opened(lambda: io.collect().make(SCHEMA), deliver=lambda name, batch: taken.append((name, batch)))
    task.process(BATCH, 0, Recorder())
    assert taken == [("op", BATCH)]
    with pytest.raises(InvalidInput, match="sink 'op' collects rows but nobody takes them"):
        opened(lambda: io.collect().make(SCHEMA))


def test_parquet_parts_appear_when_they_are_whole(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    tasks = [opened(lambda: io.parquet(str(folder)).make(SCHEMA), index=i, tasks=3, job="j1") for i in range(3)]
    for task in tasks[:2]:
        task.process(BATCH, 0, Recorder())
        task.process(BATCH, 0, Recorder())
    assert not any(path.name.startswith("part") for path in folder.iterdir())
    for task in tasks:
        task.finish(Recorder())
        task.close()
    assert sorted(path.name for path in folder.iterdir()) == ["part-00000-op-j1.parquet", "part-00001-op-j1.parquet"]
    assert pq.read_table(folder).column("n").to_pylist() == [1, 2, 1, 2] * 2


def test_small_batches_make_large_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "GROUP_ROWS", 1000)
    task = opened(lambda: io.parquet(str(tmp_path)).make(SCHEMA))
    for i in range(2100):
        task.process(pa.RecordBatch.from_pydict({"n": [i]}, SCHEMA), 0, Recorder())
    task.process(pa.RecordBatch.from_pydict({"n": list(range(2100, 5000))}, SCHEMA), 0, Recorder())
    task.finish(Recorder())
    (part,) = tmp_path.iterdir()
    with pq.ParquetFile(part) as file:
        assert file.num_row_groups <= 6
        assert file.read()["n"].to_pylist() == list(range(5000))


def test_wide_rows_do_not_wait_for_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "GROUP_BYTES", 10_000)
    task = opened(lambda: io.parquet(str(tmp_path)).make(SCHEMA))
    for _ in range(10):
        task.process(pa.RecordBatch.from_pydict({"n": list(range(1000))}, SCHEMA), 0, Recorder())
    task.finish(Recorder())
    with pq.ParquetFile(next(tmp_path.iterdir())) as file:
        assert 4 <= file.num_row_groups <= 6


def test_parquet_without_rows_still_has_a_schema(tmp_path: Path) -> None:
    task = opened(lambda: io.parquet(str(tmp_path)).make(SCHEMA))
    task.finish(Recorder())
    assert pq.read_table(tmp_path).schema == SCHEMA


def test_parquet_leaves_nothing_after_an_error(tmp_path: Path) -> None:
    task = opened(lambda: io.parquet(str(tmp_path)).make(SCHEMA))
    task.process(BATCH, 0, Recorder())
    task.close()
    assert list(tmp_path.iterdir()) == []


def test_a_job_run_again_replaces_its_parts(tmp_path: Path) -> None:
    for _ in range(2):
        task = opened(lambda: io.parquet(str(tmp_path)).make(SCHEMA), job="same")
        task.process(BATCH, 0, Recorder())
        task.finish(Recorder())
    assert pq.read_table(tmp_path).num_rows == 2


def test_callbacks_get_batches_or_rows() -> None:
    taken: list = []
    opened(lambda: io.callback(taken.append).make(SCHEMA)).process(BATCH, 0, Recorder())
    opened(lambda: io.callback(lambda row: taken.append(row.n), rows=True).make(SCHEMA)).process(BATCH, 0, Recorder())
    assert taken == [BATCH, 1, 2]
    task = opened(lambda: io.callback(lambda row: 1 / (row.n - 2), rows=True).make(SCHEMA))
    with pytest.raises(RowError, match="row 1"):
        task.process(BATCH, 0, Recorder())


def test_discard_takes_anything() -> None:
    opened(lambda: io.discard().make(SCHEMA)).process(BATCH, 0, Recorder())
