"""What the machine does differently for parallel regions: selective tasks, slices one by one, credit on release."""

from __future__ import annotations

from penstock.run.instructions import Advance, EdgeLayout, Finish, Run, TaskLayout, Wait, Wake, WorkerLayout
from penstock.run.machine import Machine


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


def test_credit_on_release_waits_for_the_loop() -> None:
    edges = (EdgeLayout(None, 0, on_release=True), EdgeLayout(None, 0))
    machine = Machine(WorkerLayout((TaskLayout("merge/0", 3),), edges))
    machine.received(0, "held", 7, 1)
    machine.received(1, "taken", 5, 1)
    machine.next(1)
    assert machine.take_grants() == [(1, 5)]
    machine.returned(0, 7)
    assert machine.take_grants() == [(0, 7)]


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
    machine = Machine(WorkerLayout(tasks, (EdgeLayout(0, 1, on_release=True),), 4096, 100_000))
    machine.next(1)
    machine.emitted(0, "a", 1, 1)
    machine.polled(0, False, 10**9)
    assert machine.next(2) == Run(1, ((0, ("a",)),))
