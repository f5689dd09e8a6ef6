"""Best known costs of the random instances, from long runs, kept in references.json beside this file.

`lower` runs `best` with many times its usual effort and stores a cost if it is cheaper, so references fall or stay.
The benchmark divides every cost by these, so a change for the worse cannot hide behind a new reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.errors import InternalError
from penstock.optimise.contract import Options
from penstock.optimise.objective import node_cost
from penstock_lab.bench.place.instances import VERSION, random_problem

FILE = Path(__file__).with_name("references.json")
LONG_EFFORT = {200: 10.0, 1_000: 10.0, 10_000: 10.0, 100_000: 20.0}  # times the usual one
ONE_SEARCH = {"effort_follows_theta": False, "rounds": 0, "prove": False}
LONG_THETA = 1_000.0  # seconds: the effort decides, not the clock


def read() -> dict[tuple[int, int], float]:
    """(tasks, seed) -> best known cost."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    if stored["version"] != VERSION:
        msg = f"{FILE.name} is for generator version {stored['version']} but this is {VERSION}; run references.lower"
        raise InternalError(msg)
    return {(int(n), int(seed)): cost for n, costs in stored["costs"].items() for seed, cost in costs.items()}


def write(costs: dict[tuple[int, int], float]) -> None:
    """Store all of them, in order."""
    sizes = sorted({n for n, _ in costs})
    table = {str(n): {str(seed): costs[k, seed] for k, seed in sorted(costs) if k == n} for n in sizes}
    FILE.write_text(json.dumps({"version": VERSION, "costs": table}, indent=1) + "\n", encoding="utf-8")


def lower(
    instances: Iterable[tuple[int, int]], run_seed: int, progress: Callable[[str], None], effort: float | None = None
) -> None:
    """Run long on each (tasks, seed) and store costs that are cheaper than the reference."""
    from penstock.optimise.place.best import schedule

    for tasks, seed in instances:
        problem = random_problem(tasks, seed)
        long = effort or LONG_EFFORT.get(tasks, 10.0)
        options = Options(seed=run_seed, theta=LONG_THETA, settings={"effort": long, **ONE_SEARCH})
        cost = node_cost(problem, schedule(problem, options).node)
        costs = read() if FILE.exists() else {}
        known = costs.get((tasks, seed))
        progress(f"{tasks} tasks, seed {seed}: {cost:.6g} (known {known})")
        if known is None or cost < known:
            write({**costs, (tasks, seed): cost})
