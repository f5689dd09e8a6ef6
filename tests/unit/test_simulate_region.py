"""A region under virtual time: the core's recurrence against a slow twin, and the physics that the paper describes."""

from __future__ import annotations

import doctest
import math
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import _core
from penstock.errors import InvalidInput
from penstock.run.region.contract import Decision, Routing, even_weights
from penstock.run.region.policies import find_policy
from penstock.run.region.policies.oracle import Known, Oracle
from penstock.run.region.sharing import Sharing
from penstock_lab.simulate import experiments, region
from penstock_lab.simulate.region import Buffers, Members, Phase, RegionModel, simulate


class Twin:
    """The same region, row by row with plain lists, and with the engine's `Sharing` asked for every row."""

    def __init__(self, model: RegionModel, routing: Routing) -> None:
        self.model, n = model, model.replicas
        self.sharing = Sharing(range(n), routing)
        self.clock, self.last_exit, self.row = 0.0, 0.0, 0
        self.starts: list[list[float]] = [[] for _ in range(n)]
        self.dones: list[list[tuple[int, float]]] = [[] for _ in range(n)]
        self.exits: list[list[float]] = [[] for _ in range(n)]
        self.free, self.blocked = [0.0] * n, [0.0] * n

    def queue(self, j: int) -> tuple[float, bool]:
        waiting = sum(1 for start in self.starts[j] if start > self.clock)
        return waiting, waiting >= self.model.buffers.rows

    def send(self) -> None:
        model = self.model
        self.clock += model.send_s
        j = self.sharing.take(1, self.queue)
        if self.queue(j)[1]:
            room = len(self.starts[j]) - model.buffers.rows + model.buffers.low_water - 1
            until = self.starts[j][room]
            self.blocked[self.laggard(j) if model.charge_laggard else j] += until - self.clock
            self.clock = until
        start = max(self.clock, self.free[j])
        phase = [p for p in model.phases if start >= p.from_s and self.row >= p.from_row][-1]
        out = start + phase.cost_s[j]
        if 0 < model.merger_rows <= len(self.exits[j]):
            out = max(out, self.exits[j][-model.merger_rows])
        self.last_exit = max(out, self.last_exit) + model.merge_s
        self.starts[j].append(start)
        self.dones[j].append((self.row, start + phase.cost_s[j]))
        self.exits[j].append(self.last_exit)
        self.free[j] = out
        self.row += 1

    def laggard(self, fallback: int) -> int:
        waiting = [(row, j) for j, dones in enumerate(self.dones) for row, done in dones if done > self.clock]
        return min(waiting)[1] if waiting else fallback


@settings(max_examples=60, deadline=None)
@given(
    costs=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    later=st.integers(1, 40),
    from_row=st.integers(0, 200),
    buffer=st.integers(1, 8),
    low_water=st.integers(1, 8),
    merger_rows=st.integers(0, 6),
    laggard=st.booleans(),
    routing=st.sampled_from(["turns", "reroute", "rebalance"]),
)
def test_the_core_is_its_slow_twin(
    costs: list[int],
    later: int,
    from_row: int,
    buffer: int,
    low_water: int,
    merger_rows: int,
    laggard: bool,
    routing: Routing,
) -> None:
    model = RegionModel(
        (Phase(tuple(c / 64 for c in costs)), Phase((later / 64,) * len(costs), 0.5, from_row)),
        send_s=1 / 128,
        merge_s=1 / 512,
        buffers=Buffers(buffer, min(buffer, low_water)),
        merger_rows=merger_rows,
        charge_laggard=laggard,
        jitter=0.0,
    )
    kernel = region._kernel(model)
    policy = find_policy({"turns": "round-robin", "reroute": "reroute", "rebalance": "rebalance"}[routing]).build()
    turns = Sharing(range(model.replicas))
    turns.retarget(range(model.replicas), even_weights(model.replicas))
    kernel.set_turns(np.array([turns.take(1) for _ in range(1000)], dtype=np.int32), region.ROUTINGS[policy.routing])
    kernel.advance(1e9, 400)
    twin = Twin(model, routing)
    for _ in range(400):
        twin.send()
    assert kernel.sent() == 400
    assert kernel.last_exit() == pytest.approx(twin.last_exit, rel=1e-12)
    assert kernel.clock() == pytest.approx(twin.clock, rel=1e-12)
    assert kernel.sent_rows().tolist() == [len(starts) for starts in twin.starts]
    assert kernel.blocked_seconds() == pytest.approx(twin.blocked, rel=1e-9, abs=1e-12)


@given(stops=st.lists(st.floats(0.001, 0.5), max_size=20))
@settings(max_examples=30, deadline=None)
def test_stopping_on_the_way_changes_nothing(stops: list[float]) -> None:
    model = experiments.region(1_000, (10.0, 1.0))
    kernels = [region._kernel(model), region._kernel(model)]
    for kernel in kernels:
        kernel.set_turns(np.array([0, 1], dtype=np.int32), 0)
    now = 0.0
    for stop in stops:
        now += stop
        kernels[0].advance(now, 3000)
        assert kernels[0].clock() <= now + model.send_s
    for kernel in kernels:
        kernel.advance(1e6, 3000)
    assert kernels[0].last_exit() == kernels[1].last_exit()
    assert kernels[0].blocked_seconds() == pytest.approx(kernels[1].blocked_seconds())


def test_a_run_is_repeated_exactly_and_depends_on_its_seed() -> None:
    runs = [
        experiments.run_seconds("adaptive", experiments.three_with_one_loaded(10.0, seed), 30.0) for seed in (1, 1, 2)
    ]
    assert runs[0].decisions == runs[1].decisions
    assert (runs[0].throughput == runs[1].throughput).all()
    assert not (runs[0].throughput == runs[2].throughput).all()


def fixed(model: RegionModel, shares: tuple[float, ...], seconds: float = 20.0) -> region.Trace:
    return simulate(model, Oracle([Known(0.0, dict(enumerate(shares)))]), seconds=seconds)


@pytest.mark.parametrize("share", [0.8, 0.7, 0.6])
def test_blocking_follows_the_weight(share: float) -> None:
    """The splitter does 8 units a second, a replica 1: at share w it waits for 1 - 1 / (8 w) of the time."""
    trace = fixed(experiments.region(1_000, (1.0, 1.0)), (share, 1 - share))
    assert trace.rates[5:, 0] == pytest.approx(1 - 1 / (8 * share), abs=0.01)
    assert trace.rates[5:, 1].max() == 0


def test_equal_replicas_draft() -> None:
    """One connection has nearly all the blocking of an interval, and not always the same one."""
    trace = fixed(experiments.region(1_000, (1.0, 1.0)), (1, 1), 150.0)
    shares = trace.rates[5:].max(axis=1) / trace.rates[5:].sum(axis=1)
    assert np.median(shares) > 0.9
    assert len(set(trace.rates[5:].argmax(axis=1).tolist())) > 1


def test_the_slowest_gates_the_region() -> None:
    model = experiments.region(1_000, (10.0, 1.0))
    even, ideal = fixed(model, (1, 1)), fixed(model, (1, 10))
    assert even.final_throughput() == pytest.approx(2 / model.phases[0].cost_s[0], rel=0.02)
    assert ideal.final_throughput() == pytest.approx(model.capacity(), rel=0.02)


def test_a_bounded_merger_holds_no_more_than_it_may() -> None:
    base = experiments.three_with_one_loaded(1e9)
    free = fixed(base, (1, 1, 1))
    tight = fixed(replace(base, merger_rows=4), (1, 1, 1))
    assert free.held.max() > 8
    assert tight.held.max() <= 8  # two fast replicas of four rows; the slow one's are never held


def test_with_a_bounded_merger_only_the_laggard_tells_who_is_slow() -> None:
    base = replace(experiments.three_with_one_loaded(1e9), merger_rows=16)
    shares = (10, 495, 495)  # twice what the slow one can do
    full, blamed = fixed(base, shares), fixed(replace(base, charge_laggard=True), shares)
    assert full.rates[5:, 0].mean() < full.rates[5:, 1:].sum(axis=1).mean()
    assert blamed.rates[5:, 0].mean() > 0.7 * blamed.rates[5:].sum(axis=1).mean()


def test_replicas_join_and_leave() -> None:
    base = experiments.region(1_000, (1.0, 1.0, 1.0))
    model = replace(base, members=(Members(0.0, (0, 1)), Members(20.0, (0, 1, 2)), Members(40.0, (1, 2))))
    trace = simulate(model, find_policy("knee").build(), seconds=60.0)
    assert trace.weights[5, 2] == 0
    assert trace.weights[30].min() > 300
    assert trace.weights[-1].tolist()[0] == 0
    assert trace.decisions[-1].replicas == (1, 2)
    # Every row comes out, also those that the leaving replica had.
    assert trace.throughput[50:].mean() == pytest.approx(2 / base.phases[0].cost_s[0], rel=0.02)


def test_knee_meets_its_aims_on_three_replicas() -> None:
    model = experiments.three_with_one_loaded(40.0)
    trace = experiments.run_seconds("knee", model, 60.0)
    settled = experiments.settled_after(trace, model.ideal(0), 0.1)
    back = experiments.settled_after(trace, model.ideal(1), 0.1, 40.0)
    assert settled is not None
    assert back is not None
    assert settled <= 10
    assert back <= 10


def test_64_replicas_in_three_classes_are_told_apart() -> None:
    """The paper's figure 12 under `adaptive`, with bounds on the weights and buffers that drain within a sample."""
    model = experiments.three_classes(buffer_tuples=experiments.SHALLOW_TUPLES)
    trace = simulate(model, find_policy("adaptive").build(experiments.BOUNDED), seconds=220.0)
    mixed = experiments.last_mixed_s(trace, experiments.CLASSES)
    assert mixed is not None
    assert mixed < 160  # and in none of the last 60 decisions
    weights = np.median([decision.weights for decision in trace.decisions[-20:]], axis=0)
    slow, five, light = (weights[[c == kind for c in experiments.CLASSES]] for kind in range(3))
    assert slow.max() == 1
    assert 5 <= five.min() <= five.max() <= 20
    assert 30 <= light.min() <= light.max() <= 50


def test_bad_models_are_refused() -> None:
    model = experiments.region(1_000, (1.0, 1.0))
    policy = find_policy("round-robin").build()
    with pytest.raises(InvalidInput, match="give one of them"):
        simulate(model, policy)
    with pytest.raises(InvalidInput, match="all must have the same number"):
        simulate(replace(model, phases=(Phase((1.0,)), Phase((1.0, 1.0)))), policy, seconds=1.0)
    for change, words in (
        ({"buffers": Buffers(4, 5)}, "low_water 1 to buffer"),
        ({"send_s": 0.0}, "send_seconds must be above 0"),
        ({"jitter": 2.0}, "jitter must be from 0 to 1"),
        ({"merger_rows": -1}, "merger_rows must be"),
        ({"merge_s": -1.0}, "merge_seconds must be 0 or more"),
        ({"phases": (Phase((math.nan, 1.0)),)}, "costs must be finite"),
    ):
        with pytest.raises(ValueError, match=words):
            simulate(replace(model, **change), policy, seconds=1.0)  # type: ignore[arg-type]
    kernel = region._kernel(model)
    with pytest.raises(ValueError, match="set_turns must come before"):
        kernel.advance(1.0, 10)
    with pytest.raises(ValueError, match="turns holds 2"):
        kernel.set_turns(np.array([2], dtype=np.int32), 0)
    with pytest.raises(ValueError, match="must not be empty"):
        kernel.set_turns(np.array([], dtype=np.int32), 0)
    with pytest.raises(ValueError, match="routing must be"):
        kernel.set_turns(np.array([0], dtype=np.int32), 3)
    assert isinstance(kernel, _core.RegionSimulation)


def test_examples_in_the_head_hold() -> None:
    assert doctest.testmod(region, extraglobs={"find_policy": find_policy}).failed == 0


def test_what_is_said_of_a_trace() -> None:
    def decision(second: float, *weights: int, clusters: tuple[int, ...] = (0, 1)) -> Decision:
        return Decision(second, (0, 1), weights, (0.0, 0.0), clusters)

    decisions = deque([decision(1.0, 900, 100, clusters=(0, 0)), decision(2.0, 560, 440), decision(3.0, 545, 455)])
    trace = replace(experiments.run_seconds("round-robin", experiments.region(1_000, (1.0, 1.0)), 2.0))
    trace = replace(trace, decisions=tuple(decisions))
    assert experiments.settled_after(trace, (500, 500), 0.1) == 3.0
    assert experiments.settled_after(trace, (500, 500), 0.1, from_s=2.5) == 0.5
    assert experiments.settled_after(trace, (100, 900), 0.1) is None
    assert experiments.kept_within(trace, (500, 500), 0.1, 2.0, 4.0) == 0.5
    assert experiments.kept_within(trace, (500, 500), 0.1, 4.0, 9.0) is None
    assert experiments.farthest_from(trace, (500, 500), 2.0) == pytest.approx(0.12)
    assert experiments.last_mixed_s(trace, (0, 1)) == 1.0
    assert experiments.last_mixed_s(trace, (0, 0)) is None


def test_hosts_with_too_many_replicas_slow_down() -> None:
    few, many = experiments.Hosts(2, 2).model().phases[0].cost_s, experiments.Hosts(32, 16).model().phases[0].cost_s
    assert many[0] == pytest.approx(2 * few[0])
    assert many[-1] == pytest.approx(2 * few[-1])
    assert few[-1] / few[0] == pytest.approx(65 / 35)


@pytest.mark.parametrize("merger_rows", [0, 3])
def test_what_was_worked_off_and_for_how_long(merger_rows: int) -> None:
    """When everything has left: every row that was sent, each for its cost and its wait for the merger."""
    model = RegionModel((Phase((0.01, 0.05)),), 1e-3, merger_rows=merger_rows, jitter=0.0)
    kernel = region._kernel(model)
    kernel.set_turns(np.array([0, 1], dtype=np.int32), 0)
    kernel.advance(100.0, 400)
    kernel.note_worked_off(1.0)
    early = kernel.worked_off_rows()
    assert 0 < early.sum() < 400
    kernel.note_worked_off(1e6)
    rows, took = kernel.worked_off_rows(), kernel.took_seconds()
    assert rows.tolist() == kernel.sent_rows().tolist() == [200.0, 200.0]
    assert took[1] == pytest.approx(200 * 0.05)
    assert took[0] == pytest.approx(200 * 0.01) if merger_rows == 0 else took[0] > 200 * 0.02


@pytest.mark.parametrize("merger_rows", [0, 64])
def test_knee_settles_soon_where_replicas_tell_what_they_worked_off(merger_rows: int) -> None:
    loaded = replace(experiments.three_with_one_loaded(62.5), credits=True)
    model = replace(loaded, merger_rows=merger_rows, charge_laggard=merger_rows > 0)
    trace = simulate(model, find_policy("knee").build(), seconds=125.0)
    settled = experiments.settled_after(trace, model.ideal(0), 0.25)  # a unit of the slow one's five is a fifth
    back = experiments.settled_after(trace, model.ideal(1), 0.1, 62.5)
    assert settled is not None
    assert settled <= 6
    assert back is not None
    assert back <= 6
    assert trace.throughput[30:60].mean() > 0.9 * model.capacity(0)
