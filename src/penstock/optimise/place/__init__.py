"""The registry of placement schedulers: one row for each, with one signature. A new one is a file and a row here.

Other packages add rows by entry points (`penstock.schedulers`). Theirs run behind a guard: what they raise and what
they answer is looked at, so that a mistake of theirs is one line with the package's name, and a comparison goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import cast

import numpy as np

from penstock.errors import InvalidInput, NoPlanFound, PenstockError
from penstock.extensions import SCHEDULERS as GROUP
from penstock.extensions import Registry, why_not_loaded
from penstock.optimise.contract import Options, Placement, Problem, Schedule, Scheduler

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
            settings=("phi", "budget"),
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
            settings=("effort", "effort_follows_theta", "rounds", "prove", "goal"),
        ),
    )
}


@dataclass(frozen=True)
class AddedScheduler(Scheduler):
    """A scheduler of another package."""

    package: str = ""

    def load(self) -> Schedule:
        """Its function behind the guard."""
        schedule = super().load()

        def guarded(problem: Problem, options: Options) -> Placement:
            try:
                placement = schedule(problem, options)
            except PenstockError:
                raise
            except (Exception, SystemExit) as error:
                raise NoPlanFound(self._told(f"raised {why_not_loaded(error)}")) from error
            if fault := placement_fault(problem, placement):
                raise NoPlanFound(self._told(fault))
            return placement

        return guarded

    def prepare(self, options: Options) -> None:
        """Its preparation, where it has one."""
        try:
            super().prepare(options)
        except PenstockError:
            raise
        except (Exception, SystemExit) as error:
            raise NoPlanFound(self._told(f"raised {why_not_loaded(error)} in prepare")) from error

    def broke_its_word(self, what: str) -> PenstockError:
        """Its authors' bug, not ours."""
        return NoPlanFound(self._told(f"made a plan that {what}"))

    def _told(self, what: str) -> str:
        return f"scheduler {self.name!r} of package {self.package!r} {what}; tell its authors, or try --scheduler best"


def placement_fault(problem: Problem, placement: object) -> str | None:
    """Why an answer is no placement of these tasks on these nodes, if it is none."""
    if not isinstance(placement, Placement):
        return f"returned {type(placement).__name__} instead of a Placement"
    for what, given in (("node", placement.node), ("worker", placement.worker)):
        if given is None and what == "worker":
            continue
        if not isinstance(given, np.ndarray) or given.shape != (problem.task_count,) or given.dtype.kind not in "iu":
            return f"gave no array of {problem.task_count} whole numbers as {what}, one for each task"
        if given.min() < 0 or (what == "node" and given.max() >= problem.node_count):
            return f"gave a {what} from {given.min()} to {given.max()} on {problem.node_count} nodes"
    bound, notes = cast("tuple[object, object]", (placement.lower_bound, placement.notes))  # whatever they are
    if not isinstance(bound, int | float | np.number):
        return f"gave {bound!r} as its lower bound, which is no number"
    if not isinstance(notes, tuple) or not all(isinstance(note, str) for note in notes):
        return "gave notes that are no tuple of texts"
    return None


def _accepted(name: str, package: str, given: object) -> AddedScheduler:
    """A row of another package, once its function is there."""
    if not isinstance(given, Scheduler):
        msg = f"it names a {type(given).__name__}; name a penstock.optimise.contract.Scheduler"
        raise InvalidInput(msg)
    if given.name != name:
        msg = f"its row is called {given.name!r}; give both the same name"
        raise InvalidInput(msg)
    if not all(isinstance(names, kind) for names, kind in ((given.looks_at, frozenset), (given.settings, tuple))):
        msg = "its row has looks_at that is no frozenset, or settings that are no tuple, of names"
        raise InvalidInput(msg)
    if not callable(given.load()):
        msg = f"schedule of {given.module} is no function"
        raise InvalidInput(msg)
    return AddedScheduler(**{part.name: getattr(given, part.name) for part in fields(Scheduler)}, package=package)


REGISTRY: Registry[Scheduler] = Registry("scheduler", GROUP, SCHEDULERS, _accepted)


def find_scheduler(name: str) -> Scheduler:
    """The scheduler of that name, or InvalidInput listing the known ones."""
    return REGISTRY.find(name)
