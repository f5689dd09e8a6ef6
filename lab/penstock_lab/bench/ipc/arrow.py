"""Arrow batches over transports: written, sent, opened, and a column summed by the reader.

Both ends know the schema, as on an edge of a dataflow. Over sockets a batch goes as one Arrow IPC message without its
schema (`serialize` and `read_record_batch`, pyarrow's quickest way), or in Arrow's own stream format, which most
programs use. Over iceoryx2 it goes as an IPC message in shared memory, into the ring as a batch image. Half of the
bytes are an int64 column whose first value is the time of sending, half are the float64 column that the reader sums.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_lab.bench.ipc.cases import Case
from penstock_lab.bench.ipc.peers import IceoryxLink, IceoryxReceiver, IceoryxSender, SocketLink

ROW_BYTES = 16
SCHEMA = pa.schema([("stamp", pa.int64()), ("value", pa.float64())])
MESSAGE_ROOM = 1024  # an IPC message's own metadata
_LENGTH = struct.Struct("<Q")


class Batch:
    """A batch whose stamp can be set again and again."""

    def __init__(self, size: int) -> None:
        rows = max(1, size // ROW_BYTES)
        self._stamps = np.arange(rows, dtype=np.int64)
        value = np.linspace(0.0, 1.0, rows)
        self.message = pa.RecordBatch.from_arrays([pa.array(self._stamps), pa.array(value)], schema=SCHEMA)

    def stamp(self, now_ns: int) -> None:
        """Into the batch's own memory, which pyarrow shares with numpy."""
        self._stamps[0] = now_ns


def read_sum(batch: pa.RecordBatch) -> int:
    """Sum one column, as a reader would, and say when the batch was sent."""
    pc.sum(batch.column(1)).as_py()
    return int(batch.column(0)[0].as_py())


def read_stamp(batch: pa.RecordBatch) -> int:
    """Only when the batch was sent."""
    return int(batch.column(0)[0].as_py())


class MessageEnd:
    """IPC messages over a socket: length, then the message."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._head = bytearray(_LENGTH.size)
        self._body = pa.py_buffer(b"")

    def send(self, batch: pa.RecordBatch) -> None:
        """Serialise and gather; what the kernel does not take at once follows."""
        body = batch.serialize()
        sent = self._socket.sendmsg([_LENGTH.pack(body.size), body])
        if sent < _LENGTH.size + body.size:
            self._socket.sendall(memoryview(body)[max(0, sent - _LENGTH.size) :])

    def receive(self) -> pa.RecordBatch:
        """The next batch, in place in a buffer that the one after it overwrites."""
        _fill(self._socket, memoryview(self._head))
        size = _LENGTH.unpack(self._head)[0]
        if self._body.size != size:
            self._body = pa.allocate_buffer(size)
        _fill(self._socket, memoryview(self._body).cast("B"))
        return pa.ipc.read_record_batch(self._body, SCHEMA)

    def close(self) -> None:
        """Both directions."""
        self._socket.close()


def _fill(connection: socket.socket, view: memoryview) -> None:
    got = connection.recv_into(view, 0, socket.MSG_WAITALL)
    while got < len(view):
        got += connection.recv_into(view[got:], 0, socket.MSG_WAITALL)


class StreamSender:
    """Arrow's stream format into a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("wb", buffering=0)
        self._writer = pa.ipc.new_stream(self._file, SCHEMA)
        self.send = self._writer.write_batch
        self.close = connection.close


class StreamReceiver:
    """Arrow's stream format from a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")
        self._reader: Any = None
        self.close = connection.close

    def receive(self) -> pa.RecordBatch:
        """The next batch; the stream is opened with the first one, because opening waits for the schema."""
        if self._reader is None:
            self._reader = pa.ipc.open_stream(self._file)
        return self._reader.read_next_batch()


class ArrowSocketLink(SocketLink):
    """A Unix socket pair whose ends speak Arrow IPC."""

    def __init__(self, case: Case, *, stream: bool) -> None:
        super().__init__(case, socket.socketpair())
        self._stream = stream

    def sender(self) -> Any:  # noqa: ANN401
        """Messages or the stream format."""
        return StreamSender(self._left) if self._stream else MessageEnd(self._left)

    def receiver(self) -> Any:  # noqa: ANN401
        """Messages or the stream format."""
        self._left.close()
        return StreamReceiver(self._right) if self._stream else MessageEnd(self._right)


class ArrowIceoryxLink(IceoryxLink):
    """IPC messages in iceoryx2's shared memory, waiting on events."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, events=True, room=case.size + MESSAGE_ROOM)

    def sender(self) -> Any:  # noqa: ANN401
        """Serialise, then one copy into the loan."""
        return ArrowIceoryxSender(*self._services(), size=self._size, events=True)

    def receiver(self) -> Any:  # noqa: ANN401
        """Read in place."""
        return ArrowIceoryxReceiver(*self._services(), events=True)


class ArrowIceoryxSender(IceoryxSender):
    """Batches as IPC messages."""

    def send(self, batch: pa.RecordBatch) -> None:
        """Serialise, copy, send."""
        body = batch.serialize()
        self.send_memory(body.address, body.size)


class ArrowIceoryxReceiver(IceoryxReceiver):
    """Batches whose columns lie in the sample."""

    def receive(self) -> pa.RecordBatch:
        """The next batch."""
        sample = self.receive_sample()
        body = pa.foreign_buffer(sample.payload_ptr, sample.header.number_of_elements, sample)
        return pa.ipc.read_record_batch(body, SCHEMA)


def arrow_messages(case: Case) -> ArrowSocketLink:
    """IPC messages over a Unix socket."""
    return ArrowSocketLink(case, stream=False)


def arrow_stream(case: Case) -> ArrowSocketLink:
    """The stream format over a Unix socket."""
    return ArrowSocketLink(case, stream=True)
