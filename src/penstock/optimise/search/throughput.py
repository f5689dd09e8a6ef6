"""`best` with the goal throughput: among plans that keep every limit, the one whose busiest worker is least busy.

Bytes alone put tasks that talk into one worker, which is one thread. Here the order is pressure (`pressure.py`), then
the CPU of all communication, then bytes. Starts are the plan with the fewest bytes, every other scheduler's, even
spreads, the longest task first, and k-way partitions, each over several numbers of workers; the best few are improved
by moving and swapping blocks of tasks. Nothing is random but the order of the moves, which the seed gives.

On small problems of CPU alone the answer is not dearer in this order than the plan of any scheduler that decides
without a clock and a measured phi (`test_throughput_is_never_behind_another_scheduler`). Rejected: one weighted sum of
pressure and bytes, whose weight would have to know how fast the job could be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.errors import NoPlanFound, UserError
from penstock.model.taskgraph import Ints, Longs
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.fuse.steps.rules import Rules, compile_rules
from penstock.optimise.meet import keeps, met
from penstock.optimise.objective import is_feasible, node_cost
from penstock.optimise.place import find_scheduler
from penstock.optimise.search.annealed import CUT_NOTE, THETA_DEFAULT, affordable
from penstock.optimise.search.pressure import PRESSURE_NOTE, Price, Pricing
from penstock.optimise.seats import crowded, seated
from penstock.optimise.steps.kway import kway
from penstock.optimise.workers import split_by_kway

SEATS_MAX = 4_096  # of all nodes together that starts are made for
STARTS_IMPROVED = 6
STARTS_UNMEASURED = 2  # of guessed loads: more search costs a short job more time than it can save
TRIES_MAX = 30_000  # moves and swaps looked at, for all starts
PASSES_MAX = 30
PRICES_BYTES_MAX = 32 << 20  # of plans whose price is remembered
NODES_ALONE = frozenset({"rstorm", "ras", "ffd", "t3"})  # schedulers that decide on nodes and leave workers open
NEAR_MAX = 24  # workers that a task is tried on where there are more

Plan = tuple[Ints, Ints]  # node and worker of each task


@dataclass(frozen=True, eq=False)
class _Search:
    """A problem, its rules and its prices."""

    problem: Problem
    rules: Rules | None
    pricing: Pricing
    places: list[tuple[int, int]]  # every worker that starts use: node and number
    deadline: Deadline
    prices: dict[bytes, Price] = field(default_factory=dict)  # searches from several starts meet the same plans

    def holds(self, plan: Plan) -> bool:
        """Whether every limit and every rule is kept."""
        node, worker = plan
        return (
            bool((worker < np.minimum(self.problem.workers_limit[node], self.pricing.seats)).all())
            and is_feasible(self.problem, node)
            and not len(crowded(self.problem, node, worker))
            and (self.rules is None or keeps(self.rules, node, worker))
        )

    def price(self, plan: Plan) -> Price:
        key = plan[0].tobytes() + plan[1].tobytes()
        known = self.prices.get(key)
        if known is None:
            known = self.pricing.price(*plan)
            if len(key) * len(self.prices) < PRICES_BYTES_MAX:
                self.prices[key] = known
        return known


def find(problem: Problem, options: Options, fewest_bytes: Placement) -> Placement:
    """The plan under least pressure; `fewest_bytes` is a plan that holds, whose bound on bytes stays true."""
    theta = THETA_DEFAULT if options.theta is None else options.theta
    rules = compile_rules(problem) if problem.constraints else None
    first = _seats_of(problem, fewest_bytes, options)
    plans = [first, *_others(problem, options, theta)]
    seats = max(int(worker.max()) + 1 for _, worker in plans)
    seats = max(seats, min(problem.task_count, int(problem.slots.max())))
    places = _places(problem, seats)
    search = _Search(problem, rules, Pricing.of(problem, seats, options.usable_share), places, Deadline.after(theta))
    plans += _starts(search, options)
    if rules is not None:
        plans += _meeting(search, rules, plans)
    priced = {(n.tobytes(), w.tobytes()): (n, w) for n, w in plans if search.holds((n, w))}
    if not priced:
        msg = "no plan that keeps every limit of its workers was found; add nodes, or try --set goal=bytes"
        raise NoPlanFound(msg)
    ranked = sorted(priced.values(), key=search.price)
    best = ranked[0]
    tries = TRIES_MAX // STARTS_IMPROVED
    starts = STARTS_UNMEASURED if search.pricing.declared else STARTS_IMPROVED
    for number, plan in enumerate(ranked[:starts]):
        is_balanced = search.price(best).level <= search.pricing.least_level()  # what is left to gain is bytes
        if is_balanced and (number or search.pricing.declared):
            break
        better = _improved(search, plan, options.seed + number, tries)
        if search.price(better) < search.price(best):
            best = better
    node, worker = best
    cost = node_cost(problem, node)
    bound = min(fewest_bytes.lower_bound, cost)
    busy, least = search.pricing.pressure(node, worker), search.pricing.least()
    note = f"{PRESSURE_NOTE}the busiest worker or node is at {busy:.3g} of what it can do; no plan is below {least:.3g}"
    cut = search.deadline.remaining <= 0 or CUT_NOTE in fewest_bytes.notes
    return Placement(node, worker, bound, False, (note, CUT_NOTE) if cut else (note,))


def _seats_of(problem: Problem, placement: Placement, options: Options) -> Plan:
    """The placement with workers, as the door would choose them."""
    node = placement.node.astype(np.int32)
    worker = placement.worker if placement.worker is not None else split_by_kway(problem, node, options)
    if not problem.constraints:
        worker, _ = seated(problem, node, worker, options)
    return node, worker.astype(np.int32)


def _meeting(search: _Search, rules: Rules, plans: list[Plan]) -> list[Plan]:
    """The plans made to meet the rules, as far as there is time: the plan with the fewest bytes keeps them anyhow."""
    found: list[Plan] = []
    for plan in plans:
        if search.deadline.remaining <= 0:
            break
        found.append(met(search.problem, rules, *plan))
    return found


def _others(problem: Problem, options: Options, theta: float) -> list[Plan]:
    """What the other schedulers answer, with workers; one that finds nothing is left out.

    On one node all that leave workers open give the same plan, which the one with the fewest bytes is already.
    """
    quick = replace(options, theta=0.0, settings={})
    plain = Problem(problem.graph, problem.cluster)
    found: list[Plan] = []
    for name in affordable(problem.task_count, problem.node_count, len(problem.graph.rate), theta):
        if problem.node_count == 1 and name in NODES_ALONE:
            continue
        try:
            found.append(_seats_of(plain, find_scheduler(name).load()(plain, quick), options))
        except UserError:
            continue
    return found


def _places(problem: Problem, seats: int) -> list[tuple[int, int]]:
    """Workers in the order in which they are filled: the first of every node, then the second, and so on."""
    limit = np.minimum(np.minimum(problem.workers_limit, seats), problem.task_count)
    found: list[tuple[int, int]] = []
    for worker in range(int(limit.max())):
        found += [(k, worker) for k in range(problem.node_count) if worker < limit[k]]
        if len(found) >= SEATS_MAX:
            break
    return found[:SEATS_MAX]


def _starts(search: _Search, options: Options) -> list[Plan]:
    """Even spreads, longest tasks first, and k-way partitions, over several numbers of workers."""
    problem, places = search.problem, search.places
    by_node = sorted(places)
    most = min(len(places), problem.task_count)
    numbers = sorted({1, 2, 3, 4, most // 2, most, math.ceil(problem.graph.load.sum()), _whole_cores(search)})
    found: list[Plan] = []
    for count in (number for number in numbers if 1 <= number <= most):
        for chosen in (places[:count], by_node[:count]):
            at = np.array(chosen, dtype=np.int32)
            parts = (_even(problem, count), _longest_first(search, chosen), _kway(problem, count, options))
            found += [(at[part, 0].copy(), at[part, 1].copy()) for part in parts]
    return found


def _whole_cores(search: _Search) -> int:
    return math.ceil(float(search.pricing.cores.sum()) - 1e-6)


def _even(problem: Problem, count: int) -> Longs:
    """Tasks dealt out operator by operator, each beginning where the one before it ended."""
    return np.arange(problem.task_count, dtype=np.int64) % count


def _longest_first(search: _Search, chosen: list[tuple[int, int]]) -> Longs:
    """The heaviest task first, each to the worker that is done with it soonest."""
    problem = search.problem
    thread = np.array([search.pricing.thread[k * search.pricing.seats + w] for k, w in chosen])
    carried, part = np.zeros(len(chosen)), np.zeros(problem.task_count, dtype=np.int64)
    for t in np.argsort(-problem.graph.load, kind="stable").tolist():
        seat = int(np.argmin((carried + problem.graph.load[t]) / thread))
        part[t] = seat
        carried[seat] += problem.graph.load[t]
    return part


def _kway(problem: Problem, count: int, options: Options) -> Longs:
    weight = np.maximum(problem.graph.load, 1e-9)
    return kway(problem.graph, np.arange(problem.task_count), count, options.seed, weight).astype(np.int64)


def _improved(search: _Search, plan: Plan, seed: int, tries: int) -> Plan:
    """The plan with blocks moved and swapped between workers as long as that makes it better."""
    draw = np.random.default_rng(seed)
    blocks = _blocks(search)
    price = search.price(plan)
    for _ in range(PASSES_MAX):
        before = price
        for b in draw.permutation(len(blocks)).tolist():
            for after in (*_moves(search, plan, blocks[b]), *_swaps(plan, blocks, b)):
                tries -= 1
                if tries < 0 or search.deadline.remaining <= 0:
                    return plan
                then = search.price(after)
                if then < price and search.holds(after):
                    plan, price = after, then
                    break
        if price == before:
            return plan
    return plan


def _blocks(search: _Search) -> list[Longs]:
    """What moves together: tasks that share a worker by a rule, and otherwise each task; pinned ones do not move."""
    if search.rules is None:
        return list(np.arange(search.problem.task_count)[:, None])
    order = np.argsort(search.rules.block, kind="stable")
    found = np.split(order, np.flatnonzero(np.diff(search.rules.block[order])) + 1)
    return [block for block in found if (search.rules.pinned[block] < 0).all()]


def _moves(search: _Search, plan: Plan, block: Longs) -> list[Plan]:
    node, worker = plan
    here = int(node[block[0]]), int(worker[block[0]])
    places = search.places
    if len(places) > NEAR_MAX:
        places = _near(search, plan, block)
    found: list[Plan] = []
    for k, w in places:
        if (k, w) != here:
            after = node.copy(), worker.copy()
            after[0][block], after[1][block] = k, w
            found.append(after)
    return found


def _near(search: _Search, plan: Plan, block: Longs) -> list[tuple[int, int]]:
    """Workers of the tasks with which a block talks, the least loaded ones, and the next empty one of each kind."""
    node, worker = plan
    adjacency = search.problem.graph.adjacency
    near: dict[tuple[int, int], None] = {}
    for t in block.tolist():
        for other in adjacency.neighbour[adjacency.start[t] : adjacency.start[t + 1]].tolist():
            near.setdefault((int(node[other]), int(worker[other])))
    seats = search.pricing.seats
    thread = search.pricing.thread
    load = np.bincount(node.astype(np.int64) * seats + worker, search.problem.graph.load, minlength=len(thread))
    at = np.array([k * seats + w for k, w in search.places])
    idle = np.argsort((load / thread)[at], kind="stable")[: NEAR_MAX // 2]
    return [*list(near)[: NEAR_MAX // 2], *(search.places[i] for i in idle.tolist())]


def _swaps(plan: Plan, blocks: list[Longs], b: int) -> list[Plan]:
    node, worker = plan
    one, found = blocks[b], []
    for other in blocks[b + 1 : b + 1 + 4 * NEAR_MAX]:
        if (node[other[0]], worker[other[0]]) != (node[one[0]], worker[one[0]]):
            after = node.copy(), worker.copy()
            for array, was in ((after[0], node), (after[1], worker)):
                array[one], array[other] = was[other[0]], was[one[0]]
            found.append(after)
    return found
