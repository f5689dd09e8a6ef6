"""Epochs through real workers: random jobs over rings and sockets, with the least room that they can have."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pyarrow as pa
import pytest
from worker_kit import LocalJob

from penstock import _core
from penstock.run.engine import worker_links
from penstock.run.engine.epochs import Restored, TaskSnapshot, epoch_command
from penstock.run.engine.worker_share import RunSettings, task_ids
from penstock.run.transport import inbox
from penstock_lab.simulate.random_jobs import random_job
from penstock_lab.simulate.survival import Driver, Handed

RING_BYTES_EACH = 4096  # for each edge into a worker, whose window is one batch: what waits in the ring fits it
NEVER_NS = 1 << 62
EPOCHS_MAX = 400
ENDS_SECONDS = 60.0


class LocalEpochs:
    """The driver of one job of real workers: it begins an epoch as soon as the one before is committed."""

    def __init__(self) -> None:
        self.driver, self.changed = Driver(), threading.Condition()
        self.job: LocalJob
        self.workers = 0
        self.driver.next_attempt()

    def of(self, worker: int) -> WorkerEpochs:
        self.workers = max(self.workers, worker + 1)
        return WorkerEpochs(self, worker)

    def begin(self) -> None:
        with self.changed:
            if self.driver.committed < EPOCHS_MAX:
                self.driver.begun = self.driver.committed + 1
                for control in self.job.controls:
                    control.say(epoch_command(self.driver.begun))

    def takes(self, handed: Handed) -> None:
        with self.changed:
            whole = self.driver.takes(handed, self.workers)
            self.changed.notify_all()
        if whole and not self.driver.is_over:
            self.begin()


class WorkerEpochs:
    """One worker's port."""

    first = 1

    def __init__(self, local: LocalEpochs, worker: int) -> None:
        self._local, self._worker = local, worker

    def restored(self, operator: str) -> Restored | None:
        return None

    def completed(self, epoch: int, snapshots: Sequence[TaskSnapshot]) -> None:
        self._local.takes(Handed(1, self._worker, epoch, snapshots))

    def ended(self, snapshots: Sequence[TaskSnapshot]) -> None:
        self._local.takes(Handed(1, self._worker, None, snapshots))


def least_ring(windows: Sequence[int]) -> int:
    return 1 << (RING_BYTES_EACH * len(windows) - 1).bit_length()


@pytest.mark.parametrize("transport", ["ring", "socket"])
@pytest.mark.parametrize("seed", range(12))
def test_epochs_end_with_windows_of_one_batch_4_kb_of_ring_for_each_edge_and_no_eviction(
    seed: int, transport: str, monkeypatch: pytest.MonkeyPatch
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
    epochs = LocalEpochs()
    rows: dict[str, list[pa.RecordBatch]] = {}
    lock = threading.Lock()

    def deliver(path: str, batch: pa.RecordBatch) -> None:
        with lock:
            rows.setdefault(path, []).append(batch)

    local = epochs.job = LocalJob(job.dataflow, workers, plan, settings, deliver, epochs.of)
    local.start()
    epochs.begin()
    with epochs.changed:
        assert epochs.changed.wait_for(lambda: epochs.driver.is_over or any(local.errors), ENDS_SECONDS), local.errors
    local.join()
    assert local.errors == [None] * workers
    assert job.wrong({"out": [b for path in epochs.driver.published for b in rows[path]]}) == []
    assert epochs.driver.is_over
