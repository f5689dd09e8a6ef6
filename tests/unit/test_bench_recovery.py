"""What the scripts that time recovery kill, and how rounds of latency are compared."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from penstock_lab.bench.checkpoint import measure
from penstock_lab.bench.checkpoint.run import Epoch, Watched
from penstock_lab.bench.engine import peers

DAEMON = b"python\0-m\0penstock.deploy.worker.daemon\0pyspark.worker\0"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(peers.SCRIPTS))
    return importlib.import_module("spark_recovery")


def process(proc: Path, pid: int, parent: int, command: bytes) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} 0 0")
    (proc / str(pid) / "cmdline").write_bytes(command)


def test_python_workers_are_killed_and_their_daemon_is_not(script: ModuleType, tmp_path: Path) -> None:
    me = os.getpid()
    for pid, parent, command in [
        (me, 1, b"python\0spark_recovery.py\0"),
        (me + 1, me, b"java\0pyspark-shell\0"),
        (me + 2, me + 1, DAEMON),
        (me + 3, me + 2, DAEMON),
        (me + 4, me + 2, DAEMON),
        (me + 5, 1, DAEMON),  # another session's
        (me + 6, me + 5, DAEMON),
    ]:
        process(tmp_path, pid, parent, command)
    assert sorted(script.python_workers(tmp_path)) == [me + 3, me + 4]


def test_a_kill_that_meets_no_process_is_no_figure(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script, "started", lambda folder: (None, lambda: None, set()))
    monkeypatch.setattr(script, "killed", lambda path, kill: kill())
    monkeypatch.setattr(script, "python_workers", list)
    with pytest.raises(SystemExit, match="there is no Python worker to be killed"):
        script.warm("worker", tmp_path)


def test_a_round_without_an_epoch_shifts_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """p99 is 1, 2, 3 ms without checkpoints and ten times that with; no epoch is met in the first round."""
    rounds = iter([1, 1, 2, 2, 3, 3])

    def ran(dataflow: object, interval_s: float | None, **named: object) -> Watched:
        number = next(rounds)
        came = np.arange(100, dtype=np.int64) * 100_000_000
        late = np.full(100, number * 1_000 * (1 if interval_s is None else 10))
        epochs = [Epoch(0, 10**12, 1)] if interval_s is not None and number > 1 else []
        return Watched(answers=[(came, late)], epochs=epochs)

    monkeypatch.setattr(measure, "_run", ran)
    rows = {row["checkpoints"]: row for row in measure._latency(3, 1.0, lambda message: None)}
    for case in ("every 1 s", "during epochs"):
        assert (rows[case]["least"], rows[case]["most"]) == (pytest.approx(10), pytest.approx(10))
