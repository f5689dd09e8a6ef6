"""Imported: what another system's figures come to, as our operator graph and profile, with notes on what was assumed.

Each reader says what it found as `Found` operators and `Flow`s; `assemble` makes the records of them and has the model
judge both, so that a document of another system leaves here sound or as one InvalidInput that names every fault
(`test_damaged_documents_are_told_or_make_sound_topologies`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.imports.traffic import pair_shares
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.task_id import TaskId
from penstock.model.topology import Operator, OperatorGraph, Stream

PAIRS_MAX = 300_000  # a profile of more would not fit into a file that we read back
NAME_LENGTH_MAX = 80
UNKNOWN_LOAD = 1.0  # a whole core: what operators have that declare nothing


@dataclass(frozen=True, slots=True)
class Imported:
    """A topology and its profile from another system, and a sentence for each thing that it does not say."""

    graph: OperatorGraph
    profile: Profile
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """An operator of another system; a load that nobody measured is None."""

    name: str
    loads: tuple[float | None, ...]  # CPU seconds per second of each task
    source: bool
    declared: float | None = None  # the load to assume for tasks that were not measured, where the system has one


@dataclass(frozen=True, slots=True)
class Flow:
    """What went from one operator to another: totals, and by how much each task took part."""

    source: str
    target: str
    grouping: str
    rate: float  # bytes per second of all pairs together
    tuples: float  # tuples per second, likewise
    sent: tuple[float, ...]  # proportions of the source's tasks
    received: tuple[float, ...]  # and of the target's


def assemble(
    name: str, found: Sequence[Found], flows: Sequence[Flow], notes: Iterable[str], unknown_load: float = UNKNOWN_LOAD
) -> Imported:
    """Graph, profile and notes; InvalidInput with every fault of what was found."""
    pairs = sum(len(flow.sent) * (1 if flow.grouping == "forward" else len(flow.received)) for flow in flows)
    if pairs > PAIRS_MAX:
        msg = f"{name!r} has {pairs} pairs of tasks; the limit of an import is {PAIRS_MAX}"
        raise InvalidInput(msg)
    declared = [unknown_load if operator.declared is None else operator.declared for operator in found]
    graph = OperatorGraph(
        name,
        tuple(
            Operator(
                operator.name,
                len(operator.loads),
                _plain(tuple(default if load is None else load for load in operator.loads)),
                source=operator.source,
            )
            for operator, default in zip(found, declared, strict=True)
        ),
        tuple(Stream(flow.source, flow.target, flow.grouping, _mean(flow)) for flow in flows),
    ).validated()
    tasks = {
        str(TaskId.of(operator.name, i)): TaskProfile(load)
        for operator in found
        for i, load in enumerate(operator.loads)
        if load is not None
    }
    profile = Profile(tasks, _edges(flows)).validated(graph)
    unmeasured = [
        f"{operator.name!r} ({default:g})"
        for operator, default in zip(found, declared, strict=True)
        if None in operator.loads
    ]
    said = list(notes)
    if unmeasured:
        shown = ", ".join(unmeasured[:5]) + (f" and {len(unmeasured) - 5} more" if len(unmeasured) > 5 else "")
        said.append(f"nobody measured the load of {shown}; --unknown-load gives another for those that declare none")
    return Imported(graph, profile, tuple(said))


class Names:
    """Names of another system as ours may be: one line, no `/`, not too long, and each used once."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def give(self, text: str) -> str:
        """The name for an operator that is called `text` elsewhere."""
        short = plain_name(text)
        name = short
        while name in self._used:
            self._next[short] = self._next.get(short, 1) + 1
            name = f"{short} ({self._next[short]})"
        self._used.add(name)
        return name


def plain_name(text: str) -> str:
    """The text on one line, without `/`, which separates operator and index in our task ids."""
    printable = "".join(c if c.isprintable() else " " for c in text[: 4 * NAME_LENGTH_MAX]).replace("/", "|")
    return " ".join(printable.split())[:NAME_LENGTH_MAX].strip() or "unnamed"


def _plain(figures: tuple[float, ...]) -> float | tuple[float, ...]:
    """One figure where all tasks have the same."""
    return figures[0] if len(set(figures)) == 1 else figures


def _mean(flow: Flow) -> float:
    """The declared rate per pair."""
    return flow.rate / (len(flow.sent) * (1 if flow.grouping == "forward" else len(flow.received)))


def _edges(flows: Sequence[Flow]) -> tuple[EdgeProfile, ...]:
    """One edge for each pair, whose figures are those of all streams between the two operators."""
    added: dict[tuple[str, str], tuple[float, float]] = {}
    for flow in flows:
        for i, j, share in pair_shares(flow.grouping, flow.sent, flow.received):
            pair = str(TaskId.of(flow.source, i)), str(TaskId.of(flow.target, j))
            rate, tuples = added.get(pair, (0.0, 0.0))
            added[pair] = rate + share * flow.rate, tuples + share * flow.tuples
    return tuple(EdgeProfile(source, target, *figures) for (source, target), figures in added.items())
