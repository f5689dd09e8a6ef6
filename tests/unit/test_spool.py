"""Results on their way to a DataFrame: kept, and given up when the disk is full."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.deploy.results.spool import ResultSpool
from penstock.deploy.session.private_folder import PrivateFolder

SCHEMA = pa.schema({"n": pa.int64()})
BATCH = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_rows_come_back_and_nothing_stays(folder: Path) -> None:
    kept = PrivateFolder("results")
    spool = ResultSpool(kept, {"a": SCHEMA, "b": SCHEMA})
    for _ in range(2):
        spool.take("a", BATCH)
    spool.finish()
    assert spool.table("a").to_pydict() == {"n": [1, 2, 3, 1, 2, 3]}
    assert spool.table("b").num_rows == 0
    spool.remove()
    assert list(kept.path.glob("*.arrow")) == []
    kept.remove()
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_told_when_rows_come_and_keeps_nothing_from_being_removed(folder: Path) -> None:
    kept = PrivateFolder("results")
    spool = ResultSpool(kept, {"a": SCHEMA})
    spool._path("a").symlink_to("/dev/full")  # every write finds no space on this device
    with pytest.raises(OSError, match="No space left on device"):
        spool.take("a", BATCH)
    spool.remove()
    assert list(kept.path.glob("*.arrow")) == []
    spool.take("a", BATCH)  # a worker that has not heard of it yet
    assert list(kept.path.glob("*.arrow")) == []
    kept.remove()
    assert list(folder.iterdir()) == []
