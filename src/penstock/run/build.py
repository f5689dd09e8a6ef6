"""Which build of Penstock a process runs: its version, a digest of the core and one of the package's own source.

Driver and workers exchange arrays, frames and messages whose forms change from build to build, so two builds do not
work together (`test_a_worker_of_another_build_is_refused`). A version alone would not tell two checkouts apart. The
digests are made once a process, 15 ms; the daemon makes them before it forks. Rejected: a digest written by the
compiler's build, which says nothing of the Python files beside it.
"""

from __future__ import annotations

import functools
import hashlib
from importlib import metadata
from pathlib import Path

import penstock
from penstock import _core

SHOWN = 12  # hexadecimal digits of a digest


@functools.cache
def own_build() -> str:
    """This process's, as it is compared and shown; that of the files as they were when it was first asked for."""
    root = Path(penstock.__file__).parent
    sources = (f"{path.relative_to(root)}\0".encode() + path.read_bytes() for path in sorted(root.rglob("*.py")))
    return f"{_version()} (core {digest(Path(_core.__file__).read_bytes())}, package {digest(*sources)})"


def digest(*parts: bytes) -> str:
    """A short digest of these bytes, in their order."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return made.hexdigest()[:SHOWN]


def _version() -> str:
    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:  # a copy that was never installed
        return "without a version"
