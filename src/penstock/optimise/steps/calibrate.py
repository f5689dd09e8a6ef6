"""phi(theta): how many tasks the exact solver finishes within theta seconds on this machine (paper 001, section 4.3).

The paper takes phi "from previous experiments"; here the experiment is run once and remembered. Seeded random
instances with unequal loads and rates, the hard kind, grow until the solver no longer proves one within a limit; then
the gap between the last size that worked and the first that did not is halved. The experiment stops after about five
times the limit, which is a second: no user waits a minute for a threshold. `growth` makes phi for every theta from the
seconds of the sizes that were solved. Who wants larger ones measured says how long that may take (`budget`), once.

The seconds are kept in the user's cache directory under the solver's version and the machine. Beside it lies what
streams cost (`calibrated_costs.py`). A cache that is missing, damaged or not writable costs the time again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from penstock.errors import UserError
from penstock.model.cluster import Cluster
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Deadline, Placement, Problem
from penstock.optimise.steps.growth import Measured, Threshold

Solve = Callable[[Problem, Deadline, int], Placement]

LIMIT_SECONDS = 1.0  # of a solve in the experiment, where no budget asks for more
BUDGET = 4.0  # the experiment may take this many times its limit, and once its limit to warm up
BUDGET_SECONDS_MAX = 86_400.0
CACHED_SIZES_MAX = 64
FIRST = 16  # where the search begins: smaller sizes are looked at if this one fails
LARGEST = 512  # beyond this phi no longer limits anything that the solver is good for
GROWTH = 1.5
INSTANCES = 2  # per size; every one must be solved
ROOM = 1.25  # capacity over load: tight enough to matter, loose enough that a plan exists


def calibrated(
    theta: float,
    solve: Solve,
    solver_files: Iterable[Path],
    cache_file: Path | None = None,
    budget: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Threshold:
    """The phi for theta, from the cache, or by experiment and then into the cache.

    A `budget` of seconds asks for an experiment of that length; without one, the longest that is remembered is used.
    """
    cache_file = cache_file or default_cache_file()
    solver = f"{fingerprint(solver_files)} on {machine()}"
    wanted = LIMIT_SECONDS if budget is None else max(LIMIT_SECONDS, budget / (BUDGET + 1))
    known = _read(cache_file)
    measured = known.get(solver)
    if measured is None or measured.limit < wanted:
        measured = experiment(wanted, solve, clock)
        _write(cache_file, {**known, solver: measured})
    return measured.threshold(theta)


def experiment(limit: float, solve: Solve, clock: Callable[[], float] = time.monotonic) -> Measured:
    """The sizes up to the largest at which every instance was proved within the limit, and their seconds."""
    _seconds(FIRST, INSTANCES, Deadline.after(limit, clock), solve)  # the first call also loads libraries
    whole = Deadline.after(BUDGET * limit, clock)
    good, bad, size = 0, LARGEST + 1, FIRST
    solved: dict[int, float] = {}
    while good < size < bad and whole.remaining >= limit:
        longest = 0.0
        for instance in range(INSTANCES):
            if longest <= limit:
                until = Deadline.after(min(limit, whole.remaining), clock)
                longest = max(longest, _seconds(size, instance, until, solve))
        if longest <= limit:
            solved[size] = longest
            good = size
        else:
            bad = size
        size = min(LARGEST, int(size * GROWTH)) if bad > LARGEST else (good + bad) // 2
    sizes = tuple(sorted(solved))
    return Measured(limit, sizes, tuple(solved[size] for size in sizes))


def _seconds(size: int, instance: int, deadline: Deadline, solve: Solve) -> float:
    """What the proof of an instance took; infinite where there was none by the deadline."""
    problem = random_problem(size, instance)
    began = deadline.clock()
    try:
        placement = solve(problem, deadline, instance)
    except UserError:
        return math.inf
    return deadline.clock() - began if placement.proved_optimal and deadline.remaining > 0 else math.inf


def random_problem(tasks: int, seed: int) -> Problem:
    """Tasks in a random acyclic graph with unequal loads and rates, and nodes of capacity 6, 4 and 2 to hold them."""
    random = np.random.default_rng([tasks, seed])
    load = random.uniform(0.5, 1.5, tasks)
    operators = tuple(Operator(f"o{i}", load=float(load[i])) for i in range(tasks))
    streams: list[Stream] = []
    for i in range(1, tasks):
        upstream = np.unique(random.integers(0, i, 2)).tolist()
        streams += [Stream(f"o{j}", f"o{i}", rate=float(random.uniform(1.0, 100.0))) for j in upstream]
    sizes: list[float] = []
    while sum(sizes) < ROOM * load.sum() or len(sizes) < 3:
        sizes.append((6.0, 4.0, 2.0)[len(sizes) % 3])
    graph = OperatorGraph(f"random:{tasks}", operators, tuple(streams))
    return Problem(TaskGraph.expand(graph), Cluster.uniform([(1, size) for size in sizes]))


def fingerprint(solver_files: Iterable[Path]) -> str:
    """The solver's version: its sources, because a release number does not change with every improvement."""
    digest = hashlib.sha256()
    for file in sorted(solver_files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def machine() -> str:
    """What makes the solver faster or slower and can be known without measuring."""
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:8]  # the machine's name stays private
    return f"{host} {platform.machine()} {os.cpu_count()} cores Python {platform.python_version()}"


def default_cache_file() -> Path:
    """phi.json in the user's cache directory."""
    return cache_folder() / "phi.json"


def cache_folder() -> Path:
    """Where this user's measurements of machines are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "penstock"


def _read(cache_file: Path) -> dict[str, Measured]:
    """The cache's sound entries; nothing when it cannot be read."""
    try:
        document = json.loads(cache_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict):
        return {}
    entries = {solver: _measured(entry) for solver, entry in document.items()}
    return {solver: measured for solver, measured in entries.items() if measured is not None}


def _measured(entry: object) -> Measured | None:
    """One entry of the cache; None where it is not what `_write` writes, such as an older version's."""
    match entry:
        case {"limit": float(limit), "sizes": list(sizes), "seconds": list(seconds)}:
            pass
        case _:
            return None
    sound = (
        LIMIT_SECONDS <= limit <= BUDGET_SECONDS_MAX
        and len(sizes) == len(seconds) <= CACHED_SIZES_MAX
        and all(type(size) is int and 0 < size <= LARGEST for size in sizes)
        and all(type(each) is float and 0 <= each <= limit for each in seconds)
        and sizes == sorted(set(sizes))
    )
    return Measured(limit, tuple(sizes), tuple(seconds)) if sound else None


def _write(cache_file: Path, known: dict[str, Measured]) -> None:
    """Replace the cache in one step, so that no reader sees half of it; give up where it cannot be written."""
    try:
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=cache_file.parent, prefix=cache_file.name, delete=False, encoding="utf-8"
        ) as fresh:
            json.dump({solver: asdict(measured) for solver, measured in known.items()}, fresh, indent=1, sort_keys=True)
        Path(fresh.name).replace(cache_file)
    except OSError:
        return
