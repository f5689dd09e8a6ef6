"""Frames: what two workers say to each other over a socket. Fixed header, then one Arrow message or nothing.

    bytes 0-3    body length           bytes 8-11   edge (job-wide number of a pair of tasks)
    byte  4      kind                  bytes 12-15  rows
    bytes 5-7    zero                  bytes 16-23  value: origin time (ns), watermark (us) or credit (bytes)

The schema of an edge is known to both ends from the dataflow, so a batch travels as an Arrow record batch message
without it. Header and message are multiples of 8 bytes: frames that begin aligned stay aligned. Nothing is unpickled,
every length is checked before anything is allocated, and an epoch marker has its kind reserved.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from penstock.errors import InvalidInput

HEADER = struct.Struct("<IB3xIIq")
BODY_BYTES_MAX = 256 * 1024 * 1024


class Kind(IntEnum):
    """What a frame carries."""

    DATA = 1
    WATERMARK = 2
    END = 3
    CREDIT = 4
    EPOCH = 5


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it was read; `body` is empty for all but data."""

    kind: int
    edge: int
    rows: int
    value: int
    body: pa.Buffer | None = None

    @property
    def size(self) -> int:
        """Bytes that count against the edge's window."""
        return 0 if self.body is None else int(self.body.size)


class WireFault(InvalidInput):
    """Bytes on a worker's socket that are no frame; the connection cannot be used any more."""


def pack(kind: Kind, edge: int, rows: int = 0, value: int = 0, body_length: int = 0) -> bytes:
    """The header of a frame."""
    return HEADER.pack(body_length, kind, edge, rows, value)


def pack_batch(edge: int, batch: pa.RecordBatch, origin_ns: int) -> tuple[bytes, pa.Buffer]:
    """Header and body of a data frame."""
    body = batch.serialize()
    if body.size > BODY_BYTES_MAX:
        msg = f"a batch of {batch.num_rows} rows takes {body.size} bytes; the limit is {BODY_BYTES_MAX}: lower rows_max"
        raise WireFault(msg)
    return HEADER.pack(body.size, Kind.DATA, edge, batch.num_rows, origin_ns), body


def unpack_batch(frame: Frame, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of a data frame, reading in place."""
    try:
        batch = pa.ipc.read_record_batch(frame.body, schema)
    except (pa.ArrowException, OSError) as error:
        msg = f"edge {frame.edge} received a batch that is not one of its schema: {error}"
        raise WireFault(msg) from error
    if batch.num_rows != frame.rows:
        msg = f"edge {frame.edge} received a batch of {batch.num_rows} rows under a header of {frame.rows}"
        raise WireFault(msg)
    return batch


class FrameReader:
    """Cuts a byte stream into frames; what is incomplete waits for the next bytes."""

    def __init__(self, edges: int) -> None:
        self._edges = edges
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        if self._rest:
            data = self._rest + data
        frames: list[Frame] = []
        buffer = pa.py_buffer(data)
        at, end = 0, len(data)
        while end - at >= HEADER.size:
            length, kind, edge, rows, value = HEADER.unpack_from(data, at)
            self._check(length, kind, edge)
            body_at = at + HEADER.size
            if end - body_at < length:
                break
            body = buffer.slice(body_at, length) if kind == Kind.DATA else None
            frames.append(Frame(kind, edge, rows, value, body))
            at = body_at + length
        self._rest = data[at:]
        return frames

    @property
    def wanted(self) -> int:
        """Bytes still missing from the frame that has begun, as far as is known; 0 between frames."""
        if len(self._rest) < HEADER.size:
            return HEADER.size - len(self._rest) if self._rest else 0
        return int(HEADER.unpack_from(self._rest)[0]) + HEADER.size - len(self._rest)

    def _check(self, length: int, kind: int, edge: int) -> None:
        if not Kind.DATA <= kind <= Kind.EPOCH:
            msg = f"a frame of unknown kind {kind} arrived; the peer speaks another version"
            raise WireFault(msg)
        if edge >= self._edges:
            msg = f"a frame names edge {edge}; this job has {self._edges}"
            raise WireFault(msg)
        if length > BODY_BYTES_MAX or length % 8 or (length and kind != Kind.DATA):
            msg = f"a frame of kind {kind} claims {length} bytes; the limit is {BODY_BYTES_MAX} in multiples of 8"
            raise WireFault(msg)
