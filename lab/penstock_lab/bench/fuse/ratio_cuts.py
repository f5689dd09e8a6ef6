"""The cut half of `penstock bench fuse`: how near minimum-ratio cuts come to the sparsest, and their seconds.

Every method cuts the same random VWAP-shaped graphs. Ratios and bounds are given over the exact sparsest cut of the
same graph, as far as that is proved; a bound of 1 would prove its cut.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from penstock.apps.vwap import vwap_graph
from penstock.model.taskgraph import TaskGraph
from penstock.optimise.fuse.ratio_cut import METHODS, Cut, minimum_ratio_cut
from penstock_lab.bench.contract import Progress, Row

OPERATORS = 200
GRAPHS = 50
MEAN_AIM, WORST_AIM = 1.02, 1.10
LARGE = 2_000


def sections(quick: bool, progress: Progress) -> dict[str, list[Row]]:
    """Every section's rows; `quick` takes a tenth of the graphs and no large one."""
    seeds = range(GRAPHS // 10 if quick else GRAPHS)
    found = {"ratio_cuts": compared(OPERATORS, seeds, progress)}
    if not quick:
        found["large_cuts"] = [large(LARGE, method, progress) for method in ("leighton-rao", "refined")]
    return found


def timed(operators: int, seed: int, method: str) -> tuple[Cut, float]:
    """A method's cut of one graph, and its seconds."""
    graph = TaskGraph.expand(vwap_graph(operators, seed))
    began = time.perf_counter()
    cut = minimum_ratio_cut(graph.load, graph.source, graph.target, graph.rate, method=method, seed=seed)
    return cut, time.perf_counter() - began


def compared(operators: int, seeds: Sequence[int], progress: Progress) -> list[Row]:
    """A row for each method, over all graphs."""
    timed(20, 0, "exact")  # solvers are loaded before anything is timed
    found: dict[str, list[tuple[Cut, float]]] = {method: [] for method in METHODS}
    for seed in seeds:
        progress(f"cuts of {operators} operators, seed {seed}")
        for method, cuts in found.items():
            cuts.append(timed(operators, seed, method))
    least = [cut.ratio for cut, _ in found["exact"]]
    return [_row(method, operators, cuts, least) for method, cuts in found.items()]


def _row(method: str, operators: int, cuts: Sequence[tuple[Cut, float]], least: Sequence[float]) -> Row:
    over = [cut.ratio / best for (cut, _), best in zip(cuts, least, strict=True)]
    bounds = [cut.bound / best for (cut, _), best in zip(cuts, least, strict=True)]
    seconds = [used for _, used in cuts]
    return {
        "method": method,
        "operators": operators,
        "graphs": len(cuts),
        "ratio_mean": statistics.mean(over),
        "ratio_worst": max(over),
        "within_aim": statistics.mean(over) <= MEAN_AIM and max(over) <= WORST_AIM,
        "bound_mean": statistics.mean(bounds),
        "bound_worst": min(bounds),
        "proved": sum(cut.proved for cut, _ in cuts),
        "seconds_median": statistics.median(seconds),
        "seconds_max": max(seconds),
    }


def large(operators: int, method: str, progress: Progress) -> Row:
    """The first and largest cut of a large graph."""
    progress(f"{method} on {operators} operators")
    cut, seconds = timed(operators, 0, method)
    return {
        "method": method,
        "operators": operators,
        "ratio": cut.ratio,
        "ratio_over_bound": cut.ratio / cut.bound if cut.bound > 0 else None,
        "seconds": seconds,
    }
