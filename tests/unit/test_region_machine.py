"""What the machine does differently for parallel regions: selective tasks, slices by number, credit after a run."""

from __future__ import annotations

import pytest

from penstock.errors import InternalError
from penstock.run.machine.instructions import (
    Advance,
    EdgeLayout,
    Finish,
    Grant,
    Poll,
    Run,
    SlicePayload,
    TaskLayout,
    Wait,
    Wake,
    WorkerLayout,
)
from penstock.run.machine.machine import Machine
from penstock.run.transport.wire import WireFault


def splitter() -> Machine:
    """A splitter that hears from another worker (edge 0) and sends to two others (edges 1 and 2)."""
    edges = (EdgeLayout(None, 0), EdgeLayout(0, None, window=10), EdgeLayout(0, None, window=10))
    return Machine(WorkerLayout((TaskLayout("split/0", 1.5, selective=True),), edges))


def test_a_selective_task_runs_while_other_outputs_are_full() -> None:
    machine = splitter()
    machine.emitted(1, "slice", 10, 1)
    machine.received(0, "rows", 5, 5)
    assert machine.next(1) == Run(0, ((0, ("rows",)),))


def test_a_selective_task_that_holds_rows_gets_nothing_else() -> None:
    machine = splitter()
    machine.received(0, "rows", 5, 5)
    assert isinstance(machine.next(1), Run)
    machine.emitted(1, "slice", 10, 1)
    machine.wants_edge(0, 1)
    machine.received(0, "more", 5, 5)
    machine.received_watermark(0, 77)
    machine.received_end(0)
    assert machine.next(2) == Wait(None)
    machine.credit(1, 1)
    assert machine.next(3) == Wake(0)
    machine.wants_edge(0, None)
    assert machine.next(4) == Run(0, ((0, ("more",)),))
    assert isinstance(machine.next(5), Advance)
    assert machine.next(6) == Finish(0)


def test_a_blocked_selective_task_hears_of_every_credit_and_of_its_time() -> None:
    machine = splitter()
    machine.received(0, "rows", 5, 5)
    machine.next(1)
    machine.emitted(1, "slice", 12, 1)
    machine.emitted(2, "slice", 4, 1)
    machine.wants_edge(0, 1)
    machine.wants_wake(0, 50)
    assert machine.next(10) == Wait(50)
    machine.credit(2, 4)
    assert machine.next(20) == Wake(0)  # not to send: to ask whom it waits for
    machine.wants_edge(0, 1)
    assert machine.next(30) == Wait(50)
    assert machine.next(50) == Wake(0)
    assert machine.next(51) == Wait(None)
    machine.credit(1, 12)
    assert machine.next(61) == Wake(0)


def test_the_time_that_a_selective_task_waits_is_metered() -> None:
    machine = splitter()
    machine.next(100)
    machine.emitted(1, "slice", 10, 1)
    machine.wants_edge(0, 1)
    machine.next(400)
    machine.credit(1, 10)
    assert machine.blocked_us(0) == 300


def test_nothing_is_passed_straight_to_a_task_that_holds_rows() -> None:
    edges = (EdgeLayout(0, 1), EdgeLayout(1, None, window=10))
    machine = Machine(
        WorkerLayout((TaskLayout("s/0", 0, is_source=True), TaskLayout("split/0", 1, selective=True)), edges)
    )
    assert machine.passes(0, 100)
    machine.emitted(1, "slice", 10, 1)
    machine.wants_edge(1, 1)
    assert not machine.passes(0, 100)
    machine.credit(1, 10)
    assert not machine.passes(0, 100)
    machine.wants_edge(1, None)
    assert machine.passes(0, 100)


def test_slices_are_taken_one_by_one() -> None:
    machine = Machine(WorkerLayout((TaskLayout("work/0", 2, slicewise=True),), (EdgeLayout(None, 0),)))
    for name in ("a", "b"):
        machine.received(0, name, 1, 1)
    machine.received_watermark(0, 9)
    assert machine.next(1) == Run(0, ((0, ("a",)),))
    assert machine.next(1) == Run(0, ((0, ("b",)),))
    assert machine.next(1) == Advance(0, 9)


def test_a_replica_s_credit_returns_when_the_slice_has_been_worked_off() -> None:
    edges = (EdgeLayout(None, 0, window=10, after_run=True, slice_bytes_min=1),)
    machine = Machine(WorkerLayout((TaskLayout("work/0", 2, slicewise=True),), edges))
    machine.received(0, "rows", 7, 1)
    assert machine.next(1) == Wait(None)  # a slice waits for its mark
    machine.received_slice(0, 0, 1)
    assert machine.next(2) == Run(0, ((0, (SlicePayload(0, ("rows",)),)),))
    assert machine.unreturned(0) == 7
    assert machine.next(3) == Grant(0, 7)  # asked again: the run is over


def merger(replicas: int) -> Machine:
    edges = tuple(EdgeLayout(None, 0, window=40, slice_bytes_min=10) for _ in range(replicas))
    return Machine(WorkerLayout((TaskLayout("merge/0", 3, merges=True),), edges))


def test_what_a_merger_holds_keeps_its_credit() -> None:
    machine = merger(2)
    machine.received(1, "b", 30, 1)
    machine.received_slice(1, 1, 1)
    assert machine.next(1) == Wait(None)
    assert machine.queue(0) == (1, 30)
    assert machine.unreturned(1) == 30
    machine.received(0, "a1", 5, 1)
    machine.received(0, "a2", 6, 1)
    machine.received_slice(0, 0, 2)
    assert machine.next(2) == Run(0, ((0, ("a1", "a2", "b")),))
    assert machine.next(3) == Grant(0, 11)
    assert machine.next(4) == Grant(1, 30)
    assert machine.unreturned(1) == 0


def test_a_slice_of_which_nothing_is_left_frees_those_behind_it_and_counts_all_the_same() -> None:
    machine = merger(2)
    machine.received(1, "b", 30, 1)
    machine.received_slice(1, 1, 1)
    machine.received_slice(0, 0, 0)
    assert machine.next(1) == Run(0, ((0, ("b",)),))
    assert [machine.next(2), machine.next(3)] == [Grant(0, 10), Grant(1, 30)]
    machine.received_slice(0, 2, 0)  # alone: there is nothing to run for
    assert machine.next(4) == Grant(0, 10)
    assert machine.next(5) == Wait(None)


def test_a_merger_that_would_end_with_slices_held_has_lost_one() -> None:
    machine = merger(1)
    machine.received_slice(0, 1, 0)
    machine.received_end(0)
    assert isinstance(machine.next(1), Advance)
    with pytest.raises(InternalError, match=r"'merge/0' ended with 1 slices held; slice 0 never came"):
        machine.next(2)


def test_an_end_in_the_middle_of_a_slice_is_refused() -> None:
    edges = (EdgeLayout(None, 0, slice_bytes_min=1),)
    machine = Machine(WorkerLayout((TaskLayout("work/0", 2, slicewise=True),), edges))
    machine.received(0, "rows", 10, 1)
    with pytest.raises(WireFault, match="an edge into 'work/0' ended with 1 batches of a slice without its mark"):
        machine.received_end(0)


@pytest.mark.parametrize(("edge", "parts"), [(0, 1), (1, 0)])
def test_a_mark_that_does_not_fit_what_came_before_it_is_refused(edge: int, parts: int) -> None:
    """Fewer batches than it says, or an edge along which no slices come."""
    edges = (EdgeLayout(None, 0, slice_bytes_min=1), EdgeLayout(None, 0))
    machine = Machine(WorkerLayout((TaskLayout("work/0", 2, slicewise=True),), edges))
    with pytest.raises(WireFault, match=r"an edge into 'work/0' received slice 7 of \d batches where 0 have come"):
        machine.received_slice(edge, 7, parts)


def test_a_slice_goes_straight_along_a_chain_and_never_into_a_merger_or_a_first_replica() -> None:
    tasks = (
        TaskLayout("split/0", 0, selective=True),
        TaskLayout("one/0", 1, slicewise=True),
        TaskLayout("two/0", 2, slicewise=True),
        TaskLayout("merge/0", 3, merges=True),
    )
    edges = (
        EdgeLayout(0, 1, after_run=True, prompt=True, slice_bytes_min=1),
        EdgeLayout(1, 2, slice_bytes_min=1),
        EdgeLayout(2, 3, slice_bytes_min=1),
        EdgeLayout(None, 2, slice_bytes_min=1),
    )
    machine = Machine(WorkerLayout(tasks, edges))
    assert [machine.passes(edge, 1) for edge in range(4)] == [False, True, False, False]


def test_credit_goes_back_by_quarters_and_to_a_splitter_within_two_milliseconds_or_at_rest() -> None:
    edges = (EdgeLayout(None, 0, window=100), EdgeLayout(None, 0, window=100, prompt=True))
    source = TaskLayout("a/0", 0, is_source=True)
    machine = Machine(WorkerLayout((TaskLayout("b/0", 1), source), edges))
    machine.received(0, "x", 24, 1)
    machine.received(1, "y", 24, 1)
    assert isinstance(machine.next(1), Run)
    assert machine.next(1) == Poll(1)  # neither is a quarter, and two milliseconds have not passed
    machine.polled(1, False, None)
    assert machine.next(2_000) == Grant(1, 24)
    machine.received(0, "x", 1, 1)
    assert isinstance(machine.next(2_001), Run)
    assert machine.next(2_002) == Grant(0, 25)
    machine.received(0, "x", 1, 1)
    machine.received(1, "y", 1, 1)
    assert isinstance(machine.next(2_003), Run)
    assert machine.next(2_004) == Poll(1)
    machine.polled(1, False, 9_000)
    assert machine.next(2_005) == Grant(1, 1)  # nothing else to do; what a plain sender is owed waits for more
    assert machine.next(2_006) == Wait(9_000)


def test_watermarks_get_through_a_replica_that_always_has_more_to_do() -> None:
    """Between the slices where they came, not when the queue is empty: in a region that is busy it never is."""
    machine = Machine(WorkerLayout((TaskLayout("work/0", 2, slicewise=True),), (EdgeLayout(None, 0),)))
    machine.received(0, "a", 1, 1)
    machine.received_watermark(0, 5)
    machine.received(0, "b", 1, 1)
    machine.received_watermark(0, 6)
    machine.received(0, "c", 1, 1)
    found = [machine.next(1) for _ in range(5)]
    assert found == [
        Run(0, ((0, ("a",)),)),
        Advance(0, 5),
        Run(0, ((0, ("b",)),)),
        Advance(0, 6),
        Run(0, ((0, ("c",)),)),
    ]


def test_slices_do_not_linger() -> None:
    """A replica beside its splitter would otherwise look slow: its few slices ahead would wait for company."""
    tasks = (TaskLayout("s/0", 0, is_source=True), TaskLayout("work/0", 2, slicewise=True))
    machine = Machine(WorkerLayout(tasks, (EdgeLayout(0, 1, after_run=True, slice_bytes_min=1),), 4096, 100_000))
    machine.next(1)
    machine.emitted_slice(0, SlicePayload(0, ("a",)), 1, 1)
    machine.polled(0, False, 10**9)
    assert machine.next(2) == Run(1, ((0, (SlicePayload(0, ("a",)),)),))
