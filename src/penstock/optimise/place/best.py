"""`best`: Penstock's own scheduler, never dearer than another on the same input and feasible whenever one of them is.

Without constraints it is the annealed search (`search/annealed.py`), which begins from the plans of the others, and
goes on in rounds and with exact's proof until the bound is met, the time is over or it has stalled
(`search/lasting.py`). Under constraints it is `constrained`, with rounds and a proof from two seconds on.
`test_never_dearer_than_another_scheduler` holds it. Where the slots of a node cannot take what it put there, `seatable`
goes on. With the setting goal=throughput, as in jobs, that plan is one start of another search
(`search/throughput.py`).

Measurements and what was rejected: docs/decisions/0004-best-placement.md and 0040-best-uses-its-time.md.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import InvalidInput
from penstock.optimise.contract import BYTES, GOALS, Options, Placement, Problem
from penstock.optimise.place import constrained
from penstock.optimise.search import annealed, lasting, throughput
from penstock.optimise.search.seatable import seatable


def schedule(problem: Problem, options: Options) -> Placement:
    """The best feasible placement found: by bytes between nodes or, where throughput is the goal, by pressure."""
    goal = options.settings.get("goal", BYTES)
    if goal not in GOALS:
        raise InvalidInput.unknown_name(kind="goal", name=str(goal), known=GOALS)
    lasting.require_settings(options)
    if goal == BYTES:
        return _fewest_bytes(problem, options)
    theta = annealed.THETA_DEFAULT if options.theta is None else options.theta
    half = replace(options, theta=0.5 * theta)
    return throughput.find(problem, half, _fewest_bytes(problem, half))


def _fewest_bytes(problem: Problem, options: Options) -> Placement:
    if problem.constraints:
        placement = constrained.schedule(problem, options)
        unheard = ", ".join(name for name in options.settings if name not in constrained.heard(options))
        note = (f"under constraints the search has other steps: {unheard} changed nothing",) if unheard else ()
        return replace(placement, notes=placement.notes + note)
    return seatable(problem, options, lasting.find(problem, options))
