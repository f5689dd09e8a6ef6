"""`exact`: the proven optimum where time allows, and otherwise a plan with a true lower bound.

The search is `exact/solver.py`; many tasks begin from the plan of the annealed search, constraints go to `constrained`.
Both know nodes and not workers; `seatable` goes on where a node's slots cannot take its tasks, the bound stays true.
A bound is reported as it was computed and is not lifted to the cost (tests/unit/test_exact_proofs.py). What was
measured and what was rejected is in docs/decisions/0003-exact-placement.md.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import UserError
from penstock.model.taskgraph import Ints
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.exact.solver import solve
from penstock.optimise.place import constrained
from penstock.optimise.search import annealed
from penstock.optimise.search.seatable import SEATS_SHARE, seatable
from penstock.optimise.seats import has_stated_seats

THETA_DEFAULT = 60.0
WARM_TASKS_MIN = 40  # from here on the annealed search finds better plans than short annealing
WARM_SHARE = 0.3  # of theta
WARM_SECONDS = 0.3  # the annealed search answers no sooner, and not before it has seen
WARM_TASKS_PER_SECOND = 2_000
SEATS_SECONDS_MAX = 1.0  # kept for where the cheapest placement's tasks do not fit their nodes' workers


def schedule(problem: Problem, options: Options) -> Placement:
    """The cheapest placement, its bound and whether that proves it."""
    theta = THETA_DEFAULT if options.theta is None else options.theta
    if problem.constraints:
        return constrained.schedule(problem, replace(options, theta=theta, settings={}))
    deadline = Deadline.after(theta)
    kept = min(SEATS_SECONDS_MAX, SEATS_SHARE * theta) if has_stated_seats(problem) else 0.0
    found = solve(problem, deadline.earlier(kept), options.seed, _warm_start(problem, options, theta - kept))
    return seatable(problem, replace(options, settings={}), found, deadline, kept)


def _warm_start(problem: Problem, options: Options, theta: float) -> Ints | None:
    """The plan of the annealed search, where there are tasks and time enough for one, and it finds one."""
    least = WARM_SECONDS + problem.task_count / WARM_TASKS_PER_SECOND
    if problem.task_count < WARM_TASKS_MIN or WARM_SHARE * theta < least:
        return None
    brief = Options(seed=options.seed, theta=WARM_SHARE * theta, tasks_per_worker=options.tasks_per_worker)
    try:
        return annealed.find(problem, brief).node
    except UserError:
        return None
