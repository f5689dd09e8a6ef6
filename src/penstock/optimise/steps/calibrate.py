"""phi(theta): how many tasks the exact solver finishes within theta seconds on this machine (paper 001, section 4.3).

The paper takes phi "from previous experiments"; here the experiment is run once and remembered. Seeded random
instances with unequal loads and rates, the hard kind, grow until the solver no longer proves one within theta; then
the gap between the last size that worked and the first that did not is halved. The experiment stops after about five
times theta whatever happens. Thetas above a second share the experiment of a second: what is solved in one is solved in
ten, and no user has to wait a minute for a threshold. Rejected: a constant, which would be wrong on every machine but
the one that it came from, and on that one after the next improvement of the solver.

The answer is kept in the user's cache directory under the solver's version and the machine. Beside it lies what streams
cost (`calibrated_costs.py`); no other part of the optimiser reads or writes a file. A cache that is missing, damaged or
not writable costs the time again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from penstock.errors import UserError
from penstock.model.cluster import Cluster
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Deadline, Placement, Problem

Solve = Callable[[Problem, Deadline, int], Placement]

THETA_MEASURED_MAX = 1.0
BUDGET = 4.0  # calibration may take this many times theta, and once theta to warm up
FIRST = 16  # where the search begins: smaller sizes are looked at if this one fails
LARGEST = 512  # beyond this phi no longer limits anything that the solver is good for
GROWTH = 1.5
INSTANCES = 2  # per size; every one must be solved
ROOM = 1.25  # capacity over load: tight enough to matter, loose enough that a plan exists


def calibrated(theta: float, solve: Solve, solver_files: Iterable[Path], cache_file: Path | None = None) -> int:
    """The phi for theta, from the cache, or by experiment and then into the cache."""
    cache_file = cache_file or default_cache_file()
    theta = min(theta, THETA_MEASURED_MAX)
    solver, allowed = f"{fingerprint(solver_files)} on {machine()}", f"{theta:g}"
    known = _read(cache_file)
    found = known.get(solver, {}).get(allowed)
    if found is not None:
        return found
    phi = largest_solved(theta, solve)
    known.setdefault(solver, {})[allowed] = phi
    _write(cache_file, known)
    return phi


def largest_solved(theta: float, solve: Solve, clock: Callable[[], float] = time.monotonic) -> int:
    """The largest task count at which every instance was proved within theta; 0 when none was."""
    _is_solved(FIRST, INSTANCES, Deadline.after(theta, clock), solve)  # the first call also loads libraries
    whole = Deadline.after(BUDGET * theta, clock)
    good, bad, size = 0, LARGEST + 1, FIRST
    while good < size < bad and whole.remaining >= theta:
        limits = (Deadline.after(min(theta, whole.remaining), clock) for _ in range(INSTANCES))
        solved = all(_is_solved(size, instance, limit, solve) for instance, limit in enumerate(limits))
        good, bad = (size, bad) if solved else (good, size)
        size = min(LARGEST, int(size * GROWTH)) if bad > LARGEST else (good + bad) // 2
    return good


def _is_solved(size: int, instance: int, deadline: Deadline, solve: Solve) -> bool:
    try:
        placement = solve(random_problem(size, instance), deadline, instance)
    except UserError:
        return False
    return placement.proved_optimal and deadline.remaining > 0


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


def _read(cache_file: Path) -> dict[str, dict[str, int]]:
    """The cache's sound entries; nothing when it cannot be read."""
    try:
        document = json.loads(cache_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {
        solver: {theta: phi for theta, phi in entries.items() if type(phi) is int and 0 <= phi <= LARGEST}
        for solver, entries in document.items()
        if isinstance(entries, dict)
    }


def _write(cache_file: Path, known: dict[str, dict[str, int]]) -> None:
    """Replace the cache in one step, so that no reader sees half of it; give up where it cannot be written."""
    try:
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=cache_file.parent, prefix=cache_file.name, delete=False, encoding="utf-8"
        ) as fresh:
            json.dump(known, fresh, indent=1, sort_keys=True)
        Path(fresh.name).replace(cache_file)
    except OSError:
        return
