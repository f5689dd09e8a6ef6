"""Parts: states as they were given, and not one bit otherwise."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import snapshot

from penstock.checkpoint import parts
from penstock.errors import CheckpointDamaged, InvalidInput
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


NAMES = st.text(st.characters(), min_size=1, max_size=12)
STATES = st.one_of(st.binary(max_size=200), st.binary(max_size=9).map(lambda piece: piece * 300))
TASKS = st.builds(TaskSnapshot, NAMES, st.booleans(), st.dictionaries(NAMES, STATES, max_size=4))


@given(st.lists(TASKS, max_size=5))
def test_states_come_back_as_they_were_given(snapshots: list[TaskSnapshot]) -> None:
    assert parts.decode(encoded(snapshots), "a.part") == snapshots


def test_states_of_any_kind_of_buffer_are_kept() -> None:
    numbers = pa.array(range(1000), pa.int64())
    views = [TaskSnapshot("op/0", False, {"a": numbers.buffers()[1], "m": memoryview(b"xyz"), "b": bytearray(b"1")})]
    (found,) = parts.decode(encoded(views), "a.part")
    assert found.state == {"a": numbers.buffers()[1].to_pybytes(), "m": b"xyz", "b": b"1"}


@given(st.lists(TASKS, min_size=1, max_size=3), st.data())
def test_what_was_cut_grown_or_overwritten_is_refused(snapshots: list[TaskSnapshot], data: st.DataObject) -> None:
    whole = encoded(snapshots)
    begin = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(begin, len(whole)))
    changed = whole[:begin] + data.draw(st.binary(max_size=30)) + whole[end:]
    if changed != whole:
        refused(changed)


@given(st.binary(max_size=300))
def test_any_other_bytes_are_refused(data: bytes) -> None:
    refused(data)
    refused(parts.HEAD.pack(parts.MAGIC, parts.VERSION) + data + parts.TAIL.pack(len(data), 0, parts.MAGIC))


def test_every_cut_is_noticed() -> None:
    data = encoded(SNAPSHOTS)
    for end in range(len(data)):
        refused(data[:end])


def with_index(index: object, states: bytes = b"") -> bytes:
    """A part whose checksums are right and whose index is made up."""
    known = index if isinstance(index, bytes) else json.dumps(index).encode()
    head = parts.HEAD.pack(parts.MAGIC, parts.VERSION)
    return head + states + known + parts.TAIL.pack(len(known), zlib.crc32(known), parts.MAGIC)


COMPRESSED = pa.Codec("zstd").compress(b"a" * 100, asbytes=True)


def of(*state: object, states: bytes = b"") -> bytes:
    return with_index([["op/0", False, [list(state)]]], states)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (with_index(b"{"), "is not JSON"),
        (with_index(b"[" * 100_000), "is not JSON"),
        (with_index(b"\xff"), "is not JSON"),
        (with_index({}), "its index is no list of at most 100,000 tasks"),
        (with_index([["op/0", 1, []]]), "where a task should be"),
        (with_index([["op/0", True]]), "where a task should be"),
        (with_index([["op/0", True, [[]]]]), "where a state of task 'op/0' should be"),
        (with_index([["op/0", True, [[]] * 1_001]]), "no list of at most 1,000 states of task 'op/0'"),
        (of("n", "gzip", 0, 0, 0), "where a state of task 'op/0' should be"),
        (of("n", "plain", -1, -1, 0), "would have -1 bytes"),
        (of("n", "plain", 1, 1, 0), "would have 1 bytes at byte 12"),
        (of("n", "plain", 1, 2, zlib.crc32(b"x"), states=b"x"), "would have 1 bytes at byte 12"),
        (of("n", "plain", 1, 1, 5, states=b"x"), "does not match its checksum"),
        (of("n", "plain", 1, 1, zlib.crc32(b"x"), states=b"xy"), "names states up to byte 13, but they end at byte 14"),
        (of("n", "zstd", 1, 1 << 60, zlib.crc32(b"x"), states=b"x"), "would have 1 bytes at byte 12"),
        (of("n", "zstd", 1, 100, zlib.crc32(b"x"), states=b"x"), "cannot be decompressed"),
        *(
            (of("n", "zstd", len(COMPRESSED), n, zlib.crc32(COMPRESSED), states=COMPRESSED), "cannot be decompressed")
            for n in (0, 99, 101, 1 << 30)
        ),
        (with_index([["op/0", False, [["n", "plain", 0, 0, 0]] * 2]]), "task 'op/0' has two states of one name"),
        (struct.pack("<8sI", b"PENSPART", 2) + encoded([])[12:], "it has format 2, and this version of Penstock reads"),
        (b"X" + encoded([])[1:], "is no part of a checkpoint"),
        (b"", "it ends after 0 bytes, before its head and its index"),
    ],
)
def test_a_part_that_was_made_up_is_refused(data: bytes, fault: str) -> None:
    assert fault in refused(data)


@pytest.mark.parametrize(
    ("snapshots", "fault"),
    [
        (
            [snapshot("op/0")] * 100_001,
            "a worker has 100,001 tasks, and its part of a checkpoint has room",
        ),
        (
            [TaskSnapshot("op/0", False, {str(n): b"" for n in range(1_001)})],
            "task 'op/0' has 1,001 states, and a checkpoint has room for 1,000 of a task",
        ),
        ([snapshot("x" * 5_000)], " has 5,000 characters, and a checkpoint has room for 4,096; give"),
        (
            [TaskSnapshot("op/0", False, {"y" * 5_000: b""})],
            "'... in task 'op/0' has 5,000 characters, and a checkpoint has room for 4,096; give",
        ),
    ],
)
def test_what_nobody_could_read_is_not_written(snapshots: list[TaskSnapshot], fault: str) -> None:
    with pytest.raises(InvalidInput) as told:
        encoded(snapshots)
    assert fault in str(told.value)


def test_every_flipped_bit_is_noticed() -> None:
    data = encoded(SNAPSHOTS)
    assert parts.decode(data, "a.part") == SNAPSHOTS
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            assert refused(bytes(damaged))
