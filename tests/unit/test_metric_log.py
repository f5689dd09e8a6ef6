"""The metric log when its folder cannot be written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.deploy.metrics import metric_log
from penstock.deploy.metrics.metric_log import MetricLog
from penstock.errors import InvalidInput
from penstock.run.engine.meters import EDGE_COLUMNS


def test_a_log_that_cannot_be_written_goes_on_counting_and_tells_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_log, "FLUSH_SECONDS", -1.0)  # every batch is written at once
    log = MetricLog("job", tmp_path / "log")
    shutil.rmtree(tmp_path / "log")
    row = dict.fromkeys(EDGE_COLUMNS.names, 1) | {"source": "a/0", "target": "b/0", "distance": "ring"}
    for _ in range(3):
        log.take(0, "edges", pa.RecordBatch.from_pylist([row], EDGE_COLUMNS))
    assert log.sums().edges["a/0", "b/0"].tuples == 3
    log.close()
    (note,) = log.notes
    assert note.startswith("metric log stopped: ")
    assert note.endswith("; 3 rows of it were not written")


def test_a_full_disk_stops_the_log_and_leaves_no_half_file(tmp_path: Path) -> None:
    log = MetricLog("job", tmp_path)
    hidden = tmp_path / "edges" / ".job-00000.parquet.writing"
    hidden.symlink_to("/dev/full")  # every write finds no space on this device
    row = dict.fromkeys(EDGE_COLUMNS.names, 1) | {"source": "a/0", "target": "b/0", "distance": "ring"}
    log.take(0, "edges", pa.RecordBatch.from_pylist([row], EDGE_COLUMNS))
    assert log.notes == ()
    log.close()
    (note,) = log.notes
    assert "No space left on device" in note
    assert note.endswith("; 1 row of it was not written")
    assert list((tmp_path / "edges").iterdir()) == []


def test_an_unknown_table_is_named_with_those_there_are(tmp_path: Path) -> None:
    log = MetricLog("job", tmp_path / "log")
    with pytest.raises(InvalidInput, match="'nope' is asked for; there are tasks, edges"):
        log.latest("nope")
    log.close()
