"""Transports beside the ring, all with one face: a Link makes a sender and a receiver of bytes.

A Link is made in the consumer's process before that forks the producers, so that producers inherit what has no name
(socket pairs, pipes, queues, memory files). `sender` is called in the producer, `receiver` in the consumer. Each peer
is used as its own documentation advises for speed, and the setting favours it: sockets need no length because messages
of a case are equally long, receivers hand out views where the library can, and no receiver copies.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import socket
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from penstock_lab.bench.ipc.cases import Case

SOCKET_BUFFER_BYTES = 4 << 20  # the kernel gives as much of it as it allows


class Sender(Protocol):
    """The producer's end."""

    def send(self, message: bytearray) -> None:
        """Hand the message over; it may be changed as soon as this returns. Waits while there is no room."""

    def close(self) -> None:
        """Give up what is open; called when the consumer has everything."""


class Receiver(Protocol):
    """The consumer's end."""

    def receive(self) -> Any:  # noqa: ANN401 - whatever offers the buffer protocol
        """The next message, waiting for it."""

    def close(self) -> None:
        """Give up what is open."""


class Link(Protocol):
    """A way from producers to one consumer."""

    def sender(self) -> Sender:
        """A producer's end, in its process."""

    def receiver(self) -> Receiver:
        """The consumer's end; made before any producer starts."""


class SocketEnd:
    """Either end of a stream socket that carries messages of one size."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self._socket = connection
        self.send = connection.sendall
        self._view = memoryview(bytearray(size))

    def receive(self) -> memoryview:
        """The next message, in a buffer that the one after it overwrites."""
        got = self._socket.recv_into(self._view, 0, socket.MSG_WAITALL)
        while got < len(self._view):  # a signal may cut the wait short
            got += self._socket.recv_into(self._view[got:], 0, socket.MSG_WAITALL)
        return self._view

    def close(self) -> None:
        """Both directions."""
        self._socket.close()


class SocketLink:
    """A connected pair of stream sockets."""

    def __init__(self, case: Case, pair: tuple[socket.socket, socket.socket]) -> None:
        self._size = case.size
        self._left, self._right = pair
        self._left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        self._right.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)

    def sender(self) -> SocketEnd:
        """The left one."""
        self._right.close()
        return SocketEnd(self._left, self._size)

    def receiver(self) -> SocketEnd:
        """The right one."""
        self._left.close()
        return SocketEnd(self._right, self._size)


def unix_socket(case: Case) -> Link:
    """A Unix stream socket pair."""
    return SocketLink(case, socket.socketpair())


def tcp(case: Case) -> Link:
    """TCP over the loopback interface, without Nagle's delay."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    left.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketLink(case, (left, right))


class PipeEnd:
    """Either end of a multiprocessing pipe."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - Connection, whose type is not public
        self.send = connection.send_bytes
        self.receive = connection.recv_bytes
        self.close = connection.close


class PipeLink:
    """multiprocessing.Pipe in one direction, which is an os.pipe with framing."""

    def __init__(self, case: Case) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)

    def sender(self) -> PipeEnd:
        """The writing end."""
        self._reader.close()
        return PipeEnd(self._writer)

    def receiver(self) -> PipeEnd:
        """The reading end."""
        self._writer.close()
        return PipeEnd(self._reader)


class QueueLink:
    """multiprocessing.Queue: a feeder thread pickles into a pipe under a lock."""

    def __init__(self, case: Case) -> None:
        self._queue: multiprocessing.Queue[bytes] = multiprocessing.get_context("fork").Queue(case.queue)

    def send(self, message: bytearray) -> None:
        """A copy goes, because the feeder pickles it later."""
        self._queue.put(bytes(message))

    def receive(self) -> bytes:
        """The next message."""
        return self._queue.get()

    def close(self) -> None:
        """Wait for the feeder."""
        self._queue.close()
        self._queue.join_thread()

    def sender(self) -> QueueLink:
        """The queue itself serves both ends."""
        return self

    def receiver(self) -> QueueLink:
        """The queue itself serves both ends."""
        return self


def _socket_path() -> Path:
    return Path(tempfile.mkdtemp(prefix="penstock-ipc-")) / "s"


class ZmqLink:
    """pyzmq, PUSH to PULL over ipc://."""

    def __init__(self, case: Case) -> None:
        self._path = _socket_path()
        self._queue = case.queue

    def _socket(self, kind: str) -> tuple[Any, Any]:
        import zmq

        context = zmq.Context()
        end = context.socket(getattr(zmq, kind))
        end.set_hwm(self._queue)
        return context, end

    def sender(self) -> Any:  # noqa: ANN401
        """PUSH."""
        context, end = self._socket("PUSH")
        end.connect(f"ipc://{self._path}")
        return _Ends([end.close, context.term], send=end.send)

    def receiver(self) -> Any:  # noqa: ANN401
        """PULL, without copying out of the frame."""
        context, end = self._socket("PULL")
        end.bind(f"ipc://{self._path}")
        closing = [end.close, context.term, lambda: _remove(self._path)]
        return _Ends(closing, receive=lambda: end.recv(copy=False).buffer)


class NngLink:
    """pynng, Push0 to Pull0 over ipc://."""

    def __init__(self, case: Case) -> None:
        self._path = _socket_path()
        self._queue = case.queue

    def sender(self) -> Any:  # noqa: ANN401
        """Push0."""
        import pynng

        end = pynng.Push0(dial=f"ipc://{self._path}", send_buffer_size=self._queue)
        return _Ends([end.close], send=lambda message: end.send(bytes(message)))

    def receiver(self) -> Any:  # noqa: ANN401
        """Pull0."""
        import pynng

        end = pynng.Pull0(listen=f"ipc://{self._path}", recv_buffer_size=self._queue)
        return _Ends([end.close, lambda: _remove(self._path)], receive=end.recv)


class _Ends:
    """An end made of functions that a library offers."""

    def __init__(self, close: Sequence[Callable[[], object]], **offered: Callable[..., object]) -> None:
        self._close = close
        for name, call in offered.items():
            setattr(self, name, call)

    def close(self) -> None:
        """Whatever the library wants closed."""
        for call in self._close:
            call()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.rmdir()


class IceoryxLink:
    """iceoryx2: a publisher that discards nothing, and one subscriber; it is woken by events, or spins."""

    def __init__(self, case: Case, *, events: bool, room: int = 0) -> None:
        self._name = f"penstock/{os.getpid()}/{uuid.uuid4().hex}"
        self._size, self._queue = room or case.size, case.queue
        self._events = events

    def _services(self) -> tuple[Any, Any, Any]:
        import iceoryx2 as iox

        iox.set_log_level(iox.LogLevel.Fatal)
        node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
        data = (
            node.service_builder(iox.ServiceName.new(self._name))
            .publish_subscribe(iox.Slice[ctypes.c_uint8])
            .enable_safe_overflow(False)
            .subscriber_max_buffer_size(self._queue)
            .open_or_create()
        )
        event = node.service_builder(iox.ServiceName.new(self._name + "/event")).event().open_or_create()
        return node, data, event

    def sender(self) -> IceoryxSender:
        """A publisher, and a notifier where the other end waits for events."""
        return IceoryxSender(*self._services(), size=self._size, events=self._events)

    def receiver(self) -> IceoryxReceiver:
        """A subscriber and a listener."""
        return IceoryxReceiver(*self._services(), events=self._events)


class IceoryxSender:
    """Loan, one copy in, send, notify."""

    def __init__(self, node: Any, data: Any, event: Any, *, size: int, events: bool) -> None:  # noqa: ANN401
        import iceoryx2 as iox

        self._node = node  # services end with their node
        retry = iox.BackpressureStrategy.RetryUntilDelivered
        self._publisher = data.publisher_builder().initial_max_slice_len(size).backpressure_strategy(retry).create()
        self._notify = event.notifier_builder().create().notify if events else None

    def send(self, message: bytearray) -> None:
        """The message's memory is copied once."""
        self.send_memory(ctypes.addressof(ctypes.c_char.from_buffer(message)), len(message))

    def send_memory(self, address: int, size: int) -> None:
        """Copy from an address."""
        loan = self._publisher.loan_slice_uninit(size)
        ctypes.memmove(loan.payload_ptr, address, size)
        loan.assume_init().send()
        if self._notify is not None:
            self._notify()

    def close(self) -> None:
        """The publisher's memory stays until its last sample has been read."""


class IceoryxReceiver:
    """Samples read in place; the previous one is given back when the next is asked for."""

    def __init__(self, node: Any, data: Any, event: Any, *, events: bool) -> None:  # noqa: ANN401
        self._node = node
        self._subscriber = data.subscriber_builder().create()
        self._wait: Callable[[], object] = event.listener_builder().create().blocking_wait if events else lambda: None
        self._sample: Any = None

    def receive_sample(self) -> Any:  # noqa: ANN401
        """The next sample, waiting for an event or spinning."""
        if self._sample is not None:
            self._sample.delete()
        while (sample := self._subscriber.receive()) is None:
            self._wait()
        self._sample = sample
        return sample

    def receive(self) -> memoryview:
        """The sample's payload."""
        sample = self.receive_sample()
        return memoryview((ctypes.c_char * sample.header.number_of_elements).from_address(sample.payload_ptr))

    def close(self) -> None:
        """Give the last sample back."""
        if self._sample is not None:
            self._sample.delete()
            self._sample = None


def iceoryx2_events(case: Case) -> Link:
    """Waiting on events."""
    return IceoryxLink(case, events=True)


def iceoryx2_spinning(case: Case) -> Link:
    """Asking again and again."""
    return IceoryxLink(case, events=False)
