"""`penstock bench place`: seconds and costs of the placement schedulers, beside the best known and beside peers.

Four sections: the papers' 72 instances (optimal, proved, seconds), random heterogeneous instances against stored
references and against METIS, KaHIP and Mt-KaHyPar in the same run, exact on small unequal instances, and the papers'
two schedulers on 10,000 tasks. Rows are plain dictionaries, so that the command line can print them as tables or JSON.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from penstock.apps.layouts import LAYOUTS, PUBLISHED_SIZES, published_clusters
from penstock.errors import UserError
from penstock.model.taskgraph import TaskGraph
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.objective import node_cost
from penstock.optimise.place import find_scheduler
from penstock_lab.bench.contract import Bench, Progress, Row
from penstock_lab.bench.place import peers, references
from penstock_lab.bench.place.instances import random_problem

# (tasks, theta, largest ratio to the reference that is aimed at)
RANDOM_TARGETS = (
    (200, 1.0, 1.005),
    (1_000, 1.0, 1.01),
    (10_000, 1.0, 1.03),
    (100_000, 1.0, 1.05),
    (100_000, 5.0, 1.02),
)
QUICK_TARGETS = RANDOM_TARGETS[:2]
SEEDS, QUICK_SEEDS = range(10), range(2)
PEER_LIMIT_SECONDS = 60.0  # a peer that does not finish once at a size is not asked for the other seeds of it
EXACT_UNEQUAL = ((30, 10.0), (60, 60.0))


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` shrinks the whole to about a minute."""
    targets, seeds = (QUICK_TARGETS, QUICK_SEEDS) if quick else (RANDOM_TARGETS, SEEDS)
    return {
        "published": published(PUBLISHED_SIZES[::4] if quick else PUBLISHED_SIZES, progress),
        "random": [random_row(*target, seeds, progress) for target in targets],
        "exact_unequal": exact_unequal(range(1) if quick else range(3), EXACT_UNEQUAL[: 1 if quick else 2], progress),
        "papers_at_10000": papers_at_scale(1_000 if quick else 10_000, progress),
    }


def timed(name: str, problem: Problem, options: Options) -> tuple[Placement, float]:
    """A scheduler's answer and the seconds from Problem to Placement; its imports are done before."""
    schedule = find_scheduler(name).load()
    began = time.perf_counter()
    placement = schedule(problem, options)
    return placement, time.perf_counter() - began


def published(sizes: tuple[int, ...], progress: Progress) -> list[Row]:
    """The section 5 instances of both Otago papers: is exact's answer proved, is best's the same, how long."""
    rows: list[Row] = []
    for layout, make in LAYOUTS.items():
        for cluster_name, cluster in published_clusters().items():
            progress(f"{layout} on the {cluster_name} cluster")
            for tasks in sizes:
                problem = Problem(TaskGraph.expand(make(tasks)), cluster)
                exact, exact_seconds = timed("exact", problem, Options())
                best, best_seconds = timed("best", Problem(problem.graph, cluster), Options())
                optimum = node_cost(problem, exact.node)
                rows.append(
                    {
                        "instance": f"{layout}:{tasks}",
                        "cluster": cluster_name,
                        "cost": optimum,
                        "proved": exact.proved_optimal,
                        "exact_seconds": exact_seconds,
                        "best_optimal": node_cost(problem, best.node) <= optimum * (1 + 1e-9),
                        "best_seconds": best_seconds,
                    }
                )
    return rows


def random_row(tasks: int, theta: float, target: float, seeds: range, progress: Progress) -> Row:
    """Best and peers on the random instances of one size, as ratios to the reference."""
    known = references.read()
    ratios: list[float] = []
    seconds: list[float] = []
    beside: dict[str, list[float]] = {peer: [] for peer in peers.PEERS}
    skipped: dict[str, str] = {}
    beaten = 0
    for seed in seeds:
        progress(f"{tasks} tasks, seed {seed}, {theta:g} s")
        problem = random_problem(tasks, seed)
        placement, used = timed("best", problem, Options(theta=theta))
        reference = known[tasks, seed]
        ratios.append(node_cost(problem, placement.node) / reference)
        seconds.append(used)
        for peer, found in beside.items():
            if peer in skipped:
                continue
            answer = peers.measured(peer, tasks, seed, theta, PEER_LIMIT_SECONDS)
            if "cost" in answer:
                found.append(float(answer["cost"]) / reference)
                beaten += found[-1] < ratios[-1] * (1 - 1e-9)
            else:
                skipped[peer] = str(answer["skipped"])
    return {
        "tasks": tasks,
        "theta": theta,
        "target": target,
        "median": statistics.median(ratios),
        "max": max(ratios),
        "seconds_median": statistics.median(seconds),
        "seconds_max": max(seconds),
        "instances": len(ratios),
        "peer_below_best": beaten,
        **{f"{peer}_median": statistics.median(found) if found else None for peer, found in beside.items()},
        **{f"{peer}_min_over_best": _least(found, ratios) for peer, found in beside.items()},
        "skipped": skipped,
    }


def _least(found: list[float], ratios: list[float]) -> float | None:
    """The peer's cost over best's where it came nearest."""
    if len(found) != len(ratios):
        return None
    return min(peer / own for peer, own in zip(found, ratios, strict=True))


def exact_unequal(seeds: range, sizes: tuple[tuple[int, float], ...], progress: Progress) -> list[Row]:
    """Exact on small instances with unequal tasks: proved or not, the certified gap, seconds, and best's cost."""
    rows: list[Row] = []
    for tasks, theta in sizes:
        for seed in seeds:
            progress(f"exact on {tasks} unequal tasks, seed {seed}")
            problem = random_problem(tasks, seed)
            placement, seconds = timed("exact", problem, Options(theta=theta))
            best, _ = timed("best", problem, Options())
            cost = node_cost(problem, placement.node)
            rows.append(
                {
                    "tasks": tasks,
                    "seed": seed,
                    "cost": cost,
                    "proved": placement.proved_optimal,
                    "gap": (cost - placement.lower_bound) / cost if cost > 0 else 0.0,
                    "seconds": seconds,
                    "best_cost": node_cost(problem, best.node),
                }
            )
    return rows


def papers_at_scale(tasks: int, progress: Progress) -> list[Row]:
    """T3 and I-Scheduler (theta 0) on a large random instance: seconds, and cost beside best's."""
    problem = random_problem(tasks, 0)
    best, _ = timed("best", problem, Options())
    rows: list[Row] = []
    for name in ("t3", "ischeduler"):
        progress(f"{name} on {tasks} tasks")
        row: Row = {"scheduler": name, "tasks": tasks, "best_cost": node_cost(problem, best.node)}
        try:
            placement, row["seconds"] = timed(name, problem, Options(theta=0.0))
            row["cost"] = node_cost(problem, placement.node)
        except UserError as error:
            row["failed"] = str(error)
        rows.append(row)
    return rows


def _by_layout(rows: Sequence[Row]) -> list[Row]:
    """The 72 rows added up to one per layout and cluster."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((str(row["instance"]).partition(":")[0], str(row["cluster"])), []).append(row)
    return [
        {
            "instance": f"{layout}, {cluster}",
            "instances": len(group),
            "exact proved": sum(1 for row in group if row["proved"]),
            "exact longest s": max(float(str(row["exact_seconds"])) for row in group),
            "best optimal": sum(1 for row in group if row["best_optimal"]),
            "best longest s": max(float(str(row["best_seconds"])) for row in group),
        }
        for (layout, cluster), group in groups.items()
    ]


def _beside_peers(rows: Sequence[Row]) -> list[Row]:
    """The random instances, narrow enough for a terminal: what is aimed at, what was found, and the peers' medians."""
    names = {"tasks": "tasks", "theta": "theta", "instances": "n", "target": "aim", "median": "median", "max": "max"}
    names |= {"seconds_median": "s", "metis_median": "METIS", "kahip_median": "KaHIP", "mtkahypar_median": "Mt-KaHyPar"}
    names |= {"peer_below_best": "peer below"}
    shaped: list[Row] = []
    for row in rows:
        line: Row = {short: row.get(name) for name, short in names.items()}
        skipped = row.get("skipped")
        if isinstance(skipped, dict) and skipped:
            line["note"] = "; ".join(f"{peer}: {why}" for peer, why in skipped.items())
        shaped.append(line)
    return shaped


BENCH = Bench(
    "schedulers on published and random instances, with METIS, KaHIP and Mt-KaHyPar",
    main,
    {
        "published": "the papers' section 5 instances",
        "random": "best and peers on random unequal instances: cost over the best known",
        "exact_unequal": "exact on random unequal instances",
        "papers_at_10000": "the papers' schedulers at scale",
    },
    {"published": _by_layout, "random": _beside_peers},
)
