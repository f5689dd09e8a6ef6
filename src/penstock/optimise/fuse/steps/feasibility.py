"""Clashing constraints, found before anything is optimised: a minimal set of them, and why, in words.

A set of constraints is minimal when it cannot be met, but can be with any one of them left out. Single vertices are the
freest partition, since validity persists under splitting, so it is enough to ask whether the *sites* (what must share a
node) can be put on nodes. That is asked in two steps:

- by plain reasoning: a task on both sides of a separation, a block or site with two labels of one row, a block that is
  more than one thread can do, more labels of one row than nodes, a site that no allowed node is large enough for;
- by a small integer program (packing.py), whose refusal is a proof. On large cases it is a relaxation.

The minimal set comes from QuickXplain (Junker, AAAI 2004): divide and conquer over the constraints. The paper finds
infeasibility by splitting everything down to single operators (004, section 3.3). docs/decisions/0018-fusion.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import Infeasible
from penstock.model.constraints import Apart, Constraint, Dedicated, Jobs, Pin, Replicas, Resource, Together
from penstock.model.taskgraph import Longs
from penstock.optimise.communication import StreamCost, mean_stream_cost
from penstock.optimise.contract import Deadline, Problem
from penstock.optimise.fuse.steps.packing import Sites
from penstock.optimise.fuse.steps.rules import Rules, compile_rules

NAMES_SHOWN_MAX = 4
SECONDS_ALL = 30.0  # a cap for busy machines; an answer takes tenths of a second


@dataclass(frozen=True)
class Clash:
    """Positions of constraints that cannot be met together, and the reason; no positions: nothing fits anyway."""

    positions: tuple[int, ...]
    reason: str


def require_no_clash(problem: Problem, stream_cost: StreamCost = 1.0) -> None:
    """Raise Infeasible with a minimal set of clashing constraints, if there is one."""
    clash = find_clash(problem, stream_cost)
    if clash is None:
        return
    if not clash.positions:
        instead = "or give the tasks less"
        if "--stream-cost" in clash.reason:
            instead = "lower --stream-cost (0 makes streams free), or use penstock place, which does not count them"
        msg = f"{clash.reason}; add nodes or larger ones, {instead}"
        raise Infeasible(msg)
    listed = "; ".join(f"constraint {p} ({described(problem.constraints[p])})" for p in clash.positions)
    if len(clash.positions) == 1:
        msg = f"{listed} cannot be met: {clash.reason}; change or drop it"
    else:
        msg = (
            f"{len(clash.positions)} constraints clash: {listed}: {clash.reason}; drop or change any one of them "
            "and the others can be met"
        )
    raise Infeasible(msg)


def find_clash(problem: Problem, stream_cost: StreamCost = 1.0) -> Clash | None:
    """A minimal set of constraints that cannot be met together on this cluster, or None."""
    deadline = Deadline.after(SECONDS_ALL)
    if not (reason := why_not(problem, problem.constraints, stream_cost, deadline)):
        return None
    if alone := why_not(problem, (), stream_cost, deadline):
        return Clash((), alone)

    def fails(chosen: Sequence[int]) -> bool:
        kept = [problem.constraints[p] for p in chosen]
        return bool(why_not(problem, kept, stream_cost, deadline))

    positions = tuple(sorted(_minimal(list(range(len(problem.constraints))), fails)))
    reason = why_not(problem, [problem.constraints[p] for p in positions], stream_cost, deadline) or reason
    return Clash(positions, reason)


def _minimal(all_of: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """QuickXplain: a minimal failing subset of a failing set, when the empty set does not fail."""

    def explain(base: list[int], added: bool, rest: list[int]) -> list[int]:
        if added and fails(base):
            return []
        if len(rest) == 1:
            return rest
        half = len(rest) // 2
        first, second = rest[:half], rest[half:]
        of_second = explain([*base, *first], bool(first), second)
        of_first = explain([*base, *of_second], bool(of_second), first)
        return [*of_first, *of_second]

    return explain([], False, all_of)


def why_not(problem: Problem, constraints: Sequence[Constraint], stream_cost: StreamCost, deadline: Deadline) -> str:
    """Why these constraints cannot be met together; empty when nothing shows that they cannot."""
    rules = compile_rules(problem, constraints)
    if rules.impossible:
        return rules.impossible[0][1]
    return (
        _torn_block(problem, rules)
        or _too_few_slots(problem, rules)
        or _torn_site(problem, rules)
        or _no_packing(problem, rules, stream_cost, deadline)
    )


def _torn_block(problem: Problem, rules: Rules) -> str:
    """A block that must be apart from itself, or that is too much for one worker."""
    for row in rules.worker_label:
        if pair := _two_labels(row, rules.block):
            a, b = (problem.graph.ids[t] for t in pair)
            return f"{a!r} and {b!r} must share a worker and must not"
    for row in rules.node_label:
        if pair := _two_labels(row, rules.block):
            a, b = (problem.graph.ids[t] for t in pair)
            return f"{a!r} and {b!r} must share a worker, so a node, and must be on different nodes"
    return _heavy_block(problem, rules)


def _heavy_block(problem: Problem, rules: Rules) -> str:
    """Tasks that must share a worker and are more than one worker can carry."""
    tasks, load = np.bincount(rules.block), np.bincount(rules.block, problem.graph.load)
    allowed = np.ones((len(tasks), problem.node_count), dtype=bool)
    np.logical_and.at(allowed, rules.block, rules.allowed)
    most = np.where(allowed, problem.worker_capacity[None, :], 0.0).max(axis=1)
    for block in np.flatnonzero((tasks > 1) & (load > most) & (most > 0)).tolist():
        who = _named(problem, np.flatnonzero(rules.block == block))
        return f"{who} must share a worker and need load {load[block]:g} but one worker carries {most[block]:g}"
    return ""


def _too_few_slots(problem: Problem, rules: Rules) -> str:
    """More tasks that need workers of their own than there are slots, where every node states how many it has."""
    slots = [node.slots for node in problem.cluster.nodes if node.slots is not None]
    if len(slots) < problem.node_count:
        return ""
    for row in rules.worker_label:
        if (sides := len(np.unique(row[row >= 0]))) > sum(slots):
            return f"{sides} must be in different workers but the nodes have only {_counted(sum(slots), 'slot')}"
    return ""


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _torn_site(problem: Problem, rules: Rules) -> str:
    """A site that must be apart from itself, or that no node may hold."""
    for row in rules.node_label:
        if pair := _two_labels(row, rules.site):
            a, b = (problem.graph.ids[t] for t in pair)
            return f"{a!r} and {b!r} must share a node and must not"
        if (sides := len(np.unique(row[row >= 0]))) > problem.node_count:
            there = "there is only" if problem.node_count == 1 else "there are only"
            return f"{sides} must be on different nodes but {there} {_counted(problem.node_count, 'node')}"
    count = int(rules.site.max()) + 1
    allowed = np.ones((count, problem.node_count), dtype=bool)
    np.logical_and.at(allowed, rules.site, rules.allowed)
    for what, unit, needs, offers in (
        ("load", "", problem.graph.load, problem.capacity),
        ("memory", " MB", problem.graph.memory_mb, problem.memory_mb),
    ):
        need = np.bincount(rules.site, needs, minlength=count)
        offer = np.where(allowed, offers[None, :], -math.inf).max(axis=1)
        for site in np.flatnonzero(need > offer).tolist():
            who = _named(problem, np.flatnonzero(rules.site == site))
            if offer[site] == -math.inf:
                return f"no node is allowed for {who} together" if "," in who else f"no node is allowed for {who}"
            return (
                f"{who} must share a node and need {what} {need[site]:g}{unit} but the largest node allowed offers "
                f"{offer[site]:g}{unit}"
            )
    return ""


def _two_labels(row: Longs, part: Longs) -> tuple[int, int] | None:
    """Two tasks of one part with different labels."""
    highest = np.full(int(part.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(highest, part, row)
    for t in np.flatnonzero((row >= 0) & (row != highest[part])).tolist():
        other = np.flatnonzero((part == part[t]) & (row == highest[part[t]]))
        return t, int(other[0])
    return None


def _no_packing(problem: Problem, rules: Rules, stream_cost: StreamCost, deadline: Deadline) -> str:
    """Ask the program whether sites can be put on nodes at all, first by load, then with the streams that are cut."""
    sites = Sites.of(problem, rules, stream_cost)
    tasks = f"{problem.task_count} tasks (load {problem.graph.load.sum():.4g})"
    nodes = f"{problem.node_count} nodes (capacity {problem.cluster.capacity:.4g})"
    no_way = f"no way of sharing {tasks} out to {nodes} keeps"
    if not sites.packs_without_streams(deadline):
        return f"{no_way} every limit on load, memory and place"
    if np.any(np.asarray(stream_cost) > 0) and not sites.packs_with_streams(deadline):
        least = sites.least_streams
        share = f", which takes {least:.4g} or more of every node that holds tasks" if least else ""
        return (
            f"{no_way} every limit once the streams between workers cost CPU at both ends (--stream-cost, now "
            f"{mean_stream_cost(problem.graph, stream_cost):.4g} for each unit of rate){share}"
        )
    return ""


def described(constraint: Constraint) -> str:
    """A constraint in words."""
    match constraint:
        case Resource(operator=name, nodes=nodes):
            tagged = f" (tag {_listed(constraint.tags)})" if constraint.tags else ""
            return f"{name!r} only on {_listed(nodes)}{tagged}"
        case Together(where=where, operators=names):
            return f"{_listed(names)} in one {where}" if where == "worker" else f"{_listed(names)} on one node"
        case Apart(where=where, operators=names):
            return f"{_listed(names)} {'in' if where == 'worker' else 'on'} different {where}s"
        case Dedicated(where=where, operator=name):
            return f"{name!r} alone {'in its workers' if where == 'worker' else 'on its nodes'}"
        case Pin(operator=name, node=node, worker=worker):
            return f"{name!r} in worker {worker} of {node!r}"
        case Jobs(groups=groups):
            return f"{len(groups)} jobs in workers of their own"
        case Replicas(groups=groups, isomorphic=isomorphic):
            alike = "isomorphic " if isomorphic else ""
            return f"{len(groups)} {alike}replicas {' and '.join('(' + _listed(group) + ')' for group in groups)}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:NAMES_SHOWN_MAX])
    return shown if len(names) <= NAMES_SHOWN_MAX else f"{shown} and {len(names) - NAMES_SHOWN_MAX} more"


def _named(problem: Problem, tasks: Longs) -> str:
    return _listed([problem.graph.ids[t] for t in tasks.tolist()])
