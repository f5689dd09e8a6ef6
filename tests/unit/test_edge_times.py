"""A task's event time is that of its slowest edge; idle edges are not waited for, and time never goes back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, IDLE_US
from penstock.run.machine.edge_times import EdgeTimes
from penstock.run.machine.instructions import Advance, EdgeLayout, Finish, Idle, Run, TaskLayout, Wait, WorkerLayout
from penstock.run.machine.machine import Machine
from penstock.run.machine.state import TaskState


def machine(edges: int, *, timed: bool = False) -> Machine:
    """One task that `edges` edges from other workers lead into."""
    layout = TaskLayout("reader/0", 1, timed=timed)
    return Machine(WorkerLayout((layout,), tuple(EdgeLayout(None, 0) for _ in range(edges))))


def told(one: Machine) -> list[object]:
    """Everything that the machine says until it waits."""
    found: list[object] = []
    while not isinstance(instruction := one.next(0), Wait | Finish):
        found.append(instruction)
    return found


def test_an_idle_edge_is_not_waited_for_and_counts_again_when_it_wakes() -> None:
    one = machine(2)
    one.received_watermark(0, 10)
    assert told(one) == []  # the other edge has said nothing
    one.received_watermark(1, IDLE_US)
    assert told(one) == [Advance(0, 10)]
    one.received_watermark(0, 20)
    assert told(one) == [Advance(0, 20)]
    one.received_watermark(1, 5)  # awake, and behind: time stands until it has caught up, and does not go back
    one.received_watermark(0, 30)
    assert told(one) == []
    one.received_watermark(1, 25)
    assert told(one) == [Advance(0, 25)]


def test_a_task_whose_inputs_are_all_idle_is_idle_and_says_when_it_is_not() -> None:
    one = machine(2)
    for edge in (0, 1):
        one.received_watermark(edge, 10)
    one.received_watermark(0, IDLE_US)
    assert told(one) == [Advance(0, 10)]
    one.received_end(1)  # ended and idle together must not look like the end of time
    assert told(one) == [Idle(0)]
    one.received_watermark(0, 10)  # nothing has moved, but readers have to wait for this task again
    assert told(one) == [Advance(0, 10)]
    one.received_end(0)
    assert told(one) == [Advance(0, END_OF_TIME_US)]


def test_a_task_that_was_told_to_be_idle_is_woken_by_inputs_that_are_new() -> None:
    was = machine(2)
    for edge in (0, 1):
        was.received_watermark(edge, 10)
        was.received_watermark(edge, IDLE_US)
    assert told(was) == [Advance(0, 10), Idle(0)]
    same = machine(2)
    same.continue_from(0, was.times_of(0))
    assert told(same) == []  # it is idle, and its readers know that
    other = machine(2)
    other.continue_from(0, replace(was.times_of(0), marks={0: 10}, idle=[0]))  # edge 1 comes from another task
    assert told(other) == [Advance(0, 10)]
    other.received_watermark(1, 20)
    assert told(other) == [Advance(0, 20)]


def test_an_edge_whose_rows_wait_here_is_not_quiet() -> None:
    layout = TaskLayout("reader/0", 1, timed=True, idle_us=100)
    one = Machine(WorkerLayout((layout,), (EdgeLayout(None, 0), EdgeLayout(None, 0), EdgeLayout(0, None, window=10))))
    for edge, time_us in ((0, 50), (1, 10)):
        one.received(edge, "rows", 1, 1)
        assert isinstance(one.next(0), Run)
        one.observed(edge, time_us)
    one.emitted(2, "rows", 10, 1)  # nobody takes what it sends, so it cannot run
    one.received(1, "rows of time 11", 1, 1)
    for now_us in (50, 150, 1000):
        one.quieten(now_us)
    assert told(one) == []
    one.credit(2, 10)
    assert told(one) == [Run(0, ((0, ("rows of time 11",)),), 1)]  # and event time, 10, is not ahead of them
    assert one.observed(1, 11) == 11


def test_an_edge_is_quiet_from_the_first_look_that_finds_nothing() -> None:
    layout = TaskLayout("reader/0", 1, timed=True, idle_us=100)
    one = Machine(WorkerLayout((layout,), (EdgeLayout(None, 0), EdgeLayout(None, 0))))
    for edge, time_us in ((0, 50), (1, 10)):
        one.received(edge, "rows", 1, 1)
        assert isinstance(one.next(0), Run)
        one.observed(edge, time_us)
    one.quieten(5000)  # a function of the user took so long, and what came meanwhile has not been read yet
    one.quieten(5099)
    assert told(one) == []
    one.quieten(5100)
    assert told(one) == [Advance(0, 50), Idle(0)]


def test_what_moved_is_told_before_idleness() -> None:
    one = machine(1)
    one.received_watermark(0, 10)
    one.received_watermark(0, IDLE_US)
    assert told(one) == [Advance(0, 10), Idle(0)]


def test_data_goes_before_the_idleness_that_came_behind_it() -> None:
    one = machine(1)
    one.received(0, "rows", 8, 1)
    one.received_watermark(0, IDLE_US)
    assert told(one) == [Run(0, ((0, ("rows",)),)), Idle(0)]
    one.received_watermark(0, 3)
    assert not one.passes(0, 1)  # news first
    assert told(one) == [Advance(0, 3)]
    assert one.passes(0, 1)


def test_a_timed_task_gets_one_edge_at_a_time_and_goes_by_what_the_rows_say() -> None:
    one = machine(2, timed=True)
    for edge in (0, 0, 1, 0):
        one.received(edge, f"from {edge}", 8, 1)
    one.received_watermark(0, 1_000)  # of an event time further up: not this one's
    first = one.next(0)
    assert first == Run(0, ((0, ("from 0", "from 0")),))
    assert isinstance(first, Run)
    assert first.edge == 0
    assert one.observed(0, 50) is None  # nothing is known of edge 1
    second = one.next(0)
    assert isinstance(second, Run)
    assert second.edge == 1
    assert one.observed(1, 20) == 20
    assert one.observed(1, 20) is None  # told already
    one.received_end(1)
    assert told(one) == [Run(0, ((0, ("from 0",)),)), Advance(0, 50)]


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2), st.one_of(st.integers(-5, 30), st.just(IDLE_US), st.just(END_OF_TIME_US), st.just("end"))
    ),
    max_size=25,
)


@given(events=EVENTS)
def test_time_is_the_least_of_the_live_edges_and_never_goes_back(events: list) -> None:
    one = machine(3)
    marks, idle, ended = [BEFORE_TIME_US] * 3, set(), set()
    time_us, is_idle = BEFORE_TIME_US, False
    for edge, mark in events:
        if edge in ended:
            continue
        if mark == "end":
            one.received_end(edge)
            ended.add(edge)
            idle.discard(edge)
            marks[edge] = END_OF_TIME_US
        else:
            one.received_watermark(edge, mark)
            (idle.add if mark == IDLE_US else idle.discard)(edge)
            marks[edge] = marks[edge] if mark == IDLE_US else max(marks[edge], mark)
        live = [marks[e] for e in range(3) if e not in idle and marks[e] < END_OF_TIME_US]
        is_idle = not live and bool(idle)
        found = max(marks[e] for e in idle) if is_idle else min(live, default=END_OF_TIME_US)
        time_us = max(time_us, found)
        for news in told(one):
            assert isinstance(news, Advance | Idle)
            assert news == Advance(0, time_us) or (is_idle and news == Idle(0))
        assert one.event_time(0)[1] == is_idle
        if len(ended) == 3:
            return


def test_a_number_that_is_given_anew_brings_neither_idleness_nor_quiet_along() -> None:
    times = EdgeTimes(2)
    reader = TaskState(TaskLayout("reader/0", 1, timed=True, idle_us=10), [0, 1], [], 2)
    times.marked(0, 5, reader)
    times.quieten(reader, 100)
    times.marked(1, IDLE_US, reader)
    for edge in (0, 1):
        times.added(edge)
    assert not times.saved(reader).idle
    assert not times.quieten(reader, 105), "quiet begins with a look of its own"
    assert times.quieten(reader, 115)
    times.pass_on(1, 0)
    assert list(times.saved(reader).idle) == [0], "and an edge that is led elsewhere stays idle"
