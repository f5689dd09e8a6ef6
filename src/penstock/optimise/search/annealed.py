"""The search of `best`, for problems without constraints: starts from everywhere, repaired, annealed and crossed.

Starts are the plans of the other schedulers, growths over several choices of nodes and blind packings; those that
overload a node are repaired. The native core improves them: to a few thousand tasks by a population of annealed
placements that are crossed with each other (core/search/place/evolve.hpp), beyond by multilevel annealing
(core/search/place/multilevel.hpp). Where tasks are interchangeable, the class model of `exact` proves the optimum in
less time than a search takes to find it. Fusion and `exact` ask this search as well, which is why it is no scheduler
itself: it knows neither fusion nor constraints.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from penstock import _core
from penstock.errors import InvalidInput, NoPlanFound, UserError
from penstock.model.taskgraph import Ints
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.exact.configurations import Model, build_model, solve_model
from penstock.optimise.exact.proof import Varying
from penstock.optimise.exact.solver import solve
from penstock.optimise.objective import is_feasible, node_cost, worker_cost
from penstock.optimise.place import find_scheduler

THETA_DEFAULT = 1.0
# Microseconds for each task, for each task and node, and for each edge, as measured; those whose plans come nearest to
# ours first. On graphs of many edges (shuffles between large operators) the first one's plans come very near.
OTHERS = {
    "ischeduler": (20.0, 0.0, 1.7),
    "t3": (33.0, 0.0, 0.0),
    "ras": (9.0, 0.0, 0.0),
    "ffd": (8.0, 0.0, 0.0),
    "even": (2.5, 0.0, 0.0),
    "flink": (1.5, 0.0, 0.0),
    "turbostream": (100.0, 2.5, 0.0),
    "rstorm": (47.0, 0.0, 0.0),
    "ols": (320.0, 1.0, 0.0),
}
OTHERS_SHARE = 0.14  # of theta that all of them together may take
NEAREST, NEAREST_SHARE = "ischeduler", 0.75  # it may take so much of theta on graphs of many edges, else in proportion
EDGES_MANY = 20  # for each task: with 40 our plans are within a percent of its plans, with 6 they are a quarter cheaper
OTHERS_TASKS_MAX = 300  # to this size all of them are asked whatever theta is
EVOLVE_TASKS_MAX = 3_000
CHILD_VISITS = 80_000  # children times tasks, at effort 1
PACK_COMPARISONS_MAX = 200_000_000  # tasks x nodes that blind packing may look at
METIS_STARTS = 8
METIS_SHARE = 0.2  # of theta that all of them may take: a partition of many edges cannot be cut short
METIS_TASK_SECONDS, METIS_EDGE_SECONDS = 5e-6, 1.7e-6
TASKS_PER_NODE_FEW = 10
REPAIR_TRIES = 200_000
REPAIR_TRIES_PER_TASK = 1_000
PROOF_TASKS_MAX = 64
QUICK_PROOF_CONFIGURATIONS = 64  # models to this size were solved within 10 ms, quicker than any search
QUICK_PROOF_SHARE = 0.5  # of theta: a cap far above what these models took
PROOF_SHARE = 0.04  # of theta, for larger models, after the search
FINISH_SECONDS_PER_TASK = 1.5e-6  # for choosing among candidates and splitting nodes into workers
FINISH_SHARE_MAX = 0.3  # of theta
LAST_RESORT_TASKS_MAX = 200
MARGIN = 1e-11  # relative: the core sums loads step by step, so it aims this much below a limit
SAME_COST = 1e-9
CUT_NOTE = "the clock cut the search short, so that another run may find another plan"


@dataclass(frozen=True)
class Search:
    """A problem with everything that its search needs: the native form, the cap, the seed, effort and theta."""

    problem: Problem
    network: _core.Network
    deadline: Deadline
    seed: int
    effort: float
    theta: float = math.inf  # by which the number of starts goes, so that it does not hang on the clock


def find(problem: Problem, options: Options) -> Placement:
    """The cheapest feasible placement found, with workers; the problem's constraints are not looked at."""
    theta = THETA_DEFAULT if options.theta is None else options.theta
    finish = min(FINISH_SHARE_MAX * theta, FINISH_SECONDS_PER_TASK * problem.task_count)
    deadline = Deadline.after(theta - finish)
    seed, effort = options.seed % (1 << 62), _effort(problem, options, theta)
    search = Search(problem, native(problem), deadline, seed, effort, theta)
    if (alone := _one_node(problem)) is not None:
        return finished(search, [alone], options)
    model, late = _class_model(problem), False
    if model is not None and len(model.kept) <= QUICK_PROOF_CONFIGURATIONS:
        until = Deadline.after(QUICK_PROOF_SHARE * theta)
        proof, bound = _proof(problem, model, math.inf, until)
        if proof and is_feasible(problem, proof[0]) and is_proved(problem, node_cost(problem, proof[0]), bound):
            return finished(search, proof, options, bound)
        late = until.remaining <= 0
    found = _searched(search, options, theta)
    cut = (CUT_NOTE,) if late or deadline.remaining <= 0 else ()
    if model is None:
        return _noted(finished(search, found, options), cut)
    known = min((node_cost(problem, node) for node in found if is_feasible(problem, node)), default=math.inf)
    proof, bound = _proof(problem, model, known, Deadline.after(PROOF_SHARE * theta))
    return _noted(finished(search, [*found, *proof], options, bound), cut)


def _noted(placement: Placement, notes: tuple[str, ...]) -> Placement:
    return replace(placement, notes=placement.notes + notes)


def _searched(search: Search, options: Options, theta: float) -> list[Ints]:
    """Starts and what the native search made of them. Beyond small sizes the search makes its own starts."""
    if search.problem.task_count > EVOLVE_TASKS_MAX:
        found = [*others(search.problem, options, theta), by_multilevel(search)]
        if any(is_feasible(search.problem, node) for node in found):
            return found
    starts = feasible_starts(search, options, theta) or [_last_resort(search)]
    return [*starts, *improved(search, starts)]


def _effort(problem: Problem, options: Options, theta: float) -> float:
    """Iterations in units of the usual ones: a setting, and more for a larger theta where much is left to find."""
    follows = asked_to_follow(options) and problem.task_count > EVOLVE_TASKS_MAX
    return asked_effort(options) * (max(1.0, theta) if follows else 1.0)


def asked_effort(options: Options) -> float:
    """The setting `effort`, 1 unless it is given."""
    effort = options.settings.get("effort", 1.0)
    if isinstance(effort, bool) or not isinstance(effort, int | float) or not 0 < effort <= 1e6:
        msg = f"setting effort is {effort!r}; it must be a number above 0 and at most 1e6"
        raise InvalidInput(msg)
    return float(effort)


def asked_to_follow(options: Options) -> bool:
    """The setting `effort_follows_theta`, true unless it is given."""
    follows = options.settings.get("effort_follows_theta", True)
    if not isinstance(follows, bool):
        msg = f"setting effort_follows_theta is {follows!r}; it must be true or false"
        raise InvalidInput(msg)
    return follows


def native(problem: Problem) -> _core.Network:
    """The problem in the core's form, its limits lowered by what step-by-step sums may be off."""
    graph = problem.graph
    return _core.Network(
        np.ascontiguousarray(graph.load, dtype=np.float64),
        np.ascontiguousarray(graph.memory_mb, dtype=np.float64),
        np.ascontiguousarray(graph.source, dtype=np.int32),
        np.ascontiguousarray(graph.target, dtype=np.int32),
        np.ascontiguousarray(graph.rate, dtype=np.float64),
        *(limit * (1 - MARGIN) for limit in (problem.capacity, problem.memory_mb, problem.bandwidth)),
    )


def _one_node(problem: Problem) -> Ints | None:
    """Everything on the smallest node that holds it: nothing crosses, so nothing is cheaper."""
    load, memory = problem.graph.load.sum(), problem.graph.memory_mb.sum()
    fits = np.flatnonzero((problem.capacity >= load) & (problem.memory_mb >= memory))
    if len(fits) == 0:
        return None
    smallest = fits[np.argmin(problem.capacity[fits])]
    node = np.full(problem.task_count, smallest, dtype=np.int32)
    return node if is_feasible(problem, node) else None


def feasible_starts(search: Search, options: Options, theta: float) -> list[Ints]:
    """Placements to begin with: our own first guesses and the other schedulers', those that hold or can be repaired.

    The most different ones come first, because the search takes a limited number.
    """
    found = [*_own_guesses(search), *others(search.problem, options, theta)]
    starts = [start for guess in found if (start := _repaired(search, guess, 1)) is not None]
    return starts or _tight_starts(search, found)


def own_starts(search: Search) -> list[Ints]:
    """The same without the other schedulers, so that searches from two seeds share nothing; perhaps none."""
    return [start for guess in _own_guesses(search) if (start := _repaired(search, guess, 1)) is not None]


def _own_guesses(search: Search) -> list[Ints]:
    problem, orders = search.problem, node_orders(search)
    found: list[Ints] = []
    if problem.task_count <= EVOLVE_TASKS_MAX:
        runs = range(metis_starts(problem.task_count, len(problem.graph.rate), search.theta))
        found += [by_metis(problem, orders[run % 2], search.seed + run) for run in runs]
    return [*found, *(search.network.grow(order, 0) for order in orders)]


def metis_starts(tasks: int, edges: int, theta: float) -> int:
    """How many partitions are worth their time, by what they were measured to take and not by the clock."""
    seconds = METIS_TASK_SECONDS * tasks + METIS_EDGE_SECONDS * edges
    return int(np.clip(METIS_SHARE * theta / seconds, 1, METIS_STARTS))


def by_metis(problem: Problem, nodes: Ints, seed: int) -> Ints:
    """METIS's k-way partition with the nodes' capacities as target weights: far from growth, so good company for it."""
    import pymetis

    adjacency = problem.graph.adjacency
    if len(nodes) >= problem.task_count or len(nodes) < 2 or len(adjacency.weight) == 0:
        return np.resize(nodes, problem.task_count)
    rate = np.maximum(1, np.rint(adjacency.weight * (1e5 / adjacency.weight.max())))
    load = np.maximum(1, np.rint(problem.graph.load * (1e4 / max(float(problem.graph.load.max()), 1e-300))))
    _, part = pymetis.part_graph(
        len(nodes),
        pymetis.CSRAdjacency(adjacency.start, adjacency.neighbour),
        vweights=load.astype(np.int64),
        eweights=rate.astype(np.int64),
        tpwgts=(problem.capacity[nodes] / problem.capacity[nodes].sum()).tolist(),
        recursive=len(nodes) <= 8,
        options=pymetis.Options(seed=seed % (1 << 31)),
    )
    placed: Ints = nodes[np.asarray(part)]
    return placed


def _repaired(search: Search, guess: Ints, effort: int) -> Ints | None:
    if is_feasible(search.problem, guess):
        return guess
    tries = min(REPAIR_TRIES, REPAIR_TRIES_PER_TASK * search.problem.task_count) * effort
    fixed = search.network.repair(guess, search.seed, tries, search.deadline.remaining + 0.1)
    return fixed if is_feasible(search.problem, fixed) else None


def _tight_starts(search: Search, guesses: list[Ints]) -> list[Ints]:
    """A last effort where nothing fitted: blind packings by several resource orders, then longer repairs of all."""
    if search.problem.task_count * search.problem.node_count <= PACK_COMPARISONS_MAX:
        guesses = [*(search.network.pack(share) for share in (1.0, 0.75, 0.5, 0.25, 0.0)), *guesses]
    for effort in (1, 10):
        for guess in guesses:
            if (start := _repaired(search, guess, effort)) is not None:
                return [start]
    return []


def _last_resort(search: Search) -> Ints:
    """What `exact` finds, which also proves it when there is no plan; or NoPlanFound where that would take too long."""
    if search.problem.task_count > LAST_RESORT_TASKS_MAX:
        raise NoPlanFound(_no_plan(search))
    return solve(search.problem, Deadline.after(max(1.0, search.deadline.remaining)), search.seed).node


def _class_model(problem: Problem) -> Model | None:
    """Exact's model of interchangeable tasks, where classes are few enough for it to be quick."""
    if problem.task_count > PROOF_TASKS_MAX:
        return None
    return build_model(problem)


def _proof(problem: Problem, model: Model, known: float, deadline: Deadline) -> tuple[list[Ints], float]:
    """A placement cheaper than `known`, if the model has one, and a lower bound.

    It runs by the clock, but adds nothing except a proof, or a plan that is cheaper than what the search found.
    """
    varying = Varying(problem)
    to_beat = varying.total - varying.to_beat(known - varying.fixed)
    outcome = solve_model(problem, model, to_beat, deadline, 1 if math.isinf(known) else None)
    cheaper = outcome.node is not None and node_cost(problem, outcome.node) < known
    return ([outcome.node.astype(np.int32)] if outcome.node is not None and cheaper else []), outcome.lower_bound


def others(problem: Problem, options: Options, theta: float, until: Deadline | None = None) -> list[Ints]:
    """What every other affordable scheduler answers; one that finds nothing is left out."""
    found: list[Ints] = []
    quick = Options(seed=options.seed, theta=0.0, tasks_per_worker=options.tasks_per_worker)
    for name in affordable(problem.task_count, problem.node_count, len(problem.graph.rate), theta):
        if until is not None and until.remaining <= 0:
            break
        try:
            placement = find_scheduler(name).load()(problem, quick)
        except UserError:
            continue
        found.append(placement.node.astype(np.int32))
    return found


def affordable(tasks: int, nodes: int, edges: int, theta: float) -> tuple[str, ...]:
    """The other schedulers that are asked at this size, by what they were measured to take and not by the clock."""
    if tasks <= OTHERS_TASKS_MAX:
        return tuple(OTHERS)
    asked, left = [], OTHERS_SHARE * theta
    for name, (each, each_node, each_edge) in OTHERS.items():
        seconds = 1e-6 * (tasks * (each + each_node * nodes) + edges * each_edge)
        if seconds <= left:
            asked.append(name)
            left -= seconds
        elif name == NEAREST and seconds <= NEAREST_SHARE * min(1.0, edges / (EDGES_MANY * tasks)) * theta:
            asked.append(name)
    return tuple(asked)


def node_orders(search: Search) -> list[Ints]:
    """Choices of nodes to fill, in filling order: fewest and largest, all, and mixtures drawn at random.

    Using few large nodes or all of them changes the cost by a factor of up to 3.5 either way.
    """
    problem = search.problem
    by_size = np.argsort(-problem.capacity, kind="stable").astype(np.int32)
    fewest = int(np.searchsorted(np.cumsum(problem.capacity[by_size]), problem.graph.load.sum())) + 1
    random = np.random.default_rng(search.seed)
    orders = [by_size[: min(fewest, len(by_size))], by_size]
    mixtures = 6 if problem.task_count <= EVOLVE_TASKS_MAX else 0
    for _ in range(mixtures):
        used = int(random.integers(min(fewest, len(by_size)), len(by_size) + 1))
        orders.append(random.permutation(by_size[:used]))
    return orders


def improved(search: Search, starts: list[Ints]) -> list[Ints]:
    """What the native search makes of the starts."""
    schedule_of_work = breeding(search.problem.task_count, search.effort)
    return [search.network.evolve(starts, *schedule_of_work, search.seed, search.deadline.remaining)]


def breeding(tasks: int, effort: float) -> tuple[int, int, int, int, int]:
    """Population, children, and sweeps of first placements, contracted graphs and children, by size.

    Small graphs on few nodes have few but deep valleys, so they get a large population; from some hundred tasks on more
    and better crossed children pay.
    """
    if tasks <= 64:
        return 12, int(2 * tasks * effort) + 2, 150, 100, 50
    children = int(min(CHILD_VISITS / tasks, 1.5 * tasks) * effort) + 2
    wider = min(3.0, max(1.0, effort**0.5))  # long runs of a small population end in one valley
    if tasks <= 400:
        return int(24 * wider), children, 500, 300, 100
    return int(10 * wider), children + 6, 200, 300, 40


def by_multilevel(search: Search) -> Ints:
    """Multilevel placements, two at a time, crossed with each other; how many follows from size, effort and theta."""
    n = search.problem.task_count
    scale = search.effort * 10_000 / n
    first = 2 * int(np.clip(round(scale + 1), 1, 6))
    effort = _core.Effort(n * min(50.0, max(10.0, 50 * scale)), 2.0, 2.0, 0.1, 0.5, 0.25, 0)
    order = node_orders(search)[0]

    def one(index: int) -> Ints:
        return search.network.multilevel(order, effort, search.seed + index, search.deadline.remaining)

    with ThreadPoolExecutor(2) as threads:  # the core lets go of the interpreter; results are in order of index
        starts = [start for start in threads.map(one, range(first)) if is_feasible(search.problem, start)]
    if len(starts) < 2:
        return starts[0] if starts else search.network.grow(order, 0)
    coarse_sweeps, fine_sweeps = int(200 * min(1.0, scale**0.5)), int(20 * min(1.0, scale**0.25))
    # With few tasks on a node a child's contracted graph is large, and takes half as long again.
    least = 2 if n < TASKS_PER_NODE_FEW * search.problem.node_count else 3
    crossed = (len(starts), max(least, round(10 * scale)), 0, coarse_sweeps, fine_sweeps)
    return search.network.evolve(starts, *crossed, search.seed, search.deadline.remaining)


def finished(search: Search, candidates: list[Ints], options: Options, bound: float = 0.0) -> Placement:
    """The cheapest feasible candidate; among equals the one with least traffic between workers, then fewest nodes."""
    problem = search.problem
    feasible = [node for node in candidates if is_feasible(problem, node)]
    costs = [node_cost(problem, node) for node in feasible]
    least = min(costs)
    tied = [node for node, cost in zip(feasible, costs, strict=True) if cost <= least * (1 + SAME_COST)]
    split = [(node, split_workers(search, node, options)) for node in tied]
    node, worker = min(split, key=lambda pair: (worker_cost(problem, *pair), len(np.unique(pair[0]))))
    bound = min(bound, least)
    proved = is_proved(problem, least, bound)
    return Placement(node, worker, bound, proved)


def is_proved(problem: Problem, cost: float, bound: float) -> bool:
    """Whether the bound leaves no room for a cheaper plan."""
    varying = Varying(problem)
    return bound >= cost - varying.tolerance(cost - varying.fixed)


def split_workers(search: Search, node: Ints, options: Options) -> Ints:
    """The second level, in the native core: METIS node by node takes seconds from a thousand nodes on."""
    effort = min(1.0, 10_000 * search.effort / search.problem.task_count)
    return search.network.split_workers(node, search.problem.slots, options.tasks_per_worker, effort, search.seed)


def _no_plan(search: Search) -> str:
    problem = search.problem
    share = problem.graph.load.sum() / problem.capacity.sum()
    return (
        f"no placement of {problem.task_count} tasks on {problem.node_count} nodes was found that keeps every limit "
        f"(load is {100 * share:.1f} % of the capacity{', and more is limited' if _limited(problem) else ''});"
        f" add a node, split large tasks, or try --scheduler exact with a larger --theta"
    )


def _limited(problem: Problem) -> bool:
    return any(math.isfinite(limit.min()) for limit in (problem.memory_mb, problem.bandwidth))
