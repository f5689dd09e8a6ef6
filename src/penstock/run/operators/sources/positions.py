"""Where a source stands, in words for people: read from the state that its task has saved."""

from __future__ import annotations

import json
from collections.abc import Mapping

from penstock.run.operators.sources.generated import LANES, TAKEN
from penstock.run.operators.sources.splits import SPLITS


def position(state: Mapping[str, bytes], *, finished: bool) -> str | None:
    """A few words; None where this is no source's state."""
    for name, words in ((TAKEN, _items), (SPLITS, _files), (LANES, _values)):
        if name in state:
            return "at its end" if finished else words(bytes(state[name]))
    return None


def _items(state: bytes) -> str:
    return f"{int(state):,} items taken"


def _values(state: bytes) -> str:
    left = [first for first, _, end, _ in json.loads(state) if first < end]
    return f"value {min(left):,} is next" if left else "no value is left"


def _files(state: bytes) -> str:
    found = json.loads(state)
    left = sum(count for _, count, _ in found["left"])
    begun = [f"{_rows(pieces)} of file {int(file):,}" for file, pieces in found["rows"].items()]
    more = f", and {len(begun) - 3} more" if len(begun) > 3 else ""
    return f"{left:,} of {found['files']:,} files left" + (f": {', '.join(begun[:3])}{more} taken" if begun else "")


def _rows(pieces: list[list[int]]) -> str:
    return f"{sum(rows for _, rows in pieces):,} rows"
