"""Placement under constraints, for `best` and `exact`; the other schedulers look at none.

Sites (tasks that must share a node) are the vertices; allowed nodes, node separations, CPU and memory limit where they
go; the cost is the traffic between nodes. That is fusion with one worker to a node and streams that cost no CPU. So
`best` refines what the search without constraints finds and asks the fusion methods, over a graph of sites
(`by_search`); a job that starts has no time for the methods. `exact` adds an integer program over the same sites, which
proves the plan or gives a bound (`by_program`). None of them knows slots, so every candidate is also made to meet the
constraints (`meet`), and the cheapest one whose tasks can be seated in workers wins (`_seated`).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np

from penstock.errors import NoPlanFound, UserError
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import SEED_LIMIT, Deadline, Options, Placement, Problem
from penstock.optimise.fuse import best as fuse_best
from penstock.optimise.fuse.contract import Case, FuseOptions
from penstock.optimise.fuse.steps.assign import Schedule
from penstock.optimise.fuse.steps.fuse_graph import SLOTS_UNSTATED, FuseGraph, fuse_graph
from penstock.optimise.fuse.steps.packing import Sites
from penstock.optimise.fuse.steps.postprocess import greedily_merged, within_slots
from penstock.optimise.fuse.steps.programs import Rows, solved
from penstock.optimise.fuse.steps.refine import refined, scored
from penstock.optimise.fuse.steps.rules import Rules, compile_rules
from penstock.optimise.fuse.steps.workers import keeps_rules, numbers_on_nodes, pinned_workers
from penstock.optimise.meet import keeps, met
from penstock.optimise.objective import is_feasible, node_cost
from penstock.optimise.search import annealed, lasting
from penstock.optimise.search.seatable import seatable
from penstock.optimise.seats import crowded, seated
from penstock.optimise.workers import slots_note, split_by_kway

PROGRAM_CELLS_MAX = 20_000  # (sites + streams) x nodes, beyond which exact proves nothing
RESOLUTION = 1e-7  # of the largest rate, by which the program's bound is lowered
SEARCH_THETA = 5.0
NEGLIGIBLE = 1e-12  # of the smallest capacity: what streams may take where they must be counted and cost nothing
# Below, as in jobs, the fusion methods would take longer than was asked for: they have their own thetas.
FUSION_THETA_MIN = 2.0
ROUND_SEED_STEP = 0x9E3779B1  # so that no two rounds draw from neighbouring seeds
SEARCH_SHARE = 0.3  # of theta for the first search, and for rounds after the program
PROVED_WITHIN = 1e-6  # of the cost


def schedule(problem: Problem, options: Options) -> Placement:
    """The cheapest placement found that keeps every constraint; with time enough, after rounds and a proof."""
    if _has_time(options):
        return _lasting(problem, options, _theta(options))
    rules = compile_rules(problem)
    found, reason, bound = by_search(problem, rules, options)
    return _seated(problem, rules, found, reason, options, bound)


def heard(options: Options) -> tuple[str, ...]:
    """The settings of `best` that change something here."""
    return ("goal", "rounds", "prove") if _has_time(options) else ("goal",)


def _has_time(options: Options) -> bool:
    return _theta(options) >= FUSION_THETA_MIN


def _theta(options: Options) -> float:
    return SEARCH_THETA if options.theta is None else options.theta


def prove(problem: Problem, options: Options, theta: float) -> Placement:
    """A search, then a lower bound, and a better plan where the program finds one."""
    rules, deadline = compile_rules(problem), Deadline.after(theta)
    brief = replace(options, theta=min(SEARCH_THETA, SEARCH_SHARE * theta))
    found, _, bound = by_search(problem, rules, brief)
    found, bound = _with_program(problem, rules, found, bound, deadline)
    return _seated(problem, rules, found, _not_found(problem), options, bound)


def _lasting(problem: Problem, options: Options, theta: float) -> Placement:
    """As `prove`, and then searches from fresh seeds until the bound is met, the time is over or they have stalled."""
    rules, deadline = compile_rules(problem), Deadline.after(theta)
    brief = replace(options, theta=min(SEARCH_THETA, SEARCH_SHARE * theta))
    found, reason, bound = by_search(problem, rules, brief)
    if lasting.asked_proof(options):
        before_rounds = Deadline(deadline.at - SEARCH_SHARE * theta, deadline.clock)
        found, bound = _with_program(problem, rules, found, bound, before_rounds)
    rounds, in_vain, enough = 0, 0, lasting.asked_rounds(options)
    while in_vain < enough and deadline.remaining > 0 and not _is_proved(problem, found, bound):
        rounds += 1
        seed = (options.seed + rounds * ROUND_SEED_STEP) % SEED_LIMIT
        fresh = replace(brief, seed=seed, theta=min(SEARCH_THETA, deadline.remaining))
        again, _, _ = by_search(problem, rules, fresh)
        is_better = _least(problem, again) < _least(problem, found)
        found, in_vain = _cheapest_first(problem, [*found, *again]), 0 if is_better else in_vain + 1
    placed = _seated(problem, rules, found, reason, options, bound)
    if placed.proved_optimal or not enough:
        return placed
    return replace(placed, notes=(*placed.notes, lasting.how_it_ended(rounds, in_vain, stalled=in_vain >= enough)))


def _with_program(
    problem: Problem, rules: Rules, found: list[Ints], bound: float, deadline: Deadline
) -> tuple[list[Ints], float]:
    """What the program adds to the placements that a search has found, cheapest first, and the better bound."""
    if _is_proved(problem, found, bound):
        return found, bound
    proved, own = by_program(problem, rules, found[0] if found else None, deadline)
    return _cheapest_first(problem, [*found, *proved]), max(bound, own)


def _is_proved(problem: Problem, found: list[Ints], bound: float) -> bool:
    cost = _least(problem, found)
    return math.isfinite(cost) and cost - bound <= PROVED_WITHIN * cost


def _least(problem: Problem, found: list[Ints]) -> float:
    return node_cost(problem, found[0]) if found else math.inf


def _cheapest_first(problem: Problem, found: list[Ints]) -> list[Ints]:
    return sorted(found, key=lambda node: node_cost(problem, node))


def _not_found(problem: Problem) -> str:
    return (
        f"no placement of {problem.task_count} tasks on {problem.node_count} nodes that keeps the constraints was "
        "found in the time allowed; raise --theta, add nodes, or drop a constraint"
    )


def by_search(problem: Problem, rules: Rules, options: Options) -> tuple[list[Ints], str, float]:
    """Placements that keep every rule about nodes, cheapest first, what is in the way where there is none, and a bound.

    What no placement without constraints goes below, none with them does.
    """
    total = float(problem.graph.rate.sum())
    stream_cost = NEGLIGIBLE * float(problem.capacity.min()) / total if total > 0 else 1.0
    graph = site_graph(problem, rules, stream_cost)
    theta = _theta(options)
    # A "worker" of this case is a node, which has more than one thread.
    asked = FuseOptions(seed=options.seed, theta=theta, balance=0.0, stream_cost=stream_cost)
    case = Case(_nodes_alone(problem), asked, given=graph)
    plain, brief = Problem(problem.graph, problem.cluster), replace(options, theta=theta, settings={})
    found = annealed.others(plain, options, theta)
    bound = lasting.quick_bound(plain)
    with suppress(UserError):
        relaxed = annealed.find(plain, brief)
        bound = max(bound, relaxed.lower_bound)
        found.append(seatable(plain, brief, relaxed).node)
    reason = "every plan that keeps the constraints exceeds a node's bandwidth"
    holding = _holding(problem, rules, graph, _with_met(problem, rules, found, options))
    found = [_refined(case, graph, holding[0], Deadline.after(theta))] if holding else []
    if not holding or theta >= FUSION_THETA_MIN:
        try:
            fused = fuse_best.fuse(case)
            found.append(fused.host[fused.worker].astype(np.int32))
        except NoPlanFound as refused:
            reason = str(refused)
    return _holding(problem, rules, graph, [*holding, *_with_met(problem, rules, found, options)]), reason, bound


def _nodes_alone(problem: Problem) -> Problem:
    """The problem without what its workers can carry."""
    nodes = tuple(replace(node, worker_capacity=None) for node in problem.cluster.nodes)
    return replace(problem, cluster=replace(problem.cluster, nodes=nodes))


def _with_met(problem: Problem, rules: Rules, found: list[Ints], options: Options) -> list[Ints]:
    """The placements, and each made to meet the constraints."""
    return [*found, *(met(problem, rules, node, split_by_kway(problem, node, options))[0] for node in found)]


def _refined(case: Case, graph: FuseGraph, node: Ints, deadline: Deadline) -> Ints:
    """A placement with sites moved and swapped between nodes while that saves traffic."""
    where = np.zeros(graph.count, dtype=np.int32)
    where[graph.vertex_of] = node
    used, part = np.unique(where, return_inverse=True)
    state = refined(case, graph, scored(case, graph, part.astype(np.int64), used), deadline)
    after: Ints = state.host[state.part][graph.vertex_of].astype(np.int32)
    return after


def _holding(problem: Problem, rules: Rules, graph: FuseGraph, found: list[Ints]) -> list[Ints]:
    """The placements that keep rules about nodes, slots and every limit, each once, cheapest first."""
    each = {node.tobytes(): node for node in found}.values()
    holding = [
        node
        for node in each
        if keeps_node_rules(graph, node) and has_slots(problem, rules, node) and is_feasible(problem, node)
    ]
    return _cheapest_first(problem, holding)


def has_slots(problem: Problem, rules: Rules, node: Ints) -> bool:
    """Whether no node holds more tasks that need workers of their own than it states slots."""
    for row in rules.worker_label:
        labelled = np.flatnonzero(row >= 0)
        pairs = np.unique(np.stack([node[labelled], row[labelled]]), axis=1)[0]
        apart = np.bincount(pairs, minlength=problem.node_count).tolist()
        if any(k.slots is not None and k.slots < sides for k, sides in zip(problem.cluster.nodes, apart, strict=True)):
            return False
    return True


def site_graph(problem: Problem, rules: Rules, stream_cost: float) -> FuseGraph:
    """Sites as vertices, with the rules that concern nodes."""
    count = problem.task_count
    about_nodes = replace(rules, block=rules.site, worker_label=np.empty((0, count), dtype=np.int64), mirrors=())
    graph = fuse_graph(problem, about_nodes, stream_cost)
    return replace(graph.with_threads_enough(), slots=np.full(problem.node_count, SLOTS_UNSTATED, dtype=np.int64))


def keeps_node_rules(graph: FuseGraph, node: Ints) -> bool:
    """Whether a placement of tasks keeps sites, allowed nodes and node separations."""
    where = np.full(graph.count, -1, dtype=np.int64)
    where[graph.vertex_of] = node
    if (where[graph.vertex_of] != node).any():
        return False
    used, part = np.unique(where, return_inverse=True)
    return keeps_rules(graph, part.astype(np.int64), used.astype(np.int32))


def by_program(problem: Problem, rules: Rules, start: Ints | None, deadline: Deadline) -> tuple[list[Ints], float]:
    """What the program places, as it is and seated, and a lower bound on any placement's cost."""
    sites = Sites.of(problem, rules, 1.0)
    graph = site_graph(problem, rules, 1.0)
    cells = (graph.count + len(graph.weight)) * problem.node_count
    if cells > PROGRAM_CELLS_MAX or deadline.remaining <= 0:
        return [], 0.0
    placed, bound = _answer(problem, sites, graph, start, deadline)
    if placed is None:
        return [], bound
    node: Ints = placed[rules.site].astype(np.int32)
    seated = met(problem, rules, node, np.zeros(len(node), dtype=np.int32))[0]
    return _holding(problem, rules, graph, [node, seated]), bound


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


def _seated(
    problem: Problem, rules: Rules, found: list[Ints], reason: str, options: Options, bound: float
) -> Placement:
    """The cheapest of the placements whose tasks can be seated in workers, or NoPlanFound."""
    for node in _cheapest_first(problem, found):
        try:
            worker, notes = _workers(problem, rules, node, options)
        except NoPlanFound as crowded:
            reason = str(crowded)
            continue
        cost = node_cost(problem, node)
        bound = min(bound, cost)
        return Placement(node, worker, bound, cost - bound <= PROVED_WITHIN * cost, notes)
    raise NoPlanFound(reason)


def _workers(problem: Problem, rules: Rules, node: Ints, options: Options) -> tuple[Ints, tuple[str, ...]]:
    """Workers by k-way split, mended where rule or load forbids a seat; by merging under the rules where that fails.

    Merging also keeps isomorphic replicas alike, but it takes minutes for hundreds of tasks.
    """
    split, raised = seated(problem, node, split_by_kway(problem, node, options), options)
    after, worker = met(problem, rules, node, split)
    if (after == node).all() and keeps(rules, node, worker) and not len(crowded(problem, node, worker)):
        return worker, (*slots_note(problem, node, worker, options), *raised)
    worker, notes = workers_under_rules(problem, rules, node, options)
    if len(full := crowded(problem, node, worker)):
        names = problem.cluster.nodes[int(full[0])].name
        msg = f"the tasks of node {names!r} fit no workers that keep the constraints, each a thread of its own"
        raise NoPlanFound(msg)
    return worker, notes


def workers_under_rules(problem: Problem, rules: Rules, node: Ints, options: Options) -> tuple[Ints, tuple[str, ...]]:
    """Workers on each task's node that keep the rules, with at most T tasks each as far as slots allow."""
    graph = fuse_graph(problem, rules).with_threads_enough()  # rates are not CPU here
    place = np.zeros(graph.count, dtype=np.int32)
    place[graph.vertex_of] = node
    tasks = np.bincount(graph.vertex_of, minlength=graph.count)
    load = np.bincount(graph.vertex_of, problem.graph.load, minlength=graph.count)
    part = np.arange(graph.count, dtype=np.int64)

    def accept(after: Longs, _: list[tuple[int, int]]) -> Schedule | None:
        host = place[np.unique(after, return_index=True)[1]]
        blocks, held = np.bincount(after), np.bincount(after, tasks)
        few = (blocks == 1) | (held <= options.tasks_per_worker)
        light = (blocks == 1) | (np.bincount(after, load) <= problem.worker_capacity[host])
        return Schedule(host, 0.0) if few.all() and light.all() and (host[after] == place).all() else None

    part, scheduled = greedily_merged(graph, part, Schedule(place, 0.0), accept)
    names = [k.name for k in problem.cluster.nodes]
    part, host = within_slots(graph, part, scheduled.host, names)
    try:  # slots that follow from capacity are kept where the rules allow it
        part, host = within_slots(replace(graph, slots=problem.slots.astype(np.int64)), part, host, names)
    except NoPlanFound as crowded:
        notes: tuple[str, ...] = (f"more workers than whole units of capacity: {crowded}",)
    else:
        notes = ()
    tasks_in = part[graph.vertex_of]
    return numbers_on_nodes(host, pinned_workers(tasks_in, rules.pinned))[tasks_in], notes
