"""Epochs through real workers: random jobs over rings and sockets, with the least room that they can have."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from worker_kit import LocalJob

from penstock import _core
from penstock.checkpoint.contract import Part, Report
from penstock.checkpoint.coordinator import Coordinator
from penstock.run.contract import SETTING_STAGING
from penstock.run.engine import worker_links
from penstock.run.engine.epochs import Restored, TaskSnapshot, epoch_command
from penstock.run.engine.worker_share import RunSettings, task_ids
from penstock.run.transport import inbox
from penstock_lab.simulate.random_jobs import SETTING_ROWS, random_job

RING_BYTES_EACH = 4096  # for each edge into a worker, whose window is one batch: what waits in the ring fits it
NEVER_NS = 1 << 62
EPOCHS_MAX = 400
ENDS_SECONDS = 60.0


class LocalEpochs:
    """The driver of one job of real workers: it begins an epoch as soon as the one before is committed."""

    def __init__(self, workers: int) -> None:
        self.coordinator, self.changed = Coordinator(1, workers, 0, 0, 0), threading.Condition()
        self.job: LocalJob
        self.published: list[str] = []

    def of(self, worker: int) -> WorkerEpochs:
        return WorkerEpochs(self, worker)

    def begin(self) -> None:
        with self.changed:
            epoch = self.coordinator.begins(0)
            if epoch is not None and epoch <= EPOCHS_MAX:
                for control in self.job.controls:
                    control.say(epoch_command(epoch))

    def takes(self, worker: int, epoch: int | None, snapshots: Sequence[TaskSnapshot]) -> None:
        staged = tuple(each.finish() for snapshot in snapshots for each in snapshot.staged)
        part = Part(worker, "parts/none", 0, "none", tuple(snapshot.task for snapshot in snapshots), (), staged)
        with self.changed:
            whole = self.coordinator.reported(Report(1, epoch, part))
            while whole is not None:
                self.published += [staged.path for part in whole.parts for staged in part.staged]
                whole = self.coordinator.committed(whole.epoch, 0)
            self.changed.notify_all()
        self.begin()


class WorkerEpochs:
    """One worker's port."""

    first = 1

    def __init__(self, local: LocalEpochs, worker: int) -> None:
        self._local, self._worker = local, worker

    def restored(self, operator: str) -> Restored | None:
        return None

    def begin(self) -> None:
        pass

    def completed(self, epoch: int, snapshots: Sequence[TaskSnapshot]) -> None:
        self._local.takes(self._worker, epoch, snapshots)

    def check(self) -> None:
        pass

    def ended(self, snapshots: Sequence[TaskSnapshot]) -> None:
        self._local.takes(self._worker, None, snapshots)


def rows_of(path: Path) -> list[pa.RecordBatch]:
    with pa.OSFile(str(path)) as file:
        return list(pa.ipc.open_stream(file))


def least_ring(windows: Sequence[int]) -> int:
    return 1 << (RING_BYTES_EACH * len(windows) - 1).bit_length()


@pytest.mark.parametrize("transport", ["ring", "socket"])
@pytest.mark.parametrize("seed", range(12))
def test_epochs_end_with_windows_of_one_batch_4_kb_of_ring_for_each_edge_and_no_eviction(
    seed: int, transport: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def reader(segment: _core.RingSegment) -> _core.RingConsumer:
        return _core.RingConsumer(segment, message_max=1 << 20, pin_ns=NEVER_NS)

    monkeypatch.setattr(inbox, "_reader", reader)
    monkeypatch.setattr(worker_links, "inbox_bytes", least_ring)
    rng = random.Random(seed)
    job = random_job(rng)
    workers = rng.randint(2, 4)
    plan = {task: rng.randrange(workers) for task in task_ids(job.dataflow)}
    settings = RunSettings(rows_max=rng.choice((1, 3, 16)), window_bytes=1, transport=transport)
    epochs = LocalEpochs(workers)
    told = {SETTING_ROWS: str(tmp_path), SETTING_STAGING: str(tmp_path)}
    local = epochs.job = LocalJob(job.dataflow, workers, plan, settings, None, epochs.of, told)
    local.start()
    epochs.begin()
    with epochs.changed:
        assert epochs.changed.wait_for(lambda: epochs.coordinator.is_over or any(local.errors), ENDS_SECONDS), (
            local.errors
        )
    local.join()
    assert local.errors == [None] * workers
    rows: dict[str, list[pa.RecordBatch]] = {}
    for path in map(Path, epochs.published):
        rows.setdefault(path.name.split("-")[2], []).extend(rows_of(path))
    assert job.wrong(rows) == []
    assert epochs.coordinator.is_over
    assert epochs.coordinator.stale == 0
