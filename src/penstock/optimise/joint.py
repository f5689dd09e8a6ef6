"""Several topologies in one placement: one problem, one certified plan, and the part of it that is each topology's.

In the joint graph an operator is called `topology.operator`, so that every task has an id of its own, and each topology
keeps its constraints. They share nodes, and no worker: topologies run as jobs of their own, and a worker belongs to one
job. Schedulers know nothing of that at first, so a worker that holds tasks of two becomes two. Where a node has no
slots for that, the workers of one topology that carry least are joined, and the certificate says whether that still
holds. Where it does not, the same scheduler is asked again, with separate workers as a constraint (`Jobs`), and for
`best` and `exact` the tasks are packed one after the other if that fails too (`packed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from penstock.errors import Infeasible, InvalidInput, NoPlanFound, PenstockError, UnhonouredConstraints
from penstock.model.cluster import Cluster
from penstock.model.constraints import Apart, Constraint, Dedicated, Jobs, Pin, Replicas, Resource, Together
from penstock.model.kinds import require_cluster, require_kind, require_profile
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.taskgraph import Ints, Longs
from penstock.model.topology import NAME_LENGTH_MAX, OperatorGraph, Placeable, graph_of
from penstock.optimise.certificate import certify, demanding, make_plan, sound_problem
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.door import place
from penstock.optimise.fuse.steps.rules import compile_rules
from penstock.optimise.search.packed import STEPS_MAX, packed

MARK = "."  # between the names of a topology and its operator
TOPOLOGIES_MAX = 1000
SEARCHING = {"best", "exact"}  # who are asked for a plan wherever there is one; the others are as published
PACKED_NOTE = "packed: the searches for few bytes between nodes found no plan in which no two topologies share a worker"


@dataclass(frozen=True)
class Joint:
    """A certified plan for all topologies together, and each topology's own part of it by the topology's name."""

    plan: Plan
    parts: Mapping[str, Plan]


def place_together(
    topologies: Sequence[OperatorGraph | Placeable],
    cluster: Cluster,
    scheduler: str = "best",
    *,
    profiles: Sequence[Profile] = (),
    options: Options | None = None,
    allow_overload: bool = False,
) -> Joint:
    """Place several topologies on one cluster at once; raises a UserError that says why when there is no plan.

    `profiles` are all the topologies' in their order, or none. Each part is certified for its own topology alone; that
    they fit together is what the joint plan's certificate says.
    """
    require_cluster(cluster)
    wanted = "a list of penstock.Profile, one for each topology in their order"
    require_kind(profiles, list | tuple, "profiles", wanted)
    for profile in profiles:
        require_profile(profile)
    if profiles and len(profiles) != len(topologies):
        msg = f"{len(profiles)} profiles for {len(topologies)} topologies; give one for each, in their order, or none"
        raise InvalidInput(msg)
    graphs = [graph_of(t, profiles[k].tasks if profiles else ()) for k, t in enumerate(topologies)]
    names = distinct([graph.name for graph in graphs])
    whole = joined(graphs, names)
    joint = joined_profile(profiles, names) if profiles else None
    ask = partial(place, whole, cluster, scheduler, profile=joint, options=options, allow_overload=allow_overload)
    made = ask()
    problem = sound_problem(whole, cluster, joint, short=allow_overload)
    owner = np.repeat(np.arange(len(graphs)), [graph.task_count for graph in graphs])
    jobs, refusals = _jobs(graphs, names), JointRefusals(scheduler)
    steps = STEPS_MAX if scheduler in SEARCHING else 0

    def certified(made: Plan, node: Ints, worker: Ints) -> Plan:
        plan = _with_workers(problem, made, node, parted(problem, node, worker, owner), whole.constraints)
        apart = demanding(whole, (jobs,))
        return certify(apart, cluster, plan, joint, refusals, allow_overload=allow_overload)

    try:
        plan = certified(made, *_numbers(problem, made))
    except NoPlanFound as refused:
        try:
            apart = ask(demands=(jobs,), meet=True)
            plan = certified(apart, *_numbers(problem, apart))
        except (NoPlanFound, Infeasible, UnhonouredConstraints):
            found = packed(problem, compile_rules(problem, (*problem.constraints, jobs)), steps)
            if found is None:
                raise refused from None
            plan = certified(replace(made, proved_optimal=False, lower_bound=0.0, notes=(PACKED_NOTE,)), *found)
    node, worker = _numbers(problem, plan)
    parts: dict[str, Plan] = {}
    for k, graph in enumerate(graphs):
        own, measured = owner == k, profiles[k] if profiles else None
        alone = replace(plan, lower_bound=0.0, proved_optimal=False, notes=())  # proofs and notes are of all together
        part = _with_workers(
            sound_problem(graph, cluster, measured, short=allow_overload),
            alone,
            node[own],
            worker[own],
            graph.constraints,
        )
        parts[names[k]] = certify(graph, cluster, part, measured, refusals, allow_overload=allow_overload)
    return Joint(plan, parts)


def _jobs(graphs: Sequence[OperatorGraph], names: Sequence[str]) -> Jobs:
    """The operators of each topology, in the joint graph's words."""
    pairs = zip(names, graphs, strict=True)
    return Jobs(tuple(tuple(_prefixed(name, own.name) for own in graph.operators) for name, graph in pairs))


@dataclass(frozen=True)
class JointRefusals:
    """What is said of a plan that holds as long as topologies share workers, and not when each has its own."""

    scheduler: str

    def broken(self, constraints: list[str]) -> PenstockError:
        """For a constraint on workers that were joined for want of slots."""
        return self.refused(constraints)

    def refused(self, faults: list[str]) -> PenstockError:
        """For anything else."""
        why = "topologies run as jobs of their own and share no worker"
        step = "" if self.scheduler in SEARCHING else "try --scheduler best, or "
        return NoPlanFound(
            f"found no plan for all together: {why}, and so {faults[0]}; {step}give the nodes more slots"
        )


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that came before: a topology may run twice."""
    if not 1 <= len(names) <= TOPOLOGIES_MAX:
        msg = f"{len(names)} topologies; place from 1 to {TOPOLOGIES_MAX} together"
        raise InvalidInput(msg)
    found: list[str] = []
    for name in names:
        again = 1 + sum(other == name for other in names[: len(found)])
        candidate = name if again == 1 else f"{name}-{again}"
        while candidate in found:
            again += 1
            candidate = f"{name}-{again}"
        found.append(candidate)
    return found


def joined(graphs: Sequence[OperatorGraph], names: Sequence[str]) -> OperatorGraph:
    """One graph of all, in which every operator has its topology's name before its own."""
    for graph in graphs:
        graph.validated()
    pairs = list(zip(names, graphs, strict=True))
    if faults := _name_faults(pairs):
        raise InvalidInput(faults)
    return OperatorGraph(
        "+".join(names)[:NAME_LENGTH_MAX],
        tuple(replace(o, name=_prefixed(name, o.name)) for name, graph in pairs for o in graph.operators),
        tuple(
            replace(s, source=_prefixed(name, s.source), target=_prefixed(name, s.target))
            for name, graph in pairs
            for s in graph.streams
        ),
        tuple(_renamed(constraint, name) for name, graph in pairs for constraint in graph.constraints),
        relative=any(graph.relative for graph in graphs),
    ).validated()


def joined_profile(profiles: Sequence[Profile], names: Sequence[str]) -> Profile:
    """What was measured of all; what streams cost is taken from the first that says so."""
    pairs = list(zip(names, profiles, strict=True))
    return Profile(
        {_prefixed(name, task): found for name, profile in pairs for task, found in profile.tasks.items()},
        tuple(
            replace(edge, source=_prefixed(name, edge.source), target=_prefixed(name, edge.target))
            for name, profile in pairs
            for edge in profile.edges
        ),
        next((profile.costs for profile in profiles if profile.costs is not None), None),
    )


def parted(problem: Problem, node: Ints, worker: Ints, owner: Longs) -> Ints:
    """Worker numbers, counted from 0 on each node, in which no worker holds tasks of two owners."""
    found = np.zeros_like(worker)
    for k, stated in enumerate(problem.cluster.nodes):
        tasks = np.flatnonzero(node == k)
        seats: dict[tuple[int, int], list[int]] = {}
        for task in tasks.tolist():
            seats.setdefault((int(worker[task]), int(owner[task])), []).append(task)
        held = [(whose, members) for (_, whose), members in sorted(seats.items())]
        while stated.slots is not None and len(held) > stated.slots and (two := _lightest_two(held, problem)):
            a, b = two
            held[a] = (held[a][0], held[a][1] + held[b][1])
            del held[b]
        for number, (_, members) in enumerate(held):
            found[members] = number
    return found


def _lightest_two(held: Sequence[tuple[int, list[int]]], problem: Problem) -> tuple[int, int] | None:
    """The two workers of one owner that carry least together, by their positions; None where no owner has two."""
    load = [float(problem.graph.load[members].sum()) for _, members in held]
    pairs = [(load[a] + load[b], a, b) for b in range(len(held)) for a in range(b) if held[a][0] == held[b][0]]
    return min(pairs)[1:] if pairs else None


def _numbers(problem: Problem, plan: Plan) -> tuple[Ints, Ints]:
    """Node and worker of every task, as the arrays have them."""
    number = {node.name: k for k, node in enumerate(problem.cluster.nodes)}
    slots = [plan.assignment[task] for task in problem.graph.ids]
    node = np.array([number[slot.node] for slot in slots], dtype=np.int32)
    return node, np.array([slot.worker for slot in slots], dtype=np.int32)


def _with_workers(problem: Problem, plan: Plan, node: Ints, worker: Ints, constraints: tuple[Constraint, ...]) -> Plan:
    """The plan with these places and every figure computed anew."""
    placement = Placement(node, lower_bound=plan.lower_bound, proved_optimal=plan.proved_optimal)
    return make_plan(problem, plan.scheduler, plan.seed, plan.seconds, placement, worker, plan.notes, constraints)


def _name_faults(pairs: Sequence[tuple[str, OperatorGraph]]) -> list[str]:
    """Names that two operators would share in the joint graph, and those that would be too long, with their origins."""
    found: list[str] = []
    origin: dict[str, str] = {}
    for topology, graph in pairs:
        for operator in graph.operators:
            name, own = _prefixed(topology, operator.name), f"operator {operator.name!r} of topology {topology!r}"
            if name in origin:
                found.append(f"{origin[name]} and {own} would both be {name!r} in the joint plan; rename one of them")
            if len(name) > NAME_LENGTH_MAX:
                found.append(
                    f"{own} would have a name of {len(name)} characters in the joint plan; the limit is "
                    f"{NAME_LENGTH_MAX}: shorten one of the two names"
                )
            origin.setdefault(name, own)
    return found


def _prefixed(name: str, own: str) -> str:
    return f"{name}{MARK}{own}"


def _renamed(constraint: Constraint, name: str) -> Constraint:
    """The constraint in the joint graph's words."""
    match constraint:
        case Resource(operator=own) | Dedicated(operator=own) | Pin(operator=own):
            return replace(constraint, operator=_prefixed(name, own))
        case Together(operators=owns) | Apart(operators=owns):
            return replace(constraint, operators=tuple(_prefixed(name, own) for own in owns))
        case Replicas(groups=groups) | Jobs(groups=groups):
            return replace(constraint, groups=tuple(tuple(_prefixed(name, own) for own in group) for group in groups))
