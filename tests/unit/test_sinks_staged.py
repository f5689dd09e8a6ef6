"""Sinks under checkpoints: files for each epoch, finished beside the loop, and numbers that go on."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flow_kit import Recorder, opened
from worker_kit import LocalJob

import penstock as ps
from penstock.flow import io
from penstock.flow.schema import parse_schema
from penstock.run.contract import SETTING_ATTEMPT, SETTING_EPOCH, SETTING_STAGING, SETTING_STORE, Task
from penstock.run.engine.epochs import Restored, TaskSnapshot, epoch_command
from penstock.run.operators.sinks.staged import PartName

PATIENCE_S = 30.0
TOKEN = "5ee5a5705e0fa70b"  # noqa: S105 - of a store
SCHEMA = parse_schema("n bigint")


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, SCHEMA)


def under_checkpoints(sink: io.Sink, staging: Path, first: int = 1, index: int = 0, attempt: int = 1) -> Task:
    settings = {SETTING_EPOCH: first, SETTING_STAGING: str(staging), SETTING_ATTEMPT: attempt}
    settings |= {SETTING_STORE: TOKEN}
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
    sums = [f"{zlib.crc32((folder / '_staging' / name).read_bytes()):08x}" for name in names]
    told = [PartName(1, "op", TOKEN, 1, epoch, "parquet", sums[i]) for i, epoch in enumerate((4, 6))]
    assert [PartName.read(name, "op") for name in names] == told


def test_a_file_that_is_handed_over_is_finished_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing, go_on, synced_by = threading.Event(), threading.Event(), []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced_by.append(threading.get_ident())
        if len(synced_by) == 1:
            syncing.set()
            assert go_on.wait(PATIENCE_S)
        real(descriptor)

    task = under_checkpoints(io.parquet(tmp_path / "out"), tmp_path / "store")
    monkeypatch.setattr(os, "fsync", fsync)
    task.process(batch(1, 2), 0, Recorder())
    (unfinished,) = task.stage(1)
    assert synced_by == []  # at the marker nothing is waited for
    with ThreadPoolExecutor(1) as keeper:
        finished = keeper.submit(unfinished.finish)
        assert syncing.wait(PATIENCE_S)
        task.process(batch(3), 0, Recorder())  # the disk is busy, and rows go on
        (next_one,) = task.stage(2)
        go_on.set()
        first, second = finished.result(PATIENCE_S), keeper.submit(next_one.finish).result(PATIENCE_S)
    assert threading.get_ident() not in synced_by
    assert pq.read_table(first.path)["n"].to_pylist() == [1, 2]
    assert pq.read_table(second.path)["n"].to_pylist() == [3]
    assert unfinished.finish() is first


class Handed:
    """A worker's port: each epoch begins when the one before has been handed over, until a task has long finished."""

    first = 1
    EPOCHS_AFTER = 3

    def __init__(self, last: threading.Event) -> None:
        self.job: LocalJob
        self.snapshots: list[Sequence[TaskSnapshot]] = []
        self._last = last

    def restored(self, operator: str) -> Restored | None:
        return None

    def begin(self) -> None:
        pass

    def completed(self, epoch: int, snapshots: Sequence[TaskSnapshot]) -> None:
        self.snapshots.append(snapshots)
        after = sum(any(snapshot.finished for snapshot in found) for found in self.snapshots)
        if after < self.EPOCHS_AFTER:
            self.job.controls[0].say(epoch_command(epoch + 1))
        else:
            self._last.set()

    def check(self) -> None:
        pass

    def ended(self, snapshots: Sequence[TaskSnapshot]) -> None:
        self.snapshots.append(snapshots)


def test_what_a_finished_task_staged_goes_with_one_epoch(tmp_path: Path) -> None:
    last = threading.Event()
    handed = Handed(last)

    def long(task: int, tasks: int) -> Iterator[tuple[int] | None]:
        while not last.is_set():
            yield None
        yield (9,)

    top = ps.Topology("two")
    top.source("short", io.generator(lambda task, tasks: [(1,), (2,)], "n bigint")).sink(
        "a", io.parquet(tmp_path / "a")
    )
    top.source("long", io.generator(long, "n bigint")).sink("b", io.parquet(tmp_path / "b"))
    job = handed.job = LocalJob(top.build(), 1, epochs=lambda worker: handed)
    job.start()
    job.controls[0].say(epoch_command(1))
    job.join()
    assert job.errors == [None]
    staged = [each.finish() for found in handed.snapshots for snapshot in found for each in snapshot.staged]
    assert [(one.sink, pq.read_table(one.path)["n"].to_pylist()) for one in staged] == [("a", [1, 2]), ("b", [9])]
    short = [snapshot for found in handed.snapshots for snapshot in found if snapshot.task == "short/0"]
    assert [snapshot.finished for snapshot in short][-Handed.EPOCHS_AFTER :] == [True] * Handed.EPOCHS_AFTER


def test_a_function_is_told_which_rows_it_is_given_and_numbers_go_on_behind_the_marker() -> None:
    told: list[tuple[int, int, int, int]] = []

    def take(rows: pa.RecordBatch, epoch: int, sequence: int, task: int) -> None:
        told.append((rows.num_rows, epoch, sequence, task))

    task = opened(lambda: io.callback(take).make(SCHEMA), index=1, tasks=2, **{SETTING_EPOCH: 4})
    task.process(batch(1, 2), 0, Recorder())
    assert [*task.stage(4)] == []
    state = task.take_state()
    task.process(batch(3), 0, Recorder())
    again = opened(lambda: io.callback(take).make(SCHEMA), index=1, tasks=2, **{SETTING_EPOCH: 5})
    again.put_state(state)
    again.process(batch(3), 0, Recorder())  # the same rows with the same numbers
    fewer = opened(lambda: io.callback(take).make(SCHEMA), **{SETTING_EPOCH: 5})
    fewer.put_states([state, {"sequence": b"7"}, {}], lambda rows, keys: [])
    fewer.process(batch(9), 0, Recorder())
    assert told == [(2, 4, 0, 1), (1, 5, 2, 1), (1, 5, 2, 1), (1, 5, 7, 0)]


def test_a_function_that_asks_for_nothing_has_nothing_to_keep() -> None:
    task = opened(lambda: io.callback(lambda rows, epoch=9: None).make(SCHEMA), **{SETTING_EPOCH: 1})
    task.process(batch(1), 0, Recorder())
    assert task.take_state() == {}
