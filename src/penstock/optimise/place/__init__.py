"""The registry of placement schedulers: one algorithm, one file, one signature. A new one is a file and a row here."""

from __future__ import annotations

from penstock.errors import InvalidInput
from penstock.optimise.contract import Scheduler

_CPU_AND_MEMORY = frozenset({"cpu", "memory"})
_OLS_SETTINGS = ("workers", "alfa", "beta", "delta", "gamma", "improvement")
_ALL = frozenset({"cpu", "memory", "bandwidth", "constraints"})

SCHEDULERS: dict[str, Scheduler] = {
    scheduler.name: scheduler
    for scheduler in (
        Scheduler("even", "Storm's round-robin over slots", "penstock.optimise.place.even", frozenset()),
        Scheduler("ols", "Aniello et al.'s online scheduler", "penstock.optimise.place.ols", settings=_OLS_SETTINGS),
        Scheduler(
            "ols-as-shipped",
            "the same, with its program's first-fit slip",
            "penstock.optimise.place.ols_as_shipped",
            settings=_OLS_SETTINGS,
        ),
        Scheduler(
            "rstorm",
            "R-Storm's nearest node in resources and network",
            "penstock.optimise.place.rstorm",
            _CPU_AND_MEMORY,
        ),
        Scheduler("ras", "R-Storm as Storm 1.1.1 ships it", "penstock.optimise.place.ras", _CPU_AND_MEMORY),
        Scheduler("ffd", "Heron's first-fit decreasing", "penstock.optimise.place.ffd", _CPU_AND_MEMORY),
        Scheduler("flink", "slot sharing with balanced tasks (FLIP-370)", "penstock.optimise.place.flink", frozenset()),
        Scheduler("t3", "T3-Scheduler: grow groups of talkative tasks", "penstock.optimise.place.t3"),
        Scheduler(
            "ischeduler",
            "I-Scheduler: fuse by k-way cuts, then solve",
            "penstock.optimise.place.ischeduler",
            settings=("phi",),
        ),
        Scheduler(
            "turbostream",
            "TurboStream: consolidate pairs, split by BFS",
            "penstock.optimise.place.turbostream",
            frozenset(),
            settings=("task_num_threshold", "balance_factor", "kernighan_lin"),
        ),
        Scheduler("exact", "proven optimum, or a bound and a gap", "penstock.optimise.place.exact", _ALL),
        Scheduler(
            "best",
            "ours: starts from what the others find and goes on",
            "penstock.optimise.place.best",
            _ALL,
            settings=("effort", "effort_follows_theta"),
        ),
    )
}


def find_scheduler(name: str) -> Scheduler:
    """The scheduler of that name, or InvalidInput listing the known ones."""
    if name not in SCHEDULERS:
        raise InvalidInput.unknown_name(kind="scheduler", name=name, known=SCHEDULERS)
    return SCHEDULERS[name]
