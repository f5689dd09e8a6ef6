"""What rates and loads are divided by: not where a task ran, nor when its worker reports, nor who ended first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from metered_kit import Costs, SimulatedRun, rows_of, run_really

import penstock as ps
from penstock.deploy.metrics.recent import Recent
from penstock.deploy.metrics.sums import Sums, sums_of
from penstock.errors import InvalidInput
from penstock.model.profile import Profile
from penstock.run.dataflow import Dataflow
from penstock.run.engine.meters import TABLES, joined
from penstock.run.engine.worker_share import RunSettings

SECOND_US = 1_000_000
Rows = list[tuple[str, pa.RecordBatch]]


def row(table: str, end_s: float, length_s: float = 1.0, **given: Any) -> tuple[str, pa.RecordBatch]:  # noqa: ANN401
    """One row, nothing wherever nothing is given."""
    text = {"node": "n", "distance": "ring", "idle": False, "ended": None}
    span = {"time_us": round(end_s * SECOND_US), "interval_us": round(length_s * SECOND_US)}
    values = {name: text.get(name, 0) for name in TABLES[table].names} | span | given
    return table, pa.RecordBatch.from_pylist([values], TABLES[table])


def life(task: str, ends_s: Iterable[float], cpu_s: float, *, ended: bool = False, **given: int) -> Rows:
    """Intervals of a second that a task has, the same in each, and whether its worker has ended then."""
    made = [row("tasks", s, task=task, cpu_us=round(cpu_s * SECOND_US), ended=False, **given) for s in ends_s]
    if ended:
        name, batch = made[-1]
        last = batch.to_pylist()[0] | {"ended": True}
        made[-1] = name, pa.RecordBatch.from_pylist([last], batch.schema)
    return made


def sending(ends_s: Iterable[float], tuples: int = 1000, **given: int) -> Rows:
    """What a/0 tells of its rows to b/0."""
    pair = {"source": "a/0", "target": "b/0"}
    return [row("edges", s, tuples=tuples, bytes=8 * tuples, batches=1, **pair, **given) for s in ends_s]


def window(rows: Rows, seconds: float) -> Profile:
    """Of the last so many seconds of these rows, in the order of their time."""
    kept, all_of_it = Recent(), Sums()
    for name, batch in sorted(rows, key=lambda given: given[1]["time_us"][0].as_py()):
        kept.add(name, batch)
        all_of_it.add(name, batch)
    return kept.sums(seconds, all_of_it).profile()


# -- a worker that ends early ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
def test_a_task_that_is_done_early_has_the_same_load_with_a_worker_of_its_own(told: bool) -> None:
    """`told` False: its worker has died, or its log is of a time when workers did not tell."""
    slow, first = life("b/0", range(1, 11), 0.05, tuples_out=7), life("a/0", [1], 0.8, ended=told, tuples_out=70)
    fused = [*first, *life("a/0", range(2, 11), 0.0), *slow]
    alone, together = sums_of([*first, *slow]).profile(), sums_of(fused).profile()
    assert alone == together
    assert alone.tasks["a/0"].load == pytest.approx(0.08)
    assert alone.seconds == 10
    assert sum(task.load for task in alone.tasks.values()) * 10 == pytest.approx(0.8 + 10 * 0.05)
    assert (alone.rows, alone.rows_per_second) == (140, 14)


def test_loads_of_a_window_count_what_ended_in_it_as_zero_until_its_end() -> None:
    rows = [*life("a/0", range(1, 8), 0.4, ended=True), *life("b/0", range(1, 11), 0.1)]
    assert window(rows, 5).tasks["a/0"].load == pytest.approx(0.4 * 2 / 5)
    assert window(rows, 2).tasks["a/0"].load == 0
    assert window(rows, 1000) == sums_of(rows).profile()


def test_who_ends_less_than_an_interval_before_the_others_has_ended_all_the_same() -> None:
    """By its silence alone it might still be at work; a short run would charge it too much."""
    rows = [*life("a/0", [1, 2], 0.3, ended=True), *life("b/0", [1, 2], 0.1), row("tasks", 2.5, 0.5, task="b/0")]
    assert sums_of(rows).profile().tasks["a/0"].load * 2.5 == pytest.approx(0.6)
    assert window(rows, 0.4).tasks["a/0"].load == 0
    with pytest.raises(InvalidInput, match="task 'a/0' ended no interval: they take 1 s"):
        window([*life("a/0", [1, 2], 0.3), *rows[2:]], 0.4)


def two_sources(rows: int) -> Dataflow:
    top = ps.Topology("early")
    for name, count in (("a", rows), ("b", 20 * rows)):
        made = ps.io.generator(lambda task, tasks, count=count: iter(range(count)), "i bigint")
        top.source(name, made).filter(lambda row: True, name=f"f{name}").sink(f"o{name}", ps.io.discard())
    return top.build()


@pytest.mark.parametrize("seed", range(3))
def test_loads_times_seconds_are_the_cpu_of_a_task_under_every_plan(seed: int) -> None:
    cost_ns = {"a/0": 400_000, "b/0": 100_000, "fa/0": 30_000, "fb/0": 70_000}
    plans = [dict.fromkeys(cost_ns, 0), {"a/0": 0, "fa/0": 0, "b/0": 1, "fb/0": 1}]
    for place in plans:
        run = SimulatedRun(two_sources(20), place, Costs(), seed, task_ns=cost_ns, rows_max=2).run()
        controls = run.controls
        sums = sums_of((name, batch) for c in controls for tables in c.tables for name, batch in tables.items())
        profile = sums.profile()
        assert profile.seconds is not None
        for task, measured in profile.tasks.items():
            assert measured.load * profile.seconds == pytest.approx(run.paid[task] * cost_ns[task] / 1e9, abs=1e-6)
        whole = sum(task.load for task in profile.tasks.values()) * profile.seconds
        assert whole == pytest.approx(sum(clock.ns for clock in run.clocks) / 1e9, abs=1e-5)
        assert profile.rows == 20 + 20 * 20


def test_a_worker_tells_which_interval_was_its_last() -> None:
    settings = RunSettings(interval_s=0.001, rows_max=10)
    controls = run_really(two_sources(100), {"a/0": 0, "fa/0": 0, "b/0": 1, "fb/0": 1}, settings)
    tasks = 2  # of each worker
    told = [[row["ended"] for row in rows_of([control], "tasks")] for control in controls]
    assert told == [[False] * (len(found) - tasks) + [True] * tasks for found in told]
    assert any(len(found) > tasks for found in told)


def test_intervals_that_are_joined_end_as_the_last_of_them() -> None:
    batches = [batch for _, batch in life("a/0", [1, 2], 0.1, ended=True)]
    assert joined("tasks", batches)["ended"].to_pylist() == [True]


# -- workers that report at different moments ------------------------------------------------------------------------


@pytest.mark.parametrize("length_s", [2, 5, 60])
@pytest.mark.parametrize("later_s", [0.0, 0.5, 0.9])
def test_rates_do_not_depend_on_when_workers_report(later_s: float, length_s: float) -> None:
    seconds = range(1, 21)
    later = [s + later_s for s in seconds]
    rows = [
        *life("a/0", seconds, 0.5, tuples_out=1000),
        *sending(seconds, send_us=100_000),
        *life("b/0", later, 0.25, tuples_in=1000),
        *sending(later, 0, receive_us=200_000, transport_us=10),
    ]
    found = window(rows, length_s)
    (edge,) = found.edges
    assert (edge.rate, edge.tuples, edge.send_cpu) == (8000, 1000, pytest.approx(0.1))
    assert found.tasks["a/0"].load == pytest.approx(0.5)
    assert found.rows_per_second == pytest.approx(1000)
    missed = 1 if length_s < 20 else 20 / (20 + later_s)  # nothing came before its worker began
    assert edge.receive_cpu == pytest.approx(0.2 * missed)
    assert found.tasks["b/0"].load == pytest.approx(0.25 * missed)


# -- a late start, a recovery ----------------------------------------------------------------------------------------


def test_who_begins_late_needed_nothing_before_and_a_window_behind_that_does_not_know() -> None:
    rows = [*life("a/0", range(1, 11), 0.1), *life("b/0", range(7, 11), 0.5)]
    assert sums_of(rows).profile().tasks["b/0"].load == pytest.approx(0.5 * 4 / 10)
    assert window(rows, 5).tasks["b/0"].load == pytest.approx(0.5 * 4 / 5)
    assert window(rows, 3).tasks["b/0"].load == pytest.approx(0.5)


def test_the_time_in_which_a_job_was_down_does_not_count() -> None:
    """Nobody measured anything: the figures are those of a job at work, and `seconds` says how long that was."""
    seconds = [*range(1, 11), *range(16, 21)]
    rows = [*life("a/0", seconds, 0.5, tuples_out=10), *life("b/0", seconds, 0.1, tuples_in=10), *sending(seconds)]
    found = sums_of(rows).profile()
    assert {task: measured.load for task, measured in found.tasks.items()} == {
        "a/0": pytest.approx(0.5),
        "b/0": pytest.approx(0.1),
    }
    assert found.edges[0].rate == 8000
    assert (found.seconds, found.rows, found.rows_per_second) == (15, 150, 10)
    assert window(rows, 12).tasks["a/0"].load == pytest.approx(0.5)


def test_a_task_whose_worker_had_ended_before_a_recovery_is_at_work_again() -> None:
    rows = [*life("a/0", [1, 2], 0.5, ended=True), *life("b/0", [1, 2, 3, 4, 7, 8], 0.1), *life("a/0", [7, 8.5], 0.5)]
    observed = sums_of(rows).observed["a/0"]
    assert (observed.ended, observed.covered_us) == (False, 4 * SECOND_US)


# -- busy time -------------------------------------------------------------------------------------------------------


def test_costs_of_a_pair_while_rows_move_are_those_of_the_intervals_in_which_they_moved() -> None:
    """Watermarks and credit cost something in the others too, and each end has intervals of its own."""
    rows = [*life("a/0", range(1, 11), 0.5), *life("b/0", range(1, 11), 0.1)]
    for s in range(1, 11):
        rows += sending([s], 1000 if s <= 2 else 0, send_us=100_000)
        came = {"transport_us": 10 * (s == 2), "queue_us": 10 * (s in (3, 4))}
        rows += sending([s + 0.5], 0, receive_us=300_000 if s in (2, 3, 4) else 50_000, **came)
    (edge,) = sums_of(rows).profile(busy=True).edges
    assert (edge.rate, edge.send_cpu, edge.receive_cpu) == (8000, pytest.approx(0.1), pytest.approx(0.3))


def test_a_call_has_both_ends_in_one_row_and_clocks_that_differ_hide_when_rows_came() -> None:
    call = sending([1, 2], send_us=100_000, receive_us=50_000)
    called = [row(name, s, **(batch.to_pylist()[0] | {"distance": "call"})) for s, (name, batch) in enumerate(call, 1)]
    quiet = sending([3], 0, receive_us=70_000)
    (edge,) = sums_of([*called, *quiet]).profile(busy=True).edges
    assert (edge.send_cpu, edge.receive_cpu) == (pytest.approx(0.1), pytest.approx(0.05))
    (hidden,) = sums_of([*call, *quiet]).profile(busy=True).edges
    assert hidden.receive_cpu == pytest.approx((2 * 50_000 + 70_000) / 2 / SECOND_US)
