"""What two workers say to each other: frames, and batches as images that are written once and read where they lie.

    >>> batch = pa.record_batch({"word": ["a", "b"]})
    >>> open_image(write_image(batch), batch.schema).equals(batch)
    True

A frame is a head of 64 bytes and an image (core/image/image.hpp, docs/decisions/0015-batch-images.md) or nothing:
    bytes 0-3    body length, a multiple of 64     bytes 8-11   edge (job-wide number of a pair of tasks)
    byte  4      kind                              bytes 12-15  rows
    bytes 5-7    zero                              bytes 16-23  value: origin time, watermark, credit, epoch or slice
    bytes 24-31  when it was given to its transport, ns since 1970 by the sender's clock; 0: not told
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import _core
from penstock.errors import InvalidInput
from penstock.run.columns import kernels
from penstock.run.columns.native_schema import Recent, layout_of, position
from penstock.run.contract import BATCH_BYTES_MAX

HEADER = struct.Struct("<IB3xIIqq32x")
BODY_BYTES_MAX = 256 * 1024 * 1024


class Kind(IntEnum):
    """What a frame carries."""

    DATA = 1
    WATERMARK = 2
    END = 3
    CREDIT = 4
    EPOCH = 5
    SLICE = 6  # what has come on the edge since the last one is a slice of a region (run/region/slices.py)


class Frame(Protocol):
    """One frame as it was received; `size` is what counts against the edge's window."""

    @property
    def kind(self) -> int:
        """A Kind."""

    @property
    def edge(self) -> int:
        """Job-wide number of a pair of tasks."""

    @property
    def rows(self) -> int:
        """Rows of the batch; 0 for all but data."""

    @property
    def value(self) -> int:
        """Origin time (ns), watermark (us), credit (bytes) or epoch."""

    @property
    def size(self) -> int:
        """Bytes of the image; 0 for all but data."""

    @property
    def sent_ns(self) -> int:
        """When it was given to its transport, in ns since 1970 by the sender's clock; 0: not told."""

    def open(self, codec: _core.ImageCodec, /) -> pa.RecordBatch:
        """The batch, reading in place; it keeps the frame's memory for as long as any of its arrays lives."""


@dataclass(frozen=True, slots=True)
class BufferFrame:
    """A frame whose image is any object with the buffer protocol, such as a record of a ring."""

    kind: int
    edge: int
    rows: int
    value: int
    size: int = 0
    body: object = None
    sent_ns: int = 0

    def open(self, codec: _core.ImageCodec, /) -> pa.RecordBatch:
        """The batch, reading in place and keeping the body."""
        return codec.open(self.body)


class WireFault(InvalidInput):
    """Bytes from another worker that are no frame or no image; the connection cannot be used any more."""


def pack(kind: Kind, edge: int, rows: int = 0, value: int = 0, body_length: int = 0, sent_ns: int = 0) -> bytes:
    """The head of a frame, for transports that are written in Python."""
    return HEADER.pack(body_length, kind, edge, rows, value, sent_ns)


def unpack(head: object, body: object, edges: int) -> BufferFrame:
    """A frame from its head and its body; refused where it is none of this job's."""
    length, kind, edge, rows, value, sent_ns = HEADER.unpack_from(head)  # type: ignore[arg-type] # any buffer
    if not Kind.DATA <= kind <= Kind.SLICE:
        msg = f"a frame of unknown kind {kind} arrived; the peer speaks another version"
        raise WireFault(msg)
    if edge >= edges:
        msg = f"a frame names edge {edge}; this job has {edges}"
        raise WireFault(msg)
    if length > BODY_BYTES_MAX or length % 64 or (length > 0) != (kind == Kind.DATA):
        msg = f"a frame of kind {kind} claims {length} bytes; the limit is {BODY_BYTES_MAX} in multiples of 64"
        raise WireFault(msg)
    return BufferFrame(kind, edge, rows, value, length, body if length else None, sent_ns)


def _codec(schema: pa.Schema) -> _core.ImageCodec:
    return _core.ImageCodec(schema.__arrow_c_schema__(), schema)


codec_of: Recent[_core.ImageCodec] = Recent(_codec)


def prepare(batch: pa.RecordBatch) -> _core.PreparedImage:
    """The batch's image, measured and ready to be written; holds the batch's buffers."""
    return codec_of(batch.schema).prepare(batch)


Routed = list[tuple[int, _core.PreparedImage]]


def sendable(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batch in pieces that are small enough to be sent; the batch itself where it is, or where it is one row."""
    return cut(batch) if is_long(prepare(batch)) else [batch]


def is_long(image: _core.PreparedImage) -> bool:
    """Whether a batch is better sent in pieces."""
    return image.size > BATCH_BYTES_MAX and image.rows > 1


def cut(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """A long batch in pieces, halved until each is small enough or one row."""
    half = batch.num_rows // 2
    return [piece for part in (batch.slice(0, half), batch.slice(half)) for piece in sendable(part)]


def require_sendable(image: _core.PreparedImage) -> None:
    """Refuse a row that does not fit a frame."""
    if image.size > BODY_BYTES_MAX:
        what = "one row" if image.rows == 1 else f"a batch of {image.rows} rows"
        limit = f"the limit is {BODY_BYTES_MAX} bytes: keep large values in files and send their names"
        msg = f"{what} takes {image.size} bytes on its way to another worker; {limit}"
        raise WireFault(msg)


def route_by_key(batch: pa.RecordBatch, columns: Sequence[str], parts: int) -> Routed:
    """An image for each part that gets rows by the hash of some columns: `kernels.partition` without its batches."""
    layout = _key_layout(batch.schema, tuple(columns))
    if layout is None:
        return route_by_target(batch, parts_of(kernels.hash_rows(batch, columns), parts), parts)
    return _numbered(codec_of(batch.schema).route_by_key(layout[0], batch, layout[1], parts))


def route_by_target(batch: pa.RecordBatch, targets: npt.NDArray[np.uint32], parts: int) -> Routed:
    """An image for each part that gets rows; `targets` says for each row which."""
    return _numbered(codec_of(batch.schema).route_by_target(batch, np.ascontiguousarray(targets, np.uint32), parts))


def _numbered(images: Sequence[_core.PreparedImage | None]) -> Routed:
    return [(part, image) for part, image in enumerate(images) if image is not None]


def _layout_for(schema: pa.Schema, columns: tuple[str, ...]) -> tuple[_core.Layout, list[int]] | None:
    """What the core needs to hash these columns, or None where pyarrow has to make them plain first."""
    indices = [position(schema, name, "route") for name in columns]
    known = layout_of(schema)
    return (known.layout, indices) if all(known.reads(index) for index in indices) else None


_key_layout: Recent[tuple[_core.Layout, list[int]] | None] = Recent(_layout_for)


def parts_of(hashes: npt.NDArray[np.uint64], parts: int) -> npt.NDArray[np.uint32]:
    """(hash * parts) >> 64, in halves that do not overflow."""
    low, high = hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32)
    count, half = np.uint64(parts), np.uint64(32)
    return ((high * count + ((low * count) >> half)) >> half).astype(np.uint32)


def write_image(batch: pa.RecordBatch) -> pa.Buffer:
    """The batch's image in memory of its own."""
    prepared = prepare(batch)
    image = pa.allocate_buffer(prepared.size)
    prepared.write_into(image)
    return image


def open_image(image: object, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of an image, reading in place; keeps the object that holds the bytes."""
    try:
        return codec_of(schema).open(image)
    except (_core.ImageFault, pa.ArrowException) as error:
        raise WireFault(str(error)) from error


def unpack_batch(frame: Frame, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of a data frame, reading in place."""
    try:
        batch = frame.open(codec_of(schema))
    except (_core.ImageFault, pa.ArrowException) as error:
        msg = f"edge {frame.edge} received a batch that is not one of its schema: {error}"
        raise WireFault(msg) from error
    if batch.num_rows != frame.rows:
        msg = f"edge {frame.edge} received a batch of {batch.num_rows} rows under a header of {frame.rows}"
        raise WireFault(msg)
    return batch
