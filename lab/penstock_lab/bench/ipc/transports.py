"""Every transport of the benchmark by name: how it is made, what it needs, what it can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock_lab.bench.ipc import peers as ipc_peers
from penstock_lab.bench.ipc.cases import Case

RING = "ring"
UNIX = "unix socket"
ICEORYX = "iceoryx2, events"
ICEORYX_SPIN = "iceoryx2, spinning"
ARROW = "arrow: "
ARROW_RING = f"{ARROW}ring"
ARROW_UNIX = f"{ARROW}unix socket"
ARROW_STREAM = f"{ARROW}unix socket, stream"
ARROW_ICEORYX = f"{ARROW}iceoryx2"


@dataclass(frozen=True)
class Transport:
    """`needs` is the package on PyPI that brings it, "" when Python or Penstock does."""

    make: Callable[[Case], Any]
    needs: str = ""
    module: str = ""
    many_producers: bool = False
    arrow: bool = False


def _ring(case: Case) -> Any:  # noqa: ANN401
    from penstock_lab.bench.ipc.ring import RingLink

    return RingLink(case)


def _arrow_ring(case: Case) -> Any:  # noqa: ANN401
    from penstock_lab.bench.ipc.ring import ArrowRingLink

    return ArrowRingLink(case)


def _from_arrow(name: str) -> Callable[[Case], Any]:
    def make_link(case: Case) -> Any:  # noqa: ANN401
        from penstock_lab.bench.ipc import arrow as ipc_arrow

        return getattr(ipc_arrow, name)(case)

    return make_link


TRANSPORTS: dict[str, Transport] = {
    RING: Transport(_ring, many_producers=True),
    ICEORYX: Transport(ipc_peers.iceoryx2_events, "iceoryx2", "iceoryx2"),
    ICEORYX_SPIN: Transport(ipc_peers.iceoryx2_spinning, "iceoryx2", "iceoryx2"),
    UNIX: Transport(ipc_peers.unix_socket),
    "tcp": Transport(ipc_peers.tcp),
    "pyzmq": Transport(ipc_peers.ZmqLink, "pyzmq", "zmq", many_producers=True),
    "pynng": Transport(ipc_peers.NngLink, "pynng", "pynng", many_producers=True),
    "Pipe": Transport(ipc_peers.PipeLink),
    "Queue": Transport(ipc_peers.QueueLink, many_producers=True),
    ARROW_RING: Transport(_arrow_ring, arrow=True),
    ARROW_UNIX: Transport(_from_arrow("arrow_messages"), arrow=True),
    ARROW_STREAM: Transport(_from_arrow("arrow_stream"), arrow=True),
    ARROW_ICEORYX: Transport(_from_arrow("ArrowIceoryxLink"), "iceoryx2", "iceoryx2", arrow=True),
}


def is_arrow(name: str) -> bool:
    """Whether the transport carries batches instead of bytes."""
    return name in TRANSPORTS and TRANSPORTS[name].arrow


def make(name: str, case: Case) -> tuple[Any, Any, Callable[[Any], int]]:
    """(link, payload, reader) for one case."""
    transport = TRANSPORTS[name]
    link = transport.make(case)
    if transport.arrow:
        from penstock_lab.bench.ipc.arrow import Batch, read_stamp, read_sum

        return link, Batch(case.size), read_sum if case.read else read_stamp
    from penstock_lab.bench.ipc.rig import Bytes, read_bytes

    return link, Bytes(case.size), read_bytes
