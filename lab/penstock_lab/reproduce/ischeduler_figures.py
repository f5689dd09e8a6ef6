"""Figures 4 to 9 of paper 001 (I-Scheduler), section 5: cost (4-6) and resolution time (7-9), a layout each.

I-Scheduler fuses tasks when there are more than phi, the number that the solver takes in theta = 1 s. A phi of 32 or
more would make it the exact solver, optimal by definition. So every page tells in how many cases nothing was fused
(`test_page_says_where_nothing_was_fused`), and a second run has phi fixed at 20, which is the same on every machine.
Every statement is checked on both runs.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.optimise.contract import Options
from penstock_lab.reproduce import statements as cost
from penstock_lab.reproduce import time_statements as time
from penstock_lab.reproduce.item import BEST_RUN, OPTIMUM_RUN, Item, PublishedMiss
from penstock_lab.reproduce.measure import Case, Run
from penstock_lab.reproduce.statements import OPTIMUM, Check, Figures, Statement
from penstock_lab.reproduce.t3_figures import CPLEX_TIMES

PAPER = "I-Scheduler paper (FGCS 2020), section 5"
THETA_SECONDS = 1.0
PHI_FIXED = 20
CALIBRATED = Run("I-Scheduler", "ischeduler", Options(theta=THETA_SECONDS))
FIXED = Run(f"I-Scheduler, phi {PHI_FIXED}", "ischeduler", Options(theta=THETA_SECONDS, settings={"phi": PHI_FIXED}))
RUNS = (OPTIMUM_RUN, CALIBRATED, FIXED, BEST_RUN)

# Where the paper prints that I-Scheduler misses the optimum: (tasks, its cost, the optimum), heterogeneous cluster.
MISSES = {"diamond": (30, 148.0, 146.0), "star": (30, 90.0, 86.0)}

ABOUT_PHI = (
    f"phi is the number of tasks that the solver takes within theta = {THETA_SECONDS:g} s. The papers' phi belongs to "
    "CPLEX on their machine; the calibrated run uses the phi found for our solver on this one, on random tasks that "
    f"differ in load and rate. The run with phi {PHI_FIXED} is alike everywhere; it fuses above {PHI_FIXED} tasks."
)


def what_was_fused(figures: Figures) -> tuple[str, ...]:
    """For each I-Scheduler run, how often it solved the whole problem, and what that means."""
    found = []
    for run in (CALIBRATED, FIXED):
        rows = [row for (_, label), row in figures.rows.items() if label == run.label and row.cost is not None]
        # The solver's bound is about the whole problem only when nothing was fused, so only then does a plan carry it.
        whole = [row for row in rows if row.lower_bound]
        heuristic = sum(1 for row in rows if any(note.startswith("fell back") for note in row.notes))
        text = f"{run.label}: nothing was fused in {len(whole)} of {len(rows)} cases"
        if whole:
            largest = max(row.case.tasks for row in whole)
            text += (
                f" (up to {largest} tasks), where I-Scheduler is the exact solver and its cost says nothing of fusing"
            )
        found.append(f"{text}; it fell back to its heuristic in {heuristic}.")
    return tuple(found)


def _on_both(section: str, text: str, check: Callable[[str], Check]) -> tuple[Statement, ...]:
    return (
        Statement(section, f"{text} [calibrated phi]", check(CALIBRATED.label)),
        Statement(section, f"{text} [phi {PHI_FIXED}]", check(FIXED.label)),
    )


def _cost_statements(layout: str) -> tuple[Statement, ...]:
    miss = MISSES.get(layout)
    if miss is None:
        return (
            *_on_both(
                "5",
                f"I-Scheduler matches the optimum on {layout} at every size",
                lambda run: cost.equals_optimum(run, layout),
            ),
            Statement(
                "5", f"{layout} costs notably less on the heterogeneous cluster", cost.heterogeneous_is_cheaper(layout)
            ),
        )
    tasks, found, optimum = miss
    case = Case(layout, "heterogeneous", tasks)
    return (
        Statement("5", f"the optimum of {case} is {optimum:g}", cost.cost_at(OPTIMUM, case, optimum)),
        *_on_both("5", f"I-Scheduler costs {found:g} on {case}", lambda run: cost.cost_at(run, case, found)),
        *_on_both(
            "5",
            f"I-Scheduler matches the optimum on {layout} everywhere else",
            lambda run: cost.equals_optimum(run, layout, except_at=("heterogeneous", tasks)),
        ),
        Statement("5", f"{layout} costs much more than linear", cost.dearer_than_linear(layout, much=True)),
    )


def _cost_figure(number: int, layout: str) -> Item:
    misses = [PublishedMiss(Case(name, "heterogeneous", n), found, least) for name, (n, found, least) in MISSES.items()]
    return Item(
        name=f"ischeduler-fig{number}",
        title=f"Cost of I-Scheduler and of the optimum, {layout} layout",
        paper=PAPER,
        quantity="cost",
        layouts=(layout,),
        runs=RUNS,
        beside=() if layout == "linear" else ("linear",),
        misses=tuple(miss for miss in misses if miss.case.layout == layout),
        statements=(
            *_cost_statements(layout),
            *_on_both("5", "the cost does not change between runs", lambda run: cost.costs_repeat(run, layout)),
        ),
        remarks=(ABOUT_PHI,),
        findings=what_was_fused,
    )


def _time_figure(number: int, layout: str) -> Item:
    quickest = Case("star", "heterogeneous", 28)
    return Item(
        name=f"ischeduler-fig{number}",
        title=f"Resolution time of I-Scheduler and of the optimum, {layout} layout",
        paper=PAPER,
        quantity="seconds",
        layouts=(layout,),
        runs=RUNS,
        times=tuple(entry for entry in CPLEX_TIMES if entry.case.layout == layout),
        limit=(THETA_SECONDS, "theta"),
        statements=(
            Statement(
                "5", f"the optimum's time grows significantly with the size of {layout}", time.grows(OPTIMUM, layout)
            ),
            *_on_both(
                "5",
                f"I-Scheduler takes less than theta ({THETA_SECONDS:g} s) at every size",
                lambda run: time.below(run, layout, THETA_SECONDS),
            ),
            *(
                _on_both("5", f"I-Scheduler's least time is at {quickest}", lambda run: time.quickest_at(run, quickest))
                if layout == quickest.layout
                else ()
            ),
        ),
        remarks=(
            ABOUT_PHI,
            "Published times of the optimum (stars) are those that the T3-Scheduler paper prints for the same cases.",
        ),
        findings=what_was_fused,
    )


ITEMS = (
    *(_cost_figure(number, layout) for number, layout in ((4, "linear"), (5, "diamond"), (6, "star"))),
    *(_time_figure(number, layout) for number, layout in ((7, "linear"), (8, "diamond"), (9, "star"))),
)
