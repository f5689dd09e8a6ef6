"""What `--adapt`, `--adapt-interval` and `--goal` ask for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.adapt.contract import AdaptSettings

US_IN = {"us": 1.0, "ms": 1e3, "s": 1e6}
INTERVAL_S = 60.0  # where none is given, as in the papers
HORIZON_INTERVALS = 10  # for how many looks a plan is expected to stay good
REST_INTERVALS = 2


def adapt_settings(
    scheduler: str | None,
    interval_s: float,
    goal: str | None,
    seed: int,
    theta: float | None = None,
    tasks_per_worker: int | None = None,
) -> AdaptSettings | None:
    """How the job moves by itself; None: it does not. InvalidInput for a goal or an interval that nobody hears."""
    from penstock.adapt.contract import AdaptGoals, AdaptSettings

    if scheduler is None:
        if goal is not None or interval_s != INTERVAL_S:
            given = f"--goal {goal}" if goal is not None else f"--adapt-interval {interval_s:g}"
            msg = f"{given} is given and --adapt is not; name a scheduler for it as well, such as --adapt best"
            raise InvalidInput(msg)
        return None
    what, latency_us = _goal(goal)
    goals = AdaptGoals(latency_us=latency_us) if what is None else AdaptGoals(what, latency_us)
    settings = AdaptSettings(
        goals=goals,
        interval_s=interval_s,
        horizon_s=HORIZON_INTERVALS * interval_s,
        rest_s=REST_INTERVALS * interval_s,
        scheduler=scheduler,
        seed=seed,
    )
    return replace(
        settings,
        theta=settings.theta if theta is None else theta,
        tasks_per_worker=settings.tasks_per_worker if tasks_per_worker is None else tasks_per_worker,
    )


def _goal(goal: str | None) -> tuple[str | None, float | None]:
    """What is to be saved, and the bound of the latency."""
    if goal is None or not goal.startswith("latency"):
        return goal, None
    found = re.fullmatch(r"latency=(\d+(?:\.\d+)?)(us|ms|s)", goal.replace(" ", ""))
    if found is None:
        msg = f"--goal is {goal!r}; write a bound of the latency as latency=5ms, with us, ms or s"
        raise InvalidInput(msg)
    return None, float(found[1]) * US_IN[found[2]]
