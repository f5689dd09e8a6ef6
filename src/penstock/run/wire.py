"""What two workers say to each other: frames, and batches as images that are written once and read where they lie.

    >>> batch = pa.record_batch({"word": ["a", "b"]})
    >>> image = write_image(batch)
    >>> open_image(image, batch.schema).equals(batch)
    True

The schema of an edge is known to both ends from the dataflow, so a batch travels without it, as the image that
`core/image.hpp` describes: a descriptor and the batch's buffers, 64-byte aligned. Every transport carries the same
image: the ring has it written into its own memory (`prepare`, then `write_at`), the socket gathers it from the batch's
buffers. Both ends count an image's bytes against the edge's window, whatever the transport adds. Nothing is unpickled,
and everything is checked that could lead outside the bytes. An epoch marker has its kind reserved.
Decision: docs/decisions/0015-batch-images.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import pyarrow as pa

from penstock import _core
from penstock.errors import InvalidInput
from penstock.run.layouts import Recent


class Kind(IntEnum):
    """What a frame carries."""

    DATA = 1
    WATERMARK = 2
    END = 3
    CREDIT = 4
    EPOCH = 5


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

    def open(self, codec: _core.ImageCodec, /) -> pa.RecordBatch:
        """The batch, reading in place and keeping the body."""
        return codec.open(self.body)


class WireFault(InvalidInput):
    """Bytes from another worker that are no frame or no image; the connection cannot be used any more."""


def _codec(schema: pa.Schema) -> _core.ImageCodec:
    return _core.ImageCodec(schema.__arrow_c_schema__(), schema)


codec_of: Recent[_core.ImageCodec] = Recent(_codec)


def prepare(batch: pa.RecordBatch) -> _core.PreparedImage:
    """The batch's image, measured and ready to be written; holds the batch's buffers."""
    return codec_of(batch.schema).prepare(batch)


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
