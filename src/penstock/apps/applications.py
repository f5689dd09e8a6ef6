"""The applications of the Otago papers as operator graphs: trending topics, frequent taxi routes, smart-home load.

Shapes, groupings and task counts are the papers' (000, sections 3, 6.2 and 6.3). Loads and rates are ESTIMATES, not
measurements: the papers print none. Each operator declares how many records a second it emits in all, and a record's
size and CPU cost. The arithmetic below turns that into cores per task and bytes per second per task pair. So every
number can be traced to an assumption, and a profile of a real run can replace it. Rejected: bare numbers in the graphs,
which readers could not check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.model.topology import Operator, OperatorGraph, Stream


class Application(NamedTuple):
    """A row of the registry."""

    build: Callable[[], OperatorGraph]
    summary: str


def cores(records: float, milliseconds: float, tasks: int) -> float:
    """CPU of one task when `tasks` share `records` a second that take `milliseconds` of CPU each."""
    return round(records * milliseconds / 1000 / tasks, 4)


def pair_rate(records: float, size: float, senders: int, receivers: int) -> float:
    """Bytes per second between one pair of tasks when `records` of `size` bytes a second spread evenly over all."""
    return round(records * size / (senders * receivers), 4)


def trending() -> OperatorGraph:
    """Top trending topics (paper 000, section 3, Figure 2; scheduled step by step in its Appendix C).

    Every task has load 1, the appendix's alpha, so that `1x6,1x4,1x10,1x6,1x5` is the appendix's cluster. 9,000
    topics/s of 100 B are counted; half of them leave the count as a new total of 64 B; each of 4 rankers sends
    twice a second 10 entries of 64 B. Per task pair that falls from step to step, the appendix's a > b > c.
    """
    return OperatorGraph(
        "trending",
        (
            Operator("emit-topics", 5, 1.0, source=True),
            Operator("rolling-count", 9, 1.0),
            Operator("intermediate-rank", 4, 1.0),
            Operator("final-rank", 1, 1.0),
        ),
        (
            Stream("emit-topics", "rolling-count", "shuffle", pair_rate(9_000, 100, 5, 9)),
            Stream("rolling-count", "intermediate-rank", "fields", pair_rate(4_500, 64, 9, 4)),
            Stream("intermediate-rank", "final-rank", "global", pair_rate(4 * 2, 10 * 64, 4, 1)),
        ),
    )


def routes() -> OperatorGraph:
    """Top frequent routes in New York taxi trips (paper 000, section 6.3).

    16,000 trips/s in all (the papers' replay gives about 16,000 tuples per task and 10 s, so this is the same order)
    of 200 B. Fetching and parsing a trip takes 0.8 ms; finding the two cells 0.9 ms, which leaves a route of 40 B;
    counting one 0.45 ms. Totals that changed since the last tick leave the count: 8,000/s of 32 B, 0.4 ms each to
    rank. Each ranker sends its 10 best (32 B each) ten times a second; merging a list of 10 takes 5 ms.
    38 cores in all: three of the four nodes of `2x16,2x8` at 94 %, so that schedulers have to choose.
    """
    trips, totals, rankings = 16_000.0, 8_000.0, 40.0
    return OperatorGraph(
        "routes",
        (
            Operator("source", 16, cores(trips, 0.8, 16), source=True),
            Operator("pre-process", 16, cores(trips, 0.9, 16)),
            Operator("rolling-count", 8, cores(trips, 0.45, 8)),
            Operator("intermediate-rank", 4, cores(totals, 0.4, 4)),
            Operator("final-rank", 1, cores(rankings, 5.0, 1)),
        ),
        (
            Stream("source", "pre-process", "shuffle", pair_rate(trips, 200, 16, 16)),
            Stream("pre-process", "rolling-count", "shuffle", pair_rate(trips, 40, 16, 8)),
            Stream("rolling-count", "intermediate-rank", "fields", pair_rate(totals, 32, 8, 4)),
            Stream("intermediate-rank", "final-rank", "global", pair_rate(rankings, 10 * 32, 4, 1)),
        ),
    )


def smart_home() -> OperatorGraph:
    """Load prediction for smart homes, a diamond (paper 000, section 6.2).

    6,600 measurements/s in all (published: 6,600 tuples per task and 10 s with 10 tasks) of 80 B go to both
    predictions. CPU per tuple: source 0.5 ms, plug 0.6 ms, house 0.5 ms, sink 0.3 ms. A plug prediction follows
    every second measurement, a house prediction every tenth; both are 48 B.
    11.7 cores in all: four nodes of 3.2 (80 % of the papers' 4 cores), the number of nodes that T3 used there.
    """
    measured, plugs, houses = 6_600.0, 3_300.0, 660.0
    return OperatorGraph(
        "smart-home",
        (
            Operator("source", 10, cores(measured, 0.5, 10), source=True),
            Operator("plug-prediction", 10, cores(measured, 0.6, 10)),
            Operator("house-prediction", 10, cores(measured, 0.5, 10)),
            Operator("sink", 10, cores(plugs + houses, 0.3, 10)),
        ),
        (
            Stream("source", "plug-prediction", "shuffle", pair_rate(measured, 80, 10, 10)),
            Stream("source", "house-prediction", "shuffle", pair_rate(measured, 80, 10, 10)),
            Stream("plug-prediction", "sink", "fields", pair_rate(plugs, 48, 10, 10)),
            Stream("house-prediction", "sink", "fields", pair_rate(houses, 48, 10, 10)),
        ),
    )


APPLICATIONS: dict[str, Application] = {
    "trending": Application(trending, "top trending topics: 19 tasks in a row of four operators (T3 paper, section 3)"),
    "routes": Application(routes, "top frequent taxi routes: 45 tasks in a row of five operators (T3 paper, 6.3)"),
    "smart-home": Application(smart_home, "smart-home load prediction: 40 tasks in a diamond (T3 paper, 6.2)"),
}
