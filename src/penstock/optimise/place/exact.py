"""`exact`: the proven optimum where time allows, and always a plan with a true lower bound.

In order, each step only as far as the one before left something open:
1. short annealing runs for a plan, and a quick bound (`neighbourhood_bound`);
2. the class model where tasks are interchangeable (`configurations`), which proves each of the papers' section 5
   instances within a second;
3. column generation where tasks differ (`columns`), whose prices give a bound;
4. a list of every set that could still be part of a better plan, solved to the end (`closing`).
When no run of step 1 fits, a plain feasibility program decides whether a plan exists at all. What was measured and what
was rejected is in docs/decisions/0003-exact-placement.md.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from penstock import _core
from penstock.errors import Infeasible, NoPlanFound
from penstock.model.taskgraph import Ints, Longs
from penstock.optimise.closing import choose, close_over, violated_cuts
from penstock.optimise.columns import ColumnGeneration, Columns
from penstock.optimise.configurations import build_model, solve_model
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.existence import any_placement, no_plan_exists
from penstock.optimise.neighbourhood_bound import neighbourhood_bound
from penstock.optimise.node_types import DensePairs, cost_step, fits, is_proof, node_types
from penstock.optimise.objective import node_cost

THETA_DEFAULT = 60.0
STEP_MARGIN = 1e-4  # of the step between possible costs, by which a better plan must not quite reach the next one
STEP_TOLERANCE = 1e-5  # of that step, forgiven when a bound is rounded up; above rounding errors, below the margin
COLUMN_TASKS_MAX = 400  # beyond, dense pricing does not pay
LISTED_CELLS_MAX = 5_000_000  # listed columns x classes, for each node type
ROUNDED_MAX = 2_000  # columns among which a better plan is looked for on the way
PRICED_CUT_ROUNDS_MAX = 30


def schedule(problem: Problem, options: Options) -> Placement:
    """The cheapest placement, its bound and whether that proves it."""
    theta = THETA_DEFAULT if options.theta is None else options.theta
    return solve(problem, Deadline.after(theta), options.seed)


@dataclass(eq=False)
class Standing:
    """The best plan and the best bound so far."""

    problem: Problem
    node: Ints | None = None
    cost: float = float("inf")
    bound: float = 0.0

    def __post_init__(self) -> None:
        self.step = cost_step(self.problem)

    def offer(self, node: Ints | None) -> None:
        """Keep the placement if it fits and is cheaper."""
        if node is None or (cost := node_cost(self.problem, node)) >= self.cost or not fits(self.problem, node):
            return
        self.node, self.cost = node.astype(np.int32), cost

    def raise_bound(self, bound: float) -> None:
        """Keep the bound if it is higher, rounded up to a possible cost; never above a plan that exists."""
        if self.step > 0:
            bound = math.ceil(bound / self.step - STEP_TOLERANCE) * self.step
        self.bound = min(max(self.bound, bound), self.cost)

    @property
    def kept_to_beat(self) -> float:
        """Traffic inside nodes that only a cheaper plan keeps more of."""
        return self.problem.graph.total_rate - (self.cost - (1 - STEP_MARGIN) * self.step)

    @property
    def proved(self) -> bool:
        """Whether nothing cheaper exists."""
        return self.node is not None and is_proof(self.bound, self.cost)


def solve(problem: Problem, deadline: Deadline, seed: int, start: Ints | None = None) -> Placement:
    """The best placement found by the deadline; `start`, where given, is a plan to begin from."""
    standing = Standing(problem)
    _require_a_node_for_each(problem)
    placements = _starts(problem, deadline, seed, start, runs=2, moves=20_000)
    for node in placements:
        standing.offer(node)
    standing.raise_bound(neighbourhood_bound(problem))
    if not standing.proved and deadline.remaining > 0:
        _by_classes(standing, deadline)
    if standing.node is None:
        standing.offer(any_placement(problem, deadline))
    if not standing.proved and standing.node is not None and deadline.remaining > 0:
        _by_columns(standing, deadline, seed, start)
    if standing.node is None:
        msg = (
            f"scheduler 'exact' found no plan for {problem.task_count} tasks on {problem.node_count} nodes in the time "
            f"allowed, and no proof that none exists; raise --theta, or add nodes"
        )
        raise NoPlanFound(msg)
    bound = standing.cost if standing.proved else standing.bound
    return Placement(standing.node, lower_bound=bound, proved_optimal=standing.proved)


def _starts(problem: Problem, deadline: Deadline, seed: int, start: Ints | None, runs: int, moves: int) -> list[Ints]:
    """The best placement of each annealing run that found one that fits, cheapest first."""
    graph, adjacency = problem.graph, problem.graph.adjacency
    given = np.empty(0, dtype=np.int32) if start is None else np.ascontiguousarray(start, dtype=np.int32)
    placements, costs = _core.starting_placements(
        adjacency.start, adjacency.neighbour, adjacency.weight, adjacency.outward, graph.load, graph.memory_mb,
        problem.capacity, problem.memory_mb, problem.bandwidth, given, seed, runs, moves, deadline.remaining,
    )  # fmt: skip
    order = np.argsort(costs, kind="stable")
    return [placements[r] for r in order.tolist() if np.isfinite(costs[r])]


def _by_classes(standing: Standing, deadline: Deadline) -> None:
    model = build_model(standing.problem)
    if model is None:
        return
    share = Deadline(deadline.clock() + 0.6 * deadline.remaining, deadline.clock)
    outcome = solve_model(standing.problem, model, standing.kept_to_beat, share)
    if outcome.infeasible:
        raise Infeasible(no_plan_exists(standing.problem))
    standing.offer(outcome.node)
    standing.raise_bound(outcome.lower_bound)


def _require_a_node_for_each(problem: Problem) -> None:
    """Raise Infeasible when some task alone is too much for every node."""
    graph = problem.graph
    possible = np.zeros(problem.task_count, dtype=bool)
    for kind in node_types(problem):
        possible |= (graph.load <= kind.capacity) & (graph.memory_mb <= kind.memory_mb)
    if not possible.all():
        task = int(np.argmin(possible))
        msg = (
            f"task {graph.ids[task]!r} needs load {graph.load[task]:g} and {graph.memory_mb[task]:g} MB, and no node "
            "offers both; split the operator into more tasks or add a larger node"
        )
        raise Infeasible(msg)


def _by_columns(standing: Standing, deadline: Deadline, seed: int, start: Ints | None) -> None:
    problem = standing.problem
    pairs = DensePairs(problem)
    if problem.task_count > COLUMN_TASKS_MAX:
        for node in _starts(problem, deadline, seed + 1, standing.node, runs=4, moves=1_000 * problem.task_count):
            standing.offer(node)
        return
    effort = Deadline(deadline.clock() + 0.15 * deadline.remaining, deadline.clock)
    placements = _starts(
        problem, effort, seed + 1, standing.node if start is None else start, runs=16, moves=4_000 * problem.task_count
    )
    for node in placements:
        standing.offer(node)
    with ThreadPoolExecutor(max_workers=2) as executor:
        generation = ColumnGeneration(pairs, placements, deadline)
        for _ in range(PRICED_CUT_ROUNDS_MAX):
            generation.converge(standing.kept_to_beat / pairs.unit, executor)
            standing.raise_bound((pairs.total - generation.bound.kept) * pairs.unit)
            if standing.proved or deadline.remaining <= 0:
                return
            _round_up(standing, pairs, generation, deadline)
            if standing.proved or _close(standing, pairs, generation, executor):
                return
            if deadline.remaining <= 0 or not _cut(generation):
                return


def _round_up(standing: Standing, pairs: DensePairs, generation: ColumnGeneration, deadline: Deadline) -> None:
    """Look for a better plan among the columns that are near the bound's prices."""
    columns, prices = generation.columns, generation.prices
    worth = columns.kept - columns.holds @ prices.task - prices.node_type[columns.node_type]
    near = columns.thinned(np.sort(np.argsort(-worth, kind="stable")[:ROUNDED_MAX]))
    soon = Deadline(deadline.clock() + min(5.0, 0.1 * deadline.remaining), deadline.clock)
    times, _ = choose(pairs, near, generation.cuts, standing.kept_to_beat / pairs.unit, soon)
    standing.offer(_placed(pairs, near, times))


def _close(standing: Standing, pairs: DensePairs, generation: ColumnGeneration, executor: ThreadPoolExecutor) -> bool:
    """Try to end the search by listing all sets that could be in a better plan."""
    kept_known = standing.kept_to_beat / pairs.unit
    listed_max = LISTED_CELLS_MAX // len(generation.counts)
    columns = generation.list_above(generation.bound.kept - kept_known + 1e-9, listed_max, executor)
    if columns is None:
        return False
    closed = close_over(pairs, columns, generation.cuts, kept_known, generation.deadline)
    standing.offer(_placed(pairs, closed.columns, closed.times))
    # Whatever is not listed keeps no more than what was known, so the bound over the list is a bound for all.
    standing.raise_bound((pairs.total - max(closed.kept_bound, kept_known)) * pairs.unit)
    return True


def _cut(generation: ColumnGeneration) -> bool:
    """Add cuts that the master's answer breaks; false when there are none."""
    chosen = generation.prices.chosen
    broken = violated_cuts(generation.columns.holds[: len(chosen)], chosen, generation.cuts)
    generation.add_cuts(broken)
    return bool(broken)


def _placed(pairs: DensePairs, columns: Columns, times: Longs | None) -> Ints | None:
    """Nodes for the chosen columns, each type's nodes and each class's tasks in order."""
    if times is None:
        return None
    node = np.full(len(pairs.weight), -1, dtype=np.int32)
    spare_nodes = [list(reversed(t.nodes)) for t in pairs.types]
    spare_tasks = [list(reversed(tasks.tolist())) for tasks in pairs.classes.members]
    for column in np.repeat(np.arange(len(columns)), times).tolist():
        where = spare_nodes[columns.node_type[column]].pop()
        for c in np.flatnonzero(columns.holds[column]).tolist():
            for _ in range(int(columns.holds[column, c])):
                node[spare_tasks[c].pop()] = where
    return node
