"""Slices as a machine sees them: put together from what another worker sent, and given to a merger by number.

A slice is a number and everything that a task made of it so far: nothing, one batch or several. Between two tasks of a
worker it is one entry of an inbox. Between workers it is its batches and then a mark (`Kind.SLICE`: the number and how
many batches there were), so every transport that carries marks carries slices. The mark comes last: one that came first
would wake a sleeping receiver for nothing. Rejected: a tag in the head of every frame, which each transport would have
to know, and which needs batches without rows.

What a merger may not have yet is held here, before its inbox. So its edges return credit as all edges do, when the task
takes the data, and that bounds what is held (`test_what_a_merger_holds_keeps_its_credit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.errors import InternalError
from penstock.run.machine.instructions import SlicePayload, WorkerLayout
from penstock.run.region.order import Merger
from penstock.run.transport.wire import WireFault

PARTS_MAX = (1 << 16) - 1

Entry = tuple[int, SlicePayload, int, int]  # edge, slice, bytes that count, rows


@dataclass(slots=True)
class _Arriving:
    """What has come of a slice from another worker whose mark has not."""

    size: int = 0
    rows: int = 0
    parts: list[object] = field(default_factory=list)


class Slices:
    """The slices on their way to the tasks of one worker."""

    def __init__(self, layout: WorkerLayout) -> None:
        self._layout = layout
        self._arriving: dict[int, _Arriving] = {}
        self._mergers: dict[int, Merger[Entry]] = {t: Merger() for t, task in enumerate(layout.tasks) if task.merges}

    def part(self, edge: int, payload: object, size: int, rows: int) -> None:
        """A batch of the slice that the next mark of this edge closes."""
        arriving = self._arriving.setdefault(edge, _Arriving())
        arriving.parts.append(payload)
        arriving.size += size
        arriving.rows += rows
        if len(arriving.parts) > PARTS_MAX:
            msg = f"{self._name(edge)} received over {PARTS_MAX} batches of one slice"
            raise WireFault(msg)

    def whole(self, edge: int, sequence: int, parts: int) -> Entry:
        """A mark has come: the slice on an edge from another worker is whole."""
        least = self._layout.edges[edge].slice_bytes_min
        arriving = self._arriving.pop(edge, None) or _Arriving()
        if not least or len(arriving.parts) != parts:
            msg = (
                f"{self._name(edge)} received slice {sequence} of {parts} batches where {len(arriving.parts)} have "
                "come, or none can come"
            )
            raise WireFault(msg)
        return edge, SlicePayload(sequence, tuple(arriving.parts)), max(arriving.size, least), arriving.rows

    def ended(self, edge: int) -> None:
        """An edge has ended: batches whose mark has not come would be lost without a word."""
        if edge in self._arriving:
            msg = f"{self._name(edge)} ended with {len(self._arriving[edge].parts)} batches of a slice without its mark"
            raise WireFault(msg)

    def in_turn(self, task: int, entry: Entry) -> Sequence[Entry]:
        """What a task may have now that this slice has come for it; a merger gets slices in order."""
        merger = self._mergers.get(task)
        return (entry,) if merger is None else merger.arrived(entry[1].sequence, entry)

    def require_none_held(self, task: int) -> None:
        """A task is to finish: a merger that holds slices has lost one before them."""
        merger = self._mergers.get(task)
        if merger is not None and (held := merger.held()):
            name = self._layout.tasks[task].name
            msg = f"{name!r} ended with {len(held)} slices held; slice {merger.next_sequence} never came"
            raise InternalError(msg)

    def held(self, task: int) -> Sequence[Entry]:
        """What waits for a merger until its turn comes."""
        merger = self._mergers.get(task)
        return () if merger is None else merger.held()

    def _name(self, edge: int) -> str:
        target = self._layout.edges[edge].target
        return f"edge {edge}" if target is None else f"an edge into {self._layout.tasks[target].name!r}"


def packed_mark(sequence: int, parts: int) -> int:
    """The value of the mark that closes a slice: its number and its batches."""
    return sequence << 16 | parts


def unpacked_mark(value: int) -> tuple[int, int]:
    """The number of a slice and how many batches it has."""
    return value >> 16, value & PARTS_MAX
