"""What a job keeps of itself beside its epochs: that there were some, and what its topologies were like.

A shape (`shape.py`) is written when a driver starts with a topology whose shape is not the last one kept, before its
workers begin: `shapes/00000003.json` is that of attempt 3 and of those behind it. A manifest has the number of its
attempt, so its shape is the last one up to that number. The files are small and stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from penstock.checkpoint import manifests
from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.files import Files, folder_beneath
from penstock.checkpoint.shape import Shape, is_shape
from penstock.errors import CheckpointDamaged, StoreUnusable
from penstock.run.operators.sinks.uris import shown

COMMITTED = "committed.json"
ATTEMPTS = "attempts"
SHAPES = "shapes"
SHAPE_BYTES_MAX = 64 << 20
# Without any shape nothing is compared (`Record.shape_of`), which is safe for who knows that nothing has changed.
SHAPE_ADVICE = (
    "put it back from a copy of the folder; or, where the topology is what it was then, remove the folder "
    f"{SHAPES}: the job goes on, and nothing compares the two this once"
)
WORD_BYTES_MAX = 64 << 10  # of the other files


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

    @property
    def has_begun(self) -> bool:
        """Whether a driver has ever gone further than its claim; of an earlier version, that there was an epoch."""
        with self._using(SHAPES):
            return bool(self._files.names(SHAPES)) or self.has_committed

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
        return self._shape(_path(last))

    def _shape(self, path: str) -> Shape:
        try:
            found: Shape = self._document(path, SHAPE_BYTES_MAX).get("shape", {})
        except CheckpointDamaged as damaged:
            raise CheckpointDamaged(damaged.path, damaged.fault, SHAPE_ADVICE) from None
        if not is_shape(found):
            raise CheckpointDamaged(self._named(path), "it holds no shape of a topology", SHAPE_ADVICE)
        return found

    def _document(self, path: str, size_max: int) -> dict[str, Any]:
        with self._using(path):
            data = self._files.read(path, size_max)
        return manifests.unsealed(data, self._named(path))

    def _named(self, path: str) -> str:
        return folder_beneath(shown(self._files.root), path)

    def faults(self) -> Iterator[CheckpointDamaged]:
        """What is wrong with these files and with claims of attempts, of which a job reads the names alone."""
        with self._using(SHAPES):
            claims, shapes = (
                [f"{folder}/{name}" for name in self._files.names(folder) if name.endswith(".json")]
                for folder in (ATTEMPTS, SHAPES)
            )
        for path in [*([COMMITTED] if self.has_committed else []), *claims, *shapes]:
            try:
                if path in shapes:
                    self._shape(path)
                else:
                    self._document(path, WORD_BYTES_MAX)
            except CheckpointDamaged as damaged:
                yield damaged
            except StoreUnusable as unusable:
                if not isinstance(unusable.__cause__, FileNotFoundError):  # an old claim goes while it is looked at
                    raise


def _path(attempt: int) -> str:
    return f"{SHAPES}/{attempt:08d}.json"
