"""Where processes listen: ports as users give them, and real listeners at them."""

from __future__ import annotations

import socket

import pytest

import penstock as ps
from penstock.deploy.driver.options import JobOptions
from penstock.deploy.driver.rendezvous import ControlServer
from penstock.deploy.line.network import Network
from penstock.deploy.worker.main import own_address
from penstock.run.transport.ports import NoPortLeft, Ports
from penstock.run.transport.socket import listen

HERE = "127.0.0.1"


def taken(count: int = 2) -> tuple[Ports, list[socket.socket]]:
    """Neighbouring ports, each with a listener of ours."""
    while True:
        with listen(HERE) as any_port:
            port = any_port.getsockname()[1]
        listeners: list[socket.socket] = []
        try:
            listeners.extend(listen(HERE, Ports("x", port + i, port + i)) for i in range(count))
        except (NoPortLeft, OverflowError):  # the neighbour is somebody else's
            for listener in listeners:
                listener.close()
        else:
            return Ports("data_ports", port, port + count - 1), listeners


@pytest.mark.parametrize(
    ("given", "first", "last"), [(7000, 7000, 7000), ("7000", 7000, 7000), (" 7000 - 7100 ", 7000, 7100)]
)
def test_a_port_or_a_range_is_understood(given: int | str, first: int, last: int) -> None:
    ports = Ports.read(given, "data_ports")
    assert (ports.first, ports.last) == (first, last)
    assert len(ports.numbers) == last - first + 1


@pytest.mark.parametrize("given", [0, -1, 65_536, "7100-7000", "0-10", "1-65536", "x", "", "1-2-3", True, 7.5, None])
def test_what_is_no_range_is_refused(given: object) -> None:
    with pytest.raises(ps.InvalidInput, match=r"data_ports is .*; give a port from 1 to 65535 or a range"):
        Ports.read(given, "data_ports")


def test_the_first_free_port_of_a_range_is_taken() -> None:
    ports, (first, second) = taken()
    second.close()
    with listen(HERE, ports) as listener:
        assert listener.getsockname() == (HERE, ports.last)
    first.close()


def test_a_range_without_a_free_port_is_named() -> None:
    ports, listeners = taken()
    with pytest.raises(NoPortLeft, match=f"every port of data_ports {ports} is taken at {HERE}; give a wider range"):
        listen(HERE, ports)
    for listener in listeners:
        listener.close()


def test_a_port_is_free_again_while_old_connections_fade() -> None:
    ports, (first, second) = taken()
    caller = socket.create_connection(first.getsockname())
    called, _ = first.accept()
    called.close()  # our end closes first, so the connection fades at our port
    assert caller.recv(1) == b""
    caller.close()
    first.close()
    with listen(HERE, ports) as listener:
        assert listener.getsockname()[1] == ports.first
    second.close()


def test_the_driver_listens_at_its_own_port_and_says_when_it_cannot() -> None:
    ports, (first, second) = taken()
    second.close()
    network = Network(control=Ports.read(str(ports), "control_port"))
    server = ControlServer(HERE, bytes(32), 1, lambda *_: None, None, network)
    assert server.port == ports.last
    with pytest.raises(ps.InvalidInput, match=f"every port of control_port {ports} is taken at {HERE}"):
        ControlServer(HERE, bytes(32), 1, lambda *_: None, None, network)
    server.end()
    first.close()


def test_a_listener_has_one_address_and_not_the_machines_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.3")
    assert own_address("tcp://127.0.0.1:1") == "127.0.0.3"
    for every in ("0.0.0.0", "::"):  # noqa: S104
        monkeypatch.setenv("SPARK_LOCAL_IP", every)
        assert own_address("tcp://127.0.0.1:1") == HERE
    with listen(own_address("tcp://127.0.0.1:1")) as listener, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", listener.getsockname()[1]))


def test_a_job_with_checkpoints_needs_more_than_one_control_port() -> None:
    with pytest.raises(ps.InvalidInput, match=r"give a range, such as '7000-7009'"):
        JobOptions(control_port=7000, checkpoint="x").require_sound()
    JobOptions(control_port=7000).require_sound()
    JobOptions(control_port="7000-7001", checkpoint="x").require_sound()
