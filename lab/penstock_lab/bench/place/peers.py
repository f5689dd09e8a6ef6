"""Partitioners measured beside `best`: METIS, KaHIP and Mt-KaHyPar, each repaired, FM-refined and given the same time.

Partitioners balance blocks; they do not know capacities. METIS and Mt-KaHyPar get unequal block weights, KaHIP equal
blocks over a set of nodes, matched largest to largest. Each runs on the fewest, largest nodes and on all nodes, with
new seeds while time is left. Every answer goes through our repair and FM passes; the cheapest feasible one counts. Time
is counted from the arrays on, without imports. Each run is a process with a limit, for a partitioner may abort:

    python -m penstock_lab.bench.place.peers metis 1000 0 1.0
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Problem
from penstock.optimise.objective import is_feasible, node_cost
from penstock.optimise.search.annealed import native
from penstock_lab.bench.place.instances import random_problem

PEERS = {"metis": "pymetis", "kahip": "kahip", "mtkahypar": "mtkahypar"}
WEIGHT_MAX = 1_000_000  # sum of all integer loads stays far below 2^31
RATE_MAX = 10_000
REPAIR_TRIES = 200_000
FM_PASSES = 20


@dataclass(frozen=True)
class Scaled:
    """The graph in integers, as partitioners want it."""

    start: Longs
    neighbour: Ints
    rate: Longs
    load: Longs
    shares: Floats  # of the load that each chosen node should take
    seed: int


def installed(peer: str) -> bool:
    """Whether the peer's package is there (`make peers` installs all)."""
    return importlib.util.find_spec(PEERS[peer]) is not None


def by_metis(graph: Scaled) -> Ints:
    """METIS k-way with unequal target weights."""
    import pymetis

    _, part = pymetis.part_graph(
        len(graph.shares),
        pymetis.CSRAdjacency(graph.start, graph.neighbour),
        vweights=graph.load,
        eweights=graph.rate,
        tpwgts=(graph.shares / graph.shares.sum()).tolist(),
        recursive=len(graph.shares) <= 8,
        options=pymetis.Options(seed=graph.seed),
    )
    return np.asarray(part, dtype=np.int32)


def by_kahip(graph: Scaled) -> Ints:
    """KaHIP's fast (many blocks) or eco preset with equal blocks; heavier blocks go to larger nodes afterwards."""
    import kahip

    blocks = len(graph.shares)
    mode = kahip.ECO if blocks <= 64 else kahip.FAST
    _, part = kahip.kaffpa(
        graph.load.tolist(),
        graph.start.tolist(),
        graph.rate.tolist(),
        graph.neighbour.tolist(),
        blocks,
        0.2,
        True,
        graph.seed,
        mode,
    )
    found = np.asarray(part, dtype=np.int64)
    weight = np.bincount(found, graph.load, minlength=blocks)
    rank = np.empty(blocks, dtype=np.int32)
    rank[np.argsort(-weight, kind="stable")] = np.argsort(-graph.shares, kind="stable")
    return rank[found]


@cache
def _mtkahypar_tools() -> Any:  # noqa: ANN401 - the package has no types
    """Its thread pool can be started once a process."""
    import mtkahypar

    return mtkahypar.initialize(2)


def by_mtkahypar(graph: Scaled) -> Ints:
    """Mt-KaHyPar with individual block weights, two threads."""
    import mtkahypar

    tools = _mtkahypar_tools()
    many = len(graph.shares) > 256
    context = tools.context_from_preset(mtkahypar.PresetType.LARGE_K if many else mtkahypar.PresetType.DEFAULT)
    context.set_partitioning_parameters(len(graph.shares), 0.03, mtkahypar.Objective.CUT)
    context.set_individual_target_block_weights(np.floor(graph.shares).astype(int).tolist())
    context.logging = False
    mtkahypar.set_seed(graph.seed)
    row = np.repeat(np.arange(len(graph.load)), np.diff(graph.start))
    once = row < graph.neighbour
    edges = list(zip(row[once].tolist(), graph.neighbour[once].tolist(), strict=True))
    built = tools.create_graph(
        context, len(graph.load), len(edges), edges, graph.load.tolist(), graph.rate[once].tolist()
    )
    parted = built.partition(context)
    return np.array([parted.block_id(v) for v in range(len(graph.load))], dtype=np.int32)


RUN: dict[str, Callable[[Scaled], Ints]] = {"metis": by_metis, "kahip": by_kahip, "mtkahypar": by_mtkahypar}


def scaled(problem: Problem, nodes: Ints, seed: int) -> Scaled:
    """Integers in which the load sums to at most WEIGHT_MAX per mean node share."""
    adjacency = problem.graph.adjacency
    unit = WEIGHT_MAX * 1_000 / problem.graph.load.sum()
    rate = np.maximum(1, np.rint(adjacency.weight * (RATE_MAX / adjacency.weight.max()))).astype(np.int64)
    load = np.maximum(1, np.floor(problem.graph.load * unit)).astype(np.int64)
    return Scaled(adjacency.start, adjacency.neighbour, rate, load, problem.capacity[nodes] * unit, seed)


def node_choices(problem: Problem) -> list[Ints]:
    """The fewest, largest nodes with a little room, and all nodes."""
    by_size = np.argsort(-problem.capacity, kind="stable").astype(np.int32)
    room = 1.03 * problem.graph.load.sum()
    fewest = int(np.searchsorted(np.cumsum(problem.capacity[by_size]), room)) + 1
    return [by_size[: min(fewest, len(by_size))], by_size]


def cheapest(peer: str, problem: Problem, seconds: float) -> tuple[float, float]:
    """(cost, seconds used): at least one run on each choice of nodes, then further seeds while time is left."""
    importlib.import_module(PEERS[peer])
    network = native(problem)
    began = time.perf_counter()
    best, run = float("inf"), 0
    choices = node_choices(problem)
    while run == 0 or time.perf_counter() - began < seconds:
        nodes = choices[run % 2]
        part = RUN[peer](scaled(problem, nodes, 1 + run))
        fixed = network.repair(nodes[part], run, REPAIR_TRIES, 5.0)
        placed = network.refine(fixed, FM_PASSES, 5.0)
        if is_feasible(problem, placed):
            best = min(best, node_cost(problem, placed))
        run += 1
    return best, time.perf_counter() - began


def measured(peer: str, tasks: int, seed: int, seconds: float, limit: float) -> dict[str, float | str]:
    """The peer's cost and seconds from a process of its own, or why there are none."""
    if not installed(peer):
        return {"skipped": f"{PEERS[peer]} is not installed; run make peers"}
    command = [sys.executable, "-m", "penstock_lab.bench.place.peers", peer, str(tasks), str(seed), str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return {"skipped": f"did not finish in {limit:g} s"}
    if done.returncode != 0:
        return {"skipped": f"ended with status {done.returncode}: {done.stderr.strip()[-200:]}"}
    answer: dict[str, float | str] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def main() -> None:
    """One measurement, as one line of JSON on stdout."""
    peer, tasks, seed, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    cost, used = cheapest(peer, random_problem(tasks, seed), seconds)
    print(json.dumps({"cost": cost, "seconds": used}))


if __name__ == "__main__":
    main()
