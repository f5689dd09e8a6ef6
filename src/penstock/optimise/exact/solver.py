"""The exact search: a plan, a lower bound, and work on both until they meet or time is up.

In order, each step as far as the one before left something open:
1. short annealing runs for a plan, and a quick bound (`neighbourhood_bound`);
2. contraction of what every better plan keeps together (`proof`), so that rates of very different size do not meet in
   one solver;
3. the class model where tasks are interchangeable (`configurations`), which proves each of the papers' section 5
   instances within a second;
4. column generation where tasks differ (`columns`), whose prices give a bound;
5. a list of every set that could still be part of a better plan, solved to the end (`closing`);
6. branching on what nodes hold (`tree`), where that list is too long and cuts stall.
When no run of step 1 fits, a plain feasibility program decides whether a plan exists at all.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from penstock import _core
from penstock.errors import Infeasible, InternalError, NoPlanFound
from penstock.model.taskgraph import Ints, Longs
from penstock.optimise.contract import Deadline, Placement, Problem
from penstock.optimise.exact.closing import choose, close_over, violated_cuts
from penstock.optimise.exact.columns import ColumnGeneration, Columns
from penstock.optimise.exact.configurations import build_model, solve_model
from penstock.optimise.exact.existence import any_placement, no_plan_exists
from penstock.optimise.exact.master import RESOLUTION
from penstock.optimise.exact.neighbourhood_bound import neighbourhood_bound
from penstock.optimise.exact.node_types import DensePairs, node_types
from penstock.optimise.exact.proof import Contraction, Varying, contracted
from penstock.optimise.exact.tree import Tree
from penstock.optimise.objective import is_feasible

COLUMN_TASKS_MAX = 400  # beyond, dense pricing does not pay
LISTED_CELLS_MAX = 5_000_000  # listed columns x classes, for each node type
LISTED_CELLS_PER_SECOND = 1_000_000  # cells that can be worked off, which limits how many are listed
ROUNDED_MAX = 2_000  # columns among which a better plan is looked for on the way
PRICED_CUT_ROUNDS_MAX = 30
STALLED = 0.1  # of the gap: cuts that close less in a round give way to branching
LISTED_MAX = 20_000  # sets in all: longer lists took HiGHS minutes, and past its time limit
CLOSING_SHARE = 0.3  # of what is left
TREE_LISTED_MAX = 1_500  # sets at a node of the tree
TREE_CLOSE_SECONDS = 2.0
CONTRACTION_ROUNDS_MAX = 5
RECOUNT_SECONDS = 4e-9  # of one entry of the adjacency
TOO_MANY = "more than {limit} tasks: only quick bounds were tried"


@dataclass(eq=False)
class Standing:
    """The best plan and the best bound so far, in varying costs (`proof.Varying`)."""

    varying: Varying
    node: Ints | None = None
    cost: float = float("inf")
    bound: float = 0.0

    def offer(self, node: Ints | None) -> None:
        """Keep the placement if it fits and is cheaper."""
        if node is None or np.any(node < 0) or not is_feasible(self.varying.problem, node):
            return
        if (cost := self.varying.cost(node)) < self.cost:
            self.node, self.cost = node.astype(np.int32), cost
            self._require_sound()

    def raise_bound(self, bound: float) -> None:
        """Keep the bound if it is higher."""
        self.bound = max(self.bound, self.varying.rounded_up(bound))
        self._require_sound()

    def _require_sound(self) -> None:
        """Raise InternalError when a plan is cheaper than a bound on all plans allows."""
        if self.bound > self.cost + max(self.varying.tolerance(self.cost), self.varying.rounding):
            msg = (
                f"scheduler 'exact' has a plan of cost {self.varying.fixed + self.cost:.17g} below its lower bound "
                f"{self.varying.fixed + self.bound:.17g}; please report the topology and the cluster"
            )
            raise InternalError(msg)

    @property
    def proved(self) -> bool:
        """Whether nothing cheaper exists."""
        return self.node is not None and self.bound >= self.cost - self.varying.tolerance(self.cost)

    def contracted(self) -> Contraction:
        """The problem as far as plans cheaper than the best one are concerned."""
        return contracted(self.varying, self.cost)

    def raise_contracted(self, small: Contraction, bound: float) -> None:
        """Keep what a bound on the contracted problem says; a plan of that problem must not be below it."""
        if self.node is not None and small.keeps_groups(self.node):
            Standing(small.varying, None, self.cost - small.offset).raise_bound(bound)
        self.raise_bound(small.lower_bound(bound))


def solve(problem: Problem, deadline: Deadline, seed: int, start: Ints | None = None) -> Placement:
    """The best placement found by the deadline; `start`, where given, is a plan to begin from."""
    standing = Standing(Varying(problem))
    _require_a_node_for_each(problem)
    standing.offer(start)
    if standing.node is None or problem.task_count <= COLUMN_TASKS_MAX:
        for node in _starts(problem, deadline, seed, start, runs=2, moves=20_000):
            standing.offer(node)
    standing.raise_bound(neighbourhood_bound(standing.varying))
    if standing.node is None and deadline.remaining > 0:
        _first_plan(standing, deadline)
    if standing.node is None:
        msg = (
            f"scheduler 'exact' found no plan for {problem.task_count} tasks on {problem.node_count} nodes in the time "
            f"allowed, and no proof that none exists; raise --theta, or add nodes"
        )
        raise NoPlanFound(msg)
    notes = _search(standing, deadline, seed, start)
    bound = standing.varying.fixed + min(standing.bound, standing.cost)
    return Placement(standing.node, lower_bound=bound, proved_optimal=standing.proved, notes=notes)


def _first_plan(standing: Standing, deadline: Deadline) -> None:
    """A plan where annealing found none, or Infeasible."""
    problem = standing.varying.problem
    _by_classes(standing, Contraction.nothing(standing.varying), deadline)
    if standing.node is None:
        standing.offer(any_placement(problem, deadline))


def _search(standing: Standing, deadline: Deadline, seed: int, start: Ints | None) -> tuple[str, ...]:
    """Raise the bound and lower the cost until they meet or time is up; returns notes for the user."""
    small = _contract(standing, deadline, seed)
    if not standing.proved and deadline.remaining > 0:
        _by_classes(standing, small, deadline)
        small = _contract(standing, deadline, seed)
    if small.problem.task_count > COLUMN_TASKS_MAX:
        if not standing.proved and deadline.remaining > 0:
            _anneal_on(standing, small, deadline, seed)
        return () if standing.proved else (TOO_MANY.format(limit=COLUMN_TASKS_MAX),)
    if not standing.proved and deadline.remaining > 0:
        _by_columns(standing, small, deadline, seed, start)
    return ()


def _contract(standing: Standing, deadline: Deadline, seed: int) -> Contraction:
    """Fuse what every better plan keeps together, look for a better plan at that scale, and fuse again."""
    small = standing.contracted()
    for _ in range(CONTRACTION_ROUNDS_MAX):
        if standing.proved or not small.is_smaller or deadline.remaining <= 0:
            break
        if not small.holds_a_plan:
            standing.raise_bound(small.limit)
            break
        before = standing.cost
        for node in _starts(small.problem, deadline, seed, None, runs=2, moves=20_000):
            standing.offer(small.lifted(node))
        if standing.cost >= before:
            break
        small = standing.contracted()
    return small


def _anneal_on(standing: Standing, small: Contraction, deadline: Deadline, seed: int) -> None:
    """More annealing, for problems beyond column generation."""
    given = small.packed(standing.node) if standing.node is not None else None
    for node in _starts(small.problem, deadline, seed + 1, given, runs=1, moves=200 * small.problem.task_count):
        standing.offer(small.lifted(node))


def _starts(problem: Problem, deadline: Deadline, seed: int, start: Ints | None, runs: int, moves: int) -> list[Ints]:
    """The best placement of each annealing run that found one that fits, cheapest first."""
    graph, adjacency = problem.graph, problem.graph.adjacency
    # Every improvement is counted from scratch, and the core looks at the clock once in 65,536 moves.
    seconds_each = RECOUNT_SECONDS * (graph.task_count + len(adjacency.weight)) / 2
    moves = max(256, min(moves, int(deadline.remaining / runs / seconds_each)))
    given = np.empty(0, dtype=np.int32) if start is None else np.ascontiguousarray(start, dtype=np.int32)
    placements, costs = _core.starting_placements(
        adjacency.start, adjacency.neighbour, adjacency.weight, adjacency.outward, graph.load, graph.memory_mb,
        problem.capacity, problem.memory_mb, problem.bandwidth, given, seed, runs, moves, deadline.remaining,
    )  # fmt: skip
    order = np.argsort(costs, kind="stable")
    return [placements[r] for r in order.tolist() if np.isfinite(costs[r])]


def _by_classes(standing: Standing, small: Contraction, deadline: Deadline) -> None:
    share = Deadline(deadline.clock() + 0.6 * deadline.remaining, deadline.clock)
    model = build_model(small.problem, share)
    if model is None or share.remaining <= 0:
        return
    outcome = solve_model(small.problem, model, small.kept_to_beat(standing.cost), share)
    if outcome.infeasible:
        raise Infeasible(no_plan_exists(standing.varying.problem))
    if outcome.node is not None:
        standing.offer(small.lifted(outcome.node))
    standing.raise_contracted(small, outcome.lower_bound - small.varying.fixed)


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


def _by_columns(standing: Standing, small: Contraction, deadline: Deadline, seed: int, start: Ints | None) -> None:
    pairs = DensePairs(small.varying)
    problem = small.problem
    effort = Deadline(deadline.clock() + 0.15 * deadline.remaining, deadline.clock)
    given = small.packed(standing.node if start is None else start)
    placements = _starts(problem, effort, seed + 1, given, runs=16, moves=4_000 * problem.task_count)
    for node in placements:
        standing.offer(small.lifted(node))
    with ThreadPoolExecutor(max_workers=2) as executor:
        generation = ColumnGeneration(pairs, placements, deadline)
        before = np.inf
        for _ in range(PRICED_CUT_ROUNDS_MAX):
            generation.converge(small.kept_to_beat(standing.cost) / pairs.unit, executor)
            standing.raise_contracted(small, (pairs.total - generation.bound.kept) * pairs.unit)
            if standing.proved or deadline.remaining <= 0:
                return
            _round_up(standing, small, pairs, generation)
            if standing.proved or _close(standing, small, pairs, generation, executor):
                return
            if deadline.remaining <= 0:
                return
            if before - generation.bound.kept < STALLED * (before - small.kept_to_beat(standing.cost) / pairs.unit):
                break
            before = generation.bound.kept
            if not _cut(generation):
                break
        _by_branching(standing, small, pairs, generation, executor)


def _by_branching(
    standing: Standing,
    small: Contraction,
    pairs: DensePairs,
    generation: ColumnGeneration,
    executor: ThreadPoolExecutor,
) -> None:
    """Cut what is left in two, over and over, until nothing better is left."""
    deadline, varying = generation.deadline, small.varying
    told_apart = varying.step >= RESOLUTION * pairs.total * pairs.unit  # by HiGHS, whose word a short list rests on

    def known() -> float:
        return small.kept_to_beat(standing.cost) / pairs.unit

    def whole() -> None:
        times = np.rint(generation.prices.chosen).astype(np.int64)
        _offer_columns(standing, small, pairs, generation.columns, times)

    def close() -> float | None:
        if not told_apart:
            return None
        columns = generation.list_above(generation.bound.kept - known() + 1e-9, TREE_LISTED_MAX, executor)
        if columns is None:
            return None
        soon = Deadline(deadline.clock() + min(TREE_CLOSE_SECONDS, deadline.remaining), deadline.clock)
        closed = close_over(pairs, columns, generation.cuts, known(), soon)
        _offer_columns(standing, small, pairs, closed.columns, closed.times)
        return max(closed.kept_bound, known())

    def rose(kept: float) -> None:
        standing.raise_contracted(small, (pairs.total - kept) * pairs.unit)

    Tree(generation, executor, known, whole, close, rose).search(generation.bound.kept)


def _round_up(standing: Standing, small: Contraction, pairs: DensePairs, generation: ColumnGeneration) -> None:
    """Look for a better plan among the columns that are near the bound's prices."""
    columns, prices, deadline = generation.columns, generation.prices, generation.deadline
    worth = columns.kept - columns.holds @ prices.task - prices.node_type[columns.node_type]
    near = columns.thinned(np.sort(np.argsort(-worth, kind="stable")[:ROUNDED_MAX]))
    soon = Deadline(deadline.clock() + min(5.0, 0.1 * deadline.remaining), deadline.clock)
    times, _ = choose(pairs, near, generation.cuts, small.kept_to_beat(standing.cost) / pairs.unit, soon)
    _offer_columns(standing, small, pairs, near, times)


def _close(
    standing: Standing,
    small: Contraction,
    pairs: DensePairs,
    generation: ColumnGeneration,
    executor: ThreadPoolExecutor,
) -> bool:
    """Try to end the search by listing all sets that could be in a better plan."""
    kept_known = small.kept_to_beat(standing.cost) / pairs.unit
    cells = min(
        LISTED_CELLS_MAX,
        LISTED_MAX * len(generation.counts),
        int(LISTED_CELLS_PER_SECOND * generation.deadline.remaining),
    )
    listed_max = cells // len(generation.counts)
    columns = generation.list_above(generation.bound.kept - kept_known + 1e-9, listed_max, executor)
    if columns is None:
        return False
    deadline = generation.deadline
    share = Deadline(deadline.clock() + CLOSING_SHARE * deadline.remaining, deadline.clock)
    closed = close_over(pairs, columns, generation.cuts, kept_known, share)
    _offer_columns(standing, small, pairs, closed.columns, closed.times)
    # Whatever is not listed keeps no more than what was known, so the bound over the list is a bound for all.
    standing.raise_contracted(small, (pairs.total - max(closed.kept_bound, kept_known)) * pairs.unit)
    return standing.proved


def _offer_columns(
    standing: Standing, small: Contraction, pairs: DensePairs, columns: Columns, times: Longs | None
) -> None:
    if times is not None:
        standing.offer(small.lifted(_placed(pairs, columns, times)))


def _cut(generation: ColumnGeneration) -> bool:
    """Add cuts that the master's answer breaks; false when there are none."""
    chosen = generation.prices.chosen
    broken = violated_cuts(generation.columns.holds[: len(chosen)], chosen, generation.cuts)
    generation.add_cuts(broken)
    return bool(broken)


def _placed(pairs: DensePairs, columns: Columns, times: Longs) -> Ints:
    """Nodes for the chosen columns, each type's nodes and each class's tasks in order."""
    node = np.full(len(pairs.weight), -1, dtype=np.int32)
    spare_nodes = [list(reversed(t.nodes)) for t in pairs.types]
    spare_tasks = [list(reversed(tasks.tolist())) for tasks in pairs.classes.members]
    for column in np.repeat(np.arange(len(columns)), times).tolist():
        where = spare_nodes[columns.node_type[column]].pop()
        for c in np.flatnonzero(columns.holds[column]).tolist():
            for _ in range(int(columns.holds[column, c])):
                node[spare_tasks[c].pop()] = where
    return node
