"""The worker's machine under random schedules: nothing lost, nothing twice, order per edge, windows kept, no deadlock.

A whole job runs here without sockets or time: several machines, an in-memory wire between them whose frames arrive
whenever the random schedule says so, and tasks that copy what they get to all their outputs.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.run.contract import END_OF_TIME_US
from penstock.run.machine.instructions import (
    Advance,
    Done,
    EdgeLayout,
    Finish,
    Grant,
    Poll,
    Run,
    Send,
    TaskLayout,
    Wait,
    Wake,
    WorkerLayout,
)
from penstock.run.machine.linger import BUSY_AFTER_US, BUSY_LINGER_US
from penstock.run.machine.machine import Machine
from penstock.run.machine.ready import FAIR_EVERY, STARVED_AFTER
from penstock.run.machine.state import may_run, times_of

STEPS_MAX = 200_000


class Job:
    """A layered job over several machines, driven by a seeded schedule."""

    def __init__(
        self,
        seed: int,
        layers: list[int],
        workers: int,
        window: int,
        per_source: int,
        rows_max: int,
        linger_us: int = 0,
        tick_us: int = 0,
    ) -> None:
        self.random = random.Random(seed)
        self.linger_us, self.tick_us, self.now_us = linger_us, tick_us, 0
        self.per_source = per_source
        self.tasks = [(depth, i) for depth, count in enumerate(layers) for i in range(count)]
        self.worker_of = {task: self.random.randrange(workers) for task in self.tasks}
        pairs = [(a, b) for a in self.tasks for b in self.tasks if b[0] == a[0] + 1]
        self.pairs = pairs
        self.shares = [[task for task in self.tasks if self.worker_of[task] == w] for w in range(workers)]
        self.edges = [
            [p for p in pairs if self.worker_of[p[0]] == w or self.worker_of[p[1]] == w] for w in range(workers)
        ]
        self.window = window
        self.machines = [self._machine(w, window, rows_max) for w in range(workers)]
        self.wires: dict[tuple[int, int], deque[tuple[object, ...]]] = defaultdict(deque)
        self.polled: dict[tuple[int, int], int] = defaultdict(int)
        self.got: dict[tuple[tuple[int, int], tuple[int, int]], list[object]] = defaultdict(list)
        self.outstanding: dict[tuple[tuple[int, int], tuple[int, int]], int] = defaultdict(int)
        self.largest_run = 1
        self.advanced: dict[tuple[int, int], list[int]] = defaultdict(list)

    def _machine(self, w: int, window: int, rows_max: int) -> Machine:
        mine = {task: t for t, task in enumerate(self.shares[w])}
        edges = tuple(EdgeLayout(mine.get(a), mine.get(b), 0, window) for a, b in self.edges[w])
        tasks = tuple(TaskLayout(f"{d}/{i}", d, d == 0) for d, i in self.shares[w])
        return Machine(WorkerLayout(tasks, edges, rows_max, self.linger_us))

    def run(self) -> None:
        done: set[int] = set()
        for _ in range(STEPS_MAX):
            if len(done) == len(self.machines):
                return
            ready = [pair for pair, wire in self.wires.items() if wire]
            choices: list[object] = [*range(len(self.machines)), *ready]
            choice = self.random.choice(choices)
            if isinstance(choice, tuple):
                self._arrive(choice, self.wires[choice].popleft())
            elif self._step(int(str(choice))):
                done.add(int(str(choice)))
        pytest.fail(f"no end after {STEPS_MAX} steps: {[machine.statistics() for machine in self.machines]}")

    def _arrive(self, route: tuple[int, int], frame: tuple[object, ...]) -> None:
        machine, edges = self.machines[route[1]], self.edges[route[1]]
        kind, pair, *rest = frame
        edge = edges.index(pair)  # type: ignore[arg-type]
        if kind == "data":
            machine.received(edge, rest[0], 1, 1)
        elif kind == "mark":
            machine.received_watermark(edge, int(str(rest[0])))
        elif kind == "end":
            machine.received_end(edge)
        else:
            machine.credit(edge, int(str(rest[0])))

    def _step(self, w: int) -> bool:
        machine = self.machines[w]
        self.now_us += self.tick_us
        instruction = machine.next(self.now_us)
        match instruction:
            case Done():
                return True
            case Wait(until_us=until_us):
                self._check_wait(machine, until_us)
                if self.linger_us and until_us is not None:
                    self.now_us = max(self.now_us, until_us)
            case Send(edge=edge, payloads=payloads, watermark_us=time, ended=ended):
                self._sent(w, edge, payloads, time, ended)
            case Poll(task=t):
                task = self.shares[w][t]
                n = self.polled[task] = self.polled[task] + 1
                if n <= self.per_source:
                    self._emit(w, task, (task, n))
                    self._mark(w, task, n)
                machine.polled(t, n > self.per_source, None)
            case Run(task=t, inputs=inputs):
                task = self.shares[w][t]
                items = [item for _, payloads in inputs for item in payloads]
                self.largest_run = max(self.largest_run, len(items))
                for origin, pair in items:  # type: ignore[misc]
                    self._process(w, task, origin, pair)
            case Advance(task=t, watermark_us=time):
                self.advanced[self.shares[w][t]].append(time)
                self._mark(w, self.shares[w][t], time)
            case Finish(task=t):
                task = self.shares[w][t]
                for pair in self.pairs:
                    leaves = pair[0] == task and self.worker_of[pair[1]] != w
                    if leaves and not machine.holds(self.edges[w].index(pair)):
                        self.wires[w, self.worker_of[pair[1]]].append(("end", pair))
                machine.finished(t)
            case Wake():
                pytest.fail("nobody asked to be woken")
            case Grant(edge=edge, size=size):
                pair = self.edges[w][edge]
                self.wires[w, self.worker_of[pair[0]]].append(("credit", pair, size))
        return False

    def _check_wait(self, machine: Machine, until_us: int | None) -> None:
        """A machine waits for the first time of all that anybody wants, and for none that has come."""
        runnable = [task for task in machine._tasks if not task.finished and may_run(task)]
        wanted = [at for task in runnable for at in times_of(task)]
        wanted += [held.send_at_us for held in machine._linger.held.values()]
        assert until_us == min(wanted, default=None)
        assert until_us is None or until_us > self.now_us

    def _process(self, w: int, task: tuple[int, int], origin: object, pair: tuple[tuple[int, int], ...]) -> None:
        self.got[pair].append(origin)  # type: ignore[index]
        self._emit(w, task, origin)

    def _emit(self, w: int, task: tuple[int, int], origin: object) -> None:
        machine = self.machines[w]
        for pair in self.pairs:
            if pair[0] != task:
                continue
            edge = self.edges[w].index(pair)
            if machine.passes(edge, 1):
                self._process(w, pair[1], origin, pair)
            elif self.worker_of[pair[1]] != w and machine.holds(edge, 1):
                machine.hold(edge, (origin, pair), 1, 1)
            else:
                machine.emitted(edge, (origin, pair), 1, 1)
                if self.worker_of[pair[1]] != w:
                    self.wires[w, self.worker_of[pair[1]]].append(("data", pair, (origin, pair)))

    def _mark(self, w: int, task: tuple[int, int], time: int) -> None:
        for pair in self.pairs:
            if pair[0] == task:
                edge = self.edges[w].index(pair)
                held = self.machines[w].holds(edge)
                self.machines[w].emitted_watermark(edge, time)
                if self.worker_of[pair[1]] != w and not held:
                    self.wires[w, self.worker_of[pair[1]]].append(("mark", pair, time))

    def _sent(self, w: int, edge: int, payloads: tuple[object, ...], time: int | None, ended: bool) -> None:
        pair = self.edges[w][edge]
        wire = self.wires[w, self.worker_of[pair[1]]]
        wire.extend(("data", pair, payload) for payload in payloads)
        self.machines[w].sent(edge, len(payloads), len(payloads))
        if time is not None:
            wire.append(("mark", pair, time))
        if ended:
            wire.append(("end", pair))


jobs = st.builds(
    Job,
    seed=st.integers(0, 1 << 32),
    layers=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    workers=st.integers(1, 4),
    window=st.integers(1, 4),
    per_source=st.integers(0, 12),
    rows_max=st.sampled_from((1, 2, 3, 5, 16, 40)),  # from 16 on, a busy worker holds batches of one row
    linger_us=st.sampled_from((0, 0, 5, 50)),
    tick_us=st.sampled_from((0, 1, 700)),
)


@given(job=jobs)
def test_every_batch_arrives_once_in_order_and_the_job_ends(job: Job) -> None:
    job.run()
    for a, b in job.pairs:
        if a[0] == 0:
            assert job.got[a, b] == [(a, n) for n in range(1, job.per_source + 1)]
    for depth in range(1, max(task[0] for task in job.tasks) + 1):
        # Every batch of every source reaches a task once for each path that leads to it.
        paths = 1
        for d in range(1, depth):
            paths *= sum(1 for task in job.tasks if task[0] == d)
        sources = sum(1 for task in job.tasks if task[0] == 0)
        for task in (task for task in job.tasks if task[0] == depth):
            arrived = sum(len(items) for pair, items in job.got.items() if pair[1] == task)
            assert arrived == sources * job.per_source * paths


@given(job=jobs)
def test_queues_stay_within_their_windows(job: Job) -> None:
    original = job._step
    largest = 0

    def watched(w: int) -> bool:
        nonlocal largest
        ended = original(w)
        largest = max(largest, max(map(job.machines[w].outstanding, range(len(job.edges[w]))), default=0))
        return ended

    job._step = watched  # type: ignore[method-assign]
    job.run()
    # One run may overdraw a window by what it emits; a run emits what it takes, and takes at most rows_max.
    assert largest <= job.window - 1 + max(1, job.largest_run)


@given(job=jobs)
def test_watermarks_never_go_back_and_end_at_the_end_of_time(job: Job) -> None:
    job.run()
    for task, times in job.advanced.items():
        assert times == sorted(set(times)), task
    for task in job.tasks:
        if task[0] > 0:
            assert job.advanced[task][-1] == END_OF_TIME_US


def test_two_workers_that_send_to_each_other_in_a_circle_do_not_deadlock() -> None:
    # a/0 on worker 0 feeds b on worker 1, a/1 on worker 1 feeds b on worker 0, with a window of a single batch.
    for seed in range(50):
        job = Job(seed, [2, 2, 1], 2, 1, 20, 1)
        job.worker_of = {(0, 0): 0, (0, 1): 1, (1, 0): 1, (1, 1): 0, (2, 0): 0}
        job.shares = [[t for t in job.tasks if job.worker_of[t] == w] for w in range(2)]
        job.edges = [[p for p in job.pairs if w in (job.worker_of[p[0]], job.worker_of[p[1]])] for w in range(2)]
        job.machines = [job._machine(w, 1, 1) for w in range(2)]
        job.run()
        assert sum(len(items) for pair, items in job.got.items() if pair[1] == (2, 0)) == 2 * 2 * 20


def test_a_source_that_waits_is_asked_again_when_its_time_has_come() -> None:
    machine = Machine(WorkerLayout((TaskLayout("a/0", 0, is_source=True),), ()))
    assert machine.next(0) == Poll(0)
    machine.polled(0, ended=False, wait_until_us=100)
    assert machine.next(50) == Wait(100)
    assert machine.next(100) == Poll(0)
    machine.polled(0, ended=False, wait_until_us=500)
    machine.hurry(0)
    assert machine.next(101) == Poll(0)
    machine.polled(0, ended=True, wait_until_us=None)
    assert machine.next(102) == Finish(0)
    machine.finished(0)
    assert machine.next(103) == Done()


def test_tasks_that_are_equally_near_to_the_sinks_take_turns() -> None:
    # Two sources that always have more, and two readers that other workers feed without end: nobody starves.
    sources = tuple(TaskLayout(f"a/{i}", 0, is_source=True) for i in range(3))
    machine = Machine(WorkerLayout(sources, ()))
    asked = []
    for now_us in range(9):
        instruction = machine.next(now_us)
        assert isinstance(instruction, Poll)
        asked.append(instruction.task)
        machine.polled(instruction.task, ended=False, wait_until_us=None)
    assert sorted(asked) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    readers = (TaskLayout("b/0", 1), TaskLayout("b/1", 1))
    machine = Machine(WorkerLayout(readers, (EdgeLayout(None, 0), EdgeLayout(None, 1))))
    ran = []
    for now_us in range(8):
        for edge in (0, 1):
            machine.received(edge, "batch", 1, 1)
        instruction = machine.next(now_us)
        assert isinstance(instruction, Run)
        ran.append(instruction.task)
    assert sorted(ran) == [0, 0, 0, 0, 1, 1, 1, 1]


@given(seed=st.integers(0, 1 << 32), tasks=st.integers(2, 8), turns=st.integers(1, 3))
def test_a_task_that_can_run_does_so_soon_however_much_comes_in_nearer_to_the_sinks(
    seed: int, tasks: int, turns: int
) -> None:
    # Task 0 is a source that always has more; the others stand anywhere and get more from outside whenever they ran.
    rng = random.Random(seed)
    layouts = [TaskLayout("a/0", 0, is_source=True)]
    layouts += [TaskLayout(f"b{t}/0", rng.randint(1, 4)) for t in range(1, tasks)]
    machine = Machine(WorkerLayout(tuple(layouts), tuple(EdgeLayout(None, t) for t in range(1, tasks)), rows_max=1))
    waited = dict.fromkeys(range(tasks), 0)
    for edge in range(tasks - 1):
        for _ in range(rng.randint(2, 4)):
            machine.received(edge, "batch", 1, 1)
    longest = STARVED_AFTER + tasks * FAIR_EVERY
    for now_us in range(turns * longest):
        instruction = machine.next(now_us)
        assert isinstance(instruction, Run | Poll)
        t = instruction.task
        waited = {task: 0 if task == t else turns + 1 for task, turns in waited.items()}
        assert max(waited.values()) <= longest
        if t:
            machine.received(t - 1, "batch", 1, 1)
        else:
            machine.polled(0, ended=False, wait_until_us=None)


def test_the_tasks_nearest_to_the_sinks_keep_all_turns_but_one_in_many() -> None:
    tasks = (TaskLayout("a/0", 0, is_source=True), TaskLayout("b/0", 1))
    machine = Machine(WorkerLayout(tasks, (EdgeLayout(None, 1),), rows_max=1))
    machine.received(0, "batch", 1, 1)
    polls = 0
    for now_us in range(100 * STARVED_AFTER):
        machine.received(0, "batch", 1, 1)
        if isinstance(machine.next(now_us), Poll):
            polls += 1
            machine.polled(0, ended=False, wait_until_us=None)
    assert 80 <= polls <= 100


def test_a_task_with_more_data_than_it_can_take_is_woken_in_time_and_still_takes_data() -> None:
    machine = Machine(WorkerLayout((TaskLayout("b/0", 1),), (EdgeLayout(None, 0),), rows_max=1))
    kinds = []
    machine.wants_wake(0, 2)
    for now_us in range(8):
        machine.received(0, "batch", 1, 1)
        instruction = machine.next(now_us)
        kinds.append(type(instruction))
        if isinstance(instruction, Wake) and now_us > 3:
            machine.wants_wake(0, 0)  # as a task does that wants the time whenever it has rows
        if now_us == 3:
            machine.wants_wake(0, 4)
    assert kinds == [Run, Run, Wake, Run, Wake, Run, Wake, Run]


def test_blocked_time_is_counted_from_the_full_window_to_the_returned_credit() -> None:
    machine = Machine(WorkerLayout((TaskLayout("a/0", 0, is_source=True),), (EdgeLayout(0, None, 0, 10),)))
    assert machine.next(1000) == Poll(0)
    machine.emitted(0, "batch", 10, 1)
    machine.polled(0, ended=False, wait_until_us=None)
    assert machine.next(1500) == Wait(None)
    assert machine.blocked_us(0) == 500
    machine.credit(0, 4)
    assert machine.next(1800) == Poll(0)
    assert machine.blocked_us(0) == 0  # the credit came in before the clock moved on


def test_time_without_credit_counts_while_the_worker_waits_for_it() -> None:
    machine = Machine(WorkerLayout((TaskLayout("a/0", 0, is_source=True),), (EdgeLayout(0, None, window=10),)))
    assert machine.next(1_000) == Poll(0)
    machine.emitted(0, "batch", 10, 1)
    machine.polled(0, ended=False, wait_until_us=None)
    assert machine.next(1_000) == Wait(None)
    machine.clock(501_000)  # half a second later the credit comes
    machine.credit(0, 10)
    assert machine.blocked_us(0) == 500_000


def two_tasks(linger_us: int, *, outbound: bool = False, rows_max: int = 100) -> Machine:
    tasks = (TaskLayout("a/0", 0, is_source=True), *(() if outbound else (TaskLayout("b/0", 1),)))
    return Machine(WorkerLayout(tasks, (EdgeLayout(0, None if outbound else 1),), rows_max, linger_us))


def test_a_small_batch_lingers_for_its_time_and_takes_the_later_ones_along() -> None:
    machine = two_tasks(linger_us=500)
    assert machine.next(1000) == Poll(0)
    assert not machine.passes(0, 10)
    machine.emitted(0, "first", 8, 10)
    machine.polled(0, ended=False, wait_until_us=1300)
    assert machine.next(1001) == Wait(1300)
    assert machine.next(1300) == Poll(0)
    machine.emitted(0, "second", 8, 10)
    machine.polled(0, ended=False, wait_until_us=9000)
    assert machine.next(1301) == Wait(1500)
    assert machine.next(1500) == Run(1, ((0, ("first", "second")),))


def test_as_many_rows_as_a_batch_may_have_do_not_linger() -> None:
    machine = two_tasks(linger_us=500)
    assert machine.next(1000) == Poll(0)
    machine.emitted(0, "first", 8, 60)
    machine.emitted(0, "second", 8, 60)
    machine.polled(0, ended=False, wait_until_us=9000)
    assert machine.next(1001) == Run(1, ((0, ("first",)),))
    assert machine.next(1002) == Run(1, ((0, ("second",)),))  # what is left has waited long enough


def test_the_end_of_a_stream_lets_go_what_lingers() -> None:
    machine = two_tasks(linger_us=500)
    assert machine.next(1000) == Poll(0)
    machine.emitted(0, "last", 8, 10)
    machine.polled(0, ended=True, wait_until_us=None)
    assert machine.next(1001) == Finish(0)
    machine.finished(0)
    assert machine.next(1002) == Run(1, ((0, ("last",)),))


def test_what_lingers_before_it_is_sent_goes_in_order_with_its_watermark_and_end() -> None:
    machine = two_tasks(linger_us=500, outbound=True)
    assert machine.next(1000) == Poll(0)
    assert machine.holds(0, 10)
    assert not machine.holds(0)  # a mark with nothing before it is sent at once
    machine.hold(0, "first", 8, 10)
    machine.emitted_watermark(0, 77)
    machine.polled(0, ended=False, wait_until_us=1200)
    assert machine.next(1001) == Wait(1200)
    assert machine.next(1200) == Poll(0)
    assert machine.holds(0, 1000)  # a large batch must not overtake
    machine.hold(0, "second", 8, 10)
    machine.polled(0, ended=True, wait_until_us=None)
    assert machine.next(1201) == Finish(0)
    machine.finished(0)
    assert machine.next(1202) == Send(0, ("first", "second"), 16, 77, ended=True)
    machine.sent(0, 16, 20)
    assert machine.next(1203) == Done()


def test_a_busy_worker_holds_small_batches_and_lets_go_when_there_is_nothing_else_to_do() -> None:
    machine = two_tasks(linger_us=0)
    now_us = 1000
    for _ in range(3):
        assert machine.next(now_us) == Poll(0)
        assert machine.passes(0, 1)
        machine.polled(0, ended=False, wait_until_us=None)
        now_us += 900
    assert machine.next(now_us) == Poll(0)  # 2,700 us without rest
    assert not machine.passes(0, 1)
    assert machine.passes(0, 50)
    machine.emitted(0, "small", 8, 1)
    machine.polled(0, ended=False, wait_until_us=None)
    assert machine.next(now_us + 1) == Poll(0)
    machine.polled(0, ended=False, wait_until_us=now_us + 5000)
    assert machine.next(now_us + 2) == Run(1, ((0, ("small",)),))
    assert machine.next(now_us + 3) == Wait(now_us + 5000)
    assert machine.next(now_us + 5000) == Poll(0)
    assert machine.passes(0, 1)  # it has rested


def test_a_busy_worker_holds_nothing_for_longer_than_its_limit() -> None:
    machine = two_tasks(linger_us=0)
    assert machine.next(0) == Poll(0)
    machine.polled(0, ended=False, wait_until_us=None)
    assert machine.next(3000) == Poll(0)
    machine.emitted(0, "small", 8, 1)
    machine.polled(0, ended=False, wait_until_us=None)
    assert machine.next(3500) == Poll(0)
    machine.polled(0, ended=False, wait_until_us=None)
    assert machine.next(3000 + BUSY_LINGER_US) == Run(1, ((0, ("small",)),))


def test_a_batch_passes_only_where_nothing_waits_before_it_and_the_target_may_send() -> None:
    tasks = (TaskLayout("a/0", 0, is_source=True), TaskLayout("b/0", 1))
    machine = Machine(WorkerLayout(tasks, (EdgeLayout(0, 1), EdgeLayout(1, None, 0, 10))))
    assert machine.next(0) == Poll(0)
    assert machine.passes(0, 1)
    assert not machine.passes(1, 1)  # it ends on another worker
    machine.emitted_watermark(0, 5)
    assert not machine.passes(0, 1)  # or the batch would overtake the watermark
    machine.polled(0, ended=False, wait_until_us=100)
    assert machine.next(1) == Advance(1, 5)
    assert machine.passes(0, 1)
    machine.emitted(1, "full", 10, 1)
    assert not machine.passes(0, 1)
    machine.credit(1, 10)
    assert machine.passes(0, 1)


@pytest.mark.parametrize("linger_us", [0, 5_000])
def test_what_lingers_for_a_splitter_that_holds_data_is_not_forgotten(linger_us: int) -> None:
    tasks = (
        TaskLayout("a/0", 0, is_source=True),
        TaskLayout("split/0", 1, selective=True),
        TaskLayout("b/0", 0, is_source=True),
    )
    machine = Machine(WorkerLayout(tasks, (EdgeLayout(0, 1), EdgeLayout(1, None, window=10)), 4096, linger_us))
    machine.polled(0, ended=False, wait_until_us=END_OF_TIME_US)
    machine.wants_wake(1, 1_000_000)
    now_us = 1_000
    while now_us <= 1_000 + BUSY_AFTER_US + 100:  # without rest, so that small batches are held
        assert machine.next(now_us) == Poll(2)
        machine.polled(2, ended=False, wait_until_us=None)
        now_us += 50
    machine.emitted(1, "slice", 10, 1)
    machine.wants_edge(1, 1)  # it holds another slice for a replica that is full
    machine.emitted(0, "small", 8, 1)
    assert machine.next(now_us) == Poll(2)
    machine.polled(2, ended=False, wait_until_us=now_us + 100)
    assert machine.next(now_us) == Wait(now_us + 100)
    now_us += 100
    assert machine.next(now_us) == Poll(2)  # an alarm has rung meanwhile
    machine.polled(2, ended=False, wait_until_us=END_OF_TIME_US)
    machine.credit(1, 10)
    assert machine.next(now_us) == Wake(1)
    machine.wants_edge(1, None)
    machine.wants_wake(1, 1_000_000)
    instruction = machine.next(now_us)
    if linger_us:
        assert isinstance(instruction, Wait)
        assert instruction.until_us is not None
        assert now_us < instruction.until_us <= now_us + linger_us
        instruction = machine.next(instruction.until_us)
    assert instruction == Run(1, ((0, ("small",)),))


def test_a_task_that_was_blocked_when_rest_came_is_let_go_at_the_next() -> None:
    tasks = (TaskLayout("a/0", 0, is_source=True), TaskLayout("b/0", 1), TaskLayout("c/0", 0, is_source=True))
    machine = Machine(WorkerLayout(tasks, (EdgeLayout(0, 1), EdgeLayout(1, None, window=10)), 4096, 0))
    machine.polled(0, ended=False, wait_until_us=END_OF_TIME_US)
    now_us = 1_000
    while now_us <= 1_000 + BUSY_AFTER_US + 100:
        assert machine.next(now_us) == Poll(2)
        machine.polled(2, ended=False, wait_until_us=None)
        now_us += 50
    machine.emitted(1, "sent", 10, 1)
    machine.emitted(0, "small", 8, 1)
    assert machine.next(now_us) == Poll(2)
    machine.polled(2, ended=False, wait_until_us=END_OF_TIME_US)
    assert machine.next(now_us) == Wait(END_OF_TIME_US)
    machine.credit(1, 10)
    assert machine.next(now_us) == Run(1, ((0, ("small",)),))
