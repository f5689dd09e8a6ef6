"""phi: measured by experiment, extrapolated with theta, remembered (`steps/calibrate.py`, `steps/growth.py`)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.place import ischeduler
from penstock.optimise.steps import calibrate
from penstock.optimise.steps.growth import REACH, Measured
from penstock_lab.bench.place.instances import random_problem


class ManualClock:
    """Moves only when a stand-in solver works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def solver(self, seconds: Callable[[int], float]) -> calibrate.Solve:
        """A solver that takes this long for so many tasks, or until the deadline."""

        def solve(problem: Problem, deadline: Deadline, seed: int) -> Placement:
            needed, left = seconds(problem.task_count), deadline.remaining
            self.now += min(needed, left)
            return Placement(np.zeros(problem.task_count, dtype=np.int32), proved_optimal=needed < left)

        return solve


def proves_up_to(limit: int) -> calibrate.Solve:
    """A solver of which time says nothing."""

    def solve(problem: Problem, deadline: Deadline, seed: int) -> Placement:
        return Placement(np.zeros(problem.task_count, dtype=np.int32), proved_optimal=problem.task_count <= limit)

    return solve


@pytest.mark.parametrize("limit", [0, 3, 4, 5, 37, 100, 511, 512, 600])
def test_phi_is_the_largest_size_that_the_solver_proves(limit: int) -> None:
    measured = calibrate.experiment(1.0, proves_up_to(limit), ManualClock())
    assert measured.threshold(1.0).phi == min(limit, calibrate.LARGEST)


@pytest.mark.parametrize("growth", [1.1, 1.5, 4.0])
@pytest.mark.parametrize("limit", [0.2, 1.0, 60.0])
def test_an_experiment_ends_within_five_times_its_limit(growth: float, limit: float) -> None:
    clock = ManualClock()
    measured = calibrate.experiment(limit, clock.solver(lambda tasks: 0.001 * growth**tasks), clock)
    assert clock.now <= (calibrate.BUDGET + 1.0) * limit + 1e-9
    assert all(second <= limit for second in measured.seconds)
    phi = measured.threshold(limit).phi
    assert 0.001 * growth**phi < limit or phi == 0


@pytest.mark.parametrize("per_task", [1.03, 1.08, 1.2])
def test_exponential_growth_is_extrapolated_to_what_the_solver_then_finishes(per_task: float) -> None:
    clock = ManualClock()
    measured = calibrate.experiment(1.0, clock.solver(lambda tasks: 0.002 * per_task**tasks), clock)
    for theta in (2.0, 10.0, 60.0):
        threshold = measured.threshold(theta)
        true = math.floor(math.log(theta / 0.002) / math.log(per_task))
        assert measured.sizes[-1] < threshold.phi <= true
        gap = math.log(1.0 / measured.seconds[-1]) / math.log(per_task)  # what the last size left of its second
        assert threshold.phi >= min(true - gap - 2, math.floor(REACH * measured.sizes[-1]))
        assert "extrapolated" in threshold.note


@pytest.mark.parametrize("power", [2, 3, 5])
def test_growth_by_a_power_is_extrapolated_to_fewer_tasks(power: int) -> None:
    clock = ManualClock()
    measured = calibrate.experiment(1.0, clock.solver(lambda tasks: (tasks / 80) ** power), clock)
    for theta in (2.0, 10.0, 60.0, 3600.0):
        assert measured.sizes[-1] < measured.threshold(theta).phi <= 80 * theta ** (1 / power)


@given(
    st.lists(st.tuples(st.integers(1, 512), st.floats(0, 1)), max_size=8, unique_by=lambda pair: pair[0]),
    st.lists(st.floats(1e-4, 1e5), min_size=2, max_size=12),
)
def test_phi_never_falls_when_theta_rises(points: list[tuple[int, float]], thetas: list[float]) -> None:
    points.sort()
    measured = Measured(1.0, tuple(size for size, _ in points), tuple(seconds for _, seconds in points))
    found = [measured.threshold(theta).phi for theta in sorted(thetas)]
    assert all(before <= after for before, after in pairwise(found))
    assert max(found) <= REACH * max(measured.sizes, default=0)


def test_phi_between_measured_sizes_is_interpolated_and_below_them_proportional() -> None:
    measured = Measured(1.0, (10, 20), (0.01, 0.1))
    assert [measured.threshold(theta).phi for theta in (0.005, 0.01, 0.01 * 10**0.5, 0.1, 1.0)] == [5, 10, 15, 20, 20]
    assert measured.threshold(10.0).phi == 30  # ten times the time for ten more tasks
    assert "25.9% more time for each further task" in measured.threshold(10.0).note
    assert measured.threshold(1e6).phi == 60
    assert "capped at 3 times" in measured.threshold(1e6).note


def test_one_size_alone_is_not_extrapolated() -> None:
    threshold = Measured(1.0, (16,), (0.5,)).threshold(60.0)
    assert threshold.phi == 16
    assert "too few sizes" in threshold.note


def test_one_experiment_serves_every_theta_and_is_remembered(tmp_path: Path) -> None:
    solver, cache, clock = tmp_path / "solver.py", tmp_path / "deep" / "phi.json", ManualClock()
    solver.write_text("version 1")
    slow = clock.solver(lambda tasks: 0.002 * 1.08**tasks)

    def found(theta: float = 1.0, budget: float | None = None) -> tuple[int, bool]:
        before = clock.now
        phi = calibrate.calibrated(theta, slow, [solver], cache, budget, clock).phi
        return phi, clock.now > before

    first, measured = found()
    assert measured
    assert found() == (first, False)
    brief, measured = found(0.1)
    assert brief < first
    assert not measured
    minute, measured = found(60.0)
    assert first < minute
    assert not measured
    asked, measured = found(60.0, budget=300.0)  # measured at 60 s now
    assert asked > first
    assert measured
    assert found(60.0, budget=300.0) == (asked, False)
    assert found(60.0) == (asked, False)  # the longest experiment is the one that is used
    solver.write_text("version 2")
    assert found() == (first, True)
    good = cache.read_text()
    older = json.dumps({solver: {"1": 6} for solver in json.loads(good)})
    for damage in ("", "{", "[]", older, good.replace('"limit": 1.0', '"limit": -1.0'), "\ud7ff"):
        cache.write_text(damage, encoding="utf-8")
        assert found() == (first, True), damage
        assert found() == (first, False)
    assert [path.name for path in cache.parent.iterdir()] == ["phi.json"]  # no half-written file stays behind


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    solver, blocker = tmp_path / "solver.py", tmp_path / "file"
    solver.write_text("")
    blocker.write_text("not a directory")
    clock = ManualClock()
    assert calibrate.calibrated(1.0, proves_up_to(6), [solver], blocker / "phi.json", clock=clock).phi == 6


def test_the_plan_says_that_phi_was_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured(1.0, (5, 10), (0.01, 0.1))
    monkeypatch.setattr(ischeduler, "calibrated", lambda theta, *_, budget: measured.threshold(theta))
    problem = random_problem(30, 0)
    assert not any("extrapolated" in note for note in ischeduler.schedule(problem, Options(theta=1.0)).notes)
    notes = ischeduler.schedule(problem, Options(theta=10.0)).notes
    assert any(note.startswith("phi 15 is extrapolated from 10 tasks solved within 1 s") for note in notes)


@pytest.mark.parametrize("budget", [0, -1.0, "much", True, 1e9])
def test_a_budget_that_is_no_number_of_seconds_is_refused(budget: object) -> None:
    with pytest.raises(InvalidInput, match="budget"):
        ischeduler.prepare(Options(settings={"budget": budget}))


def test_the_cache_honours_xdg_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert calibrate.default_cache_file() == tmp_path / "penstock" / "phi.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert calibrate.default_cache_file() == Path.home() / ".cache" / "penstock" / "phi.json"


@pytest.mark.parametrize("size", [4, 20, 100])
def test_calibration_instances_are_plausible_and_repeat(size: int) -> None:
    problem = calibrate.random_problem(size, 1)
    problem.require_plausible()
    assert problem.task_count == size
    assert problem.graph.rate.tolist() == calibrate.random_problem(size, 1).graph.rate.tolist()
    assert len(set(problem.graph.load.tolist())) == size
