"""Placement constraints: COLA's six (paper 004, section 3.1), its two dedications, and two of deployments.

A name in a constraint is an operator (all its tasks) or a task (`operator/index`). What each demands of a plan:

    resource          every task of the name runs on one of the listed nodes, or on a node that has the listed tags
    colocate-worker, colocate-node     all tasks of all names share one worker (hence one node), or one node
    separate-workers, separate-nodes   tasks of two different names share no worker, or no node
    replicas          a worker holds tasks of at most one group, and no two groups share a node;
                      with `isomorphic` the groups are cut into workers alike, position by position
    dedicated-worker, dedicated-node   the tasks of the name share their workers, or nodes, with no other operator
    pin               every task of the name runs in that worker of that node; files have no word for it (decision 30)
    jobs              no worker holds tasks of two groups; files have no word for it either (decision 38)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from penstock.model.task_id import SEPARATOR, operator_of, tasks_of_operator

KNOWN_MAX = 12  # names in a complaint: more is nothing that people read
INDEX_DIGITS_MAX = 18  # far above any number of tasks, far below what `int` refuses to read


@dataclass(frozen=True, slots=True)
class Resource:
    """Resource matching: the tasks need something that the listed nodes have and others lack, or that tags stand for.

    With both, a node must be listed and have every tag.
    """

    operator: str
    nodes: tuple[str, ...] = ()  # none: any node that has the tags
    tags: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """The constraint's name in files."""
        return "resource"


@dataclass(frozen=True, slots=True)
class Together:
    """Colocation in a worker or on a node."""

    where: Literal["worker", "node"]
    operators: tuple[str, ...]

    @property
    def type(self) -> str:
        """The constraint's name in files."""
        return f"colocate-{self.where}"


@dataclass(frozen=True, slots=True)
class Apart:
    """Exlocation: no common worker, or no common node."""

    where: Literal["worker", "node"]
    operators: tuple[str, ...]

    @property
    def type(self) -> str:
        """The constraint's name in files."""
        return f"separate-{self.where}s"


@dataclass(frozen=True, slots=True)
class Replicas:
    """High availability: groups of operators that stand by for each other."""

    groups: tuple[tuple[str, ...], ...]
    isomorphic: bool = False

    @property
    def type(self) -> str:
        """The constraint's name in files."""
        return "replicas"


@dataclass(frozen=True, slots=True)
class Dedicated:
    """A worker, or a whole node, for one operator alone."""

    where: Literal["worker", "node"]
    operator: str

    @property
    def type(self) -> str:
        """The constraint's name in files."""
        return f"dedicated-{self.where}"


@dataclass(frozen=True, slots=True)
class Pin:
    """One worker and no other: where what the tasks read arrives."""

    operator: str
    node: str
    worker: int

    @property
    def type(self) -> str:
        """The constraint's name in messages."""
        return "pin"


@dataclass(frozen=True, slots=True)
class Jobs:
    """Operators of jobs that run side by side: processes of their own, on nodes that they may share."""

    groups: tuple[tuple[str, ...], ...]

    @property
    def type(self) -> str:
        """The constraint's name in messages."""
        return "jobs"


Constraint = Resource | Together | Apart | Replicas | Dedicated | Pin | Jobs
OF_DEPLOYMENTS = (Pin, Jobs)  # no part of a topology, nor of what a plan records


def names_in(constraint: Constraint) -> tuple[str, ...]:
    """Every operator or task name that the constraint mentions."""
    match constraint:
        case Resource(operator=name) | Dedicated(operator=name) | Pin(operator=name):
            return (name,)
        case Together(operators=names) | Apart(operators=names):
            return names
        case Replicas(groups=groups) | Jobs(groups=groups):
            return tuple(name for group in groups for name in group)


def tags_as_nodes(constraints: Iterable[Constraint], tags: Mapping[str, Collection[str]]) -> tuple[Constraint, ...]:
    """The constraints with each tag as the nodes that have it; `tags` has every node. Nobody's tag leaves none."""
    return tuple(
        replace(constraint, nodes=tuple(name for name in constraint.nodes or tags if has_tags(constraint, name, tags)))
        if isinstance(constraint, Resource) and constraint.tags
        else constraint
        for constraint in constraints
    )


def has_tags(constraint: Resource, node: str, tags: Mapping[str, Collection[str]]) -> bool:
    """Whether a node has every tag that the constraint asks for."""
    return set(constraint.tags) <= set(tags.get(node, ()))


def tasks_named(name: str, tasks_of: Mapping[str, int]) -> list[str] | None:
    """Task ids behind a name, or None when there is no such operator or task."""
    if name in tasks_of:
        return tasks_of_operator(name, tasks_of[name])
    operator, _, index = name.rpartition(SEPARATOR)
    if operator not in tasks_of or not (index.isascii() and index.isdigit()):
        return None
    # One spelling per task: `a/01` would be found here and then be missing from every plan.
    shortest = len(index) == 1 or (index[0] != "0" and len(index) <= INDEX_DIGITS_MAX)
    return [name] if shortest and int(index) < tasks_of[operator] else None


def _known(tasks_of: Mapping[str, int]) -> str:
    """Names that a constraint may have, as far as people read."""
    names = list(tasks_of)
    more = f" and {len(names) - KNOWN_MAX} more" if len(names) > KNOWN_MAX else ""
    return f"{', '.join(names[:KNOWN_MAX])}{more}; a task is named as in {names[0] if names else 'a'}/0"


def constraint_faults(
    constraints: Sequence[Constraint], tasks_of: Mapping[str, int], streams: Iterable[tuple[str, str]] = ()
) -> list[str]:
    """What is wrong with a constraint by itself; clashes between constraints are the optimiser's to find.

    Names that do not exist, lists that are too short, isomorphic groups of unequal shape: `streams` are the declared
    ones, because what a profile happened to measure changes no shape.
    """
    declared = set(streams)
    faults: list[str] = []
    for position, constraint in enumerate(constraints):
        who = f"constraint {position} ({constraint.type})"
        names = names_in(constraint)
        faults += [
            f"{who} names unknown operator or task {n!r}; known: {_known(tasks_of)}"
            for n in names
            if tasks_named(n, tasks_of) is None
        ]
        faults += [f"{who} names {n!r} twice" for n in _repeated(names)]
        match constraint:
            case Together() | Apart() if len(names) < 2:
                faults.append(f"{who} lists {len(names)} operators; it needs 2 or more")
            case Resource(nodes=(), tags=()):
                faults.append(f"{who} lists no nodes and no tags; name at least one")
            case Pin(worker=worker) if worker < 0:
                faults.append(f"{who} names worker {worker}; they count from 0")
            case Replicas(groups=groups, isomorphic=isomorphic):
                if len(groups) < 2 or not all(groups):
                    faults.append(f"{who} needs at least 2 groups, none of them empty")
                elif isomorphic and len({len(group) for group in groups}) > 1:
                    sizes = "/".join(str(len(group)) for group in groups)
                    faults.append(f"{who} is isomorphic but its groups have {sizes} members; make them equal")
                elif isomorphic and (different := _unequal_shape(groups, tasks_of, declared)):
                    faults.append(f"{who} is isomorphic but {different}")
    return faults


def _unequal_shape(
    groups: Sequence[Sequence[str]], tasks_of: Mapping[str, int], streams: Collection[tuple[str, str]]
) -> str:
    """Why the groups have no common shape; empty when they have one, or when a name in them is unknown anyway."""
    found = [[tasks_named(name, tasks_of) for name in group] for group in groups]
    members = [[task for tasks in group for task in tasks or ()] for group in found]
    if any(tasks is None for group in found for tasks in group):
        return ""
    inside = [_inner_streams(tasks, streams) for tasks in members]
    for g, tasks in enumerate(members):
        if len(tasks) != len(members[0]):
            return f"group 0 has {len(members[0])} tasks and group {g} has {len(tasks)}; make them equal"
        if different := sorted(inside[g] ^ inside[0]):
            p, q = different[0]
            has, lacks = (g, 0) if different[0] in inside[g] else (0, g)
            return (
                f"group {has} has a stream from {members[has][p]!r} to {members[has][q]!r} and group {lacks} has none "
                f"from {members[lacks][p]!r} to {members[lacks][q]!r}; list the groups in the same order, or leave "
                "`isomorphic` out"
            )
    return ""


def _inner_streams(tasks: Sequence[str], streams: Collection[tuple[str, str]]) -> set[tuple[int, int]]:
    """Positions of a group's tasks that a stream joins."""
    positions: dict[str, list[int]] = {}
    for p, task in enumerate(tasks):
        positions.setdefault(operator_of(task), []).append(p)
    return {(p, q) for a, b in streams if a in positions and b in positions for p in positions[a] for q in positions[b]}


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]
