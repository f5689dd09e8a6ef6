"""Placement under constraints, for `best` and `exact`; the other schedulers look at none.

Sites (tasks that must share a node) are the vertices; allowed nodes, node separations, CPU and memory limit where they
go; the cost is the traffic between nodes. That is fusion with one worker to a node and streams that cost no CPU, so
`best` is asked of the fusion methods, over a graph of sites (`by_search`). `exact` adds an integer program over the
same sites, which proves the plan or gives a bound (`by_program`). Workers come last (`workers_under_rules`): blocks
that must share one are joined along the heaviest traffic as far as rules, tasks per worker and slots allow.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from penstock.errors import NoPlanFound
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.fuse import best as fuse_best
from penstock.optimise.fuse.assign import Schedule
from penstock.optimise.fuse.contract import NEGLIGIBLE, Case, FuseOptions
from penstock.optimise.fuse.fuse_graph import SLOTS_UNSTATED, FuseGraph, fuse_graph
from penstock.optimise.fuse.packing import Sites
from penstock.optimise.fuse.postprocess import greedily_merged, within_slots
from penstock.optimise.fuse.programs import Rows, solved
from penstock.optimise.fuse.rules import Rules, compile_rules
from penstock.optimise.fuse.workers import keeps_rules
from penstock.optimise.objective import is_feasible, node_cost

PROGRAM_CELLS_MAX = 20_000  # (sites + streams) x nodes, beyond which exact proves nothing
RESOLUTION = 1e-7  # of the largest rate, by which the program's bound is lowered
SEARCH_THETA = 5.0


def schedule(problem: Problem, options: Options) -> Placement:
    """The cheapest placement found that keeps every constraint."""
    rules = compile_rules(problem)
    node = by_search(problem, rules, options)
    return _with_workers(problem, rules, node, options, 0.0)


def prove(problem: Problem, options: Options, theta: float) -> Placement:
    """The same with a lower bound, and a better plan where the program finds one."""
    deadline = Deadline.after(theta)
    rules = compile_rules(problem)
    try:
        node: Ints | None = by_search(problem, rules, replace(options, theta=min(SEARCH_THETA, 0.3 * theta)))
    except NoPlanFound:
        node = None
    node, bound = by_program(problem, rules, node, deadline)
    return _with_workers(problem, rules, node, options, bound)


def by_search(problem: Problem, rules: Rules, options: Options) -> Ints:
    """A node for each task, by the fusion methods and from the other schedulers' plans that keep the rules."""
    from penstock.optimise.place.best import others

    total = float(problem.graph.rate.sum())
    stream_cost = NEGLIGIBLE * float(problem.capacity.min()) / total if total > 0 else 1.0
    graph = site_graph(problem, rules, stream_cost)
    theta = SEARCH_THETA if options.theta is None else options.theta
    case = Case(problem, FuseOptions(seed=options.seed, theta=theta, stream_cost=stream_cost), given=graph)
    found: list[Ints] = []
    try:
        fused = fuse_best.fuse(case)
        found.append(fused.host[fused.worker].astype(np.int32))
    except NoPlanFound as refused:
        reason = str(refused)
    else:
        reason = "every plan that keeps the constraints exceeds a node's bandwidth"
    plain = Problem(problem.graph, problem.cluster)
    found += [node for node in others(plain, options, theta) if keeps_node_rules(graph, node)]
    holding = [node for node in found if is_feasible(problem, node)]
    if not holding:
        raise NoPlanFound(reason)
    return min(holding, key=lambda node: node_cost(problem, node))


def site_graph(problem: Problem, rules: Rules, stream_cost: float) -> FuseGraph:
    """Sites as vertices, with the rules that concern nodes."""
    count = problem.task_count
    about_nodes = replace(rules, block=rules.site, worker_label=np.empty((0, count), dtype=np.int64), mirrors=())
    graph = fuse_graph(problem, about_nodes, stream_cost)
    return replace(graph, slots=np.full(problem.node_count, SLOTS_UNSTATED, dtype=np.int64))


def keeps_node_rules(graph: FuseGraph, node: Ints) -> bool:
    """Whether a placement of tasks keeps sites, allowed nodes and node separations."""
    where = np.full(graph.count, -1, dtype=np.int64)
    where[graph.vertex_of] = node
    if (where[graph.vertex_of] != node).any():
        return False
    used, part = np.unique(where, return_inverse=True)
    return keeps_rules(graph, part.astype(np.int64), used.astype(np.int32))


def by_program(problem: Problem, rules: Rules, start: Ints | None, deadline: Deadline) -> tuple[Ints, float]:
    """The program's placement, or the start where it finds none cheaper, and a lower bound on any placement's cost."""
    sites = Sites.of(problem, rules, 1.0)
    graph = site_graph(problem, rules, 1.0)
    answer = None
    cells = (graph.count + len(graph.weight)) * problem.node_count
    if cells <= PROGRAM_CELLS_MAX and deadline.remaining > 0:
        answer = _answer(problem, sites, graph, start, deadline)
    found = start
    if answer is not None and answer[0] is not None:
        node: Ints = answer[0][rules.site].astype(np.int32)
        if is_feasible(problem, node) and (found is None or node_cost(problem, node) < node_cost(problem, found)):
            found = node
    if found is None:
        msg = (
            f"no placement of {problem.task_count} tasks on {problem.node_count} nodes that keeps the constraints was "
            "found in the time allowed; raise --theta, add nodes, or drop a constraint"
        )
        raise NoPlanFound(msg)
    return found, 0.0 if answer is None else answer[1]


def _answer(
    problem: Problem, sites: Sites, graph: FuseGraph, start: Ints | None, deadline: Deadline
) -> tuple[Longs | None, float]:
    """A node for each site, or None, and the bound."""
    count, nodes = sites.allowed.shape
    rows, unit = Rows(), float(graph.weight.max(initial=0.0)) or 1.0
    flags_end = sites.add_labels(rows)
    sites.add_limits(rows, sites.load)
    for e, (a, b) in enumerate(zip(graph.u.tolist(), graph.v.tolist(), strict=True)):
        for k in range(nodes):
            ends = np.array([a * nodes + k, b * nodes + k, flags_end + e])
            rows.add(-math.inf, 0.0, ends, np.array([1.0, -1.0, -1.0]))
    columns = flags_end + len(graph.weight)
    cost, upper = np.zeros(columns), np.ones(columns)
    cost[flags_end:] = graph.weight / unit
    upper[: count * nodes] = sites.allowed.ravel()
    whole = np.arange(columns) < flags_end
    given = None if start is None else _columns(sites, graph, start, columns, flags_end)
    answer = solved(rows, cost, upper, whole, deadline, start=given)
    if answer.status == "infeasible":
        return None, 0.0
    bound = max(0.0, (answer.bound - RESOLUTION) * unit) if math.isfinite(answer.bound) else 0.0
    if answer.value is None:
        return None, bound
    return answer.value[: count * nodes].reshape(count, nodes).argmax(axis=1), bound


def _columns(sites: Sites, graph: FuseGraph, start: Ints, columns: int, flags_end: int) -> Floats:
    """The program's columns for a known placement."""
    count, nodes = sites.allowed.shape
    where = np.zeros(count, dtype=np.int64)
    where[graph.vertex_of] = start
    value = np.zeros(columns)
    value[np.arange(count) * nodes + where] = 1.0
    sites.set_labels(value, where)
    value[flags_end:] = where[graph.u] != where[graph.v]
    return value


def _with_workers(problem: Problem, rules: Rules, node: Ints, options: Options, bound: float) -> Placement:
    cost = node_cost(problem, node)
    bound = min(bound, cost)
    proved = cost - bound <= 1e-6 * cost
    worker, notes = workers_under_rules(problem, rules, node, options)
    return Placement(node, worker, bound, proved, notes)


def workers_under_rules(problem: Problem, rules: Rules, node: Ints, options: Options) -> tuple[Ints, tuple[str, ...]]:
    """Workers on each task's node that keep the rules, with at most T tasks each as far as slots allow."""
    graph = fuse_graph(problem, rules)
    place = np.zeros(graph.count, dtype=np.int32)
    place[graph.vertex_of] = node
    tasks = np.bincount(graph.vertex_of, minlength=graph.count)
    part = np.arange(graph.count, dtype=np.int64)

    def accept(after: Longs, _: list[tuple[int, int]]) -> Schedule | None:
        host = place[np.unique(after, return_index=True)[1]]
        blocks, held = np.bincount(after), np.bincount(after, tasks)
        few = ((blocks == 1) | (held <= options.tasks_per_worker)).all()
        return Schedule(host, 0.0) if few and (host[after] == place).all() else None

    part, scheduled = greedily_merged(graph, part, Schedule(place, 0.0), accept)
    names = [k.name for k in problem.cluster.nodes]
    part, host = within_slots(graph, part, scheduled.host, names)
    try:  # slots that follow from capacity are kept where the rules allow it
        part, host = within_slots(replace(graph, slots=problem.slots.astype(np.int64)), part, host, names)
    except NoPlanFound as crowded:
        notes: tuple[str, ...] = (f"more workers than whole units of capacity: {crowded}",)
    else:
        notes = ()
    worker: Ints = np.zeros(len(host), dtype=np.int32)
    for k in np.unique(host).tolist():
        worker[host == k] = np.arange(int((host == k).sum()))
    return worker[part[graph.vertex_of]], notes
