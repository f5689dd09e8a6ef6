"""`penstock bench costs`: the CPU of a job under three plans, beside w_v + w_e from profiles and from calibration.

The same readings on the same schedule run in one worker, in a worker for each task through rings, and the same through
sockets: real worker processes. What a run took is the CPU time of its processes, from when they have met. Three
predictions stand beside it, none of which knows that figure: from the run's own meters; from the profile of the other
kind of run (unfused from fused, fused from the rings' run) with costs calibrated in the same bench; and the same with
the default costs. Plans take turns; ratios are taken within a turn, and the medians of these count.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping

from penstock.model.costs import DEFAULT_COSTS, Distance, StreamCosts
from penstock.model.plan import Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.optimise.communication import predicted_cpu
from penstock.run.calibration.measure import measure_costs
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker_share import RunSettings, task_ids
from penstock_lab.bench.contract import Bench, Progress, Row
from penstock_lab.bench.costs.jobs import PACES, Pace, job
from penstock_lab.bench.engine.run import Timed, timed_run

SECONDS, QUICK_SECONDS = 4.0, 1.5
REPEATS, QUICK_REPEATS = 7, 3
AIM = 0.10
Pair = tuple[str, str]  # the task that sends and the one that receives
PLANS: tuple[Distance, ...] = ("call", "ring", "socket")
TITLES = {"call": "one worker", "ring": "a worker each, rings", "socket": "a worker each, sockets"}


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Rows for both paces and all plans."""
    repeats, seconds = (QUICK_REPEATS, QUICK_SECONDS) if quick else (REPEATS, SECONDS)
    progress("calibrating")
    calibrated = measure_costs().costs
    rows = [row for pace in PACES for row in compared(pace, seconds, repeats, calibrated, progress)]
    costs: list[Row] = [
        {"cost": name, "calibrated": value, "default": default}
        for (name, value), (_, default) in zip(calibrated.figures(), DEFAULT_COSTS.figures(), strict=True)
    ]
    return {"costs_certificate": rows, "costs_calibrated": costs}


def compared(pace: Pace, seconds: float, repeats: int, calibrated: StreamCosts, progress: Progress) -> list[Row]:
    """One row for each plan of the job at this pace."""
    flow = job(pace, seconds)
    found: dict[Distance, list[dict[str, float]]] = {plan: [] for plan in PLANS}
    for turn in range(repeats):
        progress(f"{pace.name}: turn {turn + 1} of {repeats}")
        timed = {plan: run(flow, plan) for plan in PLANS}
        profiles = {plan: profile_of(timed[plan]) for plan in PLANS}
        for plan in PLANS:
            took = timed[plan].running_cpu_s
            other = profiles["ring" if plan == "call" else "call"]
            found[plan].append(
                {
                    "cpu_s": took,
                    "work": sum(task.load for task in profiles[plan].tasks.values()) / took,
                    "reports": sum(row["loop_us"] for row in timed[plan].metered["workers"]) / 1e6 / took,
                    "own": predicted(flow, plan, profiles[plan], calibrated) / took,
                    "other": predicted(flow, plan, other, calibrated) / took,
                    "default": predicted(flow, plan, other, DEFAULT_COSTS) / took,
                }
            )
    return [_row(pace, plan, found[plan]) for plan in PLANS]


def run(flow: Dataflow, plan: Distance) -> Timed:
    """The job under one plan, to its end."""
    seats = {task: slot.worker for task, slot in places(flow, plan).items()}
    return timed_run(flow, seats, RunSettings(transport="socket" if plan == "socket" else "auto"))


def places(flow: Dataflow, plan: Distance) -> dict[str, Slot]:
    """Where each task is: all in one worker, or each in its own, on one node or each on another."""
    seats = {task: 0 if plan == "call" else w for w, task in enumerate(task_ids(flow))}
    return {task: Slot(f"n{w if plan == 'socket' else 0}", w) for task, w in seats.items()}


def predicted(flow: Dataflow, plan: Distance, profile: Profile, costs: StreamCosts) -> float:
    """CPU seconds of a run under this plan."""
    return predicted_cpu(flow.graph(), profile, places(flow, plan), costs).total


def profile_of(timed: Timed) -> Profile:
    """What a run's meters say, in all and not for each second: runs of one schedule compare as they are."""
    load: defaultdict[str, float] = defaultdict(float)
    for row in timed.metered["tasks"]:
        load[row["task"]] += row["cpu_us"] / 1e6
    sums: defaultdict[Pair, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    far: dict[Pair, Distance] = {}
    for row in timed.metered["edges"]:
        pair = row["source"], row["target"]
        far[pair] = row["distance"]
        for column in ("tuples", "bytes", "batches", "send_us", "receive_us"):
            sums[pair][column] += row[column]
    return Profile(
        {task: TaskProfile(seconds) for task, seconds in load.items()},
        tuple(_edge(pair, far[pair], figures) for pair, figures in sums.items()),
    )


def _edge(pair: Pair, distance: Distance, sums: Mapping[str, float]) -> EdgeProfile:
    source, target = pair
    return EdgeProfile(
        source,
        target,
        rate=sums["bytes"],
        tuples=sums["tuples"],
        batches=sums["batches"],
        distance=distance,
        send_cpu=sums["send_us"] / 1e6,
        receive_cpu=sums["receive_us"] / 1e6,
    )


def _row(pace: Pace, plan: Distance, turns: list[dict[str, float]]) -> Row:
    middle = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    others = sorted(turn["other"] for turn in turns)
    return {
        "instance": f"{pace.name}, {TITLES[plan]}",
        **middle,
        "least": others[0],
        "most": others[-1],
        "within": abs(middle["other"] - 1.0) <= AIM,
        "repeats": len(turns),
    }


BENCH = Bench(
    about="whether the CPU of a job is what its profile and the costs of streams say, fused and unfused",
    measure=main,
    titles={
        "costs_certificate": (
            "predicted CPU (w_v + w_e) over measured: own meters, from the profile of another plan, with default costs"
        ),
        "costs_calibrated": "costs of streams: microseconds for a batch, nanoseconds for a row and a byte",
    },
)
