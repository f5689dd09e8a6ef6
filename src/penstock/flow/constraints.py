"""Constraints in the API: what every plan for a topology must keep, said of streams or of names.

    >>> import penstock as ps
    >>> top = ps.Topology("words")
    >>> lines = top.source("lines", ps.io.generator(lambda task, tasks: ["a b", "a"], "line string"), tasks=2)
    >>> counts = lines.split("line", name="words").key_by("word").count(name="counts", tasks=2)
    >>> counts.sink("out", ps.io.collect())
    >>> top.require(ps.colocate(lines, "words"), ps.separate_nodes("counts/0", "counts/1"))
    >>> [constraint.type for constraint in top.build().constraints]
    ['colocate-worker', 'separate-nodes']

A stream stands for the operator that makes its rows, a name for an operator or one of its tasks (`counts/0`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from penstock.errors import InvalidInput
from penstock.flow.checks import require_choice
from penstock.model.constraints import OF_DEPLOYMENTS, Apart, Constraint, Dedicated, Replicas, Resource, Together
from penstock.model.kinds import require_kind

if TYPE_CHECKING:
    from penstock.flow.keyed import KeyedStream
    from penstock.flow.stream import DataStream

    Placed: TypeAlias = DataStream | KeyedStream | str

WANTED = "streams, or names of operators or tasks, such as 'counts' or 'counts/0'"
EXAMPLE = "a list of constraints, such as [ps.colocate('parse', 'count')]"
Where = Literal["worker", "node"]


def colocate(*placed: Placed, where: Where = "worker") -> Together:
    """All tasks of all these in one worker, or with `where="node"` on one node."""
    require_choice(where, get_args(Where), "where of colocate")
    return Together(where, _names(placed, "colocate", 2))


def separate_workers(*placed: Placed) -> Apart:
    """Tasks of two different ones of these share no worker."""
    return Apart("worker", _names(placed, "separate_workers", 2))


def separate_nodes(*placed: Placed) -> Apart:
    """Tasks of two different ones of these share no node."""
    return Apart("node", _names(placed, "separate_nodes", 2))


def on_nodes(placed: Placed, *nodes: str) -> Resource:
    """Every task of it on one of these nodes."""
    return Resource(_name(placed, "on_nodes"), _texts(nodes, "on_nodes", "names of nodes, such as 'n1'"))


def on_tag(placed: Placed, *tags: str) -> Resource:
    """Every task of it on a node that has all of these tags, such as "gpu": COLA's matching of resources.

    Nodes of a cluster file list their `tags`. Nodes of a job have a tag for every resource that Spark gave their
    executors (`gpu`, `fpga`, ...) and one for every attribute of theirs (`name=value`).
    """
    return Resource(_name(placed, "on_tag"), (), _texts(tags, "on_tag", "tags of nodes, such as 'gpu'"))


def dedicated(placed: Placed, where: Where = "worker") -> Dedicated:
    """Its tasks share their workers, or with `where="node"` their nodes, with no other operator."""
    require_choice(where, get_args(Where), "where of dedicated")
    return Dedicated(where, _name(placed, "dedicated"))


def replicas(*groups: Sequence[Placed], isomorphic: bool = False) -> Replicas:
    """Groups that stand by for each other: no two share a node, and a worker holds tasks of at most one of them.

    With `isomorphic` all groups are cut into workers alike, position by position.
    """
    for group in groups:
        if isinstance(group, str) or not isinstance(group, Sequence):
            msg = f"replicas got {group!r}; give groups, each a list of {WANTED}"
            raise InvalidInput(msg)
    require_kind(isomorphic, bool, "isomorphic of replicas", "True or False")
    if len(groups) < 2:
        msg = f"replicas got {len(groups)} groups; give 2 or more, each a list of {WANTED}"
        raise InvalidInput(msg)
    return Replicas(tuple(_names(group, "a group of replicas", 1) for group in groups), isomorphic)


def require_constraints(given: object, who: str) -> None:
    """Refuse what is no sequence of constraints, or holds one that is a deployment's own."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        msg = f"{who} got {given!r}; give {EXAMPLE}"
        raise InvalidInput(msg)
    for constraint in given:
        require_kind(constraint, Constraint, who, EXAMPLE)
        if isinstance(constraint, OF_DEPLOYMENTS):
            msg = f"{who} got {constraint!r}; which worker a task runs in is a plan's to say: give plan="
            raise InvalidInput(msg)


def _names(placed: Iterable[Placed], who: str, least: int) -> tuple[str, ...]:
    names = tuple(_name(one, who) for one in placed)
    if len(names) < least:
        msg = f"{who} got {len(names)} of {WANTED}; give {least} or more"
        raise InvalidInput(msg)
    if repeated := [name for name in names if names.count(name) > 1]:
        msg = f"{who} got {repeated[0]!r} twice; each is named once"
        raise InvalidInput(msg)
    return names


def _name(placed: object, who: str) -> str:
    """The operator or task that is meant."""
    from penstock.flow.keyed import KeyedStream
    from penstock.flow.stream import DataStream

    if isinstance(placed, KeyedStream):
        placed = placed.stream
    if isinstance(placed, DataStream):
        placed.require_current()
        return placed.operator
    if not isinstance(placed, str) or not placed:
        msg = f"{who} got {placed!r}; give {WANTED}"
        raise InvalidInput(msg)
    return placed


def _texts(given: Sequence[object], who: str, wanted: str) -> tuple[str, ...]:
    """Names of nodes or tags."""
    if not given:
        msg = f"{who} got none; give {wanted}"
        raise InvalidInput(msg)
    for one in given:
        if not isinstance(one, str) or not one:
            msg = f"{who} got {one!r}; give {wanted}"
            raise InvalidInput(msg)
    return tuple(str(one) for one in given)
