"""`best`: Penstock's own scheduler, never dearer than another on the same input and feasible whenever one of them is.

Without constraints it is the annealed search (`search/annealed.py`), which begins from the plans of the others, and
goes on in rounds and with exact's proof until the bound is met, the time is over or it has stalled
(`search/lasting.py`); under constraints it is `constrained`. `test_never_dearer_than_another_scheduler` holds it. The
search knows nodes and not their workers: where the slots of a node cannot take what it put there, `seatable` goes on.

Measurements and what was rejected: docs/decisions/0004-best-placement.md and 0040-best-uses-its-time.md.
"""

from __future__ import annotations

from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.place import constrained
from penstock.optimise.search import lasting
from penstock.optimise.search.seatable import seatable


def schedule(problem: Problem, options: Options) -> Placement:
    """The cheapest feasible placement found, with workers."""
    if problem.constraints:
        return constrained.schedule(problem, options)
    return seatable(problem, options, lasting.find(problem, options))
