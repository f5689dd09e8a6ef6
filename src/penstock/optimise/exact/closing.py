"""From a bound to a proof: list every set that a better plan could use, then solve over those alone.

Once column generation has prices, a set whose value lies further below its node's best than the gap between bound and
best plan is in no better plan (Baldacci et al. 2008). What is left is a list of some thousand sets, over which
subset-row cuts are found by inspection, the list is thinned again after every raise of the bound, and HiGHS finishes.
Rejected: branching (`tree`) as the first means; each branch pays for pricing again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import Floats, Longs
from penstock.optimise.contract import Deadline
from penstock.optimise.exact.columns import Columns, Cut, Cuts, lagrangian
from penstock.optimise.exact.master import RESOLUTION, Master, Prices, quiet_highs, run_confirmed
from penstock.optimise.exact.node_types import DensePairs

CUTS_PER_ROUND = 25
CUT_ROUNDS_MAX = 40
CUT_VIOLATION_MIN = 0.02
CUT_CLASSES_MAX = 150  # all triples of more would fill memory
SMALL_ENOUGH = 1_500  # columns that HiGHS is given without more cuts
BATCH = 300


@dataclass(frozen=True, eq=False)
class Closed:
    """The best choice of columns (how often each), if one beats what was known, and what no choice keeps more than."""

    columns: Columns
    times: Longs | None
    kept_bound: float


def violated_cuts(holds: Floats, value: Floats, cuts: Cuts) -> list[Cut]:
    """Cuts on one to three classes that a fractional choice breaks, the worst first.

    With an odd number of tasks, at least one chosen set holds an odd number of them; a cut is broken by as much as the
    sets with an odd number fall short of 1, halved. Parity multiplies as signs do, so one product gives all triples.
    Two empty classes at the end make pairs and single classes into triples.
    """
    if holds.shape[1] > CUT_CLASSES_MAX:
        return []
    used = value > 1e-7
    amount, count = value[used], holds.shape[1]
    sign = np.hstack([1.0 - 2.0 * (np.rint(holds[used]) % 2), np.ones((int(used.sum()), 2))])
    even = np.einsum("si,sj,sk->ijk", sign * amount[:, None], sign, sign, optimize=True)
    short = (1.0 - (amount.sum() - even) / 2) / 2
    tasks = np.concatenate([cuts.counts, [0, 0]])
    odd = (tasks[:, None, None] + tasks[None, :, None] + tasks[None, None, :]) % 2 == 1
    i, j, k = np.nonzero(odd & (short > CUT_VIOLATION_MIN))
    ordered = (i < j) & (j < k)
    i, j, k = i[ordered], j[ordered], k[ordered]
    worst = np.argsort(-short[i, j, k], kind="stable")
    found = (tuple(int(c) for c in (i[w], j[w], k[w]) if c < count) for w in worst)
    known = set(cuts.classes)
    return list(dict.fromkeys(cut for cut in found if cut not in known))[:CUTS_PER_ROUND]


def close_over(pairs: DensePairs, listed: Columns, cuts: Cuts, kept_known: float, deadline: Deadline) -> Closed:
    """The best choice among the listed columns that keeps more than `kept_known`."""
    nodes = np.array([len(t.nodes) for t in pairs.types])
    cuts = Cuts(cuts.counts, list(cuts.classes))
    bound = pairs.total
    for _ in range(CUT_ROUNDS_MAX):
        if len(listed) == 0:
            return Closed(listed, None, kept_known)
        prices, worth, given = _priced(pairs, listed, cuts, nodes, deadline)
        node_value = np.array([worth[listed.node_type == t].max(initial=0.0) for t in range(len(nodes))])
        proven = lagrangian(prices.task, cuts, prices.cut, nodes, node_value, pairs.total)
        bound = min(bound, proven)
        if bound <= kept_known:
            return Closed(listed, None, kept_known)
        useful = np.flatnonzero(worth >= node_value[listed.node_type] - (proven - kept_known) - 1e-7)
        broken = violated_cuts(listed.holds[given], prices.chosen, cuts)
        listed = listed.thinned(useful.astype(np.int64))
        if deadline.remaining <= 0:
            return Closed(listed, None, bound)
        if len(useful) <= SMALL_ENOUGH or not broken:
            break
        cuts.classes += broken
    times, kept_bound = choose(pairs, listed, cuts, kept_known, deadline)
    return Closed(listed, times, min(bound, kept_bound))


def _priced(
    pairs: DensePairs, listed: Columns, cuts: Cuts, nodes: Longs, deadline: Deadline
) -> tuple[Prices, Floats, Longs]:
    """The linear program over all listed columns: prices, every column's worth, and which columns it was given."""
    trips = cuts.trips(listed.holds)
    master = Master(cuts.counts.tolist(), nodes.tolist(), pairs.total + 1.0)
    for limit in cuts.limits().tolist():
        master.add_cut(np.zeros(0), limit)
    given = np.zeros(len(listed), dtype=bool)
    order: list[Longs] = []
    fresh = np.argsort(-listed.kept, kind="stable")[:BATCH]
    while True:
        master.add(listed.kept[fresh], listed.node_type[fresh], listed.holds[fresh], trips[fresh])
        given[fresh] = True
        order.append(fresh)
        prices = master.solve(deadline)
        worth = listed.kept - listed.holds @ prices.task - trips @ prices.cut
        reduced = np.where(given, -np.inf, worth - prices.node_type[listed.node_type])
        fresh = np.argsort(-reduced, kind="stable")[:BATCH]
        fresh = fresh[reduced[fresh] > 1e-9]
        if len(fresh) == 0 or deadline.remaining <= 0:
            return prices, worth, np.concatenate(order)


def choose(
    pairs: DensePairs, listed: Columns, cuts: Cuts, kept_known: float, deadline: Deadline
) -> tuple[Longs | None, float]:
    """How often to use each column, by HiGHS, so as to keep more than `kept_known`; and the bound that it proved.

    The bound is raised by what HiGHS cannot tell apart.
    """
    import highspy

    count, classes = len(listed), len(cuts.counts)
    if count == 0:
        return None, kept_known
    nodes = np.array([len(t.nodes) for t in pairs.types], dtype=np.float64)
    matrix = np.hstack([listed.holds, np.eye(len(nodes))[listed.node_type], cuts.trips(listed.holds)])
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = matrix.shape
    program.col_cost_, program.col_lower_ = -listed.kept, np.zeros(count)
    program.col_upper_ = nodes[listed.node_type]
    program.row_lower_ = np.concatenate([cuts.counts, np.full(matrix.shape[1] - classes, -np.inf)])
    program.row_upper_ = np.concatenate([cuts.counts, nodes, cuts.limits()])
    column, row = np.nonzero(matrix)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.searchsorted(column, np.arange(count + 1))
    program.a_matrix_.index_, program.a_matrix_.value_ = row, matrix[column, row]
    program.integrality_ = [highspy.HighsVarType.kInteger] * count
    highs = quiet_highs()
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 0.0)
    highs.setOptionValue("objective_bound", -kept_known)
    highs.passModel(program)
    status = run_confirmed(highs, deadline)
    unseen = RESOLUTION * float(listed.kept.max(initial=1.0))
    info = highs.getInfo()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kObjectiveBound):
        return None, kept_known + unseen
    kept_bound = -info.mip_dual_bound if np.isfinite(info.mip_dual_bound) else pairs.total
    if info.primal_solution_status != 2:
        return None, max(kept_known, kept_bound) + unseen
    return np.rint(highs.getSolution().col_value).astype(np.int64), max(kept_known, kept_bound) + unseen
