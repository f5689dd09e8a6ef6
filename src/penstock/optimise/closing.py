"""From a bound to a proof: list every set that a better plan could use, then solve over those alone.

Once column generation has prices, a set whose value lies further below its node's best than the gap between bound and
best plan is in no better plan (Baldacci et al. 2008). What is left is a list of some thousand sets, over which
subset-row cuts are found by inspection, the list is thinned again after every raise of the bound, and HiGHS finishes.
Rejected: branching on pairs of tasks (Ryan and Foster) as the first means; each branch would pay for pricing again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.columns import Column, Cuts
from penstock.optimise.contract import Deadline
from penstock.optimise.master import Master, Prices, quiet_highs
from penstock.optimise.node_types import DensePairs

CUTS_PER_ROUND = 25
CUT_ROUNDS_MAX = 40
CUT_VIOLATION_MIN = 0.02
SMALL_ENOUGH = 1_500  # columns that HiGHS is given without more cuts
BATCH = 300


@dataclass(frozen=True, eq=False)
class Listed:
    """Columns as arrays: which tasks, which node type, what they keep."""

    columns: Sequence[Column]
    holds: Floats  # columns x tasks, 0 or 1
    node_type: Ints
    kept: Floats

    @classmethod
    def of(cls, columns: Sequence[Column], tasks: int) -> Listed:
        """Arrays of these columns."""
        holds = np.zeros((len(columns), tasks))
        for row, column in enumerate(columns):
            holds[row, column.tasks] = 1.0
        types = np.array([c.node_type for c in columns], dtype=np.int32)
        return cls(columns, holds, types, np.array([c.kept for c in columns]))

    def thinned(self, keep: Longs) -> Listed:
        """Only the numbered columns."""
        return Listed([self.columns[k] for k in keep], self.holds[keep], self.node_type[keep], self.kept[keep])


@dataclass(frozen=True, eq=False)
class Closed:
    """The best choice of columns, if one beats what was known, and what no choice can keep more than."""

    chosen: list[Column] | None
    kept_bound: float


def violated_cuts(holds: Floats, value: Floats, known: set[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Subset-row cuts on three tasks that a fractional choice breaks, the worst first."""
    used = value > 1e-7
    held, amount = holds[used], value[used]
    pair = (held * amount[:, None]).T @ held
    triple = np.einsum("si,sj,sk->ijk", held * amount[:, None], held, held, optimize=True)
    over = pair[:, :, None] + pair[:, None, :] + pair[None, :, :] - 2 * triple - 1
    i, j, k = np.nonzero(over > CUT_VIOLATION_MIN)
    ordered = (i < j) & (j < k)
    i, j, k = i[ordered], j[ordered], k[ordered]
    worst = np.argsort(-over[i, j, k], kind="stable")
    found = ((int(i[w]), int(j[w]), int(k[w])) for w in worst)
    return [cut for cut in found if cut not in known][:CUTS_PER_ROUND]


def close_over(pairs: DensePairs, listed: Listed, cuts: Cuts, kept_known: float, deadline: Deadline) -> Closed:
    """The best choice among the listed columns that keeps more than `kept_known`."""
    counts = np.array([len(t.nodes) for t in pairs.types])
    cuts = Cuts(cuts.tasks, list(cuts.triples))
    bound = pairs.total
    for _ in range(CUT_ROUNDS_MAX):
        prices, worth, active = _priced(pairs, listed, cuts, counts, deadline)
        node_value = np.array([max(0.0, worth[listed.node_type == t].max(initial=0.0)) for t in range(len(counts))])
        bound = min(bound, float(prices.item.sum() + prices.cut.sum() + counts @ node_value))
        if bound <= kept_known or len(listed.kept) == 0:
            return Closed(None, min(bound, pairs.total))
        gap = bound - kept_known
        useful = np.flatnonzero(worth >= node_value[listed.node_type] - gap - 1e-7).astype(np.int64)
        broken = violated_cuts(listed.holds[active], prices.chosen, set(cuts.triples))
        listed = listed.thinned(useful)
        if len(useful) <= SMALL_ENOUGH or not broken or deadline.remaining <= 0:
            break
        cuts.triples += broken
    return _finished(pairs, listed, cuts, kept_known, bound, deadline)


def _priced(
    pairs: DensePairs, listed: Listed, cuts: Cuts, counts: Ints, deadline: Deadline
) -> tuple[Prices, Floats, Longs]:
    """The linear program over all listed columns: prices, every column's worth, and which columns it was given."""
    tasks = pairs.weight.shape[0]
    trips = (listed.holds @ cuts.shares().T.astype(np.float64)) >= 2
    master = Master(tasks, counts.tolist(), pairs.total + 1.0, len(cuts.triples))
    given = np.zeros(len(listed.kept), dtype=bool)
    order: list[int] = []
    fresh = np.argsort(-listed.kept, kind="stable")[:BATCH]
    while True:
        master.add([(listed.columns[k].kept, listed.columns[k].node_type, listed.columns[k].tasks,
                     np.flatnonzero(trips[k]).astype(np.int32)) for k in fresh.tolist()])  # fmt: skip
        given[fresh] = True
        order += fresh.tolist()
        prices = master.solve()
        worth = listed.kept - listed.holds @ prices.item - trips @ prices.cut
        reduced = np.where(given, -np.inf, worth - prices.node_type[listed.node_type])
        fresh = np.argsort(-reduced, kind="stable")[:BATCH]
        fresh = fresh[reduced[fresh] > 1e-9]
        if len(fresh) == 0 or deadline.remaining <= 0:
            return prices, worth, np.array(order, dtype=np.int64)


def _finished(
    pairs: DensePairs, listed: Listed, cuts: Cuts, kept_known: float, bound: float, deadline: Deadline
) -> Closed:
    chosen, kept_bound = choose(pairs, listed, cuts, kept_known, deadline)
    return Closed(chosen, min(bound, kept_bound))


def choose(
    pairs: DensePairs, listed: Listed, cuts: Cuts, kept_known: float, deadline: Deadline
) -> tuple[list[Column] | None, float]:
    """The best whole choice of columns by HiGHS that keeps more than `kept_known`, and the bound that it proved."""
    import highspy

    tasks, count = pairs.weight.shape[0], len(listed.kept)
    if count == 0:
        return None, kept_known
    types = np.eye(len(pairs.types))[listed.node_type]
    trips = (listed.holds @ cuts.shares().T.astype(np.float64)) >= 2
    matrix = np.column_stack([listed.holds, types, trips])
    nodes = [float(len(t.nodes)) for t in pairs.types]
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = matrix.shape
    program.col_cost_, program.col_lower_, program.col_upper_ = -listed.kept, np.zeros(count), np.ones(count)
    program.row_lower_ = np.concatenate([np.ones(tasks), np.full(matrix.shape[1] - tasks, -np.inf)])
    program.row_upper_ = np.concatenate([np.ones(tasks), nodes, np.ones(trips.shape[1])])
    column, row = np.nonzero(matrix)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.searchsorted(column, np.arange(count + 1))
    program.a_matrix_.index_, program.a_matrix_.value_ = row, np.ones(len(row))
    program.integrality_ = [highspy.HighsVarType.kInteger] * count
    highs = quiet_highs()
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 1e-9)
    highs.setOptionValue("objective_bound", -kept_known)
    highs.setOptionValue("time_limit", deadline.remaining)
    highs.passModel(program)
    highs.run()
    info, status = highs.getInfo(), highs.getModelStatus()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kObjectiveBound):
        return None, kept_known
    kept_bound = -info.mip_dual_bound if np.isfinite(info.mip_dual_bound) else pairs.total
    if info.primal_solution_status != 2:
        return None, max(kept_known, kept_bound)
    picked = np.flatnonzero(np.array(highs.getSolution().col_value) > 0.5)
    return [listed.columns[k] for k in picked.tolist()], max(kept_known, kept_bound)
