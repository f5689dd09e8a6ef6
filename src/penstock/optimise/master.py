"""The master problem of column generation: a linear program over node sets, kept warm in HiGHS.

Maximise the traffic kept inside sets, cover every item once, use at most as many sets of a node type as it has nodes,
and keep every subset-row cut (Jepsen et al. 2008: of three tasks, at most one chosen set may hold two). Every item has
an artificial column at a high price, so that the program is feasible and its prices bounded from the first round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.model.taskgraph import Floats, Ints

if TYPE_CHECKING:
    from highspy import Highs


@dataclass(frozen=True, eq=False)
class Prices:
    """The master's answer: what it keeps, prices of items, node types and cuts, and the columns' values."""

    kept: float
    item: Floats
    node_type: Floats
    cut: Floats
    chosen: Floats  # a value per column, artificial ones left out
    artificial: float  # how much of the cover is artificial


def quiet_highs(threads: int = 1) -> Highs:
    """A HiGHS instance that prints nothing."""
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", threads)
    return highs


class Master:
    """Rows: items, node types, cuts. Columns: one artificial per item, then node sets in the order they were added."""

    def __init__(self, items: int, type_counts: Sequence[int], artificial_price: float, cut_count: int = 0) -> None:
        self.items, self.types, self.cuts = items, len(type_counts), cut_count
        self._highs = quiet_highs()
        self._highs.setOptionValue("presolve", "off")
        infinite = self._highs.getInfinity()
        for _ in range(items):
            self._highs.addRow(1.0, 1.0, 0, [], [])
        for count in type_counts:
            self._highs.addRow(-infinite, float(count), 0, [], [])
        for _ in range(cut_count):
            self._highs.addRow(-infinite, 1.0, 0, [], [])
        for i in range(items):
            self._highs.addCol(artificial_price, 0.0, infinite, 1, [i], [1.0])
        self._infinite = infinite

    def add(self, columns: Sequence[tuple[float, int, Ints, Ints]]) -> None:
        """Add columns of (kept traffic, node type, items, cuts that it trips)."""
        if not columns:
            return
        starts: list[int] = []
        index: list[int] = []
        for _, node_type, held, tripped in columns:
            starts.append(len(index))
            index += held.tolist()
            index.append(self.items + node_type)
            index += (self.items + self.types + tripped).tolist()
        count = len(columns)
        self._highs.addCols(
            count,
            np.array([-kept for kept, *_ in columns]),
            np.zeros(count),
            np.full(count, self._infinite),
            len(index),
            np.array(starts, dtype=np.int32),
            np.array(index, dtype=np.int32),
            np.ones(len(index)),
        )

    def add_cut(self, columns: Ints) -> None:
        """Add a cut that the numbered columns trip."""
        at = (columns + self.items).astype(np.int32)
        self._highs.addRow(-self._infinite, 1.0, len(at), at, np.ones(len(at)))
        self.cuts += 1

    def solve(self) -> Prices:
        """Solve the linear program from where the last solve ended."""
        self._highs.run()
        solution = self._highs.getSolution()
        dual = -np.array(solution.row_dual)
        value = np.array(solution.col_value)
        types_end = self.items + self.types
        return Prices(
            kept=-self._highs.getInfo().objective_function_value,
            item=dual[: self.items],
            node_type=np.maximum(0.0, dual[self.items : types_end]),
            cut=np.maximum(0.0, dual[types_end:]),
            chosen=value[self.items :],
            artificial=float(value[: self.items].sum()),
        )
