"""Measured loads are a constraint of a job: it is kept wherever a plan keeps it, and jobs start all the same."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.deploy.driver import binding
from penstock.deploy.driver.binding import BEST, FUSE_SECONDS, INSTEAD_NOTE, Certified, Placing, _Search, scheduled
from penstock.deploy.driver.plan_notes import overload
from penstock.deploy.driver.slots import Power, Slots
from penstock.errors import UserError
from penstock.model.constraints import Apart, Constraint, Together
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.taskgraph import TaskGraph
from penstock.optimise.contract import SLACK, Options
from penstock.optimise.door import place
from penstock.optimise.fuse.contract import FuseOptions
from penstock.run.dataflow import Dataflow

ASKED = (
    *(Placing(name) for name in ("best", "exact", "t3", "even", "ffd", "rstorm")),
    *(Placing(fuse=name) for name in ("cola", "fint", "none", "best")),
)


def chain(tasks: int) -> Dataflow:
    """A source and filters behind it, one task each."""
    top = ps.Topology("chain")
    rows = top.source("o0", ps.io.generator(lambda task, tasks: iter(()), "n bigint"))
    for i in range(1, tasks):
        rows = rows.where("n > 0", name=f"o{i}")
    rows.sink("out", ps.io.discard())
    return top.build()


def profile_of(loads: Sequence[float], rates: Sequence[float] | None = None) -> Profile:
    tasks = {f"o{i}/0": TaskProfile(load) for i, load in enumerate(loads)}
    sent = rates or [1e5 * (1 + i % 3) for i in range(len(loads) - 1)]
    edges = tuple(EdgeProfile(f"o{i}/0", f"o{i + 1}/0", rate) for i, rate in enumerate(sent))
    return Profile(tasks, edges, seconds=10.0, rows=1000.0)


def slots_of(workers: int) -> Slots:
    """Two nodes with as many cores as workers: each carries 0.8 of its cores."""
    power = Power(cores=float(workers))
    return Slots(("n1",) * workers + ("n2",) * workers, {"n1": power, "n2": power})


def planned(
    flow: Dataflow, slots: Slots, asked: Placing, profile: Profile, limits: tuple[Constraint, ...] = ()
) -> tuple[Certified, float]:
    """The job's plan, and how full the fullest node or worker is of what is there."""
    certified = scheduled(flow, slots, dataclasses.replace(asked, profile=profile, tasks_per_worker=8), limits)
    tasks = TaskGraph.expand(certified.graph, profile)
    return certified, overload(tasks, slots, certified.plan.assignment)


def case(seed: int) -> tuple[Profile, tuple[Constraint, ...]]:
    """Loads that leave little room on two nodes of three workers, and constraints that make first fit fail."""
    draw = random.Random(seed)
    loads = [round(draw.uniform(0.1, 0.9), 2) for _ in range(8)]
    scale = draw.uniform(4.4, 4.78) / sum(loads)
    names = [f"o{i}" for i in range(8)]
    limits: list[Constraint] = []
    for _ in range(draw.randint(0, 3)):
        a, b = draw.sample(names, 2)
        limits.append(draw.choice((Apart("worker", (a, b)), Apart("node", (a, b)), Together("node", (a, b)))))
    return profile_of([load * scale for load in loads], [draw.uniform(1e5, 1e6) for _ in range(7)]), tuple(limits)


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: f"fuse-{asked.fuse}" if asked.fuse else asked.scheduler)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_no_node_or_worker_is_overloaded_where_a_plan_needs_none_to_be(asked: Placing, seed: int) -> None:
    profile, limits = case(seed)
    flow, slots = chain(8), slots_of(3)
    graph = dataclasses.replace(flow.graph(), constraints=limits)
    try:
        place(graph, slots.cluster(), "best", profile=profile, options=Options(theta=0.3))
    except UserError:
        return
    certified, most = planned(flow, slots, asked, profile, limits)
    assert most <= 1 + SLACK
    assert certified.cluster == slots.cluster()
    assert certified.plan.max_utilisation <= 1 + SLACK


def test_the_plan_of_best_is_followed_where_the_asked_one_would_overload_and_a_note_says_so() -> None:
    loads = (0.75, 0.5, 0.35, 0.75, 0.35, 0.4)
    slots, profile = slots_of(2), profile_of(loads)
    for asked in (Placing("even"), Placing("t3"), Placing(fuse="none")):
        certified, most = planned(chain(6), slots, asked, profile)
        assert most <= 1 + SLACK, asked
        if certified.plan.scheduler == BEST:
            assert INSTEAD_NOTE in certified.plan.notes[-1]
        else:
            assert not any(INSTEAD_NOTE in note for note in certified.plan.notes)
    assert planned(chain(6), slots, Placing("even"), profile)[0].plan.scheduler == BEST


def test_a_job_starts_when_more_was_measured_than_there_is_and_nothing_is_proved_of_its_plan() -> None:
    slots = slots_of(2)
    whole = profile_of((0.9, 0.8, 0.9, 0.8, 0.9, 0.8))  # 5.1 cores, and 3.2 are there
    heavy = profile_of((0.9, 0.9, 0.9))  # 2.7, but a node of 1.6 takes only one of them
    for profile, said in ((whole, "measured a load of 5.1 cores"), (heavy, "is given 1.12 times what it should carry")):
        for asked in (Placing("exact"), Placing("t3"), Placing(fuse="cola")):
            certified, most = planned(chain(len(profile.tasks)), slots, asked, profile)
            assert most > 1
            assert certified.plan.scheduler == (asked.fuse or asked.scheduler)
            assert not certified.plan.proved_optimal
            assert any(said in note for note in certified.plan.notes), certified.plan.notes


def test_what_is_proved_within_what_is_there_stays_proved() -> None:
    certified, _ = planned(chain(6), slots_of(2), Placing("exact"), profile_of((0.75, 0.55, 0.35, 0.75, 0.35, 0.35)))
    assert certified.plan.proved_optimal


def test_gamma_is_given_up_before_measured_loads_are() -> None:
    profile, slots = profile_of((0.5, 0.5, 0.5, 0.5)), slots_of(2)  # 2 cores of 3.2, and gamma leaves 1.6 of them
    certified, most = planned(chain(4), slots, Placing(fuse="cola", fuse_options=FuseOptions(gamma=0.5)), profile)
    assert certified.plan.scheduler == "cola"
    assert most <= 1 + SLACK


def test_searches_after_one_that_found_nothing_have_what_time_is_left() -> None:
    heavy = profile_of((0.9, 0.9, 0.9))
    looks = iter(range(100))
    placing = Placing("t3", theta=3.0, profile=heavy)
    search = _Search(chain(3).graph(), slots_of(2), placing, (), clock=lambda: 0.75 * next(looks))
    with mock.patch.object(binding, "place", wraps=binding.place) as place:
        search.measured()
    asked = [(c.args[2], c.kwargs["options"].theta) for c in place.call_args_list if c.args[2] != "ffd"]
    assert asked[:3] == [("t3", 3.0), ("best", 2.25), ("t3", 1.5)]
    assert {theta for _, theta in asked[2:]} == {1.5}  # half of it is the least
    with mock.patch.object(binding, "fuse", wraps=binding.fuse) as fuse:
        planned(chain(3), slots_of(2), Placing(fuse="none"), heavy)
    first, *later = [call.kwargs["options"].theta for call in fuse.call_args_list]
    assert first == FUSE_SECONDS
    assert all(FUSE_SECONDS / 2 <= theta < FUSE_SECONDS for theta in later)
