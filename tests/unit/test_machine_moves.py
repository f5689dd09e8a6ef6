"""A machine whose tasks come and go while it runs: events in, instructions and routes compared."""

from __future__ import annotations

import pytest

from penstock.run.machine.edge_times import TaskTimes
from penstock.run.machine.instructions import (
    Advance,
    Done,
    EdgeLayout,
    Finish,
    Grant,
    Poll,
    Run,
    Snapshot,
    TaskLayout,
    Wait,
    WorkerLayout,
)
from penstock.run.machine.machine import Machine

SOURCE, COUNT = TaskLayout("source/0", 0, is_source=True), TaskLayout("count/0", 1)


def do(machine: Machine, now_us: int = 0) -> list[object]:
    """Instructions until there is nothing to do, each carried out as a worker does."""
    found: list[object] = []
    while not isinstance(instruction := machine.next(now_us), Wait | Done):
        found.append(instruction)
        if isinstance(instruction, Snapshot):
            machine.snapshotted(instruction.task)
        if isinstance(instruction, Finish):
            machine.finished(instruction.task)
        if isinstance(instruction, Poll):
            machine.polled(instruction.task, False, now_us + 1_000)
    return found


def test_a_sender_takes_the_new_route_behind_its_marker_and_is_not_held_up_by_the_old_one() -> None:
    machine = Machine(WorkerLayout((SOURCE,), (EdgeLayout(0, None, window=10),)))
    do(machine)
    machine.emitted(0, "rows", 50, 1)
    assert machine.moves.still_to_switch(0) == []
    machine.moves.prepare(1, [])
    new = machine.moves.add_edge(EdgeLayout(0, None, window=10), 0)
    assert machine.moves.switch(0) == []  # its epoch has not begun
    machine.begin_epoch(1)
    assert machine.moves.still_to_switch(0) == [new]
    machine.credit(0, 45)
    assert do(machine) == [Snapshot(0, 1)]
    assert machine.moves.switch(0) == [(0, new)]
    assert list(machine.moves.outputs_of(0)) == [new]
    machine.emitted(new, "rows", 10, 1)
    machine.credit(0, 5)  # late, of the old route
    assert not machine.has_room(new)
    machine.credit(new, 10)
    assert machine.has_room(new)
    assert machine.moves.take_left_edges() == [0]
    machine.moves.over()


def test_a_full_old_route_holds_nobody_up_once_it_is_left() -> None:
    machine = Machine(WorkerLayout((SOURCE,), (EdgeLayout(0, None, window=10),)))
    machine.moves.prepare(1, [])
    new = machine.moves.add_edge(EdgeLayout(0, None, window=10), 0)
    machine.begin_epoch(1)
    assert do(machine)[0] == Snapshot(0, 1)
    machine.emitted(0, "rows", 50, 1)  # as by what lingered before the marker
    assert machine.statistics().blocked_tasks == 1
    machine.moves.switch(0)
    assert machine.statistics().blocked_tasks == 0
    assert machine.has_room(new)


def test_a_reader_takes_what_came_along_the_old_route_first_and_knows_how_far_that_was() -> None:
    machine = Machine(WorkerLayout((COUNT,), (EdgeLayout(None, 0), EdgeLayout(None, 0))))
    machine.moves.prepare(1, [])
    new = machine.moves.add_edge(EdgeLayout(None, 0), 0)
    for edge in (0, 1):
        machine.received_watermark(edge, 100)
    machine.begin_epoch(1)
    machine.received(new, "new", 8, 1)
    machine.received_watermark(new, 300)
    machine.received(0, "old", 8, 1)
    assert do(machine) == [Run(0, ((0, ("old",)),)), Advance(0, 100)]
    machine.received_epoch(0, 1)
    machine.received_epoch(1, 1)
    assert do(machine) == [Snapshot(0, 1), Run(0, ((0, ("new",)),))]
    assert machine.times_of(0) == TaskTimes(100, 100, {new: 300, 1: 100}, [])
    assert machine.moves.take_left_edges() == [0]
    machine.received_watermark(1, 200)
    assert do(machine) == [Advance(0, 200)]
    machine.moves.over()


def test_a_reader_whose_old_routes_have_all_ended_is_saved_without_a_marker_and_does_not_finish() -> None:
    machine = Machine(WorkerLayout((COUNT,), (EdgeLayout(None, 0),)))
    machine.moves.prepare(1, [])
    new = machine.moves.add_edge(EdgeLayout(None, 0), 0)
    machine.received_end(0)
    assert Finish(0) not in do(machine)
    machine.begin_epoch(1)
    assert Snapshot(0, 1) in do(machine)
    machine.received_end(new)
    assert do(machine)[-1] == Finish(0)
    assert machine.next(0) == Done()


def test_what_is_to_come_waits_for_its_state_and_keeps_the_worker() -> None:
    machine = Machine(WorkerLayout((), ()))
    assert machine.next(0) == Done()
    machine.moves.prepare(1, [])
    t = machine.comes(COUNT)
    e = machine.moves.add_edge(EdgeLayout(None, t, window=8), None)
    machine.begin_epoch(1)
    assert not machine.epoch_under_way
    machine.received(e, "rows", 8, 1)
    assert machine.unreturned(e) == 8
    assert isinstance(machine.next(0), Wait)
    machine.continue_from(t, TaskTimes(50, 50, {e: 50}))
    machine.came(t)
    assert do(machine) == [Run(t, ((0, ("rows",)),)), Grant(e, 8)]
    machine.received_watermark(e, 60)
    assert do(machine) == [Advance(t, 60)]
    machine.moves.over()
    machine.begin_epoch(2)
    assert machine.epoch_under_way


def test_a_task_that_leaves_is_gone_and_its_numbers_are_given_again() -> None:
    machine = Machine(WorkerLayout((SOURCE, COUNT), (EdgeLayout(0, 1), EdgeLayout(1, None))))
    tasks, edges = len(machine.layout.tasks), len(machine.layout.edges)
    for turn in range(1, 40):
        machine.moves.prepare(2 * turn - 1, [1])
        away = machine.moves.add_edge(EdgeLayout(0, None), *machine.moves.outputs_of(0))
        machine.begin_epoch(2 * turn - 1)
        for t in (0, 1):
            assert Snapshot(t, 2 * turn - 1) in do(machine, turn * 10_000) or t
            machine.moves.switch(t)
        machine.left(1)
        assert list(machine.moves.outputs_of(0)) == [away]
        machine.moves.over()
        machine.moves.prepare(2 * turn, [])
        t = machine.comes(COUNT)
        assert t == 1
        back = machine.moves.add_edge(EdgeLayout(0, 1), away)
        machine.moves.add_edge(EdgeLayout(1, None), None)
        machine.begin_epoch(2 * turn)
        assert Snapshot(0, 2 * turn) in do(machine, turn * 10_000 + 5_000)
        machine.moves.switch(0)
        machine.came(1)
        machine.moves.over()
        assert list(machine.moves.inputs_of(1)) == [back]
    assert len(machine.layout.tasks) == tasks
    assert len(machine.layout.edges) <= edges + 2


def test_what_is_dropped_leaves_everything_as_it_was() -> None:
    machine = Machine(WorkerLayout((COUNT,), (EdgeLayout(None, 0),)))
    machine.moves.prepare(1, [])
    machine.comes(SOURCE)
    machine.moves.add_edge(EdgeLayout(None, 0), 0)
    machine.received_end(0)
    do(machine)
    machine.stays()
    assert do(machine) == [Finish(0)]
    assert machine.next(0) == Done()
    machine.moves.prepare(1, [])  # another one may be prepared


def test_a_move_happens_at_its_epoch_alone() -> None:
    machine = Machine(WorkerLayout((SOURCE,), (EdgeLayout(0, None),)))
    machine.moves.prepare(2, [])
    with pytest.raises(ValueError, match="epoch 1 begins where a move is prepared for epoch 2"):
        machine.begin_epoch(1)
    with pytest.raises(ValueError, match="a move at epoch 3 is prepared while that at epoch 2 is under way"):
        machine.moves.prepare(3, [])
    with pytest.raises(ValueError, match="edge 1 has an end that stays, and no route until now"):
        machine.moves.add_edge(EdgeLayout(0, None), None)
