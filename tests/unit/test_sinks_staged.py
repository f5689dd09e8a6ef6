"""Sinks under checkpoints: files for each epoch, finished beside the loop, and numbers that go on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from flow_kit import Recorder, opened

from penstock.flow import io
from penstock.flow.schema import parse_schema
from penstock.run.contract import SETTING_ATTEMPT, SETTING_EPOCH, SETTING_STAGING, Task
from penstock.run.operators.sinks.folder import store_token
from penstock.run.operators.sinks.staged import PartName

SCHEMA = parse_schema("n bigint")


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, SCHEMA)


def under_checkpoints(sink: io.Sink, staging: Path, first: int = 1, index: int = 0, attempt: int = 1) -> Task:
    settings = {SETTING_EPOCH: first, SETTING_STAGING: str(staging), SETTING_ATTEMPT: attempt}
    return opened(lambda: sink.make(SCHEMA), index=index, tasks=2, **settings)


def test_parquet_stages_a_file_for_each_epoch_that_has_rows(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    task = under_checkpoints(io.parquet(folder), tmp_path / "store", first=4, index=1)
    task.process(batch(1, 2), 0, Recorder())
    task.process(batch(3), 0, Recorder())
    (first,) = (staging.finish() for staging in task.stage(4))
    assert [*task.stage(5)] == []
    task.process(batch(9), 0, Recorder())
    (third,) = (staging.finish() for staging in task.stage(6))
    task.finish(Recorder())
    assert [*task.stage(7)] == []  # only the first task writes a file without rows
    task.close()
    assert (first.sink, first.rows, third.rows) == ("op", 3, 1)
    assert first.size == Path(first.path).stat().st_size
    assert pq.read_table(first.path)["n"].to_pylist() == [1, 2, 3]
    assert pq.read_table(third.path)["n"].to_pylist() == [9]
    assert [path.name for path in folder.iterdir()] == ["_staging"]
    names = sorted(path.name for path in (folder / "_staging").iterdir())
    assert names == sorted(Path(staged.path).name for staged in (first, third))
    token = store_token(str(tmp_path / "store"))
    assert [PartName.read(name, "op") for name in names] == [PartName(1, "op", token, 1, e, "parquet") for e in (4, 6)]
