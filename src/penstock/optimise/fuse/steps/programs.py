"""Integer programs in rows, handed to HiGHS in one way."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import Floats, Longs
from penstock.optimise.contract import Deadline
from penstock.optimise.exact.master import quiet_highs, run_confirmed
from penstock.optimise.fuse.steps.rules import Flags


class Rows:
    """Rows of a program as they gather."""

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.columns: list[Longs] = []
        self.values: list[Floats] = []

    def add(self, lower: float, upper: float, columns: Longs, values: Floats) -> None:
        """Add a row: lower <= sum of values x columns <= upper."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.columns.append(np.asarray(columns, dtype=np.int64))
        self.values.append(np.asarray(values, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Solution:
    """What HiGHS answered: `status` is solved (to the gap asked for), found, infeasible or open."""

    status: str
    value: Floats | None
    bound: float


def solved(
    rows: Rows,
    cost: Floats,
    upper: Floats,
    whole: Flags,
    deadline: Deadline,
    *,
    gap: float = 0.0,
    branches_max: int | None = None,
    start: Floats | None = None,
) -> Solution:
    """Minimise the cost over columns from 0 to `upper`, those marked as whole in whole numbers."""
    import highspy

    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(cost), len(rows.lower)
    program.col_cost_, program.col_lower_, program.col_upper_ = cost, np.zeros(len(cost)), upper
    program.row_lower_, program.row_upper_ = np.array(rows.lower), np.array(rows.upper)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.cumsum([0, *(len(columns) for columns in rows.columns)])
    program.a_matrix_.index_ = np.concatenate(rows.columns)
    program.a_matrix_.value_ = np.concatenate(rows.values)
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    program.integrality_ = [kinds[int(flag)] for flag in whole.tolist()]
    highs = quiet_highs()
    highs.setOptionValue("mip_rel_gap", gap)
    highs.setOptionValue("mip_abs_gap", 0.0)
    if branches_max is not None:
        highs.setOptionValue("mip_max_nodes", branches_max)
    highs.passModel(program)
    if start is not None:
        given = highspy.HighsSolution()
        given.col_value = start
        highs.setSolution(given)
    status, info = run_confirmed(highs, deadline), highs.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Solution("infeasible", None, math.inf)
    if info.primal_solution_status != 2:
        return Solution("open", None, info.mip_dual_bound)
    ended = status == highspy.HighsModelStatus.kOptimal
    return Solution("solved" if ended else "found", np.array(highs.getSolution().col_value), info.mip_dual_bound)
