"""Frames for transports that are written in Python: heads there and back, and what is refused."""

from __future__ import annotations

import socket
import time

import pyarrow as pa
import pytest

from penstock.run.transport.socket import SocketChannel
from penstock.run.transport.wire import BODY_BYTES_MAX, HEADER, Kind, WireFault, pack, unpack, unpack_batch, write_image

EDGES = 8


def test_a_frame_of_data_opens_in_place() -> None:
    batch = pa.record_batch({"word": ["a", None, "ccc"]})
    image = write_image(batch)
    frame = unpack(pack(Kind.DATA, 3, 3, 77, image.size), image, EDGES)
    assert (frame.kind, frame.edge, frame.rows, frame.value, frame.size) == (Kind.DATA, 3, 3, 77, image.size)
    assert unpack_batch(frame, batch.schema).equals(batch)


def test_a_mark_has_no_body() -> None:
    frame = unpack(pack(Kind.WATERMARK, 1, value=-5), b"", EDGES)
    assert (frame.kind, frame.edge, frame.value, frame.size, frame.body) == (Kind.WATERMARK, 1, -5, 0, None)


def test_the_core_writes_the_same_heads() -> None:
    left, raw = socket.socketpair()
    sender = SocketChannel(left, 1, EDGES)
    sender.send_mark(Kind.CREDIT, 6, 1 << 40)
    assert raw.recv(1000) == pack(Kind.CREDIT, 6, value=1 << 40)
    batch = pa.record_batch({"i": [1, 2]})
    before = time.time_ns()
    size = sender.send_batch(2, batch, 9)
    sent = raw.recv(1000)
    stamped = unpack(sent, sent[HEADER.size :], EDGES).sent_ns  # when it was given to the socket
    assert before <= stamped <= time.time_ns()
    assert sent == pack(Kind.DATA, 2, 2, 9, size, stamped) + write_image(batch).to_pybytes()
    assert HEADER.size == 64
    sender.close()
    raw.close()


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (HEADER.pack(0, 0, 0, 0, 0, 0), "unknown kind 0"),
        (HEADER.pack(0, max(Kind) + 1, 0, 0, 0, 0), "unknown kind 7"),
        (HEADER.pack(0, Kind.END, EDGES, 0, 0, 0), "edge 8; this job has 8"),
        (HEADER.pack(63, Kind.DATA, 0, 0, 0, 0), "claims 63"),
        (HEADER.pack(0, Kind.DATA, 0, 0, 0, 0), "claims 0"),
        (HEADER.pack(64, Kind.CREDIT, 0, 0, 0, 0), "kind 4 claims 64"),
        (HEADER.pack(BODY_BYTES_MAX + 64, Kind.DATA, 0, 0, 0, 0), "claims 268435520"),
    ],
)
def test_what_is_no_frame_is_refused(head: bytes, told: str) -> None:
    with pytest.raises(WireFault, match=told):
        unpack(head, b"", EDGES)
