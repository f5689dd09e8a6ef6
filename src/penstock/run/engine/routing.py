"""Groupings: which task of the reader gets which rows.

One router serves one sending task and one input of the reader. Its targets are data that can be replaced while the job
runs (`retarget`), which is how tasks will move. Whole batches and slices pass without a copy; groupings that look into
rows copy them, by the core's counting sort.

Names are Storm's. Partial key is Nasir et al., ICDE 2015, section 3: two candidate tasks by two hashes of the key, and
each batch's rows of one key go to the candidate to which this sender has sent less so far. The paper decides for each
row; deciding for each key of a batch is coarser by at most a batch, and costs one step per key instead of one per row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.columns import kernels
from penstock.run.contract import Owns
from penstock.run.dataflow import Grouping
from penstock.run.transport.wire import Routed as RoutedImages
from penstock.run.transport.wire import parts_of, route_by_key, route_by_target

Routed = list[tuple[int, pa.RecordBatch]]

_SECOND_CHOICE = np.uint64(0x9E3779B97F4A7C15)  # odd, so multiplying by it permutes the hashes


class Router:
    """Where the rows of one sending task go among the tasks of one reader.

    >>> import pyarrow as pa
    >>> words = pa.RecordBatch.from_pydict({"word": ["a", "b", "a"]})
    >>> router = Router(Grouping("fields", ("word",)), targets=range(2), local=[True, False], index=0, tasks=1)
    >>> sum(part.num_rows for _, part in router.route(words))
    3
    """

    def __init__(
        self, grouping: Grouping, *, targets: Sequence[int], local: Sequence[bool], index: int, tasks: int
    ) -> None:
        self.grouping = grouping
        self.index = index
        self.tasks = tasks
        self.retarget(targets, local)

    def retarget(self, targets: Sequence[int], local: Sequence[bool]) -> None:
        """Replace the tasks that rows may go to; positions in `route` refer to this list."""
        if not targets or len(targets) != len(local):
            msg = f"a router needs one locality for each target but got {len(targets)} targets, {len(local)} localities"
            raise ValueError(msg)
        self.targets = tuple(targets)
        self.local = tuple(local)
        near = [position for position, is_local in enumerate(local) if is_local]
        nearest = near if near and self.grouping.kind == "local-or-shuffle" else range(len(targets))
        self._turns = tuple(nearest)
        # Senders begin at different targets, or the first target would get every sender's first batch.
        self._turn = self.index % len(self._turns)
        self.only = self._only()
        self._sent = np.zeros(len(targets), dtype=np.int64)  # rows; partial key weighs them

    def _only(self) -> int | None:
        """The target that gets every batch whole, where there is one."""
        kind = self.grouping.kind
        if kind == "direct":
            return None
        if kind == "forward":
            return self.index % len(self.targets)
        if len(self.targets) == 1 or kind == "global":
            return 0
        return self._turns[0] if len(self._turns) == 1 and kind in {"shuffle", "local-or-shuffle"} else None

    def route(self, batch: pa.RecordBatch) -> Routed:
        """The batch's rows by position in the list of targets; nothing for an empty batch."""
        if batch.num_rows == 0:
            return []
        if self.only is not None:
            return [(self.only, batch)]
        kind = self.grouping.kind
        match kind:
            case "all":
                return [(position, batch) for position in range(len(self.targets))]
            case "shuffle" | "local-or-shuffle":
                return self._by_turns(batch)
            case "fields":
                return _numbered(kernels.partition(batch, self.grouping.columns, len(self.targets)))
            case "direct":
                return _by_target(batch, self._chosen(batch), len(self.targets))
            case "partial-key":
                return _by_target(batch, self._weighed(batch), len(self.targets))
        msg = f"unknown grouping {kind!r}"
        raise ValueError(msg)

    @property
    def looks_into_rows(self) -> bool:
        """Whether the rows of one batch may go to several targets, each by what it holds."""
        return self.only is None and self.grouping.kind in {"fields", "direct", "partial-key"}

    def route_images(self, batch: pa.RecordBatch) -> RoutedImages:
        """As `route`, for groupings that look into rows: an image for each target, gathered where it is written."""
        if batch.num_rows == 0:
            return []
        parts = len(self.targets)
        if self.grouping.kind == "fields":
            return route_by_key(batch, self.grouping.columns, parts)
        chosen = self._chosen(batch) if self.grouping.kind == "direct" else self._weighed(batch)
        return route_by_target(batch, chosen.astype(np.uint32), parts)

    def _by_turns(self, batch: pa.RecordBatch) -> Routed:
        """Round robin; a large batch is cut so that every target gets a share of it."""
        parts = kernels.spread(batch, len(self._turns), self._turn)
        routed = [(self._turns[i], part) for i, part in enumerate(parts) if part is not None]
        self._turn = (self._turn + len(routed)) % len(self._turns)
        return routed

    def _chosen(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The target of each row, as the user's function says."""
        choose = self.grouping.choose
        if choose is None:
            msg = "a direct grouping needs a function that gives the task's index"
            raise InvalidInput(msg)
        schema = pa.schema([pa.field("target", pa.int64(), nullable=False)])
        chosen: npt.NDArray[np.int64] = kernels.map_rows(choose, batch, schema).column(0).to_numpy()
        outside = np.flatnonzero((chosen < 0) | (chosen >= len(self.targets)))
        if len(outside):
            row = int(outside[0])
            msg = (
                f"direct grouping chose task {int(chosen[row])} for row {batch.slice(row, 1).to_pylist()[0]}; "
                f"the reader has tasks 0 to {len(self.targets) - 1}"
            )
            raise InvalidInput(msg)
        return chosen

    def _weighed(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The target of each row, the lighter of its key's two."""
        hashes, key_of_row, rows_of_key = np.unique(
            kernels.hash_rows(batch, self.grouping.columns), return_inverse=True, return_counts=True
        )
        first, second = _two_choices(hashes, len(self.targets))
        chosen = np.empty(len(hashes), dtype=np.int64)
        # Heavy keys first: they decide the balance, light ones even it out.
        for key in np.argsort(-rows_of_key, kind="stable").tolist():
            a, b = int(first[key]), int(second[key])
            chosen[key] = target = a if self._sent[a] <= self._sent[b] else b
            self._sent[target] += rows_of_key[key]
        return chosen[key_of_row]


def owner(index: int, tasks: int) -> Owns:
    """Which rows grouping by fields routes to task `index` of `tasks`."""

    def owns(batch: pa.RecordBatch, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
        hashes = kernels.hash_rows(batch, columns)
        mine: npt.NDArray[np.bool_] = parts_of(hashes, tasks) == index
        return mine

    return owns


def _two_choices(hashes: npt.NDArray[np.uint64], parts: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Two different targets for each hash; the same from every sender, so a key meets at most two tasks."""
    scrambled = hashes * _SECOND_CHOICE
    first = ((hashes >> np.uint64(32)) % np.uint64(parts)).astype(np.int64)
    away = 1 + ((scrambled >> np.uint64(32)) % np.uint64(parts - 1)).astype(np.int64)
    return first, (first + away) % parts


def _by_target(batch: pa.RecordBatch, chosen: npt.NDArray[np.int64], parts: int) -> Routed:
    order = np.argsort(chosen, kind="stable")
    ends = np.searchsorted(chosen[order], np.arange(parts), side="right").tolist()
    if ends[-1] and chosen[order[0]] == chosen[order[-1]]:
        return [(int(chosen[0]), batch)]
    moved = batch.take(pa.array(order))
    starts = [0, *ends[:-1]]
    return [
        (i, moved.slice(start, end - start))
        for i, (start, end) in enumerate(zip(starts, ends, strict=True))
        if end > start
    ]


def _numbered(parts: Sequence[pa.RecordBatch | None]) -> Routed:
    return [(position, part) for position, part in enumerate(parts) if part is not None]
