"""The assignment of rows to columns with the largest sum of weights: exact, by shortest augmenting paths.

This is the Hungarian method with potentials (Kuhn 1955, Munkres 1957), O(n^3) with the inner loop in arrays. Rejected:
the heaviest pair first, which moves more than it has to (`test_the_heaviest_pair_first_would_move_more`).
"""

from __future__ import annotations

import numpy as np

from penstock.model.taskgraph import Floats, Longs


def heaviest(weight: Floats) -> Longs:
    """The column of each row; there are at least as many columns as rows."""
    rows, columns = weight.shape
    cost = -weight
    over_row, over_column = np.zeros(rows + 1), np.zeros(columns + 1)
    row_of = np.full(columns + 1, rows, dtype=np.int64)  # of each column; `rows` is none; the last column is a start
    for row in range(rows):
        row_of[columns] = row
        _augment(cost, over_row, over_column, row_of)
    found = np.empty(rows + 1, dtype=np.int64)
    found[row_of[:columns]] = np.arange(columns)
    return found[:rows]


def _augment(cost: Floats, over_row: Floats, over_column: Floats, row_of: Longs) -> None:
    """Give the row at the last column a column, along a shortest path of columns that change their rows."""
    rows, columns = cost.shape
    least, before = np.full(columns, np.inf), np.full(columns, columns)
    seen = np.zeros(columns + 1, dtype=bool)
    at = columns
    while row_of[at] < rows:
        seen[at] = True
        row = row_of[at]
        reduced = cost[row] - over_row[row] - over_column[:columns]
        nearer = ~seen[:columns] & (reduced < least)
        least[nearer], before[nearer] = reduced[nearer], at
        following = int(np.argmin(np.where(seen[:columns], np.inf, least)))
        step = least[following]
        over_row[row_of[seen]] += step
        over_column[seen] -= step
        least[~seen[:columns]] -= step
        at = following
    while at != columns:
        row_of[at] = row_of[before[at]]
        at = int(before[at])
