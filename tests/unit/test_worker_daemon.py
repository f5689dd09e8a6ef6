"""What the daemon of Spark's Python workers leaves out of the processes that it forks."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from penstock.deploy.worker.daemon import forget_finders_in_archives


def test_an_archive_is_not_read_again_when_caches_are_invalidated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("archived_first.py", "")
        archive.writestr("archived_second.py", "FOUND = True")
    monkeypatch.syspath_prepend(str(tmp_path / "archive.zip"))
    importlib.import_module("archived_first")

    def finders() -> list[object]:
        return [finder for finder in sys.path_importer_cache.values() if isinstance(finder, zipimport.zipimporter)]

    assert finders()
    forget_finders_in_archives()
    assert not finders()
    importlib.invalidate_caches()
    assert importlib.import_module("archived_second").FOUND
