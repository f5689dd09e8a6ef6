"""Placement under constraints, for `best` and `exact`; the other schedulers look at none.

Sites (tasks that must share a node) are the vertices, limits and allowed nodes say where they go, and the cost is the
traffic between nodes: fusion with one worker to a node and streams that cost no CPU. Both schedulers take the same
steps (`_Search`), so that only the clock makes one dearer: what the search without constraints finds, changed to meet
them (`meet`) and refined; the fusion methods over a graph of sites, where their time fits theta; an integer program,
which proves the plan or gives a bound (`by_program`); the first step from fresh seeds. A brief search, for a job that
starts, is the first step alone. None of them knows slots, so the cheapest placement whose tasks can be seated in
workers wins (`_seated`). One deadline goes through all of them, and each leaves those after it their share; only a
first plan goes before it (`tests/unit/test_best_deadline.py`, docs/decisions/0040-best-uses-its-time.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from penstock.errors import NoPlanFound, UserError
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import SEED_LIMIT, Deadline, Options, Placement, Problem, untold
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
from penstock.optimise.search.seatable import SEATS_SHARE, seatable
from penstock.optimise.seats import crowded, seated
from penstock.optimise.workers import slots_note, split_by_kway

PROGRAM_CELLS_MAX = 20_000  # (sites + streams) x nodes, beyond which exact proves nothing
RESOLUTION = 1e-7  # of the largest rate, by which the program's bound is lowered
THETA_DEFAULT = 5.0
NEGLIGIBLE = 1e-12  # of the smallest capacity: what streams may take where they must be counted and cost nothing
THOROUGH_THETA = 2.0  # from which jobs have time for all steps
SEARCH_SHARE = 0.5  # of theta at most for the first search and for each round: one that is not cut is worth several cut
FIND_SHARE = 0.75  # of a search for placements without constraints
FUSION_SHARE = 0.2  # of theta for the fusion methods
ROUNDS_SHARE = 0.2  # of theta for rounds after the program
FUSION_VERTICES, FUSION_SECONDS = 75, 2.0  # measured; the seconds grow with the third power of the vertices
LAST_RESORT_SECONDS = 20.0  # beyond theta, where nothing that keeps the constraints was found
SEATING_SHARE = 0.1  # of theta for seating tasks in workers
SEATING_SECONDS_MIN = 1.0  # for merging workers where rules leave no other way
KEPT_MAX = 50  # placements that are remembered, the cheapest
ROUND_SEED_STEP = 0x9E3779B1  # so that no two rounds draw from neighbouring seeds
PROVED_WITHIN = 1e-6  # of the cost


def schedule(
    problem: Problem, options: Options, *, brief: bool = False, clock: Callable[[], float] = time.monotonic
) -> Placement:
    """The cheapest placement found that keeps every constraint; a brief search has neither rounds nor a proof."""
    theta = THETA_DEFAULT if options.theta is None else options.theta
    deadline = Deadline.after(theta, clock)
    until = deadline.earlier(SEATING_SHARE * theta)
    search = _Search(problem, options, theta)
    search.begin(theta if brief else search.seconds, until)
    if not search.found:
        search.fuse(Deadline.after(LAST_RESORT_SECONDS, clock))
    notes: tuple[str, ...] = ()
    if not brief:
        rounds = lasting.asked_rounds(options)
        if _fusion_seconds(search.graph) <= FUSION_SHARE * theta:
            search.fuse(until.within(FUSION_SHARE * theta))
        if lasting.asked_proof(options):
            search.prove(until.earlier(ROUNDS_SHARE * theta) if rounds else until)
        notes = search.go_on(rounds, until)
    placed = _seated(problem, search.rules, search.found, search.reason, options, search.bound, deadline)
    if placed.proved_optimal:
        return placed
    cut = (annealed.CUT_NOTE,) if search.cut or until.remaining <= 0 else ()
    return replace(placed, notes=(*placed.notes, *notes, *cut))


def heard(*, brief: bool) -> tuple[str, ...]:
    """The settings of `best` that change something here."""
    return ("goal",) if brief else ("goal", "rounds", "prove")


def _fusion_seconds(graph: FuseGraph) -> float:
    """What the fusion methods take, by what they were measured to take and not by the clock."""
    return FUSION_SECONDS * (graph.count / FUSION_VERTICES) ** 3


class _Search:
    """Placements that keep every rule about nodes, cheapest first, and a bound on all of them."""

    def __init__(self, problem: Problem, options: Options, theta: float) -> None:
        self.problem, self.options = problem, options
        self.rules = compile_rules(problem)
        total = float(problem.graph.rate.sum())
        stream_cost = NEGLIGIBLE * float(problem.capacity.min()) / total if total > 0 else 1.0
        self.graph = site_graph(problem, self.rules, stream_cost)
        # A "worker" of this case is a node, which has more than one thread.
        asked = FuseOptions(seed=options.seed, theta=theta, balance=0.0, stream_cost=stream_cost)
        self.case = Case(_nodes_alone(problem), asked, given=self.graph)
        self.plain = Problem(problem.graph, problem.cluster)
        self.seconds = SEARCH_SHARE * theta  # of the first search and of each round
        self.found: list[Ints] = []
        self.reason = "every plan that keeps the constraints exceeds a node's bandwidth"
        self.bound = 0.0
        self.cut = False  # whether the clock cut the first search

    @property
    def cost(self) -> float:
        """Of the cheapest placement."""
        return node_cost(self.problem, self.found[0]) if self.found else math.inf

    @property
    def is_proved(self) -> bool:
        """Whether nothing cheaper exists."""
        return math.isfinite(self.cost) and self.cost - self.bound <= PROVED_WITHIN * self.cost

    def begin(self, seconds: float, until: Deadline) -> None:
        """The first search, from the other schedulers' placements as well; no placement goes below its bound."""
        self.bound = lasting.quick_bound(self.plain)
        until = until.within(seconds)
        self._look(self.options.seed, seconds, until, with_others=True)
        self.cut |= until.remaining <= 0

    def fuse(self, until: Deadline) -> None:
        """What the fusion methods find by then."""
        if self.is_proved or until.remaining <= 0:
            return
        try:
            asked = replace(self.case.options, theta=until.remaining)
            fused = fuse_best.fuse(replace(self.case, options=asked, until=until))
        except NoPlanFound as refused:
            self.reason = str(refused)
        else:
            node = fused.host[fused.worker].astype(np.int32)
            self._offer([node, self._met(node)])

    def prove(self, until: Deadline) -> None:
        """What the program adds, and its bound where that is better."""
        if not self.is_proved:
            start = self.found[0] if self.found else None
            placed, bound = by_program(self.problem, self.rules, start, until)
            self._offer(placed)
            self.bound = max(self.bound, bound)

    def go_on(self, enough: int, until: Deadline) -> tuple[str, ...]:
        """Searches from fresh seeds, until so many in a row brought nothing; a note says how that ended."""
        rounds, in_vain = 0, 0
        while in_vain < enough and until.remaining > 0 and not self.is_proved:
            rounds, before = rounds + 1, self.cost
            seed = (self.options.seed + rounds * ROUND_SEED_STEP) % SEED_LIMIT
            part = until.within(self.seconds)
            self._look(seed, part.remaining, part, with_others=False)
            in_vain = 0 if self.cost < before else in_vain + 1
        return (lasting.how_it_ended(rounds, in_vain, stalled=in_vain >= enough),) if enough else ()

    def _look(self, seed: int, seconds: float, until: Deadline, *, with_others: bool) -> None:
        """Placements without constraints, each made to meet them while there is time, and the cheapest refined."""
        asked = replace(self.options, seed=seed, theta=FIND_SHARE * seconds, settings={}, progress=untold)
        candidates: list[Ints] = []
        with suppress(UserError):
            relaxed = annealed.find(self.plain, asked)
            self.bound = max(self.bound, relaxed.lower_bound)
            self.cut |= with_others and annealed.CUT_NOTE in relaxed.notes
            candidates.append(relaxed.node)
            candidates.append(seatable(self.plain, asked, relaxed, until, SEATS_SHARE * seconds).node)
        if with_others:
            candidates += annealed.others(self.plain, asked, seconds, until if candidates else None)
        holding: list[Ints] = []
        for node in _cheapest_first(self.problem, _each_once(candidates)):
            if until.remaining <= 0 and (holding or self.found):
                break
            holding += _holding(self.problem, self.rules, self.graph, [node, self._met(node)])
        if holding:
            start = _cheapest_first(self.problem, holding)[0]
            refined_one = _refined(self.case, self.graph, start, until)
            self._offer([*holding, refined_one, self._met(refined_one)])

    def _met(self, node: Ints) -> Ints:
        return met(self.problem, self.rules, node, split_by_kway(self.problem, node, self.options))[0]

    def _offer(self, nodes: list[Ints]) -> None:
        holding = _holding(self.problem, self.rules, self.graph, nodes)
        self.found = _cheapest_first(self.problem, _each_once([*self.found, *holding]))[:KEPT_MAX]


def _each_once(found: list[Ints]) -> list[Ints]:
    return list({node.tobytes(): node for node in found}.values())


def _cheapest_first(problem: Problem, found: list[Ints]) -> list[Ints]:
    return sorted(found, key=lambda node: node_cost(problem, node))


def _nodes_alone(problem: Problem) -> Problem:
    """The problem without what its workers can carry."""
    nodes = tuple(replace(node, worker_capacity=None) for node in problem.cluster.nodes)
    return replace(problem, cluster=replace(problem.cluster, nodes=nodes))


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
    holding = [
        node
        for node in _each_once(found)
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
    problem: Problem,
    rules: Rules,
    found: list[Ints],
    reason: str,
    options: Options,
    bound: float,
    deadline: Deadline,
) -> Placement:
    """The cheapest of the placements whose tasks can be seated in workers, or NoPlanFound."""
    for node in _cheapest_first(problem, found):
        try:
            worker, notes = _workers(problem, rules, node, options, deadline)
        except NoPlanFound as crowded:
            reason = str(crowded)
            continue
        cost = node_cost(problem, node)
        bound = min(bound, cost)
        return Placement(node, worker, bound, cost - bound <= PROVED_WITHIN * cost, notes)
    raise NoPlanFound(reason)


def _workers(
    problem: Problem, rules: Rules, node: Ints, options: Options, deadline: Deadline
) -> tuple[Ints, tuple[str, ...]]:
    """Workers by k-way split, mended where rule or load forbids a seat; by merging under the rules where that fails.

    Merging also keeps isomorphic replicas alike, but it takes minutes for hundreds of tasks, so it stops when it must.
    """
    split, raised = seated(problem, node, split_by_kway(problem, node, options), options)
    after, worker = met(problem, rules, node, split)
    if (after == node).all() and keeps(rules, node, worker) and not len(crowded(problem, node, worker)):
        return worker, (*slots_note(problem, node, worker, options), *raised)
    until = Deadline.after(max(SEATING_SECONDS_MIN, deadline.remaining), deadline.clock)
    worker, notes = workers_under_rules(problem, rules, node, options, until)
    if len(full := crowded(problem, node, worker)):
        names = problem.cluster.nodes[int(full[0])].name
        msg = f"the tasks of node {names!r} fit no workers that keep the constraints, each a thread of its own"
        raise NoPlanFound(msg)
    return worker, notes


def workers_under_rules(
    problem: Problem, rules: Rules, node: Ints, options: Options, until: Deadline
) -> tuple[Ints, tuple[str, ...]]:
    """Workers on each task's node that keep the rules, with at most T tasks each as far as slots allow."""
    graph = fuse_graph(problem, rules).with_threads_enough()  # rates are not CPU here
    place = np.zeros(graph.count, dtype=np.int32)
    place[graph.vertex_of] = node
    tasks = np.bincount(graph.vertex_of, minlength=graph.count)
    load = np.bincount(graph.vertex_of, problem.graph.load, minlength=graph.count)
    part = np.arange(graph.count, dtype=np.int64)

    def accept(after: Longs, _: list[tuple[int, int]]) -> Schedule | None:
        if until.remaining <= 0:
            return None
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
