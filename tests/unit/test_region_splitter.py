"""A splitter between made connections, on a clock that the test moves: what it charges to whom, and over which time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.run.contract import MAIN, TaskContext
from penstock.run.engine.outputs import OutStream, Packet
from penstock.run.region.blocking_rate import BlockingRate
from penstock.run.region.contract import Decision, Routing, Sample, Weights, even_weights
from penstock.run.region.tasks import SplitterOutputs, SplitterSettings, SplitterTask

SIZE = 10  # what a window counts a slice for, whatever its rows


class Listener:
    """The weights that it was given; it keeps what it was shown."""

    routing: Routing = "turns"

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self.samples: list[Sample] = []
        self.rates: list[tuple[float, ...]] = []
        self._rate = BlockingRate(smoothing=1.0)

    def start(self, replicas: Sequence[int]) -> Weights:
        return self._given(len(replicas))

    def decide(self, sample: Sample) -> Decision:
        self.samples.append(sample)
        self.rates.append(self._rate.observe(sample.time_s, sample.replicas, sample.blocked_s))
        weights = self._given(len(sample.replicas))
        return Decision(sample.time_s, sample.replicas, weights, self.rates[-1], tuple(range(len(weights))))

    def _given(self, replicas: int) -> Weights:
        return self._weights if len(self._weights) == replicas else even_weights(replicas)


class Bench:
    """A splitter of two replicas whose connections have room for `room` slices each."""

    def __init__(self, room: int, weights: Weights = (500, 500), **settings: object) -> None:
        self.now_us, self.room = 0, room
        self.out = [0, 0]  # slices that each replica has not worked off
        self.wanted: int | None = None
        self.transport_s = [0.0, 0.0]  # for how long the transports under the connections have taken nothing
        self.policy = Listener(weights)
        made = SplitterSettings("region", 2, lambda: self.policy, slice_rows=1, **settings)  # type: ignore[arg-type]
        self.task = SplitterTask(made)
        self.task.open(TaskContext("region.split", 0, 1))
        streams = {MAIN: [OutStream(None, [0, 1])]}  # type: ignore[arg-type] # a splitter routes by itself
        machine = self, lambda: self.now_us, lambda edges: [round(self.transport_s[edge] * 1e9) for edge in edges]
        self.outputs = SplitterOutputs(self, 0, streams, *machine)  # type: ignore[arg-type] # it pushes slices only
        self.wake(0.0)

    def has_room(self, edge: int) -> bool:
        return self.out[edge] < self.room

    def outstanding(self, edge: int) -> int:
        return SIZE * self.out[edge]

    def wants_edge(self, task: int, edge: int | None) -> None:
        self.wanted = edge

    def push_slice(self, task: int, edge: int, sequence: int, parts: tuple[Packet, ...]) -> int:
        self.out[edge] += 1
        return SIZE

    def rows(self, at_s: float, count: int) -> None:
        """Rows arrive."""
        self.now_us = round(at_s * 1e6)
        self.task.process(pa.record_batch({"n": list(range(count))}), 0, self.outputs)

    def credit(self, at_s: float, *slices: int) -> None:
        """Replicas have worked slices off, so many each."""
        self.out = [out - done for out, done in zip(self.out, slices, strict=True)]
        self.wake(at_s)

    def wake(self, at_s: float) -> None:
        self.now_us = round(at_s * 1e6)
        self.task.wake(self.now_us, self.outputs)


# -- the time that was observed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle_s", [0, 1, 60])
def test_a_rate_after_idle_time_is_that_of_the_busy_time(idle_s: int) -> None:
    """Half of a second's time is waited for replica 0, after an idle stretch of any length before it."""
    bench = Bench(room=1)
    for begin in (0.0, 1.0 + idle_s):
        bench.rows(begin, 4)  # rows for 0, 1 and again 0, which is full, and 1
        bench.credit(begin + 0.5, 1, 1)
        bench.wake(begin + 1.0)
        bench.credit(begin + 1.0, 1, 1)
        for second in range(1, idle_s + 1):
            bench.wake(begin + 1.0 + second)
    assert bench.policy.rates == [(pytest.approx(0.5), 0.0)] * 2


def test_an_interval_begins_with_the_rows_that_end_an_idle_time() -> None:
    """The wait for the first row lies before the interval, and so does what was worked off meanwhile."""
    bench = Bench(room=4)
    bench.rows(7.25, 4)
    assert bench.task.wake_at() == 8_250_000
    bench.wake(8.25)
    bench.wake(9.25)  # nothing was sent: not observed
    bench.credit(9.5, 2, 0)
    bench.rows(20.0, 2)
    bench.credit(20.5, 0, 1)
    bench.wake(21.0)
    assert [sample.time_s for sample in bench.policy.samples] == [1.0, 2.0]
    assert [sample.sent for sample in bench.policy.samples] == [(0.0, 0.0), (0.0, 1.0)]  # worked off in the interval


def test_who_takes_part_is_decided_while_nothing_comes() -> None:
    """A region that is scaled while it is idle hears of it with one interval, not with all the idle time."""
    bench = Bench(room=1, active=1)
    for second in range(1, 50):
        bench.wake(float(second))
    bench.task.scale("region", 2)
    bench.wake(50.0)
    assert [(sample.time_s, sample.replicas) for sample in bench.policy.samples] == [(1.0, (0, 1))]


# -- whom a wait is charged to -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "blocked_s"),
    [
        ({}, (0.5, 0.0)),
        ({"blocking": "connection"}, (0.0, 0.5)),
        ({"ordered": False}, (0.0, 0.5)),
    ],
)
def test_a_wait_counts_for_the_laggard_or_as_published_for_the_full_connection(
    settings: dict[str, object], blocked_s: tuple[float, float]
) -> None:
    """Turns are 1, 0, 1, 1, 1: replica 0 holds slice 1 when 1, with slices 2 and 3, has no room for slice 4."""
    bench = Bench(room=2, weights=(250, 750), **settings)
    bench.rows(0.0, 3)
    bench.credit(0.0, 0, 1)  # slice 0
    bench.rows(0.0, 2)
    assert (bench.out, bench.wanted) == ([1, 2], 1)
    bench.credit(0.5, 1, 1)
    bench.wake(1.0)
    assert bench.policy.samples[-1].blocked_s == blocked_s


@pytest.mark.parametrize(("settings", "blocked_s"), [({}, 0.25), ({"blocking": "connection"}, 0.75)])
def test_what_the_transport_did_not_take_counts_as_published_and_only_then(
    settings: dict[str, object], blocked_s: float
) -> None:
    """The transport to 1 took nothing for 0.75 s, in 0.25 s of which the splitter waited for 1's credit."""
    bench = Bench(room=1, weights=(250, 750), **settings)
    bench.rows(0.0, 1)
    bench.rows(0.25, 2)  # one for 0, and one for 1, which has no room
    assert bench.wanted == 1
    bench.transport_s[1] = 0.75
    bench.credit(0.5, 0, 1)
    bench.wake(1.0)
    bench.credit(1.0, 1, 1)
    bench.rows(1.5, 1)  # nothing is blocked any more, and nothing counts twice
    bench.wake(2.0)
    assert [sample.blocked_s for sample in bench.policy.samples] == [(0.0, pytest.approx(blocked_s))] * 2
