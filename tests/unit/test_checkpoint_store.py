"""The store: attempts that take over, epochs that count or do not, and what stays when others go."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest
from store_kit import TOPOLOGY, committed, manifest, snapshot

from penstock.checkpoint import files, store
from penstock.checkpoint.store import Store
from penstock.errors import StaleAttempt

PATIENCE_S = 30.0


def test_a_commit_waits_for_a_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Store(str(tmp_path)), Store(str(tmp_path))
    attempt = first.claim(TOPOLOGY)
    committed(first, attempt, 1)
    part = first.write_part(attempt, 2, 0, [snapshot("op/0")])
    waits, claiming, ended = threading.Event(), threading.Event(), []
    real_flock, real_create = fcntl.flock, files.LocalFiles.create

    def flock(lock: int, kind: int) -> None:
        try:
            real_flock(lock, kind)
        except BlockingIOError:
            waits.set()
            raise

    def create(self: files.LocalFiles, path: str, data: bytes) -> None:
        if path == "attempts/00000002.json":
            claiming.set()
            assert waits.wait(PATIENCE_S), "the commit did not wait"
            assert not (tmp_path / "manifests" / "00000002.json").exists()
        real_create(self, path, data)

    def commit() -> None:
        assert claiming.wait(PATIENCE_S)
        try:
            first.commit(manifest(2, [part], attempt))
        except StaleAttempt as stale:
            ended.append(str(stale))

    monkeypatch.setattr(files.fcntl, "flock", flock)
    monkeypatch.setattr(files.LocalFiles, "create", create)
    thread = threading.Thread(target=commit)
    thread.start()
    assert second.claim(TOPOLOGY) == 2
    thread.join(PATIENCE_S)
    assert ended == [f"attempt 2 has taken over the checkpoints in {tmp_path}; attempt 1 ends here"]
    assert second.numbers() == [1]
    assert store.JOB in {path.name for path in tmp_path.iterdir()}
