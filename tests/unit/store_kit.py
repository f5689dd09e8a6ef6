"""What tests of the store share: whole epochs in a few words, and a store with some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.checkpoint.contract import Manifest, Part
from penstock.checkpoint.store import Store
from penstock.run.contract import Staged
from penstock.run.engine.epochs import TaskSnapshot

TOPOLOGY = "counts"


def snapshot(task: str, *, finished: bool = False, **state: bytes) -> TaskSnapshot:
    return TaskSnapshot(task, finished, state)


def manifest(
    epoch: int,
    parts: Sequence[Part],
    attempt: int = 1,
    *,
    is_last: bool = False,
    tasks: Mapping[str, int] | None = None,
) -> Manifest:
    return Manifest(epoch, attempt, TOPOLOGY, tasks or {"op": 2}, tuple(parts), is_last, written_us=epoch)


def a_part(worker: int = 0, path: str = "parts/00000001/00000001-00000.part", staged: Sequence[Staged] = ()) -> Part:
    """One that no store has written."""
    return Part(worker, path, 7, "0" * 64, ("op/0",), (), tuple(staged))


def committed(store: Store, attempt: int, epoch: int, workers: int = 2) -> Manifest:
    """An epoch, from its parts to its manifest."""
    parts = [
        store.write_part(attempt, epoch, worker, [snapshot(f"op/{worker}", n=state_of(epoch, worker))])
        for worker in range(workers)
    ]
    whole = manifest(epoch, parts, attempt)
    store.commit(whole)
    return whole


def state_of(epoch: int, worker: int) -> bytes:
    return f"epoch {epoch} of worker {worker}, and what compresses: ".encode() + b"." * 100


def flip(path: Path, byte: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(bytes(data))
