"""What `exact` calls proved is the optimum, also where rates differ by nine orders of magnitude; bounds are true."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from highspy import HighsModelStatus
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Infeasible, InternalError
from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import Floats, TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Deadline, Options, Problem
from penstock.optimise.exact import configurations, existence, master, solver
from penstock.optimise.exact.configurations import build_model, solve_model
from penstock.optimise.exact.master import quiet_highs
from penstock.optimise.exact.proof import Varying, common_step, contracted
from penstock.optimise.objective import is_feasible, node_cost
from penstock.optimise.place import exact

RATES = (1.0, 3.0, 1e4, 1e7, 1e9)
RAGGED_RATES = (0.123, 1.7, 3.1, 1.234e4, 3.3e7, 1.1e9)


def every_cost(problem: Problem) -> Floats:
    """The cost of every assignment that keeps capacity."""
    graph = problem.graph
    shape = (problem.node_count,) * problem.task_count
    every = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
    kept = np.ones(len(every), dtype=bool)
    for k in range(problem.node_count):
        kept &= (every == k) @ graph.load <= problem.capacity[k]
    costs: Floats = (every[kept][:, graph.source] != every[kept][:, graph.target]) @ graph.rate
    return costs


class LyingPresolve:
    """HiGHS whose presolve calls every program infeasible, as it has done to one."""

    def __init__(self) -> None:
        self.inner = quiet_highs()
        self.lies = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever HiGHS has
        return getattr(self.inner, name)

    def run(self) -> None:
        self.lies = self.inner.getOptionValue("presolve")[1] != "off"
        if not self.lies:
            self.inner.run()

    def getModelStatus(self) -> HighsModelStatus:
        return HighsModelStatus.kInfeasible if self.lies else self.inner.getModelStatus()


def test_a_refusal_by_presolve_alone_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = (Operator("a", 3, load=1.0), Operator("b", 3, load=0.6))
    graph = OperatorGraph("t", operators, (Stream("a", "b", rate=1.0),))
    problem = Problem(TaskGraph.expand(graph), Cluster.uniform([(3, 1.7)]))
    for module in (existence, configurations):
        monkeypatch.setattr(module, "quiet_highs", LyingPresolve)
    node = existence.any_placement(problem, Deadline.after(60.0))
    assert node is not None
    assert is_feasible(problem, node)
    model = build_model(problem)
    assert model is not None
    outcome = solve_model(problem, model, -np.inf, Deadline.after(60.0))
    assert outcome.node is not None
    assert node_cost(problem, outcome.node) == every_cost(problem).min()


def test_every_integer_program_is_run_where_refusals_are_confirmed() -> None:
    """Linear programs run without presolve at all."""
    folder = Path(master.__file__).parents[1]
    running = {path.name for path in folder.rglob("*.py") if "highs.run()" in path.read_text()}
    assert running == {"master.py", "linear_program.py"}


@st.composite
def uneven_problems(draw: st.DrawFn, rates: tuple[float, ...]) -> Problem:
    """Up to 7 tasks on 2 or 3 nodes, alike within operators or not, with rates of very different size."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=6).filter(lambda s: sum(s) <= 7))
    load = st.sampled_from([1.0, 1.0, 2.0, 0.7])
    operators = tuple(Operator(f"o{k}", s, load=draw(load)) for k, s in enumerate(sizes))
    streams = tuple(
        Stream(f"o{a}", f"o{b}", rate=draw(st.sampled_from(rates)))
        for a, b in itertools.combinations(range(len(sizes)), 2)
        if draw(st.integers(0, 3))
    )
    nodes = tuple(Node(f"n{k}", draw(st.sampled_from([2.0, 3.0, 4.0]))) for k in range(draw(st.integers(2, 3))))
    return Problem(TaskGraph.expand(OperatorGraph("uneven", operators, streams)), Cluster(nodes))


def claims_only_what_is_true(problem: Problem) -> None:
    costs = every_cost(problem)
    if len(costs) == 0:
        with pytest.raises(Infeasible):
            solver.solve(problem, Deadline.after(20.0), seed=0)
        return
    optimum = float(costs.min())
    placement = solver.solve(problem, Deadline.after(20.0), seed=0)
    assert node_cost(problem, placement.node) == optimum
    assert placement.lower_bound <= optimum * (1 + 1e-12) + 1e-12
    if placement.proved_optimal:
        assert placement.lower_bound >= optimum - Varying(problem).tolerance(optimum)


@given(uneven_problems(RATES))
@settings(max_examples=150, deadline=None)
def test_whole_rates_of_any_size(problem: Problem) -> None:
    claims_only_what_is_true(problem)


@given(uneven_problems(RATES))
@settings(max_examples=150, deadline=None)
def test_whole_rates_of_any_size_by_columns_alone(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "build_model", lambda *_: None)
        claims_only_what_is_true(problem)


@given(uneven_problems(RAGGED_RATES), st.booleans())
@settings(max_examples=150, deadline=None)
def test_rates_without_a_common_step(problem: Problem, by_columns: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if by_columns:
            patch.setattr(solver, "build_model", lambda *_: None)
        optimum = every_cost(problem).min(initial=np.inf)
        if not np.isfinite(optimum):
            return
        placement = solver.solve(problem, Deadline.after(20.0), seed=0)
    cost = node_cost(problem, placement.node)
    varying = Varying(problem)
    assert placement.lower_bound <= optimum * (1 + 1e-12) + 1e-12
    assert not placement.proved_optimal or cost <= optimum + varying.tolerance(optimum - varying.fixed)


def beside_a_heavy_pair(rate: float) -> Problem:
    """Two tasks joined at `rate` beside 16 tasks in five operators; the optimum keeps the two together and is 137."""
    sizes = {"s0": 2, "s1": 3, "s2": 4, "s3": 4, "s4": 3}
    operators = (Operator("A", 1, 2.0), Operator("B", 1, 2.0), *(Operator(k, n, 1.0) for k, n in sizes.items()))
    pairs = {"s0s1": 3, "s0s2": 1, "s0s4": 4, "s1s4": 4, "s2s3": 5, "s2s4": 2, "s3s4": 2}
    streams = (*(Stream(p[:2], p[2:], rate=float(r)) for p, r in pairs.items()), Stream("A", "B", rate=rate))
    return Problem(TaskGraph.expand(OperatorGraph("heavy", operators, streams)), Cluster.uniform([(7, 4.0)]))


@pytest.mark.parametrize("rate", [1e3, 1e5, 1e7, 1e9, 1e12])
def test_a_heavy_pair_hides_no_better_plan(rate: float) -> None:
    placement = exact.schedule(beside_a_heavy_pair(rate), Options())
    assert (placement.lower_bound, placement.proved_optimal) == (137.0, True)
    assert node_cost(beside_a_heavy_pair(rate), placement.node) == 137.0


@pytest.mark.parametrize("rate", [1e7, 1e9, 1e12])
def test_the_class_model_claims_nothing_below_its_resolution(rate: float) -> None:
    problem = beside_a_heavy_pair(rate)
    model = build_model(problem)
    assert model is not None
    kept_by_a_plan_of_146 = rate + problem.graph.total_rate - rate - 145.999
    for kept in (kept_by_a_plan_of_146, -np.inf):
        assert solve_model(problem, model, kept, Deadline.after(20.0)).lower_bound <= 137.0


@pytest.mark.parametrize("rate", [1e6, 1e8, 1e11])
def test_a_pair_that_is_always_apart_lends_no_tolerance(rate: float) -> None:
    """Eight tasks in two cliques of four; which plan is best must not depend on what two full nodes say."""
    operators = (Operator("A", 1, 4.0), Operator("B", 1, 4.0), *(Operator(f"s{i}", 1, 1.0) for i in range(8)))
    streams = tuple(
        Stream(f"s{i}", f"s{j}", rate=1.37 if i // 4 == j // 4 else 1.0) for i, j in itertools.combinations(range(8), 2)
    )
    graph = OperatorGraph("apart", operators, (*streams, Stream("A", "B", rate=rate)))
    problem = Problem(TaskGraph.expand(graph), Cluster.uniform([(4, 4.0)]))
    placement = exact.schedule(problem, Options())
    assert placement.proved_optimal
    assert node_cost(problem, placement.node) - rate == pytest.approx(16.0, abs=1e-4)
    worse = np.array([0, 1, 2, 2, 2, 3, 2, 3, 3, 3], dtype=np.int32)
    standing = solver.Standing(Varying(problem))
    standing.offer(worse)
    standing.raise_bound(16.0)
    assert standing.cost > 16.5
    assert not standing.proved


def test_a_bound_above_a_plan_is_an_error_and_never_a_proof() -> None:
    problem = beside_a_heavy_pair(1e9)
    plan = exact.schedule(problem, Options()).node
    standing = solver.Standing(Varying(problem))
    standing.offer(plan)
    with pytest.raises(InternalError, match="below its lower bound 138"):
        standing.raise_bound(138.0)
    early = solver.Standing(Varying(problem))
    early.raise_bound(138.0)
    with pytest.raises(InternalError, match="plan of cost 137"):
        early.offer(plan)


@given(uneven_problems(RATES), st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_contraction_keeps_every_better_plan(problem: Problem, rank: float) -> None:
    costs = np.sort(every_cost(problem))
    if len(costs) == 0:
        return
    varying, known = Varying(problem), float(costs[int(rank * (len(costs) - 1))])
    small = contracted(varying, known - varying.fixed)
    rest = every_cost(small.problem)
    least = small.offset + float(rest.min(initial=np.inf)) - small.varying.fixed + varying.fixed
    assert min(least, known) == min(float(costs[0]), known) == costs[0]


def test_steps_are_found_where_all_costs_are_multiples() -> None:
    assert common_step(np.array([6.0, 1e9, 10.0])) == 2.0
    assert common_step(np.array([0.75, 0.5])) == 0.25
    assert common_step(np.array([0.1, 0.2, 0.4])) == 0.1
    assert common_step(np.array([0.1, 0.25])) == 0.0
    assert common_step(np.array([])) == 0.0


def test_a_problem_beyond_column_generation_says_so() -> None:
    loads = tuple(np.random.default_rng(0).uniform(0.5, 1.5, 401).tolist())
    graph = OperatorGraph("large", (Operator("a", 401, load=loads), Operator("b", 1)), (Stream("a", "b"),))
    problem = Problem(TaskGraph.expand(graph), Cluster.uniform([(50, 10.0)]))
    placement = exact.schedule(problem, Options(theta=2.0))
    assert not placement.proved_optimal
    assert placement.notes == ("more than 400 tasks: only quick bounds were tried",)
