"""What one task of a files source still has to read, as plain data: which files, and how many rows are taken of each.

A position is (file, piece, row): a piece is a row group where files are read in the order of event time, else the whole
file. So a job goes on at the right row whatever the size of its batches is, and what several tasks have left can be
shared out over others in number, file by file. Positions hold for the files that they were taken in: a list of files
that has changed is refused (`test_files_that_are_not_those_of_the_epoch_are_refused`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence

from penstock.errors import InvalidInput

SPLITS = "splits"  # the name of this part of a task's state
WHOLE = -1  # in place of a row group: rows are counted through the file

Range = tuple[int, int, int]  # first, count, step


class Splits:
    """The files that one task has left, in order, and the rows that it has taken of those that it has begun."""

    def __init__(self, files: Sequence[str], left: Iterable[int]) -> None:
        """`files` are those of the source, `left` the numbers of this task's."""
        self._files = files
        self.left = list(left)
        self._rows: dict[int, dict[int, int]] = {}

    def taken(self, file: int, piece: int = WHOLE) -> int:
        """How many rows of a piece have been taken."""
        return self._rows.get(file, {}).get(piece, 0)

    def take(self, file: int, rows: int, piece: int = WHOLE) -> None:
        """The next rows of a piece go out now."""
        found = self._rows.setdefault(file, {})
        found[piece] = found.get(piece, 0) + rows

    def finish(self, file: int) -> None:
        """Nothing of this file is left."""
        self.left.remove(file)
        self._rows.pop(file, None)

    def require_kind(self, source: str, *, by_time: bool) -> None:
        """Refuse positions that were counted in the other way."""
        if any((WHOLE in pieces) is by_time for pieces in self._rows.values()):
            way = ("in the order of event time", "one after the other")
            now, then = way if by_time else way[::-1]
            msg = (
                f"source {source!r} reads its files {now} but did so {then} before; leave event_time behind it as it "
                "was, or begin in another checkpoint folder"
            )
            raise InvalidInput(msg)

    def encoded(self, told_us: int) -> bytes:
        """All of it, beside how far event time has been told."""
        rows = {file: sorted(pieces.items()) for file, pieces in self._rows.items()}
        known = {"files": len(self._files), "list": digest_of(self._files), "left": _ranges(self.left), "rows": rows}
        return json.dumps({**known, "told": told_us}, separators=(",", ":")).encode()

    def put(self, states: Sequence[bytes], source: str, share: tuple[int, int] | None = None) -> int:
        """Go on from what one task has left, or from a share (which of how many) of what several have.

        Answers how far event time had been told by the slowest.
        """
        found = [json.loads(bytes(state)) for state in states]
        for known in found:
            self._require_same(known, source)
        left = sorted(file for known in found for file in _numbers(known["left"]))
        self.left = left if share is None else left[share[0] :: share[1]]
        mine = set(self.left)
        rows = [(int(file), pieces) for known in found for file, pieces in known["rows"].items()]
        self._rows = {file: dict(map(tuple, pieces)) for file, pieces in rows if file in mine}
        return min(int(known["told"]) for known in found)

    def _require_same(self, known: Mapping[str, object], source: str) -> None:
        if known["list"] == digest_of(self._files):
            return
        now, then = len(self._files), known["files"]
        counts = f"{now:,} files under other names" if now == then else f"{now:,} files, and had {then:,}"
        msg = (
            f"source {source!r} has {counts} when its positions were kept; give the same files back, or begin in "
            "another checkpoint folder"
        )
        raise InvalidInput(msg)


def digest_of(files: Sequence[str]) -> str:
    """What tells one list of files from another, wherever their common folder lies."""
    parent = os.path.commonpath([os.path.dirname(path) for path in files]) if files else ""
    names = "\0".join(os.path.relpath(path, parent) if parent else path for path in files)
    return hashlib.blake2b(names.encode(), digest_size=16).hexdigest()


def _ranges(numbers: Sequence[int]) -> list[Range]:
    """Numbers in order as few ranges: a task's share of a list is every n-th."""
    found: list[Range] = []
    for number in numbers:
        first, count, step = found[-1] if found else (0, 0, 0)
        if count == 1 or (count > 1 and number == first + count * step):
            found[-1] = (first, count + 1, number - first if count == 1 else step)
        else:
            found.append((number, 1, 1))
    return found


def _numbers(ranges: Sequence[Range]) -> list[int]:
    return [first + i * step for first, count, step in ranges for i in range(count)]
