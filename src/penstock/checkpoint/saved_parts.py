"""Which parts savepoints keep: each manifest is read when it has changed, and not at every epoch.

One that is damaged may name whatever was there when that was seen. All of it stays, so that the manifest can be put
back from a copy (`test_a_damaged_savepoint_can_be_put_back`); what comes later is removed as ever, or a folder would
grow without end. Rejected: to remove nothing at all meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.files import Files
from penstock.checkpoint.names import savepoint_path
from penstock.errors import CheckpointDamaged


@dataclass(frozen=True, slots=True)
class _Saved:
    """What is known of one savepoint."""

    stamp: object  # of the file that was read; None: nobody can tell whether it has changed
    parts: frozenset[str]
    fault: str = ""  # of the manifest: then these are all that it may name


class SavedParts:
    """The parts that the savepoints of a store name."""

    def __init__(self, files: Files, read: Callable[[str], Manifest]) -> None:
        """`read` answers the manifest at a path, or raises CheckpointDamaged."""
        self._files, self._read = files, read
        self._known: dict[str, _Saved] = {}

    @property
    def faults(self) -> dict[str, str]:
        """What is wrong with savepoints, by name, as they were found last."""
        return {name: saved.fault for name, saved in self._known.items() if saved.fault}

    def of(self, names: Iterable[str], there: frozenset[str]) -> set[str]:
        """All that these savepoints name, or may; `there`: the parts that are in the store."""
        self._known = {name: self._found(name, there) for name in names}
        return {part for saved in self._known.values() for part in saved.parts}

    def _found(self, name: str, there: frozenset[str]) -> _Saved:
        path, known = savepoint_path(name), self._known.get(name)
        stamp = self._files.stamp(path)
        if known is not None and known.stamp == stamp is not None:
            return known
        try:
            return _Saved(stamp, frozenset(part.path for part in self._read(path).parts))
        except CheckpointDamaged as damaged:
            if self._files.size(path) is None:  # its making was interrupted, or somebody has removed it
                return _Saved(stamp, frozenset())
            before = frozenset[str]() if known is None else known.parts
            return _Saved(stamp, before if known is not None and known.fault else before | there, damaged.fault)
