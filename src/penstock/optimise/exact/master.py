"""The master problem of column generation: a linear program over node sets, kept warm in HiGHS.

Maximise the traffic kept inside sets, cover every class of tasks exactly, use at most as many sets of a node type as it
has nodes, and keep every cut (`columns.Cuts`). Every class has an artificial column at a high price, so that the
program is feasible and its prices bounded from the first round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.model.taskgraph import Floats, Ints
from penstock.optimise.contract import Deadline

if TYPE_CHECKING:
    from highspy import Highs, HighsModelStatus

TOLERANCE = 1e-9  # the tightest that HiGHS keeps with reason; its own default is 1e-6
# Of the largest coefficient: what a verdict of HiGHS may be off. A hundred tolerances, because cuts and bounds add up
# several; verdicts are lowered by this much before they count.
RESOLUTION = 1e-7


@dataclass(frozen=True, eq=False)
class Prices:
    """The master's answer: what it keeps, prices of classes, node types and cuts, and the columns' values."""

    kept: float
    task: Floats  # price of one task of each class
    node_type: Floats
    cut: Floats
    chosen: Floats  # a value per column, artificial ones left out
    branch: Floats = field(default_factory=lambda: np.zeros(0))  # negative where sets with the feature are in demand

    def drawn_to(self, new: Prices, weight: float = 0.1) -> Prices:
        """A running average of prices; other figures, and cuts when there are new ones, are the new ones."""
        cut = new.cut if len(new.cut) != len(self.cut) else (1 - weight) * self.cut + weight * new.cut
        return replace(
            new,
            task=(1 - weight) * self.task + weight * new.task,
            node_type=(1 - weight) * self.node_type + weight * new.node_type,
            cut=cut,
        )


def quiet_highs(threads: int = 1) -> Highs:
    """A HiGHS instance that prints nothing."""
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", threads)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance", "mip_feasibility_tolerance"):
        highs.setOptionValue(name, TOLERANCE)
    return highs


def limit_time(highs: Highs, deadline: Deadline) -> None:
    """Stop the next run at the deadline; HiGHS counts its limit from an instance's first run on."""
    highs.setOptionValue("time_limit", highs.getRunTime() + deadline.remaining)


def run_confirmed(highs: Highs, deadline: Deadline) -> HighsModelStatus:
    """Solve by the deadline; answers how it ended. That there is no solution is believed when presolve was off.

    A refusal is told as a proof, and presolve has refused a program with equal rows that has a solution.
    """
    import highspy

    limit_time(highs, deadline)
    highs.run()
    if highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        highs.setOptionValue("presolve", "off")
        highs.clearSolver()
        limit_time(highs, deadline)
        highs.run()
    status: HighsModelStatus = highs.getModelStatus()
    return status


class Master:
    """Rows: classes, node types, cuts. Columns: an artificial one per class, then node sets in the order of adding."""

    def __init__(self, class_counts: Sequence[int], type_counts: Sequence[int], artificial_price: float) -> None:
        self.classes, self.types = len(class_counts), len(type_counts)
        self._highs = quiet_highs()
        self._highs.setOptionValue("presolve", "off")
        infinite = self._highs.getInfinity()
        for count in class_counts:
            self._highs.addRow(float(count), float(count), 0, [], [])
        for count in type_counts:
            self._highs.addRow(-infinite, float(count), 0, [], [])
        for i in range(self.classes):
            self._highs.addCol(artificial_price, 0.0, infinite, 1, [i], [1.0])
        self._infinite = infinite
        self._lent_price = artificial_price
        self._lent: list[int] = []  # where artificial columns of features are
        self._sets: list[int] = []  # where columns of node sets are
        self._branch_rows: list[int] = []

    def add(self, kept: Floats, node_type: Ints, holds: Floats, trips: Floats, had: Floats | None = None) -> None:
        """Add columns: traffic kept, node type, tasks per class, how often they trip each cut, features they have."""
        count = len(kept)
        self._sets += range(self._highs.getNumCol(), self._highs.getNumCol() + count)
        matrix = np.hstack([holds, np.eye(self.types)[node_type], trips, *([] if had is None else [had])])
        column, row = np.nonzero(matrix)
        self._highs.addCols(
            count,
            -kept,
            np.zeros(count),
            np.full(count, self._infinite),
            len(row),
            np.searchsorted(column, np.arange(count)).astype(np.int32),
            row.astype(np.int32),
            matrix[column, row],
        )

    def add_cut(self, trips: Floats, limit: float) -> None:
        """Add a cut, given how often each column trips it and how often all together may."""
        at = np.flatnonzero(trips)
        self._highs.addRow(-self._infinite, limit, len(at), np.array(self._sets, dtype=np.int32)[at], trips[at])

    def add_branch(self, had: Floats) -> None:
        """Add a row without limits yet, and an artificial column for where no set can fill it. No cut may follow."""
        at = np.flatnonzero(had)
        row = self._highs.getNumRow()
        self._branch_rows.append(row)
        self._highs.addRow(-self._infinite, self._infinite, len(at), np.array(self._sets, dtype=np.int32)[at], had[at])
        self._lent.append(self._highs.getNumCol())
        self._highs.addCol(self._lent_price, 0.0, self._infinite, 1, [row], [1.0])

    def lend_at(self, price: float) -> None:
        """What it costs where too few sets have a feature. High prices make pricing hard, low ones weaken the bound."""
        self._lent_price = price
        for column in self._lent:
            self._highs.changeColCost(column, price)

    @property
    def lent(self) -> float:
        """How many sets the last answer lacks."""
        value = self._highs.getSolution().col_value
        return float(sum(value[column] for column in self._lent)) if len(value) else 0.0

    def limit_branch(self, number: int, low: float, high: float) -> None:
        """How many sets may have the feature."""
        self._highs.changeRowBounds(self._branch_rows[number], low, high)

    def solve(self, deadline: Deadline) -> Prices:
        """Solve the linear program from where the last solve ended; after the deadline, prices are what there is."""
        limit_time(self._highs, deadline)
        self._highs.run()
        solution = self._highs.getSolution()
        rows, columns = self._highs.getNumRow(), self._highs.getNumCol()
        # A run that was stopped may have no answer; any prices give a true bound, so zeros do.
        dual = -np.array(solution.row_dual) if len(solution.row_dual) == rows else np.zeros(rows)
        value = np.array(solution.col_value) if len(solution.col_value) == columns else np.zeros(columns)
        types_end = self.classes + self.types
        cuts_end = rows - len(self._branch_rows)
        return Prices(
            kept=-self._highs.getInfo().objective_function_value,
            task=dual[: self.classes],
            node_type=np.maximum(0.0, dual[self.classes : types_end]),
            cut=np.maximum(0.0, dual[types_end:cuts_end]),
            chosen=value[self._sets],
            branch=dual[cuts_end:],
        )
