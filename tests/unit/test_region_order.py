"""Order and completeness of a parallel region: random speeds, weights, batches, stalls and replicas, no lock-up."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_kit import turns

from penstock.errors import InternalError
from penstock.run.region.contract import UNITS, units_of
from penstock.run.region.order import Merger, Slice, Splitter
from penstock.run.region.sharing import Sharing

shares = st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any)


def all_slices(splitter: Splitter, rows: int) -> list[Slice]:
    """So many consecutive rows, cut one slice after the other as the splitter's task does."""
    found: list[Slice] = []
    start = 0
    while start < rows:
        found.append(splitter.first(start, rows - start))
        start += found[-1].rows
    return found


class TinyRegion:
    """A region whose every queue is bounded, driven one random step at a time.

    The splitter waits for the connection of its next slice; a replica works off one slice at a time, and may not send
    what is left of it without credit; the merger takes whatever has been sent.
    """

    def __init__(
        self, replicas: int, batches: list[int], window: int, out_window: int, slice_rows: int, seed: int
    ) -> None:
        self.random = random.Random(seed)
        self.splitter, self.merger = Splitter(range(replicas), slice_rows=slice_rows), Merger[tuple[int, list[int]]]()
        self.batches, self.row = deque(batches), 0
        self.pending: deque[tuple[Slice, list[int]]] = deque()
        self.inputs: dict[int, deque[tuple[Slice, list[int]]]] = {r: deque() for r in range(replicas)}
        self.outputs: dict[int, deque[tuple[int, list[int]]]] = {r: deque() for r in range(replicas)}
        self.working: dict[int, deque[tuple[int, list[int]]]] = {r: deque() for r in range(replicas)}
        self.window, self.out_window = window, out_window
        self.unreleased = dict.fromkeys(range(replicas), 0)
        self.result: list[int] = []
        self.held_max = 0

    def steps(self) -> list[tuple[str, int]]:
        """Everything that can happen now."""
        found = []
        if not self.pending and self.batches:
            found.append(("cut", 0))
        if self.pending and len(self.inputs[self.pending[0][0].replica]) < self.window:
            found.append(("send", 0))
        for r in self.inputs:
            if self.inputs[r] and not self.working[r]:
                found.append(("work", r))
            if self.working[r] and self.unreleased[r] < self.out_window:
                found.append(("emit", r))
            if self.outputs[r]:
                found.append(("merge", r))
        return found

    def do(self, what: str, r: int) -> None:
        getattr(self, what)(r)
        assert all(size <= self.out_window for size in self.unreleased.values())
        self.held_max = max(self.held_max, len(self.merger.held()))

    def cut(self, _: int) -> None:
        rows = self.batches.popleft()
        values = list(range(self.row, self.row + rows))
        self.row += rows
        for piece in all_slices(self.splitter, rows):
            self.pending.append((piece, values[piece.start : piece.start + piece.rows]))

    def send(self, _: int) -> None:
        piece, values = self.pending.popleft()
        self.splitter.sent(piece, 1)
        self.inputs[piece.replica].append((piece, values))

    def work(self, r: int) -> None:
        """A filter that drops two thirds, and a flat_map that makes two of some: nothing, or some rows."""
        piece, values = self.inputs[r].popleft()
        self.splitter.taken(r, 1)
        self.working[r].append((piece.sequence, [v for value in values for v in made_of(value)]))

    def emit(self, r: int) -> None:
        self.outputs[r].append(self.working[r].popleft())
        self.unreleased[r] += 1

    def merge(self, r: int) -> None:
        sequence, made = self.outputs[r].popleft()
        for replica, values in self.merger.arrived(sequence, (r, made)):
            self.unreleased[replica] -= 1
            self.result += values


def made_of(value: int) -> list[int]:
    return [[], [value], [value, -value], []][value % 4]


@settings(max_examples=150)
@given(
    batches=st.lists(st.integers(0, 40), max_size=12),
    first=shares,
    changes=st.lists(shares, max_size=3),
    window=st.integers(1, 3),
    out_window=st.integers(1, 3),
    slice_rows=st.integers(1, 16),
    stalled=st.sets(st.integers(0, 5), max_size=3),
    seed=st.integers(0, 2**32),
)
def test_every_row_comes_out_once_and_in_order(
    batches: list[int],
    first: list[int],
    changes: list[list[int]],
    window: int,
    out_window: int,
    slice_rows: int,
    stalled: set[int],
    seed: int,
) -> None:
    count = max(len(s) for s in (first, *changes))
    region = TinyRegion(count, batches, window, out_window, slice_rows, seed)
    region.splitter.retarget(range(len(first)), units_of(first))
    plan = deque(changes)
    for number in range(100_000):
        steps = region.steps()
        if not steps:
            break
        # Stalled replicas move only when nobody else can: the region must get through all the same.
        quick = [step for step in steps if step[1] not in stalled or step[0] in {"cut", "send"}]
        region.do(*region.random.choice(quick or steps))
        if plan and number % 17 == 16:
            shares_now = plan.popleft()
            region.splitter.retarget(range(len(shares_now)), units_of(shares_now))  # replicas may leave and come back
    assert not region.steps()
    assert not region.pending, "the region locked up"
    assert not any(region.inputs[r] or region.working[r] or region.outputs[r] for r in region.inputs), "locked up"
    assert region.result == [v for value in range(sum(batches)) for v in made_of(value)]
    assert not region.merger.held()
    assert region.held_max <= out_window * count
    assert region.splitter.laggard() is None


def test_a_slice_passes_with_all_that_waited_for_it_alone() -> None:
    merger = Merger[str]()
    assert merger.arrived(0, "a") == ["a"]
    assert merger.arrived(2, "c") == []
    assert merger.arrived(4, "e") == []
    assert merger.arrived(1, "b") == ["b", "c"]
    assert merger.held() == ["e"]
    assert merger.next_sequence == 3


def test_the_merger_names_what_came_twice() -> None:
    merger = Merger[str]()
    merger.arrived(0, "a")
    with pytest.raises(InternalError, match="slice 0 came twice; the merger waits for 1"):
        merger.arrived(0, "again")
    merger.arrived(2, "c")
    with pytest.raises(InternalError, match="slice 2 came twice"):
        merger.arrived(2, "again")


@given(st.integers(1, 60), st.integers(1, 4), st.data())
def test_no_slice_is_lost_unnoticed(rows: int, replicas: int, data: st.DataObject) -> None:
    """Whatever a replica loses from some slice on, its closing slice with it or not, the merger holds something."""
    splitter, merger = Splitter(range(replicas), slice_rows=3), Merger[str]()
    slices = all_slices(splitter, rows)
    closing = splitter.closing(range(replicas))
    lost = data.draw(st.sampled_from(slices))
    tail = data.draw(st.booleans())
    for piece in (*slices, *closing):
        gone = piece == lost or (tail and piece.replica == lost.replica and piece.sequence > lost.sequence)
        if not gone:
            merger.arrived(piece.sequence, "rows")
    whole = replicas == 1 and tail  # then nothing has come behind it, but its connection has broken
    assert bool(merger.held()) != whole


def test_the_laggard_has_the_oldest_slice() -> None:
    splitter = Splitter((4, 5), slice_rows=1)
    assert splitter.laggard() is None
    for piece in all_slices(splitter, 4):
        splitter.sent(piece, 10)
    assert splitter.laggard() == 4
    splitter.taken(4, 15)  # the first, and half of the third
    assert splitter.laggard() == 5
    splitter.taken(5, 20)
    assert splitter.laggard() == 4


def test_a_replica_took_what_it_had_rows_for() -> None:
    """Two slices in a row count from the first's sending, and the time without any does not count."""
    splitter = Splitter((0,), slice_rows=5)
    first, second, third = (Slice(i, 0, 0, 5) for i in range(3))
    splitter.sent(first, 1, now_us=100)
    splitter.sent(second, 1, now_us=110)
    splitter.taken(0, 1, now_us=150)
    splitter.taken(0, 1, now_us=190)
    splitter.sent(third, 1, now_us=1_000)
    splitter.taken(0, 1, now_us=1_030)
    assert (splitter.worked_off(0), splitter.took_us(0)) == (15, (150 - 100) + (190 - 150) + (1_030 - 1_000))


def test_slices_are_as_long_as_their_replica_is_heavy() -> None:
    splitter = Splitter((0, 1), slice_rows=100)
    splitter.retarget((0, 1), (900, 100))
    rows = [piece.rows for piece in all_slices(splitter, 10_000) if piece.replica == 1]
    assert max(rows) <= 11
    assert sum(rows) == pytest.approx(1000, abs=12)
    with pytest.raises(ValueError, match="slice_rows is 0"):
        Splitter((0,), slice_rows=0)


# -- sharing -----------------------------------------------------------------------------------------------------------


@given(shares, st.integers(1, 400))
def test_turns_are_smooth(given_shares: list[int], length: int) -> None:
    weights = units_of(given_shares)
    order = turns(weights)
    assert [order.count(j) for j in range(len(weights))] == list(weights)
    for j, weight in enumerate(weights):
        got = order[:length].count(j)
        assert abs(got - length * weight / UNITS) <= 2


@given(st.lists(st.integers(1, 50), min_size=200, max_size=300), shares)
def test_shares_hold_by_rows_whatever_the_slices(sizes: list[int], given_shares: list[int]) -> None:
    sharing = Sharing(range(len(given_shares)))
    weights = units_of(given_shares)
    sharing.retarget(range(len(weights)), weights)
    got = dict.fromkeys(range(len(weights)), 0)
    for size in sizes:
        got[sharing.take(size)] += size
    for j, weight in enumerate(weights):
        assert abs(got[j] - sum(sizes) * weight / UNITS) <= 3 * max(sizes)


def test_decisions_do_not_starve_a_light_replica() -> None:
    """A turn in 100 rows, new weights after every 10: it comes all the same."""
    sharing = Sharing((0, 1))
    got = []
    for number in range(100):
        light = 10 if number % 2 else 11
        sharing.retarget((0, 1), (UNITS - light, light))
        got += [sharing.take(1) for _ in range(10)]
    assert 9 <= got.count(1) <= 12


def test_queues_decide_where_the_policy_says_so() -> None:
    lengths = {0: 9.0, 1: 3.0, 2: 0.0, 3: 5.0, 4: 0.0}
    full = {0, 1}
    by_queue = lambda r: (lengths[r], r in full)  # noqa: E731
    assert Sharing(range(5), "reroute").take(1, by_queue) == 2
    assert Sharing(range(5), "rebalance").take(1, by_queue) == 2
    assert Sharing(range(5), "turns").take(1, by_queue) == 0
    assert Sharing(range(2), "reroute").take(1, by_queue) == 0  # all full: its turn


def test_weights_must_add_up() -> None:
    with pytest.raises(ValueError, match="add up to 1000"):
        Sharing((0, 1)).retarget((0, 1), (500, 400))
