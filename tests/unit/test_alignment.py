"""Markers in the machine: which edge waits, who is saved when, and what comes in behind."""

from __future__ import annotations

import pytest

from penstock.run.machine.instructions import (
    Done,
    EdgeLayout,
    Finish,
    Instruction,
    Poll,
    Run,
    Snapshot,
    TaskLayout,
    Wait,
    WorkerLayout,
)
from penstock.run.machine.machine import Machine

LEFT, RIGHT, OUT = 0, 1, 2  # edges from two other workers into one task, and from it to another


def joining() -> Machine:
    """One task of two inputs from elsewhere."""
    edges = (EdgeLayout(None, 0, 0), EdgeLayout(None, 0, 1), EdgeLayout(0, None))
    return Machine(WorkerLayout((TaskLayout("join/0", 1.0),), edges))


def source_and_reader() -> Machine:
    """A source and its reader on one worker."""
    tasks = (TaskLayout("source/0", 0.0, is_source=True), TaskLayout("reader/0", 1.0))
    return Machine(WorkerLayout(tasks, (EdgeLayout(0, 1),)))


def drained(machine: Machine) -> list[Instruction]:
    """Instructions until the machine waits."""
    found: list[Instruction] = []
    while not isinstance(instruction := machine.next(0), Wait | Done):
        found.append(instruction)
        assert len(found) < 20
        if isinstance(instruction, Snapshot):
            machine.snapshotted(instruction.task)
        elif isinstance(instruction, Finish):
            machine.finished(instruction.task)
        elif isinstance(instruction, Poll):
            machine.polled(instruction.task, False, 1_000)
    return found


def test_what_comes_behind_a_marker_waits_until_the_other_input_has_brought_its_own() -> None:
    machine = joining()
    machine.received(LEFT, "before", 10, 1)
    machine.received_epoch(LEFT, 1)
    machine.received(LEFT, "behind", 20, 1)
    machine.received(RIGHT, "also before", 30, 1)
    assert drained(machine) == [Run(0, ((0, ("before",)), (1, ("also before",))))]
    assert machine.waits_aside(LEFT)
    assert machine.unreturned(LEFT) == 30  # the window of the edge bounds what waits aside
    machine.received_epoch(RIGHT, 1)
    assert drained(machine) == [Snapshot(0, 1), Run(0, ((0, ("behind",)),))]
    assert not machine.waits_aside(LEFT)
    assert not machine.epoch_under_way


def test_marks_and_ends_behind_a_marker_wait_with_the_rows() -> None:
    machine = joining()
    machine.received_epoch(LEFT, 1)
    machine.received(LEFT, "behind", 20, 1)
    machine.received_watermark(LEFT, 7)
    machine.received_end(LEFT)
    machine.received_end(RIGHT)  # ended edges count as aligned
    assert drained(machine)[:2] == [Snapshot(0, 1), Run(0, ((0, ("behind",)),))]


def test_a_task_is_saved_when_it_has_worked_off_what_came_before_the_marker() -> None:
    machine = joining()
    machine.received(RIGHT, "before", 30, 1)
    machine.received_epoch(LEFT, 1)
    machine.received_epoch(RIGHT, 1)
    assert drained(machine) == [Run(0, ((1, ("before",)),)), Snapshot(0, 1)]


def test_a_task_whose_inputs_have_all_ended_finishes_and_is_not_saved() -> None:
    machine = joining()
    machine.received_end(LEFT)
    machine.received_end(RIGHT)
    machine.begin_epoch(1)
    assert machine.epoch_under_way
    assert Finish(0) in drained(machine)
    assert not machine.epoch_under_way


def test_a_source_is_saved_between_two_polls_and_its_reader_behind_it() -> None:
    machine = source_and_reader()
    machine.begin_epoch(4)
    assert drained(machine) == [Snapshot(0, 4), Snapshot(1, 4), Poll(0)]
    machine.begin_epoch(4)  # heard again
    assert drained(machine) == []


def test_a_batch_does_not_go_straight_to_a_task_past_a_marker() -> None:
    tasks = (TaskLayout("source/0", 0.0, is_source=True), TaskLayout("reader/0", 1.0))
    machine = Machine(WorkerLayout(tasks, (EdgeLayout(0, 1), EdgeLayout(None, 1, 1))))
    assert machine.passes(0, 1)
    machine.begin_epoch(1)
    assert machine.next(0) == Snapshot(0, 1)
    machine.snapshotted(0)
    assert not machine.passes(0, 1)  # the reader lacks the marker of its other input
    machine.emitted(0, "behind", 8, 1)
    machine.received_epoch(1, 1)
    found = drained(machine)
    assert [i for i in found if not isinstance(i, Poll)] == [Snapshot(1, 1), Run(1, ((0, ("behind",)),))]
    assert machine.passes(0, 1)


def test_the_first_marker_begins_the_epoch_for_the_sources_of_the_worker_too() -> None:
    tasks = (TaskLayout("source/0", 0.0, is_source=True), TaskLayout("reader/0", 1.0))
    machine = Machine(WorkerLayout(tasks, (EdgeLayout(0, None), EdgeLayout(None, 1))))
    machine.received_epoch(1, 9)
    assert {Snapshot(0, 9).task, Snapshot(1, 9).task} == {i.task for i in drained(machine) if isinstance(i, Snapshot)}


def test_markers_out_of_turn_are_refused() -> None:
    machine = joining()
    machine.received_epoch(LEFT, 2)
    with pytest.raises(ValueError, match="twice"):
        machine.received_epoch(LEFT, 2)
    with pytest.raises(ValueError, match="marker of epoch 1 in epoch 2"):
        machine.received_epoch(RIGHT, 1)
