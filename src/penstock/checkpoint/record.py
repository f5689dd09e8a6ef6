"""What a job keeps of itself beside its epochs: that there were some, and what its topologies were like.

A shape (`shape.py`) is written when a driver starts with a topology whose shape is not the last one kept, before its
workers begin: `shapes/00000003.json` is that of attempt 3 and of those behind it. A manifest has the number of its
attempt, so its shape is the last one up to that number. The files are small and stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from penstock.checkpoint import manifests
from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.files import Files
from penstock.checkpoint.shape import Shape, is_shape
from penstock.errors import CheckpointDamaged

COMMITTED = "committed.json"
SHAPES = "shapes"
SHAPE_BYTES_MAX = 64 << 20


class Record:
    """The words of one job; `using` says of a path what a file system complains of."""

    def __init__(self, files: Files, using: Callable[[str], AbstractContextManager[None]]) -> None:
        self._files, self._using = files, using
        self._is_noted = False

    @property
    def has_committed(self) -> bool:
        """Whether there has ever been an epoch."""
        with self._using(COMMITTED):
            return self._files.size(COMMITTED) is not None

    def note_committed(self) -> None:
        """There is an epoch: called behind the manifest, so that the word is never there before what it speaks of."""
        if not self._is_noted and self._files.size(COMMITTED) is None:
            with contextlib.suppress(FileExistsError):
                self._files.create(COMMITTED, manifests.sealed({"penstock": manifests.FORMAT}))
        self._is_noted = True

    def shape_of(self, manifest: Manifest) -> Shape | None:
        """The shape of the topology that committed an epoch; None where an earlier version has kept none."""
        return self._last(manifest.attempt)

    def keep_shape(self, attempt: int, shape: Shape) -> None:
        """From this attempt on the job has this shape."""
        if self._last(attempt) != shape:
            data = manifests.sealed({"penstock": manifests.FORMAT, "attempt": attempt, "shape": shape})
            with self._using(_path(attempt)):
                self._files.replace(_path(attempt), data)

    def _last(self, attempt: int) -> Shape | None:
        with self._using(SHAPES):
            names = [name.removesuffix(".json") for name in self._files.names(SHAPES) if name.endswith(".json")]
        last = max((int(name) for name in names if name.isdecimal() and int(name) <= attempt), default=None)
        if last is None:
            return None
        path = f"{self._files.root}/{_path(last)}"
        with self._using(_path(last)):
            data = self._files.read(_path(last), SHAPE_BYTES_MAX)
        found: Shape = manifests.unsealed(data, path).get("shape", {})
        if not is_shape(found):
            raise CheckpointDamaged(path, "it holds no shape of a topology")
        return found


def _path(attempt: int) -> str:
    return f"{SHAPES}/{attempt:08d}.json"
