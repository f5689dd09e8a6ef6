"""`best`: Penstock's own scheduler, which begins from the plans of the others and ends with theta.

Without constraints it is the annealed search (`search/annealed.py`), which goes on in rounds and with exact's proof
until the bound is met, the time is over or it has stalled (`search/lasting.py`). Under constraints it is `constrained`,
which is `exact` as well; a job of less than two seconds has its first step alone. Where the slots of a node cannot take
what the search put there, `seatable` goes on in a share of theta that is kept for it. With the setting goal=throughput,
as in jobs, that plan is one start of another search (`search/throughput.py`).

To 300 tasks it is not dearer than another scheduler that decides without a clock, nor than `exact` where the clock cuts
neither. Beyond, it is not dearer than those that theta affords; the others were dearer in every comparison
(`test_never_dearer_*`; where nothing is promised: docs/decisions/0040-best-uses-its-time.md). Measurements and what was
rejected: there and in 0004-best-placement.md.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import InvalidInput
from penstock.optimise.contract import BYTES, GOALS, Options, Placement, Problem
from penstock.optimise.place import constrained
from penstock.optimise.search import annealed, lasting, throughput


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
    return throughput.find(problem, half, _fewest_bytes(problem, half, brief=theta < constrained.THOROUGH_THETA))


def _fewest_bytes(problem: Problem, options: Options, *, brief: bool = False) -> Placement:
    if problem.constraints:
        placement = constrained.schedule(problem, options, brief=brief)
        unheard = ", ".join(name for name in options.settings if name not in constrained.heard(brief=brief))
        note = (f"under constraints the search has other steps: {unheard} changed nothing",) if unheard else ()
        return replace(placement, notes=placement.notes + note)
    return lasting.find(problem, options)
