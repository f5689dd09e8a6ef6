"""Parts: states as they were given, and not one bit otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from store_kit import snapshot

from penstock.checkpoint import parts
from penstock.errors import CheckpointDamaged
from penstock.run.engine.epochs import TaskSnapshot

SNAPSHOTS = [
    snapshot("op/0", n=b"ab" * 60, m=b"x"),  # the first is compressed, the second is not
    snapshot("op/1", finished=True),
    snapshot("op/2", empty=b""),
]


def encoded(snapshots: Sequence[TaskSnapshot]) -> bytes:
    return b"".join(bytes(piece) for piece in parts.encode(snapshots))


def refused(data: bytes) -> str:
    with pytest.raises(CheckpointDamaged) as damaged:
        parts.decode(data, "a.part")
    assert damaged.value.path == "a.part"
    return damaged.value.fault


def test_every_flipped_bit_is_noticed() -> None:
    data = encoded(SNAPSHOTS)
    assert parts.decode(data, "a.part") == SNAPSHOTS
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            assert refused(bytes(damaged))
