"""How long the files of a result stay: while a DataFrame reads them, or until the process ends.

A DataFrame over files is lazy, and so is everything derived from it. Python cannot see whether one is still in use, but
the JVM can: every plan made from the DataFrame holds the relation over the files. So the JVM keeps a weak reference to
that relation. When all kept results take more than `KEPT_BYTES`, results whose relation the JVM has dropped are
removed, oldest first. Below that limit files stay until the process ends, because an RDD can outlive its DataFrame, and
no plan shows it (`test_results_that_nobody_reads_go_first_come_first_and_only_for_room`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.deploy.session.private_folder import PrivateFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT_BYTES = 1 << 30


@dataclass(frozen=True)
class _Kept:
    folder: PrivateFolder
    relations: tuple[Any, ...]  # weak references of the JVM; None where there is none to be had
    size: int

    def read(self) -> bool:
        """Whether a plan of the JVM still reads the files; yes where the JVM cannot be asked."""
        with contextlib.suppress(Exception):  # the gateway's own errors: a stopped session, another JVM
            return any(reference is None or reference.get() is not None for reference in self.relations)
        return True


_kept: list[_Kept] = []
_lock = threading.Lock()


def keep_while_read(folder: PrivateFolder, frames: Sequence[DataFrame]) -> None:
    """Keep a folder for the DataFrames that read it, or remove it if there are none; then make room if needed."""
    if not frames:
        folder.remove()
        return
    size = sum(path.stat().st_size for path in folder.path.rglob("*") if path.is_file())
    with _lock:
        _kept.append(_Kept(folder, tuple(_weak_reference(frame) for frame in frames), size))
        _let_go(sum(kept.size for kept in _kept) - KEPT_BYTES)


def _let_go(surplus: int) -> None:
    """Remove results without readers, oldest first, until `surplus` bytes are free."""
    for kept in list(_kept):
        if surplus > 0 and not kept.read():
            kept.folder.remove()
            _kept.remove(kept)
            surplus -= kept.size


def _weak_reference(frame: DataFrame) -> Any:  # noqa: ANN401 # an object of the JVM
    java: Any = frame._jdf
    jvm: Any = frame.sparkSession._jvm
    with contextlib.suppress(Exception):  # in another Spark plans may differ: then the files stay
        relation = java.queryExecution().analyzed().collectLeaves().apply(0).relation()
        return jvm.java.lang.ref.WeakReference(relation)
    return None
