"""Which files are an event log, and how compressed ones become text."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.deploy.metrics import event_log_files
from penstock.deploy.metrics.event_log_files import log_files, plain_files
from penstock.errors import InvalidInput

LINES = b'{"Event":"SparkListenerLogStart"}\n' * 1000


def packed(path: Path, data: bytes = LINES) -> Path:
    path.write_bytes(pa.compress(data, codec="zstd", asbytes=True))
    return path


def test_a_file_a_rolled_folder_and_a_folder_with_one_log(tmp_path: Path) -> None:
    rolled = tmp_path / "eventlog_v2_app"
    rolled.mkdir()
    (rolled / "appstatus_app").touch()
    (rolled / ".events_1_app.crc").touch()
    plain, small = rolled / "events_1_app", packed(rolled / "events_2_app.zstd")
    plain.write_bytes(LINES)
    assert log_files(rolled) == log_files(tmp_path) == [plain, small]
    assert log_files(plain) == [plain]
    with plain_files(log_files(rolled)) as files:
        assert [file.read_bytes() for file in files] == [LINES, LINES]
    assert not files[1].exists()
    assert small.exists()


def test_a_log_that_is_still_written_may_end_in_the_middle(tmp_path: Path) -> None:
    import random

    noise = random.Random(5).randbytes(3_000_000)  # more than one block, so that the beginning can be read
    whole = packed(tmp_path / "whole.zstd", noise).read_bytes()
    (cut := tmp_path / "app.zstd.inprogress").write_bytes(whole[:-1000])
    with plain_files(log_files(cut)) as files:
        assert noise.startswith(files[0].read_bytes())
    (tmp_path / "cut.zstd").write_bytes(b"no zstandard")
    with pytest.raises(InvalidInput, match=r"cannot unpack .*cut\.zstd"), plain_files(log_files(tmp_path / "cut.zstd")):
        pass


def test_what_is_no_log_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="there is no event log"):
        log_files(tmp_path / "none")
    with pytest.raises(InvalidInput, match="holds 0 event logs"):
        log_files(tmp_path)
    (tmp_path / "eventlog_v2_a").mkdir()
    with pytest.raises(InvalidInput, match="holds 0 files of events"):
        log_files(tmp_path)
    (tmp_path / "app-1").touch()
    with pytest.raises(InvalidInput, match=r"holds 2 event logs \(app-1, eventlog_v2_a\); give the one to import"):
        log_files(tmp_path)
    (tmp_path / "app-1.lz4").touch()
    with pytest.raises(InvalidInput, match="compressed with lz4"):
        log_files(tmp_path / "app-1.lz4")
    monkeypatch.setattr(event_log_files, "UNPACKED_BYTES_MAX", 100)
    with pytest.raises(InvalidInput, match="unpacks to more than"), plain_files([packed(tmp_path / "bomb.zstd")]):
        pass
