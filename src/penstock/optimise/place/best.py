"""`best`: Penstock's own scheduler, never dearer than another on the same input and feasible whenever one of them is.

Without constraints it is the annealed search (`search/annealed.py`), which begins from the plans of the others; under
constraints it is `constrained`. `test_never_dearer_than_another_scheduler` holds "never dearer". The search knows nodes
and not their workers: where the slots of a node cannot take what it put there, `seatable` goes on.

Iterations are fixed by size, effort and theta and not by the clock; theta caps. So the same seed and effort give the
same plan unless the cap cut a search short, and a larger theta may also buy more iterations. Measurements and what was
rejected: docs/decisions/0004-best-placement.md.
"""

from __future__ import annotations

from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.place import constrained
from penstock.optimise.search import annealed
from penstock.optimise.search.seatable import seatable


def schedule(problem: Problem, options: Options) -> Placement:
    """The cheapest feasible placement found, with workers."""
    if problem.constraints:
        return constrained.schedule(problem, options)
    return seatable(problem, options, annealed.find(problem, options))
