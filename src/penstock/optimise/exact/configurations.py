"""Interchangeable tasks: the exact model over connected configurations of classes.

Tasks of equal load, memory and neighbourhood form a class; which of them goes where makes no difference. A
*configuration* says how many tasks of each class sit together. Unconnected ones are not listed, because a node's
traffic is the sum over its connected pieces. The mixed-integer program covers every class, and packs the pieces into
node types by *patterns* (how many pieces of each size fill a node of a type). Pieces of one node that do talk to each
other are counted as if they did not, which no optimum does: their union is a configuration as well.

Rejected: node contents as columns (unconnected contents multiply without saying anything new); tasks by nodes, which is
symmetric (the papers' CPLEX took up to 1,114,257 s on section 5's instances); total capacity in place of patterns,
which does not see that two pieces of size 3 do not fit a node of 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import Floats, Ints
from penstock.optimise.contract import Deadline, Problem
from penstock.optimise.exact.classes import Classes, classes_of
from penstock.optimise.exact.master import RESOLUTION, quiet_highs, run_confirmed
from penstock.optimise.exact.node_types import NodeType, node_types
from penstock.optimise.exact.proof import Varying

CONFIGURATIONS_MAX = 12_000
CONFIGURATION_CELLS_MAX = 1_500_000  # configurations x classes
SIZES_MAX = 60  # with more distinct sizes patterns explode, and column generation is the better model
PATTERNS_MAX = 4_000
PATTERN_WORK_MAX = 60_000  # steps of the listing, about a tenth of a second
WHOLE_MAX = 1e5  # values up to which whole numbers are worth more to the solver than small ones
SAME_SIZE_DIGITS = 10  # sizes that agree to these digits are one size; the contract's slack is wider


@dataclass(frozen=True, eq=False)
class Model:
    """Everything that the mixed-integer program is made of."""

    classes: Classes
    types: tuple[NodeType, ...]
    configurations: Ints  # one row each: tasks per class
    kept: Floats
    size_of: Ints  # number of the configuration's size
    sizes: Floats  # one row each: load, memory, sent, received
    patterns: tuple[tuple[tuple[int, ...], ...], ...]  # per node type: how many pieces of each size


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the solver said. No placement and `infeasible` false: time ran out."""

    node: Ints | None
    lower_bound: float
    infeasible: bool = False


def connected_configurations(
    classes: Classes, types: Sequence[NodeType], limit: int, deadline: Deadline | None = None
) -> Ints | None:
    """Every connected configuration that the roomiest node could hold; None when above `limit`, or at the deadline."""
    room = max(t.capacity for t in types)
    memory_room = max(t.memory_mb for t in types)
    linked = classes.outward + classes.outward.T > 0
    neighbours = [np.flatnonzero(row).tolist() for row in linked]
    counts, load, memory = classes.counts, classes.load.tolist(), classes.memory.tolist()
    if len(counts) > limit:
        return None
    empty = (0,) * len(counts)
    frontier = [((*empty[:c], 1, *empty[c + 1 :]), frozenset(neighbours[c]), load[c], memory[c])
                for c in range(len(counts)) if load[c] <= room and memory[c] <= memory_room]  # fmt: skip
    seen = {entry[0] for entry in frontier}
    while frontier:
        grown = []
        for held, reachable, used, resident in frontier:
            for c in reachable:
                if held[c] == counts[c] or used + load[c] > room or resident + memory[c] > memory_room:
                    continue
                more = (*held[:c], held[c] + 1, *held[c + 1 :])
                if more in seen:
                    continue
                seen.add(more)
                grown.append((more, reachable.union(neighbours[c]), used + load[c], resident + memory[c]))
            if len(seen) > limit or (deadline is not None and deadline.remaining <= 0):
                return None
        frontier = grown
    return np.array(sorted(seen), dtype=np.int32).reshape(len(seen), len(counts))


def packing_patterns(sizes: Floats, limits: Floats, most: Sequence[int], limit: int) -> list[tuple[int, ...]] | None:
    """Every maximal multiset of sizes that keeps the limits, or None when there are more than `limit`.

    `most` bounds how often a size can be used at all.
    """
    scarce = np.isfinite(limits) & (sizes.sum(axis=0) > 0)
    scarce[0] = True  # load counts even when nothing has any
    sizes, limits = sizes[:, scarce], limits[scarce]
    order = np.lexsort(sizes.T[::-1])[::-1].tolist()  # largest load first: deep branches are then short
    rows = [tuple(sizes[s].tolist()) for s in order]
    bound = tuple(limits.tolist())
    found: list[tuple[int, ...]] = []
    work = 0

    def fits(used: tuple[float, ...], extra: tuple[float, ...]) -> bool:
        return all(u + e <= b for u, e, b in zip(used, extra, bound, strict=True))

    def extend(position: int, used: tuple[float, ...], chosen: list[int]) -> bool:
        nonlocal work
        work += 1 if position < len(rows) else len(rows)
        if work > PATTERN_WORK_MAX or len(found) > limit:
            return False
        if position == len(rows):
            if not any(chosen[p] < most[order[p]] and fits(used, rows[p]) for p in range(len(rows))):
                found.append(tuple(chosen))
            return True
        levels = [used]
        while len(levels) <= most[order[position]] and fits(levels[-1], rows[position]):
            levels.append(tuple(u + e for u, e in zip(levels[-1], rows[position], strict=True)))
        return all(extend(position + 1, levels[count], [*chosen, count]) for count in range(len(levels) - 1, -1, -1))

    if len(rows) > SIZES_MAX or not extend(0, (0.0,) * len(bound), []):
        return None
    unsorted = np.empty((len(found), len(rows)), dtype=np.int64)
    unsorted[:, order] = np.array(found, dtype=np.int64).reshape(len(found), len(rows))
    return [tuple(row) for row in unsorted.tolist()]


def build_model(problem: Problem, deadline: Deadline | None = None) -> Model | None:
    """The model, or None when it would be too large to pay, or the deadline came."""
    types = node_types(problem)
    limited = any(np.isfinite(t.bandwidth) for t in types)
    classes = classes_of(problem.graph, directed=limited)
    most_configurations = min(CONFIGURATIONS_MAX, CONFIGURATION_CELLS_MAX // len(classes.members))
    configurations = connected_configurations(classes, types, most_configurations, deadline)
    if configurations is None:
        return None
    configurations = configurations[_held(classes, types, configurations)]
    rate = classes.outward
    inside = np.einsum("qc,cd,qd->q", configurations, rate, configurations, optimize=True)
    counts = np.array(classes.counts)
    sent = configurations @ (rate @ counts) - inside if limited else np.zeros(len(inside))
    received = configurations @ (rate.T @ counts) - inside if limited else np.zeros(len(inside))
    needs = np.column_stack([configurations @ classes.load, configurations @ classes.memory, sent, received])
    scale = np.maximum(np.abs(needs).max(axis=0, initial=0.0), 1e-300)
    _, first, size_of = np.unique(
        np.round(needs / scale, SAME_SIZE_DIGITS), axis=0, return_index=True, return_inverse=True
    )
    numbers = size_of.ravel().astype(np.int32)
    most = np.zeros(len(first), dtype=np.int64)
    with np.errstate(divide="ignore"):
        often = np.where(configurations > 0, counts // np.maximum(configurations, 1), np.iinfo(np.int64).max).min(
            axis=1
        )
    np.add.at(most, numbers, often)
    most = np.minimum(most, problem.task_count)
    patterns = []
    for t in types:
        limits = np.array([t.capacity, t.memory_mb, t.bandwidth, t.bandwidth])
        listed = packing_patterns(needs[first], limits, most.tolist(), PATTERNS_MAX)
        if listed is None:
            return None
        patterns.append(tuple(listed))
    return Model(classes, types, configurations, inside, numbers, needs[first], tuple(patterns))


def _held(classes: Classes, types: Sequence[NodeType], configurations: Ints) -> NDArray[np.bool_]:
    """Which configurations some node can hold: what the rest would keep must not set the solver's scale."""
    load, memory = configurations @ classes.load, configurations @ classes.memory
    held = np.zeros(len(configurations), dtype=bool)
    for t in types:
        held |= (load <= t.capacity) & (memory <= t.memory_mb)
    return held


def solve_model(
    problem: Problem, model: Model, kept_to_beat: float, deadline: Deadline, nodes_max: int | None = None
) -> Outcome:
    """The optimum by HiGHS, or what is known when the deadline comes or `nodes_max` nodes have been searched.

    Plans that keep no more than `kept_to_beat` (minus infinity: no plan is known) of the varying traffic are not looked
    for. HiGHS's verdicts are lowered by what it cannot tell apart before they become a bound, so a verdict on rates
    that differ too much proves nothing.
    """
    import highspy

    varying = Varying(problem)
    unit = _unit(model, varying)
    matrix, lower, upper, column_upper = _rows(model)
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = matrix.shape
    program.col_cost_ = np.concatenate([-model.kept / unit, np.zeros(matrix.shape[1] - len(model.kept))])
    program.col_lower_, program.col_upper_ = np.zeros(matrix.shape[1]), column_upper
    program.row_lower_, program.row_upper_ = lower, upper
    row, column = np.nonzero(matrix)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.searchsorted(row, np.arange(matrix.shape[0] + 1))
    program.a_matrix_.index_ = column
    program.a_matrix_.value_ = matrix[row, column]
    program.integrality_ = [highspy.HighsVarType.kInteger] * matrix.shape[1]
    highs = quiet_highs()
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 0.0)
    highs.setOptionValue("mip_allow_restart", False)  # restarts tripled the time on the papers' linear layouts
    if nodes_max is not None:
        highs.setOptionValue("mip_max_nodes", nodes_max)
    if np.isfinite(kept_to_beat):
        highs.setOptionValue("objective_bound", -kept_to_beat / unit)
    highs.passModel(program)
    status = run_confirmed(highs, deadline)
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kObjectiveBound):
        known = np.isfinite(kept_to_beat)
        return Outcome(None, _bound(model, varying, kept_to_beat) if known else 0.0, infeasible=not known)
    info = highs.getInfo()
    # Below the objective bound HiGHS does not look, and then calls a worse plan the best: both bounds count.
    kept_most = max(-unit * info.mip_dual_bound, kept_to_beat) if np.isfinite(info.mip_dual_bound) else np.inf
    bound = _bound(model, varying, kept_most)
    if info.primal_solution_status != 2:
        return Outcome(None, bound)
    chosen = np.rint(np.array(highs.getSolution().col_value)).astype(np.int64)
    return Outcome(_unpacked(problem, model, chosen), bound)


def _bound(model: Model, varying: Varying, kept_most: float) -> float:
    """A bound on the whole cost, from the verdict that no plan keeps more."""
    unseen = RESOLUTION * float(model.kept.max(initial=0.0)) + varying.rounding
    return varying.fixed + max(0.0, varying.rounded_up(varying.total - kept_most - unseen))


def _unit(model: Model, varying: Varying) -> float:
    """The rate that counts as 1; where one makes all values whole it is chosen, as the solver then rounds bounds."""
    largest = float(model.kept.max(initial=0.0))
    if largest <= 0:
        return 1.0
    return varying.step if varying.step > 0 and largest / varying.step < WHOLE_MAX else largest


def _rows(model: Model) -> tuple[Floats, Floats, Floats, Floats]:
    """Coefficients, row limits and column upper limits: cover each class, room for each size, nodes of each type."""
    counts = np.array(model.classes.counts, dtype=np.float64)
    pieces, sizes = len(model.kept), len(model.sizes)
    filling = [np.array(patterns, dtype=np.float64).reshape(-1, sizes) for patterns in model.patterns]
    ends = np.cumsum([pieces, *(len(block) for block in filling)])
    matrix = np.zeros((len(counts) + sizes + len(model.types), int(ends[-1])))
    matrix[: len(counts), :pieces] = model.configurations.T
    matrix[len(counts) + model.size_of, np.arange(pieces)] = -1.0
    for t, block in enumerate(filling):
        matrix[len(counts) : len(counts) + sizes, ends[t] : ends[t + 1]] = block.T
        matrix[len(counts) + sizes + t, ends[t] : ends[t + 1]] = 1.0
    nodes = np.array([len(t.nodes) for t in model.types], dtype=np.float64)
    infinite = np.inf
    lower = np.concatenate([counts, np.zeros(sizes), np.full(len(nodes), -infinite)])
    upper = np.concatenate([counts, np.full(sizes, infinite), nodes])
    often = np.where(model.configurations > 0, counts // np.maximum(model.configurations, 1), infinite).min(axis=1)
    return matrix, lower, upper, np.concatenate([often, np.repeat(nodes, [len(block) for block in filling])])


def _unpacked(problem: Problem, model: Model, chosen: Ints) -> Ints:
    """A node for every task, from how often each configuration and pattern is used."""
    pieces = np.repeat(np.arange(len(model.kept)), chosen[: len(model.kept)])
    waiting = {s: pieces[model.size_of[pieces] == s].tolist() for s in range(len(model.sizes))}
    spare = [tasks.tolist() for tasks in model.classes.members]
    node = np.full(problem.task_count, -1, dtype=np.int32)
    at = len(model.kept)
    for node_type, patterns in zip(model.types, model.patterns, strict=True):
        used = np.repeat(np.arange(len(patterns)), chosen[at : at + len(patterns)])
        at += len(patterns)
        for where, pattern in zip(node_type.nodes, used.tolist(), strict=False):
            for size, count in enumerate(patterns[pattern]):
                for _ in range(min(count, len(waiting[size]))):
                    for c, held in enumerate(model.configurations[waiting[size].pop()].tolist()):
                        for _ in range(held):
                            node[spare[c].pop()] = where
    return node
