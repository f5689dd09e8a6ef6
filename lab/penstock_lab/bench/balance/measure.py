"""`penstock bench balance`: what the policies of a parallel region reach, beside the oracle and beside each other.

The virtual-time half runs the paper's experiments as models (`simulate/experiments.py`); its figures are the same on
every machine (`test_a_run_is_repeated_exactly_and_depends_on_its_seed`). Runs on the engine, in which replicas sleep
for a row's cost, are in `engine.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from penstock_lab.bench.balance import engine as balance_engine
from penstock_lab.bench.contract import Bench, Progress, Row
from penstock_lab.simulate import experiments
from penstock_lab.simulate.experiments import policy_named, run_rows, run_seconds
from penstock_lab.simulate.region import Buffers, Members, Trace, simulate

LEARNING = ("adaptive", "static", "knee")
OTHERS = ("round-robin", "reroute", "rebalance")
REPLICAS, QUICK_REPLICAS = (2, 4, 8, 16), (2, 4)
SEEDS, QUICK_SEEDS = range(5), range(1)
REMOVED_S = 62.5


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` shrinks the whole to seconds."""
    sizes, seeds = (QUICK_REPLICAS, QUICK_SEEDS) if quick else (REPLICAS, SEEDS)
    run_s = 60.0 if quick else experiments.RUN_S
    sections = {
        "simulated_half_10x_slower": constant(sizes, run_s, progress),
        "simulated_half_100x_slower_for_an_eighth": recovering(sizes, run_s, progress),
        "simulated_three_replicas_one_100x_slower": one_loaded(seeds, progress),
        "simulated_equal_replicas": alike(seeds, progress),
        "simulated_64_replicas_in_three_classes": classes(seeds if quick else range(2), progress),
        "simulated_rerouting": rerouting(progress),
        "simulated_bounded_merger": bounded(progress),
        "simulated_replicas_join_and_leave": joining(progress),
        "simulated_knee_with_credits": credited(sizes, run_s, progress),
    }
    return sections | {name: section(quick, progress) for name, section in balance_engine.SECTIONS.items()}


def constant(sizes: Sequence[int], run_s: float, progress: Progress) -> list[Row]:
    """Half of the replicas 10 times slower throughout: execution time over the oracle's, at most 1.15."""
    rows: list[Row] = []
    for count in sizes:
        model, length = experiments.constant_load(count, 1_000, 10.0, run_s)
        progress(f"{count} replicas, half of them 10 times slower")
        oracle = run_rows("oracle", model, length).seconds
        row: Row = {"replicas": count, "aim": 1.15, "oracle_s": oracle}
        for name in (*LEARNING, *OTHERS):
            row[name] = run_rows(name, model, length).seconds / oracle
        rows.append(row | {"knee_meets": float(str(row["knee"])) <= 1.15})
    return rows


def recovering(sizes: Sequence[int], run_s: float, progress: Progress) -> list[Row]:
    """Half 100 times slower for an eighth: total time (at most 1.2) and final throughput (at least 0.95)."""
    rows: list[Row] = []
    for count in sizes:
        model, length = experiments.removed_load(count, 10_000, 100.0, run_s)
        progress(f"{count} replicas, half of them 100 times slower for an eighth")
        oracle = run_rows("oracle", model, length)
        for name in (*LEARNING, "round-robin"):
            trace = run_rows(name, model, length)
            total = trace.seconds / oracle.seconds
            final = trace.final_throughput() / oracle.final_throughput()
            rows.append(
                {"replicas": count, "policy": name, "total": total, "aim_total": 1.2, "final": final, "aim_final": 0.95}
                | {"meets": total <= 1.2 and final >= 0.95}
            )
    return rows


def one_loaded(seeds: Sequence[int], progress: Progress) -> list[Row]:
    """Three replicas, one 100 times slower, and its load's end: within 10 % of the ideal weights in 10 s each."""
    rows: list[Row] = []
    for name in LEARNING:
        progress(f"three replicas, one of them 100 times slower: {name}")
        runs = [
            (m := experiments.three_with_one_loaded(REMOVED_S, seed), run_seconds(name, m, 400.0)) for seed in seeds
        ]
        settle = [experiments.settled_after(trace, model.ideal(0), 0.1) for model, trace in runs]
        back = [experiments.settled_after(trace, model.ideal(1), 0.1, REMOVED_S) for model, trace in runs]
        settle = [None if s is None or s > REMOVED_S else s for s in settle]
        kept = [
            experiments.kept_within(trace, model.ideal(0), 0.1, s, REMOVED_S)
            for (model, trace), s in zip(runs, settle, strict=True)
            if s is not None
        ]
        worst_settle, worst_back = _worst(settle), _worst(back)
        rows.append(
            {"policy": name, "seeds": len(runs), "settled_s": worst_settle, "back_s": worst_back, "aim_s": 10.0}
            | {"kept_after_settling": min((share for share in kept if share is not None), default=None)}
            | {"meets": worst_settle is not None and worst_settle <= 10 and worst_back is not None and worst_back <= 10}
        )
    return rows


def _worst(values: Sequence[float | None]) -> float | None:
    """The largest; None when one of them never came."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def alike(seeds: Sequence[int], progress: Progress) -> list[Row]:
    """Equal replicas: how far any weight is from even after 60 s, at most 5 %."""
    rows: list[Row] = []
    for name in LEARNING:
        progress(f"equal replicas: {name}")
        worst = 0.0
        for seed in seeds:
            model = experiments.three_alike(seed)
            trace = run_seconds(name, model, 400.0)
            worst = max(worst, experiments.farthest_from(trace, model.ideal(), 60.0))
        rows.append({"policy": name, "seeds": len(seeds), "farthest": worst, "aim": 0.05, "meets": worst <= 0.05})
    return rows


def classes(seeds: Sequence[int], progress: Progress) -> list[Row]:
    """64 replicas in three classes: when a cluster last mixed classes (at most 100 s), and how long 400 s take."""
    rows: list[Row] = []
    for name in LEARNING:
        for seed in seeds:
            progress(f"64 replicas in three classes: {name}")
            model = experiments.three_classes(seed)
            began = time.perf_counter()
            trace = run_seconds(name, model, 400.0)
            taken = time.perf_counter() - began
            mixed = experiments.last_mixed_s(trace, experiments.CLASSES)
            rows.append(
                {"policy": name, "seed": seed, "last_mixed_s": mixed, "aim_s": 100.0}
                | {"clusters": len(set(trace.decisions[-1].clusters))}
                | {"final_of_capacity": trace.final_throughput() / model.capacity(), "seconds_to_simulate": taken}
                | {"meets": mixed is None or mixed <= 100}
            )
    return rows


def rerouting(progress: Progress) -> list[Row]:
    """Two replicas, one 100 times slower (4.4): the gain of skipping full connections, over round robin."""
    rows: list[Row] = []
    for multiplies in (1_000, 10_000):
        progress(f"re-routing at {multiplies} multiplies")
        model = experiments.region(multiplies, (100.0, 1.0))
        plain = run_seconds("round-robin", model, 60.0).rows
        row: Row = {"multiplies": multiplies}
        for name in ("reroute", "rebalance", "knee"):
            row[f"{name}_over_round_robin"] = run_seconds(name, model, 60.0).rows / plain
        rows.append(row)
    return rows


def bounded(progress: Progress) -> list[Row]:
    """A merger that holds few rows of a replica: a policy can learn only if the right replica is charged for waits."""
    rows: list[Row] = []
    base = experiments.three_with_one_loaded(1e9)
    for buffers, kind in ((base.buffers, "TCP"), (Buffers.ring(base.buffers.rows), "ring")):
        for merger_rows in (0, 64):
            for laggard in (False, True):
                progress(f"{kind} buffers, merger of {merger_rows or 'unlimited'} rows")
                model = replace(base, buffers=buffers, merger_rows=merger_rows, charge_laggard=laggard)
                row: Row = {"buffers": kind, "merger_rows": merger_rows or None}
                row["charged_to"] = "laggard" if laggard else "full connection"
                for name in ("oracle", *LEARNING):
                    trace = run_seconds(name, model, 120.0)
                    row[name] = trace.final_throughput(0.5) / model.capacity()
                    row["rows_held"] = max(int(trace.held.max()), int(str(row.get("rows_held", 0))))
                rows.append(row)
    return rows


def joining(progress: Progress) -> list[Row]:
    """Two replicas; a third joins at 60 s, the first leaves at 120 s: throughput of each minute over the capacity."""
    base = experiments.region(1_000, (1.0, 1.0, 1.0))
    model = replace(base, members=(Members(0.0, (0, 1)), Members(60.0, (0, 1, 2)), Members(120.0, (1, 2))))
    fits = [2 / 3 * base.capacity(), base.capacity(), 2 / 3 * base.capacity()]
    rows: list[Row] = []
    for name in LEARNING:
        progress(f"replicas join and leave: {name}")
        trace = simulate(model, policy_named(name, model), seconds=180.0)
        minutes = [_minute(trace, i) / fits[i] for i in range(3)]
        rows.append({"policy": name, "two": minutes[0], "three": minutes[1], "two_again": minutes[2]})
    return rows


def credited(sizes: Sequence[int], run_s: float, progress: Progress) -> list[Row]:
    """Ours as the engine runs it, where replicas tell what they have worked off: both loads, over the oracle's."""
    rows: list[Row] = []
    for count in sizes:
        progress(f"{count} replicas that tell what they have worked off")
        row: Row = {"replicas": count, "aim": 1.15, "aim_recovering": 1.2}
        loads = {
            "half_10x": experiments.constant_load(count, 1_000, 10.0, run_s),
            "half_100x_for_an_eighth": experiments.removed_load(count, 10_000, 100.0, run_s),
        }
        for name, (model, length) in loads.items():
            oracle = run_rows("oracle", model, length).seconds
            row[name] = run_rows("knee", replace(model, credits=True), length).seconds / oracle
        meets = float(str(row["half_10x"])) <= 1.15 and float(str(row["half_100x_for_an_eighth"])) <= 1.2
        rows.append(row | {"meets": meets})
    return rows


def _minute(trace: Trace, number: int) -> float:
    """Mean throughput of a minute without its first ten seconds."""
    return float(trace.throughput[60 * number + 10 : 60 * number + 60].mean())


BENCH = Bench(
    "ordered parallel regions that find their weights",
    main,
    {
        "simulated_half_10x_slower": "simulated: half of the replicas 10x slower, execution time over the oracle's",
        "simulated_half_100x_slower_for_an_eighth": "simulated: half 100x slower for an eighth, over the oracle's",
        "simulated_three_replicas_one_100x_slower": "simulated: three replicas, one 100x slower; when first near",
        "simulated_equal_replicas": "simulated: equal replicas, farthest from even after 60 s",
        "simulated_64_replicas_in_three_classes": "simulated: 64 replicas in three classes, 400 s",
        "simulated_rerouting": "simulated: two replicas, one 100x slower, rows over round robin's (paper: 1.0 and 1.2)",
        "simulated_bounded_merger": "simulated: share of the capacity with a bounded merger, by who is charged",
        "simulated_replicas_join_and_leave": "simulated: replicas join and leave, share of what fits",
        "simulated_knee_with_credits": "simulated: knee where replicas tell what they worked off, over the oracle's",
        **balance_engine.TITLES,
    },
)
