"""`best`: our own method. It refines what every other method finds, and is never worse (`test_best_is_never_worse`).

Candidates are the answers of none, fint, cola-basic and cola; COLA once more with exact cuts where the graph is small
and free, and with annealed ones (`refined`) where constraints take dozens of cuts; and, where no constraint stands in
the way, the placements of `place`'s `best` with some capacity kept free for streams (placed.py). Workers of one node
are merged where rules and their threads allow it, which makes their streams free; then vertices move and swap
(refine.py). The least f(U, C) wins, then the least U. Where no method finds a plan, the program that looks for clashes
may. "Never worse" is by construction: every candidate competes as it was found, within the slots that nodes state.

    theta   caps what best adds to the other methods, 20 s by default; those have their own
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from penstock.errors import NoPlanFound, UserError
from penstock.model.taskgraph import Ints, Longs
from penstock.optimise.communication import mean_stream_cost
from penstock.optimise.contract import Deadline
from penstock.optimise.fuse.contract import FULL, METHODS, Case, Fused
from penstock.optimise.fuse.steps.assign import schedule_workers
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph, numbered
from penstock.optimise.fuse.steps.packing import Sites
from penstock.optimise.fuse.steps.placed import placed
from penstock.optimise.fuse.steps.postprocess import within_slots
from penstock.optimise.fuse.steps.quick_schedule import quick_schedule
from penstock.optimise.fuse.steps.refine import State, refined, scored
from penstock.optimise.fuse.steps.rules import compile_rules
from penstock.optimise.fuse.steps.workers import compatible, keeps_mirrors, keeps_rules

THETA_DEFAULT = 20.0
EXACT_CUT_VERTICES_MAX = 260  # beyond, an exact cut takes longer than it is worth
ROUNDS_MAX = 5
REFINED_MAX = 4  # candidates that are refined, the best of them
SEATED_MAX = 8  # candidates with more workers than slots that are merged further, the best of them


def fuse(case: Case) -> Fused:
    """The best of all candidates, refined."""
    graph = case.graph
    states = [(name, state) for name, fused in _others(case) if (state := _state(case, graph, fused)) is not None]
    deadline = case.deadline(THETA_DEFAULT)
    states += [
        (name, state) for name, fused in _own(case, deadline) if (state := _state(case, graph, fused)) is not None
    ]
    found = [(name, state) for name, state in states if state.is_feasible]
    if not found and (last := _last_resort(case, graph)) is not None:
        found.append(("the packing program", last))
    if not found:
        raise NoPlanFound(_why_none(case, graph, [state for _, state in states]))
    found.sort(key=lambda pair: pair[1].score)
    improved = [(name, _improved(case, graph, state, deadline)) for name, state in _different(found)[:REFINED_MAX]]
    name, state = min(_seated(case, graph, [*improved, *found]), key=lambda pair: pair[1].score)
    return Fused(state.part[graph.vertex_of], state.host, (f"refined from {name!r}",))


def _why_none(case: Case, graph: FuseGraph, states: list[State]) -> str:
    """What is in the way, from the candidate that comes nearest to fitting, and what can be done about it."""
    problem = case.problem
    tasks = f"{problem.task_count} tasks (load {problem.graph.load.sum():.4g})"
    nodes = f"{problem.node_count} nodes (capacity {problem.cluster.capacity:.4g})"
    begun = f"no method found a way to fuse {tasks} on {nodes}"
    cost = mean_stream_cost(problem.graph, case.stream_cost)
    rate = f"--stream-cost, now {cost:.4g} CPU for a unit of rate; 0 makes streams free"
    if not states and (alone := quick_schedule(graph, np.arange(graph.count, dtype=np.int64))) is not None:
        states = [scored(case, graph, np.arange(graph.count, dtype=np.int64), alone.host)]
    if not states:
        rules = "the constraints and " if problem.constraints else ""
        return f"{begun} that keeps {rules}every limit; add nodes or larger ones, or lower what streams cost ({rate})"
    state = min((_merged_on_nodes(case, graph, state) for state in states), key=lambda found: found.score[1])
    if state.score[1] <= FULL:
        return (
            f"{begun} in which every worker is what its thread carries (worker_capacity of its node); add nodes or "
            f"larger ones, split operators into more tasks, or lower what streams cost ({rate})"
        )
    used = np.bincount(state.host, graph.sizes(state.part), minlength=problem.node_count)
    k = int((used / graph.capacity).argmax())
    load = float(graph.load[state.host[state.part] == k].sum())
    node = problem.cluster.nodes[k]
    return (
        f"{begun}: the nearest needs {used[k]:.4g} of node {node.name!r}, which offers {node.capacity:.4g} ({load:.4g} "
        f"for its tasks, {used[k] - load:.3g} for streams to other workers); add nodes or larger ones, lower what "
        f"streams cost ({rate}), or use penstock place, which does not count them"
    )


def _others(case: Case) -> Iterator[tuple[str, Fused]]:
    """What the other methods find, with all the time that they would have alone."""
    for name in ("none", "fint", "cola-basic", "cola"):
        with suppress(UserError):
            yield name, METHODS[name].load()(case)


def _own(case: Case, deadline: Deadline) -> Iterator[tuple[str, Fused]]:
    """Candidates of our own, while there is time."""
    if case.options.cut is None and case.graph.count <= EXACT_CUT_VERTICES_MAX and deadline.remaining > 0:
        cut = "refined" if case.problem.constraints else "exact"
        options = replace(case.options, cut=cut, theta=deadline.remaining)
        with suppress(UserError):
            yield f"cola with {cut} cuts", METHODS["cola"].load()(replace(case, options=options))
    for share, fused in placed(case.problem, case.options.seed, deadline):
        yield f"placed at {share:g} of the capacity", fused
        state = _state(case, case.graph, fused)
        if state is None or state.is_feasible:  # less room mends no broken constraint, and wastes more
            return


def _seated(case: Case, graph: FuseGraph, found: list[tuple[str, State]]) -> list[tuple[str, State]]:
    """The candidates within the slots that nodes state, of crowded ones the best; all where none can be merged so far.

    What cannot be merged the door may still seat elsewhere.
    """
    kept: list[tuple[str, State]] = []
    names = [node.name for node in case.problem.cluster.nodes]
    tries = 0
    for name, state in sorted(found, key=lambda pair: pair[1].score):
        if (np.bincount(state.host, minlength=len(graph.slots)) <= graph.slots).all():
            kept.append((name, state))
            continue
        if kept and tries >= SEATED_MAX:
            continue
        tries += 1
        with suppress(NoPlanFound):
            kept.append((name, scored(case, graph, *within_slots(graph, state.part, state.host, names))))
    return kept or found


def _last_resort(case: Case, graph: FuseGraph) -> State | None:
    """A plan from the program that looks for clashes, which knows streams where the case is small; None otherwise."""
    rules = compile_rules(case.problem)
    until = Deadline.after(THETA_DEFAULT) if case.until is None else case.until.within(THETA_DEFAULT)
    where = Sites.of(case.problem, rules, case.stream_cost).placed(until) if until.remaining > 0 else None
    if where is None:
        return None
    host = np.zeros(graph.count, dtype=np.int32)
    host[graph.vertex_of] = where[rules.site]
    single = np.arange(graph.count, dtype=np.int64)
    state = _merged_on_nodes(case, graph, scored(case, graph, single, host))
    holds = keeps_rules(graph, state.part, state.host) and keeps_mirrors(graph, state.part)
    return state if holds and state.is_feasible else None


def _state(case: Case, graph: FuseGraph, fused: Fused) -> State | None:
    """A candidate over the vertices, or None when it breaks a rule; it may be more than the nodes carry."""
    over = _over_vertices(graph, fused)
    return None if over is None else scored(case, graph, *over)


def _over_vertices(graph: FuseGraph, fused: Fused) -> tuple[Longs, Ints] | None:
    """Worker of each vertex and node of each worker, or None when a rule is broken."""
    part = np.full(graph.count, -1, dtype=np.int64)
    part[graph.vertex_of] = fused.worker
    if (part[graph.vertex_of] != fused.worker).any():  # a colocated block is in two workers
        return None
    kept = np.unique(part)
    part, host = numbered(part), fused.host[kept]
    return (part, host) if keeps_rules(graph, part, host) and keeps_mirrors(graph, part) else None


def _different(found: list[tuple[str, State]]) -> list[tuple[str, State]]:
    """The candidates without repetitions of a score."""
    seen: set[tuple[float, float]] = set()
    kept: list[tuple[str, State]] = []
    for name, state in found:
        if state.score not in seen:
            seen.add(state.score)
            kept.append((name, state))
    return kept


def _improved(case: Case, graph: FuseGraph, state: State, deadline: Deadline) -> State:
    """Merge, refine, schedule afresh by the integer program, and again while that helps."""
    for _ in range(ROUNDS_MAX):
        before = state.score
        state = refined(case, graph, _merged_on_nodes(case, graph, state), deadline)
        afresh = schedule_workers(graph, state.part, deadline)
        if afresh is not None and afresh.is_feasible:
            state = min(state, scored(case, graph, state.part, afresh.host), key=lambda found: found.score)
        if state.score >= before or deadline.remaining <= 0:
            break
    return state


def _merged_on_nodes(case: Case, graph: FuseGraph, state: State) -> State:
    """Workers of one node made one where the rules allow it; mirrored ones stay as they are."""
    mirrored = np.zeros(graph.count, dtype=bool)
    for mirror in graph.mirrors:
        mirrored[mirror] = True
    part: Longs = state.part.copy()
    for k in np.unique(state.host).tolist():
        kept: list[int] = []
        for w in np.flatnonzero(state.host == k).tolist():
            own = np.flatnonzero(part == w)
            if mirrored[own].any():
                continue
            fits = [other for other in kept if compatible(graph, np.flatnonzero(part == other), own)]
            if graph.limits_workers:
                fits = _carrying(graph, part, fits, w, k)
            if fits:
                part[own] = fits[0]
            else:
                kept.append(w)
    kept_workers = np.unique(part)
    merged = scored(case, graph, numbered(part), state.host[kept_workers])
    return merged if merged.score < state.score else state


def _carrying(graph: FuseGraph, part: Longs, others: list[int], w: int, k: int) -> list[int]:
    """Of the workers, those whose thread also carries worker w on node k, with the most streams to it first."""
    sizes, joined = graph.sizes(part), graph.between(part)
    weight = {other: joined.get((min(other, w), max(other, w)), 0.0) for other in others}
    fits = [other for other in others if sizes[other] + sizes[w] - 2 * weight[other] <= graph.worker_limit[k]]
    return sorted(fits, key=lambda other: (-weight[other], other))
