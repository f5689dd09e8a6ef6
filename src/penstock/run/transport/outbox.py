"""What a RingChannel could not write yet: marks, batches and parts of long ones, in order and bounded.

Credits keep what waits far below the limit. A sender that reaches it does not heed credits. That is our bug, and the
error says so before the machine's memory is full (`test_an_outbox_has_a_limit`).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from penstock._core import PreparedImage, RingProducer, RingSegment
from penstock.errors import InternalError
from penstock.run.transport.wire import HEADER, Kind


class Mark(NamedTuple):
    """A frame without a body that waits."""

    kind: Kind
    edge: int
    value: int

    @property
    def size(self) -> int:
        """Bytes that wait with it."""
        return HEADER.size


class Image(NamedTuple):
    """A batch that waits, not yet written."""

    edge: int
    image: PreparedImage
    value: int

    @property
    def size(self) -> int:
        """Bytes that wait with it."""
        return HEADER.size + self.image.size


class Part(NamedTuple):
    """A piece of a frame that is longer than a record may be."""

    edge: int
    bytes: memoryview
    whole: int
    is_first: bool
    is_last: bool

    @property
    def size(self) -> int:
        """Bytes that wait with it."""
        return len(self.bytes)


class Move(NamedTuple):
    """The place in the order from which everything goes into the peer's next ring."""

    segment: RingSegment
    producer: RingProducer
    size: int = 0


Item = Mark | Image | Part | Move


class Outbox(deque[Item]):
    """Items in the order in which they go out; a deque, so that asking whether anything waits costs nothing."""

    def __init__(self, peer: int, bytes_max: int) -> None:
        super().__init__()
        self.bytes = 0
        self._peer = peer
        self._bytes_max = bytes_max

    def require_room(self, size: int) -> None:
        """Refuse more bytes where they pass the limit."""
        if self.bytes + size > self._bytes_max:
            msg = (
                f"worker {self._peer} is sent more than its credits allow: {self.bytes} bytes wait for its ring and"
                f" {size} more do not fit the limit of {self._bytes_max}"
            )
            raise InternalError(msg)

    def put(self, item: Item) -> None:
        """Let an item wait behind the others."""
        self.require_room(item.size)
        self.append(item)
        self.bytes += item.size

    def take_first(self) -> None:
        """Remove the item that has gone out."""
        self.bytes -= self.popleft().size

    def put_move(self, move: Move) -> None:
        """Ahead of all that waits, but not into the middle of a message: its parts are put together in one ring."""
        at = 0
        if self and isinstance(first := self[0], Part) and not first.is_first:
            at = 1 + next(i for i, item in enumerate(self) if isinstance(item, Part) and item.is_last)
        self.insert(at, move)

    def clear(self) -> None:
        """Give up what waits."""
        super().clear()
        self.bytes = 0
