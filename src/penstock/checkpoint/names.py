"""What the files of a store are called, beneath its root, and what is wrong with them; `store.py` has the picture."""

from __future__ import annotations

import re
from collections.abc import Sequence

PARTS = "parts"  # the folder in which parts lie
JOB = "job.json"
TOKEN_BYTES = 8
TOKEN = re.compile(rf"[0-9a-f]{{{2 * TOKEN_BYTES}}}")
NUMBERED = re.compile(r"(\d{8,15})\.json")
FOLDER = re.compile(r"\d{8,15}")
PART_NAME = re.compile(r"(\d{8,15}|ended)-\d{5,15}\.part")


def attempt_path(attempt: int) -> str:
    """The claim of an attempt."""
    return f"attempts/{attempt:08d}.json"


def manifest_path(epoch: int) -> str:
    """The manifest of an epoch."""
    return f"manifests/{epoch:08d}.json"


def savepoint_path(name: str) -> str:
    """The manifest of a savepoint."""
    return f"savepoints/{name}/manifest.json"


def part_path(folder: str, name: str) -> str:
    """A part, in the folder of its attempt."""
    return f"{PARTS}/{folder}/{name}"


def is_left(folder: str, name: str, attempt: int, newest: int) -> bool:
    """Nobody can name this part any more: its attempt is over, or its epoch is past. Other files stay."""
    found = PART_NAME.fullmatch(name)
    if found is None:
        return False
    return int(folder) < attempt or (found[1] != "ended" and int(found[1]) <= newest and int(folder) == attempt)


def shortly(faults: Sequence[str]) -> str:
    """Several faults in a line."""
    return faults[0] if len(faults) == 1 else f"{faults[0]}, and {len(faults) - 1} more"
