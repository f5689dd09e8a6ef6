"""Whole jobs of real workers that keep an epoch in a store, and others that go on from it, in other tasks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from worker_kit import LocalJob

import penstock as ps
from penstock.checkpoint.contract import Manifest, Part, Report
from penstock.checkpoint.store import Store
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.worker.keeper import Keeper, Unkept, _Steps
from penstock.errors import InvalidInput
from penstock.flow import io
from penstock.run.columns.kernels import Row
from penstock.run.columns.unwritten import in_bytes, written
from penstock.run.dataflow import Dataflow
from penstock.run.engine.epochs import TaskSnapshot, epoch_command
from penstock.run.engine.worker import Checkpoint
from penstock.run.engine.worker_share import RunSettings
from penstock.run.operators.state.process import Emit, KeyState, Stateful, Timers

ROWS, KEYS, WORKERS = 4_000, 300, 2
WAIT_S = 60.0


class Numbers:
    """Half of the rows, then nothing until the epoch is committed, then the rest."""

    def __init__(self, committed: threading.Event) -> None:
        self.committed = committed

    def __call__(self, task: int, tasks: int) -> Iterator[tuple | None]:
        for n in range(ROWS):
            while n == ROWS // 2 and not self.committed.is_set():
                yield None
            yield f"key {n % KEYS}", n


class Sums(Stateful):
    """Rows and sums by key, one told by a timer of the clock that is set at the first row and far away."""

    schema = "k string, rows bigint, total bigint"

    def on_row(self, key: str, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:  # type: ignore[override]
        if "rows" not in state:
            timers.after(timedelta(days=1))
        state["rows"] = state.get("rows", 0) + 1
        state["total"] = state.get("total", 0) + row.n

    def on_end(self, key: object, state: KeyState, emit: Emit) -> None:
        emit((key, state["rows"], state["total"]))


def summed(so_far: Row, row: Row) -> tuple:
    return so_far.k, so_far.rows + row.rows, so_far.total + row.total


def dataflow(kind: str, tasks: int, committed: threading.Event) -> Dataflow:
    top = ps.Topology("kept")
    stream = top.source("numbers", io.generator(Numbers(committed), "k string, n bigint"))
    keyed = stream.key_by("k")
    if kind == "process":
        counted = keyed.process(Sums, name="count", tasks=tasks)
    elif kind == "reduce":
        single = stream.select("k", "cast(1 as bigint) as rows", "n as total").key_by("k")
        counted = single.reduce(summed, emit="end", name="count", tasks=tasks)
    else:
        asked = keyed.partial_key() if kind == "partial" else keyed
        counted = asked.aggregate(rows="count(*)", total="sum(n)", emit="end", name="count", tasks=tasks)
    counted.sink("out", io.collect())
    return top.build()


def answer() -> list[tuple]:
    found = [range(key, ROWS, KEYS) for key in range(KEYS)]
    return sorted((f"key {key}", len(numbers), sum(numbers)) for key, numbers in enumerate(found))


class Kept:
    """The driver of one attempt that wants one epoch."""

    def __init__(self, root: Path, flow: Dataflow, committed: threading.Event, restore: int | None) -> None:
        self.store, self.flow, self.committed, self.restore = Store(str(root)), flow, committed, restore
        self.attempt = self.store.claim(flow.name)
        self.parts: dict[int, Part] = {}
        self.sizes: dict[str, int] = {}  # of tasks
        self.lock = threading.Lock()
        self.complaints: list[str] = []
        self.wakes: list[Callable[[], None]] = []  # of the loops of workers

    def keeper(self, worker: int) -> Keeper:
        first = 1 if self.restore is None else self.restore + 1
        checkpoint = Checkpoint(self.store.root, self.attempt, first, self.restore)
        return Keeper(checkpoint, worker, self.told, self.complains, lambda: False)

    def complains(self, why: str, refused: str) -> None:
        self.complaints.append(why)
        for wake in self.wakes:
            with contextlib.suppress(OSError):  # a worker that has gone
                wake()

    def told(self, report: Report) -> None:
        with self.lock:
            if report.epoch is None:
                return
            self.parts[report.part.worker] = report.part
            self.sizes.update(zip(report.part.tasks, report.sizes, strict=True))
            if len(self.parts) == WORKERS:
                tasks = {operator.name: operator.tasks for operator in self.flow.operators}
                parts = tuple(self.parts[w] for w in range(WORKERS))
                self.store.commit(Manifest(report.epoch, self.attempt, self.flow.name, tasks, parts))
                self.committed.set()


def run(
    kept: Kept, *, asks: bool, after: Sequence[threading.Event] = (), settings: RunSettings | None = None
) -> LocalJob:
    """A whole job, which is asked for an epoch after these events."""
    job = LocalJob(kept.flow, WORKERS, epochs=kept.keeper, settings=settings)
    job.start()
    if asks:
        assert all(event.wait(WAIT_S) for event in after), job.errors
        for control in job.controls:
            control.say(epoch_command(1))
    job.join()
    return job


def gone_on(kind: str, root: Path, tasks: Sequence[int]) -> LocalJob:
    """A job that keeps an epoch half-way, and another with so many tasks that goes on from there."""
    committed = threading.Event()
    first = Kept(root, dataflow(kind, tasks[0], committed), committed, None)
    job = run(first, asks=True)
    assert job.errors == [None] * WORKERS
    assert committed.is_set()
    assert sorted(tuple(row.values()) for row in job.rows("out")) == answer()
    return run(Kept(root, dataflow(kind, tasks[1], committed), committed, 1), asks=False)


@pytest.mark.parametrize("tasks", [(2, 2), (2, 3), (3, 1)], ids=str)
@pytest.mark.parametrize("kind", ["aggregate", "reduce", "process"])
def test_a_job_goes_on_from_what_was_kept_in_as_many_tasks_as_it_has_now(
    kind: str, tasks: tuple[int, int], tmp_path: Path
) -> None:
    job = gone_on(kind, tmp_path, tasks)
    assert job.errors == [None] * WORKERS
    assert sorted(tuple(row.values()) for row in job.rows("out")) == answer()


@pytest.mark.parametrize("kind", ["aggregate", "process"])
def test_a_report_says_how_large_the_state_of_each_task_is(kind: str, tmp_path: Path) -> None:
    committed = threading.Event()
    kept = Kept(tmp_path, dataflow(kind, 3, committed), committed, None)
    run(kept, asks=True)
    states = {
        snapshot.task: sum(map(len, in_bytes(snapshot.state).values()))
        for part in kept.parts.values()
        for snapshot in kept.store.read_part(part)
    }
    assert kept.sizes == states
    assert all(states[f"count/{i}"] > 0 for i in range(3))


def test_with_as_many_tasks_each_worker_reads_its_own_part_and_lets_it_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = threading.Event()
    run(Kept(tmp_path, dataflow("aggregate", 6, committed), committed, None), asks=True)
    parts_read: list[tuple[Store, int]] = []
    read_part = Store.read_part

    def noted(store: Store, part: Part) -> list[TaskSnapshot]:
        parts_read.append((store, part.worker))
        return read_part(store, part)

    monkeypatch.setattr(Store, "read_part", noted)
    kept = Kept(tmp_path, dataflow("aggregate", 6, committed), committed, 1)
    keepers: dict[int, Keeper] = {}
    held: list[int] = []

    def keeper(worker: int) -> Keeper:
        keepers[worker] = kept.keeper(worker)
        return keepers[worker]

    job = LocalJob(kept.flow, WORKERS, epochs=keeper)
    for worker in job.workers:
        monkeypatch.setattr(worker, "open", lambda was=worker.open: (was(), held.append(len(_parts_held(keepers)))))
    job.start().join()
    assert job.errors == [None] * WORKERS
    assert sorted(worker for _, worker in parts_read) == list(range(WORKERS))
    assert {id(store): worker for store, worker in parts_read} == {id(k._store): w for w, k in keepers.items()}
    assert held[-1] == 0


def _parts_held(keepers: Mapping[int, Keeper]) -> list[str]:
    return [path for keeper in keepers.values() for path in keeper._read]


def test_keys_that_live_in_two_tasks_are_not_shared_out_anew(tmp_path: Path) -> None:
    committed = threading.Event()
    run(Kept(tmp_path, dataflow("partial", 2, committed), committed, None), asks=True)
    assert committed.is_set()
    job = run(Kept(tmp_path, dataflow("partial", 3, committed), committed, 1), asks=False)
    (error,) = {str(error) for error in job.errors if isinstance(error, InvalidInput)}
    assert error.startswith("operator 'count' has 3 tasks and the state of 2, in which each key of partial_key()")


class Deaf(Kept):
    """A driver that takes no reports."""

    def told(self, report: Report) -> None:
        raise ConnectionResetError(104, "Connection reset by peer")


def test_a_worker_whose_report_does_not_arrive_ends_although_no_other_epoch_follows(tmp_path: Path) -> None:
    never = threading.Event()  # the source goes on for ever
    deaf = Deaf(tmp_path, dataflow("aggregate", 2, never), never, None)
    job = LocalJob(deaf.flow, WORKERS, epochs=deaf.keeper, settings=RunSettings(interval_s=3600.0))
    deaf.wakes += [partial(control.say, "scale 1 nothing") for control in job.controls]  # which no worker minds
    job.start()
    for control in job.controls:
        control.say(epoch_command(1))
    job.join()
    told = f"could not keep its part of an epoch in {deaf.store.shown}: [Errno 104] Connection reset by peer"
    assert any(type(error) is Unkept and str(error).endswith(told) for error in job.errors), job.errors
    assert any(why.endswith(told) for why in deaf.complaints)


@pytest.mark.parametrize(
    ("error", "is_lasting"), [(OSError(5, "Input/output error"), False), (InvalidInput("x"), True)]
)
def test_a_limit_is_told_as_one_that_no_other_attempt_would_meet_in_another_way(
    error: Exception, is_lasting: bool, tmp_path: Path
) -> None:
    told: list[tuple[str, str]] = []

    def refuse(report: Report) -> None:
        raise error

    kept = Kept(tmp_path, dataflow("aggregate", 1, threading.Event()), threading.Event(), None)
    checkpoint = Checkpoint(kept.store.root, kept.attempt, 1, None)
    keeper = Keeper(checkpoint, 0, refuse, lambda *words: told.append(words), lambda: False)
    keeper.completed(1, [])
    with pytest.raises(Unkept, match="worker 0 could not keep its part") as unkept:
        keeper.finish()
    assert [(str(unkept.value), unkept.value.refused)] == told
    assert bool(unkept.value.refused) == is_lasting


def test_a_keeper_says_for_how_long_its_store_has_not_answered(tmp_path: Path) -> None:
    answers, told = threading.Event(), threading.Event()

    def tell(report: Report) -> None:
        told.set()
        answers.wait(WAIT_S)

    kept = Kept(tmp_path, dataflow("aggregate", 1, threading.Event()), threading.Event(), None)
    keeper = Keeper(Checkpoint(kept.store.root, kept.attempt, 1, None), 0, tell, print, lambda: False)
    assert keeper.still_s() == 0
    keeper.completed(1, [])
    assert told.wait(WAIT_S)
    before = keeper.still_s()
    assert wait_until(lambda: keeper.still_s() > max(before, 0.05), WAIT_S)
    answers.set()
    keeper.finish()
    assert keeper.still_s() == 0


def test_each_state_that_is_written_is_a_step() -> None:
    steps: list[None] = []
    states = _Steps({"a": b"1", "b": b"23"}, lambda: steps.append(None))
    assert (len(states), list(states), steps) == (2, ["a", "b"], [])
    assert {name: written(state) for name, state in states.items()} == {"a": b"1", "b": b"23"}
    assert (len(steps), states.size) == (2, 3)
