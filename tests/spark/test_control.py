"""The control line without Spark: who may call, what a call may carry, and that nothing waits for ever."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.deploy.control import METRICS_ROOM, QUEUE_BATCHES, DriverGone, DriverLine
from penstock.deploy.messages import HEADER, REPORT_BYTES_MAX, Fault, Hello, encode, encode_deployment, proof
from penstock.deploy.rendezvous import ControlServer, wait_until
from penstock.run.links import WorkerPlace
from penstock.run.worker import Cancelled, Deployment

KEY = bytes(range(32))
HELLO = Hello(0, 1, "x", "127.0.0.1", 1, 2, 3, "b", "i", "3.11", "26", 1000.0)
BATCH = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
ORDERS = encode_deployment(Deployment("j", (WorkerPlace(0, "n1", "127.0.0.1", 1),), {"a/0": 0}))


@pytest.fixture
def taken() -> list[Any]:
    return []


@pytest.fixture
def server(taken: list[Any]) -> Iterator[ControlServer]:
    made = ControlServer("127.0.0.1", KEY, 2, lambda *row: taken.append(row))
    yield made
    made.end()


@pytest.fixture
def line(server: ControlServer) -> Iterator[DriverLine]:
    made = DriverLine(f"grpc://127.0.0.1:{server.port}", KEY, 0)
    yield made
    made.done("finished")
    made.close()


def call(server: ControlServer, header: str, body: bytes = b"{}", action: str = "hello") -> None:
    with flight.FlightClient(f"grpc://127.0.0.1:{server.port}") as client:
        options = flight.FlightCallOptions(timeout=10, headers=[(HEADER.encode(), header.encode())])
        list(client.do_action(flight.Action(action, body), options))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        proof(bytes(32), 0, "talk", "action", 1),
        proof(KEY, 0, "talk", "put", 1),
        proof(KEY, 9, "talk", "action", 1),
    ],
    ids=["none", "nonsense", "other key", "other method", "no such worker"],
)
def test_strangers_are_refused(server: ControlServer, header: str) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError):
        call(server, header)
    assert not server.roll.hellos


def test_a_recorded_call_cannot_be_played_back(server: ControlServer) -> None:
    header, body = proof(KEY, 0, "talk", "action", 1), encode({"status": "finished"})
    call(server, header, body, "done")
    with pytest.raises(flight.FlightUnauthenticatedError):
        call(server, header, body, "done")


def test_other_doors_of_flight_are_shut(server: ControlServer) -> None:
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
    with client, pytest.raises(flight.FlightUnauthenticatedError):
        list(client.list_flights())


@pytest.mark.parametrize(
    "body",
    [b"[]", b"not json", b"{}", b'{"worker": 0, "surprise": 1}', b'{"x":"' + b"a" * REPORT_BYTES_MAX + b'"}'],
    ids=["list", "no json", "empty", "unknown", "huge"],
)
def test_malformed_messages_are_refused(server: ControlServer, body: bytes) -> None:
    with pytest.raises(flight.FlightServerError, match="malformed"):
        call(server, proof(KEY, 0, "talk", "action", 1), body, "hello")
    assert not server.roll.hellos


def test_hello_waits_for_orders(server: ControlServer, line: DriverLine) -> None:
    publisher = threading.Thread(
        target=lambda: wait_until(lambda: bool(server.roll.hellos), 10) and server.roll.publish(ORDERS)
    )
    publisher.start()
    deployment = line.hello(HELLO)
    publisher.join()
    assert deployment is not None
    assert deployment.worker_of == {"a/0": 0}
    assert server.roll.hellos == {0: HELLO}


def test_a_worker_that_comes_too_late_is_sent_home(server: ControlServer, line: DriverLine) -> None:
    server.roll.command("cancel")
    assert line.hello(HELLO) is None


def test_a_command_wakes_the_loop(server: ControlServer, line: DriverLine) -> None:
    line.start()
    server.roll.command("stop")
    assert select.select([line.fileno()], [], [], 10)[0]
    assert line.commands() == ["stop"]
    assert line.commands() == []


def test_rows_arrive_before_flush_returns(server: ControlServer, line: DriverLine, taken: list[Any]) -> None:
    line.start()
    for _ in range(50):
        line.deliver("out", BATCH)
    line.flush()
    assert [(worker, kind, name, batch.num_rows) for worker, kind, name, batch in taken] == [
        (0, "results", "out", 3)
    ] * 50


def test_metrics_behind_many_results_are_late_but_not_lost(
    server: ControlServer, line: DriverLine, taken: list[Any]
) -> None:
    for _ in range(METRICS_ROOM):
        line.deliver("out", BATCH)  # nobody sends them yet
    line.metrics({"tasks": BATCH})
    line.start()
    line.flush()
    # Results and metrics are two streams, so which of them arrives first is open.
    assert sorted(kind for _, kind, _, _ in taken) == ["metrics"] + ["results"] * METRICS_ROOM
    assert line.metrics_dropped == 0


def test_a_full_queue_does_not_keep_the_sender_from_hearing_of_the_end(server: ControlServer) -> None:
    line = DriverLine(f"grpc://127.0.0.1:{server.port}", KEY, 0)
    for _ in range(QUEUE_BATCHES):
        line.deliver("out", BATCH)  # nobody sends them
    heard: list[bool] = []

    class Sender(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            heard.append(None in list(line._rows.queue))

    line._threads.append(Sender())
    line.close()
    assert heard == [True]


def test_a_fault_of_one_worker_cancels_the_others(server: ControlServer, line: DriverLine) -> None:
    line.start()
    other = DriverLine(f"grpc://127.0.0.1:{server.port}", KEY, 1)
    other.fault(Fault(1, "task", "boom"))
    other.close()
    assert select.select([line.fileno()], [], [], 10)[0]
    assert line.commands() == ["cancel"]
    assert [fault.message for fault in server.roll.faults] == ["boom"]
    with pytest.raises(Cancelled):
        line.deliver("out", BATCH)


def test_a_worker_cancels_itself_when_its_driver_is_gone(server: ControlServer, line: DriverLine) -> None:
    line.start()
    server.end()
    assert select.select([line.fileno()], [], [], 10)[0]
    assert "cancel" in line.commands()
    with pytest.raises((DriverGone, Cancelled)):
        line.deliver("out", BATCH)
