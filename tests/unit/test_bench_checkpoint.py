"""The benchmark of checkpoints: its runs commit epochs and go on from them, and every way to kill has its script."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from penstock.checkpoint.store import Store
from penstock.model.task_id import TaskId
from penstock_lab.bench.checkpoint import jobs, measure
from penstock_lab.bench.checkpoint.run import watched_run
from penstock_lab.bench.engine import peers
from penstock_lab.bench.engine.peers import PeerMissing, measured

KEYS = 5_000


@pytest.mark.parametrize("kind", ["native", "python"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_a_run_commits_epochs_and_another_goes_on_from_them(kind: str, tasks: int, tmp_path: Path) -> None:
    make = jobs.native_state if kind == "native" else jobs.python_state
    saved = make(KEYS, 0.5)
    before = watched_run(saved, {TaskId.of(spec.name, 0): 0 for spec in saved.operators}, tmp_path, 0.1)
    assert before.epochs
    assert len(before.pauses_ms) >= len(before.epochs)
    assert bool(before.slices_ms) == (kind == "python")
    newest = before.epochs[-1]
    last = len(before.epochs)
    store = Store(str(tmp_path))
    assert sum(part.size for part in store.manifest(last).parts) == newest.size
    Path(store.root, "manifests", f"{last + 1:08d}.json").unlink()
    again = make(KEYS, 0.6, tasks)
    plan = {TaskId.of(spec.name, i): i for spec in again.operators for i in range(spec.tasks)}
    after = watched_run(again, plan, tmp_path, 60.0, restore=last)
    assert after.restore_s > 0
    assert not after.epochs  # but for the last, which is of ends


def test_a_run_without_a_store_has_no_epochs() -> None:
    busy = jobs.busy_count(0.2, KEYS)
    found = watched_run(busy, {TaskId.of(s.name, i): i for s in busy.operators for i in range(s.tasks)}, None)
    assert (found.epochs, found.pauses_ms) == ([], [])
    assert found.tuples_in["count"] >= jobs.ROWS_A_BATCH


def test_every_way_to_kill_has_its_script_and_a_missing_engine_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for kill in measure.KILLS:
        source = (peers.SCRIPTS / kill.engine.script).read_text()
        ast.parse(source)
        assert f"`{kill.case}`" in source
    with pytest.raises(PeerMissing, match="is not installed; run: penstock bench checkpoint --install-peers"):
        measured(measure.BYTEWAX, "driver", tmp_path)


def test_the_table_shows_shares_in_per_cent() -> None:
    (row,) = measure.BENCH.shapes["checkpoint_throughput"]([{"lower": 0.034, "aim": 0.1, "rows_per_s": 5.0}])
    assert row == {"lower %": "3.4", "aim %": "10.0", "rows_per_s": 5.0}
