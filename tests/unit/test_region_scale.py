"""Replicas that join and leave while a region runs: order and completeness, who gets what, and what is refused."""

from __future__ import annotations

import doctest
import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worker_kit import LocalJob

import penstock as ps
from penstock.deploy.driver.rendezvous import COMMANDS_MAX, Roll
from penstock.errors import InternalError, InvalidInput
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker_share import RunSettings
from penstock.run.region import membership
from penstock.run.region.contract import UNITS
from penstock.run.region.membership import Membership, asked_scale, scale_command
from penstock.run.region.policies import POLICIES, find_policy
from penstock.run.region.scale import region_to_scale
from penstock.run.region.tasks import SplitterSettings, SplitterTask
from penstock_lab.simulate.region import Members, Phase, RegionModel, simulate

BATCH_ROWS = 100


def scaled(active: int, most: int, *, ordered: bool = True, balance: str = "knee") -> Dataflow:
    """Rows without end, through a region that can grow."""
    top = ps.Topology("scaled")

    def batches(task: int, tasks: int) -> object:
        start = 0
        while True:
            yield pa.record_batch({"n": range(start, start + BATCH_ROWS)})
            start += BATCH_ROWS

    numbers = top.source("numbers", ps.io.generator(batches, "n bigint", bounded=False))
    inside = numbers.parallel(active, at_most=most, ordered=ordered, balance=balance, sample_s=0.002, name="region")
    inside.map(lambda row: {"n": row.n}, "n bigint", name="work").merge().sink("out", ps.io.collect(), tasks=1)
    return top.build()


def run_through(dataflow: Dataflow, counts: list[int], rows_between: int, workers: int) -> tuple[LocalJob, list[int]]:
    """Scale to each number in turn, when so many more rows have come out, and stop after the last."""
    seen: list[int] = []
    plan, over = list(counts), threading.Event()

    def deliver(_: str, batch: pa.RecordBatch) -> None:
        seen.extend(batch.column(0).to_pylist())
        while len(seen) >= rows_between * (len(counts) - len(plan) + 1) and not over.is_set():
            word = scale_command("region", plan.pop(0)) if plan else "stop"
            for control in job.controls:
                control.say(word)
            if word == "stop":
                over.set()

    job = LocalJob(dataflow, workers, None, RunSettings(rows_max=64), deliver)
    job.start()  # not before there is a job to speak to
    while any(thread.is_alive() for thread in job.threads) and not over.wait(0.2):
        pass
    job.join()
    assert job.errors == [None] * workers
    assert over.is_set(), f"{len(seen)} rows came"
    return job, seen


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    most=st.integers(1, 5),
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    rows_between=st.integers(1, 2_000),
    workers=st.integers(1, 3),
    ordered=st.booleans(),
    balance=st.sampled_from(sorted(POLICIES)),
)
def test_every_row_comes_out_once_and_in_order_while_replicas_come_and_go(
    most: int, counts: list[int], rows_between: int, workers: int, ordered: bool, balance: str
) -> None:
    wanted = [min(count, most) for count in counts]
    dataflow = scaled(wanted[0], most, ordered=ordered, balance=balance)
    _, seen = run_through(dataflow, wanted, rows_between, workers)
    assert (seen if ordered else sorted(seen)) == list(range(len(seen)))


def test_who_is_not_active_gets_no_rows_and_the_log_shows_who_is() -> None:
    """Every number that was asked for is seen in the log, and only those that took part ever had a weight or rows."""
    job, _ = run_through(scaled(1, 4, balance="round-robin"), [3, 1, 2], 20_000, 2)
    tables = [tables["balance"] for control in job.controls for tables in control.tables if "balance" in tables]
    rows = [row for table in tables for row in table.to_pylist()]
    by_time: dict[int, list[int]] = {}
    for row in rows:
        by_time.setdefault(row["time_us"], []).append(row["weight"])
    assert {len(weights) for weights in by_time.values()} == {4}
    assert {sum(weights) for weights in by_time.values()} == {UNITS}
    active = [sum(weight > 0 for weight in by_time[at]) for at in sorted(by_time)]
    changes = [after for before, after in zip([0, *active], active, strict=False) if before != after]
    assert changes == [1, 3, 1, 2]
    assert {row["cluster"] for row in rows if row["weight"] == 0} == {-1}
    assert all(row["sent"] == 0 for row in rows if row["replica"] == 3)


# -- what policies do with it ------------------------------------------------------------------------------------------


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Members, ...]:
    """Who takes part, from some second on each."""
    counts = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    return tuple(Members(float(7 * i), tuple(range(count))) for i, count in enumerate(counts))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=10, deadline=None)
@given(schedule=schedules(), factors=st.lists(st.sampled_from((1.0, 3.0, 30.0)), min_size=5, max_size=5))
def test_all_units_are_with_those_who_take_part(
    policy: str, schedule: tuple[Members, ...], factors: list[float]
) -> None:
    model = RegionModel((Phase(tuple(1e-2 * f for f in factors)),), 1e-4, members=schedule, interval_s=1.0)
    trace = simulate(model, find_policy(policy).build(), seconds=7.0 * len(schedule))
    for number, weights in enumerate(trace.weights[1:], start=1):
        present = set(model.members_at(float(number)))
        assert weights.sum() == UNITS
        assert all(weight == 0 for replica, weight in enumerate(weights) if replica not in present)


@pytest.mark.parametrize(("policy", "samples"), [("knee", 10), ("adaptive", 30)])
def test_one_that_joins_gets_its_share_and_one_that_leaves_gives_it_back(policy: str, samples: int) -> None:
    """Two equal replicas, a third as fast as they, then without it again."""
    schedule = (Members(0.0, (0, 1)), Members(20.0, (0, 1, 2)), Members(80.0, (0, 1)))
    model = RegionModel((Phase((1e-2,) * 3),), 1e-4, members=schedule)
    trace = simulate(model, find_policy(policy).build(), seconds=120.0)
    assert trace.weights[21][2] < UNITS / 2  # the first sample with it in force: not nearly everything on trust
    risen = np.median(trace.weights[20 + samples : 80], axis=0)  # not the least: policies go on probing
    assert risen.min() > 0.85 * UNITS / 3
    assert trace.throughput[40:80].mean() > 1.35 * trace.throughput[:20].mean()
    assert np.median(trace.weights[90:, :2], axis=0).min() > 0.85 * UNITS / 2
    assert trace.throughput[90:].mean() > 0.9 * trace.throughput[5:20].mean()


def test_a_slow_one_that_joins_costs_little() -> None:
    """A replica that is 100 times slower is found out by `knee` before it has held the others up for long."""
    schedule = (Members(0.0, (0, 1)), Members(20.0, (0, 1, 2)))
    model = RegionModel((Phase((1e-2, 1e-2, 1.0)),), 1e-4, members=schedule, charge_laggard=True, merger_rows=64)
    trace = simulate(model, find_policy("knee").build(), seconds=60.0)
    assert trace.throughput[40:].mean() > 0.85 * trace.throughput[5:20].mean()
    assert trace.weights[30:, 2].max() <= 30


def test_one_that_joins_and_is_never_needed_does_no_harm() -> None:
    """Where nobody blocks for hundreds of samples a newcomer is never read, and goes on rising."""
    schedule = (Members(0.0, (0, 1)), Members(20.0, (0, 1, 2)))
    model = RegionModel((Phase((1e-2, 1e-2, 1e-3)),), 1 / 250, members=schedule)
    trace = simulate(model, find_policy("knee").build(), seconds=800.0)
    assert trace.weights[-1].sum() == UNITS


def test_who_comes_back_is_shown_what_was_counted_since() -> None:
    assert not doctest.testmod(membership).failed
    members = Membership(2, 2)
    members.ask(1)
    assert members.follow([(1.0, 10.0, 0.5), (5.0, 50.0, 2.0)])
    assert not members.follow([(2.0, 20.0, 1.0), (6.0, 55.0, 2.5)])
    members.ask(2)
    assert members.changes
    assert members.follow([(3.0, 30.0, 1.5), (7.0, 60.0, 3.0)])
    sample = members.sample(4.0, [(3.5, 40.0, 2.0), (7.25, 61.0, 3.5)])
    assert (sample.blocked_s, sample.sent, sample.took_s) == ((3.5, 0.25), (40.0, 1.0), (2.0, 0.5))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["region", "work", "region.split", "region.merge"])
def test_a_region_is_known_by_its_name_and_by_its_parts(name: str) -> None:
    assert region_to_scale(scaled(1, 3), name, 3) == "region"


@pytest.mark.parametrize(
    ("name", "replicas", "said"),
    [
        ("region", 0, "'region' was asked for 0 replicas; it can have 1 to 3; for more start it with"),
        ("work", 4, "'region' was asked for 4 replicas; it can have 1 to 3"),
        ("region", True, "asked for True"),
        ("region", 2.0, "asked for 2.0"),
        ("numbers", 2, "'numbers' is in no parallel region, so it cannot be scaled; regions: 'region'"),
        ("parallel9", 2, "unknown parallel region 'parallel9'; known: region"),
    ],
)
def test_what_a_region_cannot_have_is_refused(name: str, replicas: int, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        region_to_scale(scaled(1, 3), name, replicas)


def test_at_most_is_checked_where_it_is_written() -> None:
    numbers = ps.Topology("t").source("n", ps.io.generator(lambda task, tasks: range(9), "n bigint"))
    with pytest.raises(InvalidInput, match=r"at_most of parallel of 'n' .* from 3 to 1000"):
        numbers.parallel(3, at_most=2)
    with pytest.raises(InvalidInput, match="weights for 2 replicas and at_most=3; leave one of them out"):
        numbers.parallel(2, at_most=3, weights=[0.5, 0.5])


def test_commands_say_which_region_and_others_do_not_listen() -> None:
    assert asked_scale(scale_command("a b", 12)) == ("a b", 12)
    assert asked_scale("stop") is None
    assert asked_scale("scale many r") is None
    task = SplitterTask(SplitterSettings("mine", 2, find_policy("knee").build, active=1))
    task.scale("other", 9)
    with pytest.raises(InternalError, match="at most 2 replicas was asked for 9"):
        task.scale("mine", 9)


@pytest.mark.parametrize("end", [lambda roll: roll.cancel(), lambda roll: roll.close()])
def test_a_job_that_was_told_to_end_is_not_scaled(end: Callable[[Roll], None]) -> None:
    roll = Roll()
    roll.scale("region", 2)
    end(roll)
    with pytest.raises(InvalidInput, match=r"region 'region' cannot be scaled to 3: the job was cancelled or has fail"):
        roll.scale("region", 3)


def test_a_job_is_not_scaled_for_ever() -> None:
    roll = Roll()
    for _ in range(COMMANDS_MAX):
        roll.scale("region", 2)
    with pytest.raises(InvalidInput, match=f"has had {COMMANDS_MAX} commands"):
        roll.scale("region", 1)
