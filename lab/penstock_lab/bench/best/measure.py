"""`penstock bench best`: best within 10 s against the optimum that exact proves within 60 s, on application graphs.

The graphs are synthetic (`applications`) and their seeds were kept for this bench: nothing was tuned on them. Where
exact proves an optimum, best's plan either costs as much or it does not; where it proves none, the cheaper of both
plans and the better bound say what is known. The last row counts. CPU seconds stand beside the wall's, because both
solvers stop by the wall clock and prove less on a machine that does other work.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.objective import node_cost
from penstock.optimise.place import find_scheduler
from penstock_lab.bench.best.applications import application
from penstock_lab.bench.contract import Bench, Progress, Row

SEEDS = range(9000, 9050)
QUICK_SEEDS = range(100, 103)  # not the others: who runs the quick form while tuning must not see those
BEST_THETA, EXACT_THETA = 10.0, 60.0
QUICK_BEST_THETA, QUICK_EXACT_THETA = 3.0, 10.0
SAME = 1e-9


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """A row for each graph and one that counts."""
    thetas = (QUICK_BEST_THETA, QUICK_EXACT_THETA) if quick else (BEST_THETA, EXACT_THETA)
    rows = compared(QUICK_SEEDS if quick else SEEDS, *thetas, progress)
    return {"best_applications": rows, "best_counts": [counts(rows)]}


def compared(seeds: Iterable[int], best_theta: float, exact_theta: float, progress: Progress) -> list[Row]:
    """Both schedulers on the graph of each seed."""
    rows: list[Row] = []
    for seed in seeds:
        progress(f"application graph of seed {seed}")
        rows.append(row(seed, best_theta, exact_theta))
    return rows


def row(seed: int, best_theta: float, exact_theta: float) -> Row:
    """Both schedulers on one graph."""
    problem = application(seed)
    best, best_seconds, best_cpu = timed("best", problem, best_theta)
    exact, exact_seconds, exact_cpu = timed("exact", problem, exact_theta)
    cost, other = node_cost(problem, best.node), node_cost(problem, exact.node)
    bound = max(best.lower_bound, exact.lower_bound)
    return {
        "seed": seed,
        "tasks": problem.task_count,
        "operators": len(problem.graph.operators),
        "nodes": problem.node_count,
        "best_cost": cost,
        "best_seconds": best_seconds,
        "best_cpu": best_cpu,
        "best_proved": best.proved_optimal,
        "exact_cost": other,
        "exact_seconds": exact_seconds,
        "exact_cpu": exact_cpu,
        "exact_proved": exact.proved_optimal,
        "best_over_exact": cost / other if other > 0 else 1.0,
        "gap": 1 - bound / cost if cost > 0 else 0.0,
    }


def timed(name: str, problem: Problem, theta: float) -> tuple[Placement, float, float]:
    """A scheduler's answer, and the seconds that it took by the wall and by the processor."""
    schedule = find_scheduler(name).load()
    began, used = time.perf_counter(), time.process_time()
    placement = schedule(Problem(problem.graph, problem.cluster), Options(theta=theta))
    return placement, time.perf_counter() - began, time.process_time() - used


def counts(rows: Sequence[Row]) -> Row:
    """How many optima exact proved, on how many of these best's plan costs as much, and how both compare elsewhere."""
    proved = [row for row in rows if row["exact_proved"]]
    equal = [row for row in proved if _ratio(row) <= 1 + SAME]
    return {
        "graphs": len(rows),
        "exact_proved": len(proved),
        "best_equals_proved": len(equal),
        "share_of_all": len(equal) / len(rows) if rows else 0.0,
        "best_proved": sum(1 for row in rows if row["best_proved"]),
        "best_dearer_than_exact": sum(1 for row in rows if _ratio(row) > 1 + SAME),
        "best_cheaper_than_exact": sum(1 for row in rows if _ratio(row) < 1 - SAME),
        "worst_best_over_exact": max((_ratio(row) for row in rows), default=1.0),
    }


def _ratio(row: Row) -> float:
    return float(str(row["best_over_exact"]))


def _narrow(rows: Sequence[Row]) -> list[Row]:
    """What fits a terminal."""
    names = {"seed": "seed", "tasks": "tasks", "nodes": "nodes", "exact_proved": "proved", "gap": "gap"}
    names |= {"best_over_exact": "best / exact", "best_seconds": "best s", "exact_seconds": "exact s"}
    return [{short: row[name] for name, short in names.items()} for row in rows]


BENCH = Bench(
    "best within 10 s against what exact proves within 60 s, on synthetic application graphs (an hour)",
    main,
    {"best_applications": "best against exact, one application graph a row", "best_counts": "how many"},
    {"best_applications": _narrow},
)
