"""Figures 5 and 6 of paper 000 (T3-Scheduler), section 5: cost and resolution time against the optimum."""

from __future__ import annotations

from penstock_lab.reproduce import statements as cost
from penstock_lab.reproduce import time_statements as time
from penstock_lab.reproduce.item import BEST_RUN, OPTIMUM_RUN, Item, PublishedTime
from penstock_lab.reproduce.measure import Case, Run
from penstock_lab.reproduce.statements import OPTIMUM, Statement

PAPER = "T3-Scheduler paper (FGCS 2018), section 5"
LAYOUTS = ("linear", "diamond", "star")
T3 = Run("T3", "t3")

CPLEX_TIMES = (
    PublishedTime(Case("linear", "heterogeneous", 32), 1_114_257.0),
    PublishedTime(Case("diamond", "homogeneous", 32), 2471.0),
    PublishedTime(Case("star", "homogeneous", 32), 6.0),
    PublishedTime(Case("diamond", "heterogeneous", 32), 393.0),
    PublishedTime(Case("star", "heterogeneous", 32), 7.0),
)

FIGURE_5 = Item(
    name="t3-fig5",
    title="Cost of T3-Scheduler and of the optimum",
    paper=PAPER,
    quantity="cost",
    layouts=LAYOUTS,
    runs=(OPTIMUM_RUN, T3, BEST_RUN),
    statements=(
        Statement(
            "5",
            "T3 matches the optimum on linear, on both clusters, at every size",
            cost.equals_optimum("T3", "linear"),
        ),
        Statement(
            "5", "linear costs notably less on the heterogeneous cluster", cost.heterogeneous_is_cheaper("linear")
        ),
        Statement(
            "5", "T3 differs from the optimum at some sizes of diamond", cost.above_optimum_somewhere("T3", "diamond")
        ),
        Statement("5", "T3 differs from the optimum at some sizes of star", cost.above_optimum_somewhere("T3", "star")),
        Statement("5", "T3 is near optimal on diamond", cost.near_optimum("T3", "diamond")),
        Statement("5", "T3 is near optimal on star", cost.near_optimum("T3", "star")),
        Statement("5", "diamond costs more than linear", cost.dearer_than_linear("diamond")),
        Statement("5", "star costs more than linear", cost.dearer_than_linear("star")),
    ),
)

FIGURE_6 = Item(
    name="t3-fig6",
    title="Resolution time of T3-Scheduler and of the optimum",
    paper=PAPER,
    quantity="seconds",
    layouts=LAYOUTS,
    runs=(OPTIMUM_RUN, T3, BEST_RUN),
    times=CPLEX_TIMES,
    statements=(
        Statement(
            "5", "the optimum's time begins to increase above about 20 tasks", time.rises_beyond(OPTIMUM, LAYOUTS, 20)
        ),
        *(
            Statement(
                "5",
                f"the optimum takes {entry.seconds:,.0f} s on {entry.case}",
                time.seconds_at(OPTIMUM, entry.case, entry.seconds),
            )
            for entry in CPLEX_TIMES
        ),
        Statement("5", "T3 is quick where the optimum is not", time.quicker_than_optimum("T3", LAYOUTS)),
    ),
    remarks=(
        "The published optimum is CPLEX 12.7 on a 64-core server (50 GiB for the longest case); ours is `exact`, which "
        "enumerates node configurations of interchangeable tasks. Where a time differs, it is the solver that differs.",
    ),
)

ITEMS = (FIGURE_5, FIGURE_6)
