"""What `exact` calls proved is the optimum, also where rates differ by nine orders of magnitude; bounds are true."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import Infeasible, InternalError
from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import Floats, TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Deadline, Options, Problem
from penstock.optimise.objective import node_cost
from penstock.optimise.place import exact
from penstock.optimise.proof import Varying, common_step, contracted

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
            exact.solve(problem, Deadline.after(20.0), seed=0)
        return
    optimum = float(costs.min())
    placement = exact.solve(problem, Deadline.after(20.0), seed=0)
    assert node_cost(problem, placement.node) == optimum
    assert placement.lower_bound <= optimum * (1 + 1e-12) + 1e-12
    if not placement.proved_optimal:
        return
    # A proof's bound is within rounding of the optimum, or at least above half the way from it down to nothing better.
    assert placement.lower_bound >= optimum * (1 - 1e-6)


@given(uneven_problems(RATES))
@settings(max_examples=150, deadline=None)
def test_whole_rates_of_any_size(problem: Problem) -> None:
    claims_only_what_is_true(problem)


@given(uneven_problems(RATES))
@settings(max_examples=150, deadline=None)
def test_whole_rates_of_any_size_by_columns_alone(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "build_model", lambda *_: None)
        claims_only_what_is_true(problem)
