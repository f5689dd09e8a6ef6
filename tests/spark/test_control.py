"""The control line without Spark: who may call, what a call may carry, and that nothing waits for ever."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.checkpoint.contract import Part, Report
from penstock.deploy.driver.rendezvous import ControlServer, Roll, wait_until
from penstock.deploy.line.messages import (
    KEPT_BYTES_MAX,
    REPORT_BYTES_MAX,
    Fault,
    Hello,
    decode,
    encode,
    encode_deployment,
)
from penstock.deploy.line.sealed import LANES, METRICS, WORDS, Line, LineBroken, open_line
from penstock.deploy.metrics.sums import Sums
from penstock.deploy.worker.control import (
    CUT_OFF_SECONDS,
    METRICS_ASIDE,
    METRICS_ROOM,
    QUEUE_BATCHES,
    DriverGone,
    DriverLine,
    Place,
)
from penstock.run.engine.meters import TABLES, Meters, TaskTime
from penstock.run.engine.worker import Cancelled, Deployment
from penstock.run.transport.links import WorkerPlace

TICKET = bytes(range(32))
HELLO = Hello(0, 1, "x", "127.0.0.1", 1, 2, 3, "b", "i", "3.11", "26", 1000.0)
REPORT = Report(1, 7, Part(0, "parts/00000001/00000007-00000.part", 1, "0" * 64, ("a/0",)))
BATCH = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
ORDERS = encode_deployment(Deployment("j", (WorkerPlace(0, "n1", "127.0.0.1", 1),), {"a/0": 0}))


@pytest.fixture
def taken() -> list[Any]:
    return []


@pytest.fixture
def server(taken: list[Any]) -> Iterator[ControlServer]:
    made = ControlServer("127.0.0.1", TICKET, 2, lambda *row: taken.append(row))
    yield made
    made.end()


@pytest.fixture
def line(server: ControlServer) -> Iterator[DriverLine]:
    """A worker that has been sent to work."""
    made = arrived(server, HELLO)
    yield made
    made.done("finished")
    made.close()


def arrived(server: ControlServer, hello: Hello) -> DriverLine:
    made = caller(server, hello.worker)
    publisher = threading.Thread(
        target=lambda: wait_until(lambda: hello.worker in server.roll.hellos, 10) and server.roll.publish(ORDERS)
    )
    publisher.start()
    assert made.hello(hello) is not None
    publisher.join()
    return made


def caller(server: ControlServer, worker: int = 0) -> DriverLine:
    return DriverLine(Place(f"tcp://127.0.0.1:{server.port}", TICKET), worker)


@pytest.mark.parametrize("lane", ["poll", "data"])
def test_the_ticket_alone_opens_nothing_but_hello(server: ControlServer, line: DriverLine, lane: str) -> None:
    with pytest.raises(LineBroken):
        open_line(("127.0.0.1", server.port), TICKET, 0, lane, 10)


def test_a_forged_row_of_a_stranger_with_the_ticket_is_not_taken(server: ControlServer, taken: list[Any]) -> None:
    stranger = open_line(("127.0.0.1", server.port), TICKET, 1, "talk", 10)
    stranger.send(METRICS, b"rows")
    with pytest.raises(ConnectionError):
        stranger.receive({WORDS: 100})
    stranger.close()
    assert taken == []


@pytest.mark.parametrize(
    "body",
    [b"[]", b"not json", b"{}", b'{"call": "hello", "surprise": 1}', b'{"call": "done", "status": "finished"}'],
    ids=["list", "no json", "empty", "unknown", "before hello"],
)
def test_malformed_calls_are_refused(server: ControlServer, body: bytes) -> None:
    worker = open_line(("127.0.0.1", server.port), TICKET, 0, "talk", 10)
    worker.send(WORDS, body)
    assert "malformed" in decode(worker.receive({WORDS: 1000})[1])["refused"]
    worker.close()
    assert not server.roll.hellos
    assert not server.roll.statuses


def test_a_long_call_is_refused_by_its_length_before_it_is_read(server: ControlServer) -> None:
    worker = open_line(("127.0.0.1", server.port), TICKET, 0, "talk", 10)
    worker.connection.sendall(worker._out.head(WORDS, REPORT_BYTES_MAX + 1))  # and nothing else
    with pytest.raises(ConnectionError):
        worker.receive({WORDS: 1000})
    worker.close()


# -- who may say hello -------------------------------------------------------------------------------------------------


def test_a_second_process_with_the_same_number_fails_the_job_loudly(server: ControlServer, line: DriverLine) -> None:
    stranger = caller(server)
    with pytest.raises(DriverGone, match="look for a stranger on the network"):
        stranger.hello(dataclasses.replace(HELLO, pid=666))
    stranger.close()
    (fault,) = server.roll.faults
    assert fault.message.startswith("process 666 of executor x says that it is worker 0, but process 2 of executor x")
    assert server.roll.ending
    assert server.roll.hellos == {0: HELLO}


def test_a_second_hello_of_the_same_process_is_refused_and_harmless(server: ControlServer, line: DriverLine) -> None:
    again = caller(server)
    with pytest.raises(DriverGone, match="said hello twice"):
        again.hello(HELLO)
    again.close()
    assert not server.roll.ending


def test_an_attempt_that_spark_starts_anew_takes_the_place_of_the_one_before(server: ControlServer) -> None:
    anew = dataclasses.replace(HELLO, pid=7, attempt=1)
    assert server.roll.hello(HELLO) == {}
    assert server.roll.hello(anew) == {}
    assert server.roll.orders(HELLO, 0) == {"end": True}
    assert server.roll.orders(anew, 0) == {"wait": True}


def test_a_worker_that_comes_back_after_the_work_began_ends_the_job(server: ControlServer, line: DriverLine) -> None:
    anew = caller(server)
    assert anew.hello(dataclasses.replace(HELLO, pid=7, attempt=1)) is None
    anew.done("cancelled")
    anew.close()
    assert (
        "process 2 of executor x died at work and Spark started it again as process 7" in server.roll.faults[0].message
    )
    assert server.roll.statuses == {}


def test_a_worker_of_another_build_is_heard_so_that_it_can_be_named(server: ControlServer) -> None:
    worker = open_line(("127.0.0.1", server.port), TICKET, 0, "talk", 10)
    said = {**dataclasses.asdict(HELLO), "build": "9.9 (core x, package y)", "a_word_of_later": 1}
    worker.send(WORDS, encode({**said, "call": "hello"}))
    assert "key" in decode(worker.receive({WORDS: 1000})[1])
    worker.close()
    assert server.roll.hellos[0].build == "9.9 (core x, package y)"


# -- what workers do ---------------------------------------------------------------------------------------------------


def test_hello_waits_for_orders_and_brings_keys_that_the_ticket_does_not_tell(server: ControlServer) -> None:
    first, second = arrived(server, HELLO), arrived(server, dataclasses.replace(HELLO, worker=1))
    assert first.data_key == second.data_key == server.data_key()
    assert len({TICKET, first.data_key, first._key, second._key}) == 4
    another = ControlServer("127.0.0.1", TICKET, 2, lambda *_: None)  # as each attempt at a job has
    assert another.data_key() != server.data_key()
    another.end()
    for worker in (first, second):
        worker.close()


def test_a_worker_that_comes_too_late_is_sent_home(server: ControlServer) -> None:
    server.roll.cancel()
    late = caller(server)
    assert late.hello(HELLO) is None
    late.close()


def test_a_driver_without_the_ticket_is_found_out(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.deploy.worker.control.OPENINGS_MAX", 1)
    misled = DriverLine(Place(f"tcp://127.0.0.1:{server.port}", bytes(32)), 0)
    with pytest.raises(DriverGone, match="did not let worker 0 in"):
        misled.hello(HELLO)
    misled.close()


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


def test_metrics_of_a_line_that_is_congested_for_long_are_joined_and_no_count_is_lost(
    server: ControlServer, line: DriverLine, taken: list[Any]
) -> None:
    intervals, sums = 3 * METRICS_ASIDE, Sums()
    for _ in range(METRICS_ROOM):
        line.deliver("out", BATCH)  # nobody sends them yet
    meters = Meters(0, "n1", ["count/0", "count/1"], [("count/0", "count/1")])
    meters.start(0)
    five = pa.record_batch({"i": pa.array(range(5), pa.int64())})
    for i in range(1, intervals + 1):
        meters.sent(0, 0, five, 5)
        late = [TaskTime(2, i), TaskTime()]  # two late rows an interval
        line.metrics(meters.snapshot(i * 1_000_000, [(i, i), (0, 0)], [0, 0], late))
        assert len(line._aside) <= METRICS_ASIDE
    line.start()
    line.flush()
    for _, kind, name, batch in taken:
        if kind == "metrics":
            sums.add(name, batch.cast(TABLES[name]))
    assert {task: counts["late"] for task, counts in sums.tasks.items()} == {"count/0": 2 * intervals, "count/1": 0}
    assert {task: counts["interval_us"] for task, counts in sums.tasks.items()} == dict.fromkeys(
        ("count/0", "count/1"), intervals * 1_000_000
    )
    ((pair, edge),) = sums.edges.items()
    assert (pair, edge.tuples, edge.bytes) == (("count/0", "count/1"), 5 * intervals, 40 * intervals)
    assert sums.newest["count/0"]["queue_batches"] == intervals
    assert sums.watermarks_us == {"count/0": intervals}
    assert (sums.began_us, sums.ended_us) == (0, intervals * 1_000_000)


def test_a_full_queue_does_not_keep_the_sender_from_hearing_of_the_end(server: ControlServer) -> None:
    line = caller(server)
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
    other = arrived(server, dataclasses.replace(HELLO, worker=1))
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
    with contextlib.suppress(DriverGone):  # where the thread that sends rows has noticed first
        assert "cancel" in line.commands()
    with pytest.raises((DriverGone, Cancelled)):
        line.deliver("out", BATCH)


def test_a_driver_whose_disk_is_full_gives_up_with_its_reason() -> None:
    def full(*row: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    server = ControlServer("127.0.0.1", TICKET, 1, full)
    line = arrived(server, HELLO)
    line.start()
    line.deliver("out", BATCH)
    with pytest.raises((DriverGone, Cancelled)):
        line.flush()
    assert server.roll.given_up == "[Errno 28] No space left on device"
    assert server.roll.ending
    line.close()
    server.end()


def test_rows_that_are_not_sealed_as_they_should_be_are_a_fault_with_its_reason(
    server: ControlServer, line: DriverLine, taken: list[Any]
) -> None:
    data = open_line(("127.0.0.1", server.port), line._key, 0, "data", 10)
    data.connection.sendall(bytes(100))
    with pytest.raises(ConnectionError):
        data.receive({WORDS: 10})
    data.close()
    assert [fault.message for fault in server.roll.faults] == [
        "the driver could not take its rows: a message's head does not carry the seal of this line"
    ]
    assert taken == []


LANE_ENDS = {
    "pace": "the pace of sources cannot be compared with other workers: ",
    "data": "rows do not reach the driver: ",
}


def used(line: DriverLine, lane: str) -> None:
    """Send something over this lane."""
    if lane == "pace":
        line.keep_pace({0: 1})
    elif lane == "data":
        line.metrics({"tasks": BATCH})
    elif lane == "keep":
        line.kept(REPORT)
    assert wait_until(lambda: lane in line._lines, 10)


@pytest.mark.parametrize("lane", LANE_ENDS)
def test_a_worker_one_of_whose_lanes_breaks_ends_with_the_reason(
    server: ControlServer, line: DriverLine, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Roll, "lost", lambda *_: None)  # the driver has not noticed yet
    line.start()
    used(line, lane)
    line._lines[lane].break_off()
    used(line, lane)
    assert select.select([line.fileno()], [], [], 10)[0]
    with pytest.raises(DriverGone, match=LANE_ENDS[lane]):
        line.commands()
    with pytest.raises(DriverGone, match=LANE_ENDS[lane]):
        line.deliver("out", BATCH)


@pytest.mark.parametrize("lane", LANES)
def test_the_end_of_any_lane_is_the_workers(lane: str) -> None:
    server = ControlServer("127.0.0.1", TICKET, 1, lambda *_: None, lambda *_: None)
    line = arrived(server, HELLO)
    line.start()
    used(line, lane)
    assert wait_until(lambda: {"poll", "data"} <= line._lines.keys(), 10)  # or one would be cut off at its opening
    line._lines[lane].break_off()
    assert wait_until(lambda: server.roll.ending, 10)
    assert (server.roll.faults[0].kind, server.roll.faults[0].lost) == ("peer", 0)
    assert f"has closed its line to the driver ({lane}) without" in server.roll.faults[0].message
    assert (0 in server.roll.gone) == (lane in {"talk", "poll"})  # of another the worker may say why
    line.close()
    server.end()


def test_an_answer_that_cannot_be_sent_is_the_end_of_its_lane_too(
    server: ControlServer, line: DriverLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(sealed: Line, kind: int, *parts: bytes) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    poll = open_line(("127.0.0.1", server.port), line._key, 0, "poll", 10)
    monkeypatch.setattr(Line, "send", broken)
    head = poll._out.head(WORDS, len(body := encode({"call": "commands", "seen": 0, "epoch": 0})))
    poll.connection.sendall(head + body + poll._out.body(head, body))
    assert wait_until(lambda: bool(server.roll.faults), 10)
    assert server.roll.faults[0].lost == 0
    poll.close()


def test_what_a_lane_brings_and_nobody_takes_is_told_with_its_size(server: ControlServer, line: DriverLine) -> None:
    keep = open_line(("127.0.0.1", server.port), line._key, 0, "keep", 10)
    keep.connection.sendall(keep._out.head(WORDS, KEPT_BYTES_MAX + 1))
    assert wait_until(lambda: bool(server.roll.faults), 10)
    (fault,) = server.roll.faults
    assert fault.kind == "worker"
    assert fault.message.startswith(
        f"the driver could not take what its line (keep) brought: a message of kind {WORDS}"
    )
    keep.close()


def test_a_worker_whose_line_ends_without_a_goodbye_has_died(server: ControlServer) -> None:
    line, other = arrived(server, HELLO), arrived(server, dataclasses.replace(HELLO, worker=1))
    other.start()
    line.close()  # as the kernel does for a process that is killed
    assert select.select([other.fileno()], [], [], 10)[0]
    assert other.commands() == ["cancel"]
    assert [(fault.kind, fault.lost) for fault in server.roll.faults] == [("peer", 0)]
    other.close()


def test_a_worker_that_has_said_goodbye_may_close_its_line(server: ControlServer) -> None:
    line = arrived(server, HELLO)
    line.start()
    line.done("finished")
    line.close()
    server.end()  # which waits for what serves the lines
    assert server.roll.faults == []


def test_a_worker_speaks_again_and_again_and_says_for_how_long_its_loop_has_been_in_one_call(
    server: ControlServer, line: DriverLine
) -> None:
    line.busy_s = lambda: 7.5
    line.start()
    assert wait_until(lambda: 0 in server.roll.beats, 10)
    first = server.roll.beats[0]
    assert first.busy_s == 7.5
    assert wait_until(lambda: server.roll.beats[0] is not first, 10)


def test_commands_come_over_a_lane_that_ends_where_the_driver_is_out_of_reach(line: DriverLine) -> None:
    line.start()
    assert wait_until(lambda: "poll" in line._lines, 10)

    def limit_ms() -> int:
        return line._lines["poll"].connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    assert wait_until(lambda: limit_ms() == CUT_OFF_SECONDS * 1000, 10)
    assert line._lines["talk"].connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0


# -- parts of epochs ---------------------------------------------------------------------------------------------------


def test_a_part_of_ten_thousand_tasks_reaches_the_driver() -> None:
    got: list[Report] = []
    server = ControlServer("127.0.0.1", TICKET, 1, lambda *_: None, lambda worker, told: got.append(told))
    line = arrived(server, HELLO)
    names = tuple(f"{'an operator with a long name' * 4}/{t}" for t in range(10_500))
    told = Report(1, 7, Part(0, "parts/00000001/00000007-00000.part", 1, "0" * 64, names))
    line.kept(told)
    assert got == [told]
    line.done("finished")
    line.close()
    server.end()


def test_a_worker_complains_over_another_lane_than_the_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Roll, "lost", lambda *_: None)  # the driver has not noticed yet
    server = ControlServer("127.0.0.1", TICKET, 1, lambda *_: None, lambda *_: None)
    line = arrived(server, HELLO)
    line.start()
    line.kept(REPORT)
    line._lines["keep"].break_off()
    with pytest.raises(OSError):  # noqa: PT011 # whatever the kernel says of it
        line.kept(REPORT)
    line.unkept("worker 0 could not keep its part", "a limit")
    assert [(fault.message, fault.refused) for fault in server.roll.faults] == [
        ("worker 0 could not keep its part", "a limit")
    ]
    assert select.select([line.fileno()], [], [], 10)[0]  # the loop looks
    line.close()
    line.unkept("once more")  # as the thread of a keeper that writes still when the worker has gone
    server.end()
