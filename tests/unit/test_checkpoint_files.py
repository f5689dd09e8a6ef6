"""Files beneath a store's root: one contract over every kind of file system, and what a local disk adds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.checkpoint.files import LocalFiles


class Calls:
    """What was asked of the operating system, in order, and done."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path) -> None:
        self.seen: list[tuple[str, str]] = []
        self._patch, self._root = patch, root
        for name in ("fsync", "link", "replace", "unlink", "mkdir"):
            self._record(name)

    def _record(self, name: str) -> None:
        real = getattr(os, name)

        def recorded(*given: object) -> object:
            path = os.readlink(f"/proc/self/fd/{given[0]}") if name == "fsync" else given[-1]
            self.seen.append((name, os.path.relpath(str(path), self._root)))
            return real(*given)

        self._patch.setattr(os, name, recorded)

    def plain(self) -> list[tuple[str, str]]:
        """Without the random part of names of unfinished files."""
        return [(name, "unfinished" if path.endswith(".writing") else path) for name, path in self.seen]


@pytest.mark.parametrize(("way", "named"), [("create", "link"), ("replace", "replace")])
def test_a_file_is_on_the_disk_before_its_name_is(
    way: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles(str(tmp_path))
    calls = Calls(monkeypatch, tmp_path)
    getattr(files, way)("a/b", b"whole")
    folder = [("mkdir", "a"), ("fsync", ".")]
    file = [("fsync", "unfinished"), (named, "a/b"), ("unlink", "unfinished"), ("fsync", "a")]
    assert calls.plain() == folder + file
    assert (tmp_path / "a" / "b").read_bytes() == b"whole"
