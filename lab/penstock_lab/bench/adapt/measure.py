"""`penstock bench adapt`: what moving costs a job that runs, what it brings, and what many moves leave behind.

Real jobs on executors of this machine, moved by the same calls that users have (`job.move`, `job.replan(apply=True)`,
`adapt=`). Each figure has its like at rest in the same run, since other load on the machine meets both; the notes say
how much of that there was. Targets are at the end, each met, missed or not measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from penstock.deploy import local_session
from penstock.optimise.place import REGISTRY
from penstock_lab.bench.adapt import aims, often, pauses, routes
from penstock_lab.bench.adapt.pauses import Case, Watched
from penstock_lab.bench.contract import Bench, Progress, Row, per_cent
from penstock_lab.bench.machine import machine_line

MASTER = "local-cluster[3,3,2048]"
CASES = (
    Case("native", 0, 40, 5),
    Case("native", 10, 40, 5),
    Case("native", 100, 15, 3),
    Case("python", 10, 20, 3),
    Case("native", 0, 20, 0, "at full speed"),
)
QUICK_CASES = (Case("native", 0, 5, 1), Case("native", 10, 5, 1), Case("python", 1, 3))
ROUNDS, QUICK_ROUNDS = 3, 1
QUICK_SCHEDULERS = ("best", "t3", "ols")
LENGTHS, QUICK_LENGTHS = routes.Lengths(), routes.Lengths(window_s=3.0, adapting_s=12.0)
MINUTES, QUICK_MINUTES = 10.0, 1.0


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` has fewer moves, less state, three schedulers and one minute of many moves."""
    progress("starting Spark")
    spark = local_session(MASTER)
    notes: list[Row] = [{"note": machine_line()}]
    cases, lengths = (QUICK_CASES, QUICK_LENGTHS) if quick else (CASES, LENGTHS)
    schedulers = QUICK_SCHEDULERS if quick else tuple(REGISTRY.own)

    def noted(what: str, measure: Callable[[], list[Row]]) -> list[Row]:
        before = os.getloadavg()[0]
        found = measure()
        notes.append({"note": f"{what}: load average {before:.1f} before and {os.getloadavg()[0]:.1f} behind"})
        return found

    watched: list[tuple[Case, Watched]] = []

    def watch_all() -> list[Row]:
        watched.extend((case, pauses.watch(spark, case, progress)) for case in cases)
        return [pauses.pause_row(case, found) for case, found in watched]

    sections = {"adapt_pause": noted("pauses", watch_all)}
    sections["adapt_others"] = [pauses.others_row(case, found) for case, found in watched]
    sections["adapt_routes"] = noted(
        "even to fewer bytes", lambda: routes.replanned(spark, QUICK_ROUNDS if quick else ROUNDS, lengths, progress)
    )
    sections["adapt_schedulers"] = noted("schedulers", lambda: routes.adapted(spark, schedulers, lengths, progress))
    sections["adapt_often"] = noted(
        "moving often",
        lambda: [often.run(spark, QUICK_MINUTES if quick else MINUTES, aims.OFTEN_PER_MINUTE, progress)],
    )
    sections["adapt_aims"] = verdicts(sections)
    if quick:
        notes.append(
            {"note": "left out by --quick: 100 MB of state, others at full speed, nine schedulers, nine minutes"}
        )
    return sections | {"adapt_notes": notes}


def verdicts(sections: dict[str, list[Row]]) -> list[Row]:
    """All aims, in the order of the sections."""
    return [
        *aims.of_pauses(sections["adapt_pause"]),
        *aims.of_others(sections["adapt_others"]),
        *aims.of_routes(sections["adapt_routes"]),
        *aims.of_often(sections["adapt_often"]),
    ]


def _shares(*names: str) -> Callable[[Sequence[Row]], list[Row]]:
    """Rows with some figures in per cent."""

    def shown(rows: Sequence[Row]) -> list[Row]:
        return [
            {f"{k} %" if k in names else k: per_cent(v) if k in names else v for k, v in row.items()} for row in rows
        ]

    return shown


def _without_words(rows: Sequence[Row]) -> list[Row]:
    """What each job said last is for programs: sentences of some lines."""
    return _shares("saved")([{name: value for name, value in row.items() if name != "last_words"} for row in rows])


BENCH = Bench(
    "what moving costs a job that runs and what it brings, with stop and restart",
    main,
    {
        "adapt_pause": "longest time without a new row around a move; at rest; and of a stop and restart",
        "adapt_others": "streams that do not pass the moved task, from the call of a move to its answer, and at rest",
        "adapt_routes": "routes from even to a plan with fewer bytes between nodes, while it runs",
        "adapt_schedulers": "each scheduler asked by a job that adapts, from even",
        "adapt_often": "moving again and again",
        "adapt_aims": "aims",
        "adapt_notes": "notes",
    },
    {
        "adapt_others": _shares("fall"),
        "adapt_routes": _shares("saved", "off", "next_off"),
        "adapt_schedulers": _without_words,
        "adapt_often": _shares("driver_growth", "workers_growth"),
    },
)
