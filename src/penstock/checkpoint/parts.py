"""One worker's part of an epoch as a file: the states of its tasks, compressed, and an index behind them.

    magic, version | state | state | ... | index (JSON) | length and checksum of the index, magic

States are written as they are compressed, one whole buffer a call, so that the thread which does it lets others run and
holds one state at a time; that is why the index comes last. Each state and the index have a CRC; the checksum of the
whole file is in the `Part`. Every flipped bit and every cut is noticed (`test_every_flipped_bit_is_noticed`).
Rejected: Arrow IPC or Parquet around it, because states are bytes already and neither checks them.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

import pyarrow as pa

from penstock.errors import CheckpointDamaged, InvalidInput
from penstock.run.columns.unwritten import written
from penstock.run.engine.epochs import TaskSnapshot

MAGIC = b"PENSPART"
VERSION = 1
HEAD = struct.Struct("<8sI")
TAIL = struct.Struct("<II8s")  # bytes of the index, its CRC, magic

COMPRESSION_LEVEL = 1  # the keeper has a core's leftovers; higher levels take three times as long for a tenth less
STATE_BYTES_MAX = 1 << 36
INDEX_BYTES_MAX = 64 << 20
TASKS_MAX = 100_000  # in one worker
STATES_MAX = 1_000  # of one task
NAME_MAX = 4_096  # characters of a task's or state's name

PLAIN, ZSTD = "plain", "zstd"


class _Stored(NamedTuple):
    """Where a state lies, and what it becomes."""

    name: str
    offset: int
    stored: int  # bytes in the file
    size: int  # bytes of the state
    is_compressed: bool
    crc: int


class _Entry(NamedTuple):
    task: str
    finished: bool
    states: list[_Stored]


class _Fault(Exception):
    """What is wrong with a file."""


def _refuse(fault: str) -> NoReturn:
    raise _Fault(fault)


def encode(snapshots: Sequence[TaskSnapshot]) -> Iterator[bytes | pa.Buffer]:
    """The bytes of a part, piece by piece; states that are no bytes yet become so here, one after the other."""
    _require_within_limits(snapshots)
    codec = pa.Codec("zstd", compression_level=COMPRESSION_LEVEL)
    yield HEAD.pack(MAGIC, VERSION)
    index: list[object] = []
    for snapshot in snapshots:
        states: list[object] = []
        for name, state in snapshot.state.items():
            given = pa.py_buffer(written(state))
            if given.size > STATE_BYTES_MAX:
                msg = (
                    f"state {name!r} of task {snapshot.task!r} has {given.size:,} bytes, more than {STATE_BYTES_MAX:,};"
                    f" give its operator more tasks"
                )
                raise InvalidInput(msg)
            smaller = codec.compress(given)
            piece, kind = (smaller, ZSTD) if smaller.size < given.size else (given, PLAIN)
            states.append([name, kind, piece.size, given.size, zlib.crc32(piece)])
            if piece.size:
                yield piece
        index.append([snapshot.task, snapshot.finished, states])
    known = json.dumps(index, separators=(",", ":")).encode()
    if len(known) > INDEX_BYTES_MAX:
        msg = f"a worker's tasks have names of {len(known):,} bytes, more than {INDEX_BYTES_MAX:,}; use more workers"
        raise InvalidInput(msg)
    yield known
    yield TAIL.pack(len(known), zlib.crc32(known), MAGIC)


def decode(data: bytes, path: str) -> list[TaskSnapshot]:
    """The snapshots that a part holds, without what was staged; `path` is what errors call it."""
    try:
        return _snapshots(memoryview(data))
    except _Fault as fault:
        raise CheckpointDamaged(path, str(fault)) from None


def _require_within_limits(snapshots: Sequence[TaskSnapshot]) -> None:
    if len(snapshots) > TASKS_MAX:
        msg = (
            f"a worker has {len(snapshots):,} tasks, and its part of a checkpoint has room for {TASKS_MAX:,}; "
            "use more workers, or give operators fewer tasks"
        )
        raise InvalidInput(msg)
    for found in snapshots:
        if len(found.state) > STATES_MAX:
            msg = (
                f"task {found.task!r} has {len(found.state):,} states, and a checkpoint has room for {STATES_MAX:,} of "
                "a task: a few of its own, and some for each sink that is part of it; give sinks tasks= of their own"
            )
            raise InvalidInput(msg)
        for name in (found.task, *found.state):
            if len(name) > NAME_MAX:
                msg = (
                    f"the name {name[:40]!r}... in task {found.task[:40]!r} has {len(name):,} characters, and a "
                    f"checkpoint has room for {NAME_MAX:,}; give the operator or the sink a shorter name"
                )
                raise InvalidInput(msg)


def _snapshots(data: memoryview) -> list[TaskSnapshot]:
    entries = _index(data)
    codec = pa.Codec("zstd")
    found = []
    for task, finished, states in entries:
        known = {stored.name: _state(data, stored, task, codec) for stored in states}
        if len(known) < len(states):
            _refuse(f"task {task!r} has two states of one name")
        found.append(TaskSnapshot(task, finished, known))
    return found


def _index(data: memoryview) -> list[_Entry]:
    """What the file holds and where, checked against the file's size."""
    if len(data) < HEAD.size + TAIL.size:
        _refuse(f"it ends after {len(data):,} bytes, before its head and its index")
    magic, version = HEAD.unpack_from(data)
    if magic != MAGIC:
        _refuse(f"it begins with {magic!r} and is no part of a checkpoint")
    if version != VERSION:
        _refuse(f"it has format {version}, and this version of Penstock reads format {VERSION}")
    size, crc, magic = TAIL.unpack_from(data, len(data) - TAIL.size)
    begin, end = len(data) - TAIL.size - size, len(data) - TAIL.size
    if magic != MAGIC:
        _refuse(f"it is cut off or overwritten at byte {end:,}, where its end mark should be")
    if size > INDEX_BYTES_MAX or begin < HEAD.size:
        _refuse(f"its index would have {size:,} bytes, more than there is room for")
    if zlib.crc32(data[begin:end]) != crc:
        _refuse(f"its index at byte {begin:,} does not match its checksum")
    try:
        return _entries(json.loads(bytes(data[begin:end])), begin)
    except (ValueError, RecursionError):
        _refuse(f"its index at byte {begin:,} is not JSON")


def _entries(index: object, end: int) -> list[_Entry]:
    offset, found = HEAD.size, []
    for entry in _listed(index, TASKS_MAX, "tasks"):
        match entry:
            case [str(task), bool(finished), list(states)]:
                pass
            case _:
                _refuse(f"its index has {str(entry)[:80]} where a task should be")
        stored = []
        for state in _listed(states, STATES_MAX, f"states of task {task!r}"):
            stored.append(_stored(state, offset, end, task))
            offset += stored[-1].stored
        found.append(_Entry(task, finished, stored))
    if offset != end:
        _refuse(f"its index names states up to byte {offset:,}, but they end at byte {end:,}")
    return found


def _listed(value: object, most: int, what: str) -> list[object]:
    if not isinstance(value, list) or len(value) > most:
        _refuse(f"its index is no list of at most {most:,} {what}")
    return value


def _stored(value: object, offset: int, end: int, task: str) -> _Stored:
    match value:
        case [str(name), str(kind), int(stored), int(size), int(crc)] if kind in {PLAIN, ZSTD}:
            sizes_fit = 0 <= stored <= end - offset and 0 <= size <= STATE_BYTES_MAX
            if not sizes_fit or (kind == PLAIN and size != stored):
                _refuse(f"state {name!r} of task {task!r} would have {stored:,} bytes at byte {offset:,}")
            return _Stored(name, offset, stored, size, kind == ZSTD, crc)
        case _:
            _refuse(f"its index has {str(value)[:80]} where a state of task {task!r} should be")


def _state(data: memoryview, stored: _Stored, task: str, codec: pa.Codec) -> bytes:
    piece = data[stored.offset : stored.offset + stored.stored]
    where = f"state {stored.name!r} of task {task!r}, bytes {stored.offset:,} to {stored.offset + stored.stored:,},"
    if zlib.crc32(piece) != stored.crc:
        _refuse(f"{where} does not match its checksum")
    if not stored.is_compressed:
        return bytes(piece)
    try:
        state: bytes = codec.decompress(piece, decompressed_size=stored.size, asbytes=True)
    except (OSError, MemoryError, pa.ArrowException) as error:
        _refuse(f"{where} cannot be decompressed: {' '.join(str(error).split())}")
    return state
