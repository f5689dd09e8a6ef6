"""`penstock bench fuse`, the plans' half: seconds and cuts of the fusion methods.

Four sections. The methods on vwap:200 and seven nodes, free and with 20 mixed constraints, and at scale. 50 random
VWAP-shaped instances: each method's total cut beside FINT's, and where FINT wins. COLA against the exact model on small
constrained cases. Seconds until a clash of constraints is found.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace

from penstock.apps.vwap import vwap_graph
from penstock.errors import UserError
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart, Constraint, Dedicated, Replicas, Resource, Together
from penstock.model.plan import Plan
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.fuse.contract import METHODS, FuseOptions
from penstock.optimise.fuse.door import fuse, prepared
from penstock.optimise.fuse.exhaustive import least
from penstock.optimise.fuse.steps.feasibility import find_clash
from penstock_lab.bench.contract import Progress, Row

OPERATORS = 200
HOSTS = 7
INSTANCES, QUICK_INSTANCES = 50, 4
SMALL_CASES, QUICK_SMALL_CASES = 100, 12
SAME = 1e-9


def sections(quick: bool, progress: Progress) -> dict[str, list[Row]]:
    """The rows of every section of this half."""
    return {
        "fuse_speed": speed(quick, progress),
        "fuse_random": against_fint(QUICK_INSTANCES if quick else INSTANCES, progress),
        "fuse_exact": against_exact(QUICK_SMALL_CASES if quick else SMALL_CASES, progress),
        "fuse_clash": clash_times(progress),
    }


def timed(graph: OperatorGraph, cluster: Cluster, method: str) -> tuple[Plan | None, float, str]:
    """A method's plan, the seconds it took, and why there is none."""
    began = time.perf_counter()
    try:
        plan = fuse(graph, cluster, method, options=METHODS[method].heard(FuseOptions(balance=0.0)))
    except UserError as error:
        return None, time.perf_counter() - began, str(error)
    return plan, time.perf_counter() - began, ""


def total_cut(plan: Plan) -> float:
    """Rates between workers, on one node or on two."""
    return plan.cost + plan.inter_worker_cost


def speed(quick: bool, progress: Progress) -> list[Row]:
    """Seconds of each method, beside the aim."""
    cluster = Cluster.uniform([(HOSTS, 1.0)], worker_capacity=None)
    free = vwap_graph(OPERATORS, 0)
    tied = replace(free, constraints=mixed_constraints(free, cluster, 0))
    asked: list[tuple[str, OperatorGraph, Cluster, str, float | None]] = [
        (f"vwap:{OPERATORS}", free, cluster, name, {"cola-basic": 5.0}.get(name)) for name in METHODS
    ]
    asked += [
        (f"vwap:{OPERATORS}, 20 constraints", tied, cluster, name, _aim(name)) for name in ("fint", "cola", "best")
    ]
    if not quick:
        large = vwap_graph(2_000, 0)
        asked += [("vwap:2000", large, cluster, name, 300.0) for name in ("fint", "cola-basic", "cola", "best")]
    rows: list[Row] = []
    for what, graph, hosts, method, aim in asked:
        progress(f"{method} on {what}")
        plan, seconds, why = timed(graph, hosts, method)
        rows.append(
            {
                "instance": what,
                "method": method,
                "seconds": seconds,
                "aim": aim,
                "total_cut": None if plan is None else total_cut(plan),
                "nodes": None if plan is None else plan.nodes_used,
                "note": why,
            }
        )
    return rows


def _aim(method: str) -> float | None:
    return 30.0 if method == "cola" else None


def mixed_constraints(graph: OperatorGraph, cluster: Cluster, seed: int) -> tuple[Constraint, ...]:
    """Twenty constraints of all kinds on operators of their own."""
    draw = random.Random(seed)  # noqa: S311 - a seeded example, nothing secret
    names = [operator.name for operator in graph.operators]
    draw.shuffle(names)
    left = iter(names)

    def some(count: int) -> tuple[str, ...]:
        return tuple(next(left) for _ in range(count))

    hosts = [node.name for node in cluster.nodes]
    found: list[Constraint] = [Resource(some(1)[0], tuple(draw.sample(hosts, 3))) for _ in range(4)]
    found += [Together("worker", some(3)) for _ in range(3)] + [Together("node", some(3)) for _ in range(3)]
    found += [Apart("worker", some(2)) for _ in range(4)] + [Apart("node", some(3)) for _ in range(3)]
    found += [Dedicated("worker", some(1)[0]) for _ in range(2)]
    return (*found, Replicas((some(4), some(4))))


def against_fint(instances: int, progress: Progress) -> list[Row]:
    """Each random instance's cuts, with a last row of averages; hosts go round from 4 to 7."""
    rows: list[Row] = []
    for i in range(instances):
        graph = vwap_graph(OPERATORS + 10 * (i % 5), i + 1)
        hosts = 4 + i % 4
        progress(f"random instance {i + 1} of {instances}")
        row: Row = {"instance": graph.name, "hosts": hosts}
        for method in ("none", "fint", "cola-basic", "cola", "best"):
            plan, _, _ = timed(graph, Cluster.uniform([(hosts, 1.0)], worker_capacity=None), method)
            row[method] = None if plan is None else total_cut(plan)
        row["cola_over_fint"] = _ratio(row["cola"], row["fint"])
        row["note"] = _winner(row)
        rows.append(row)
    ratios = [float(str(row["cola_over_fint"])) for row in rows if row["cola_over_fint"] is not None]
    wins = sum("fint wins" in str(row["note"]) for row in rows)
    beaten = sum("best is worse" in str(row["note"]) for row in rows)
    summary = f"fint wins {wins} of {len(rows)}; best is worse on {beaten}"
    rows.append({"instance": "mean", "cola_over_fint": statistics.mean(ratios), "note": summary})
    return rows


def _ratio(a: object, b: object) -> float | None:
    return float(a) / float(b) if isinstance(a, float) and isinstance(b, float) and b > 0 else None


def _winner(row: Row) -> str:
    cuts = {name: value for name, value in row.items() if name in METHODS and isinstance(value, float)}
    least_cut = min(cuts.values())
    notes = []
    if cuts.get("fint", float("inf")) < cuts.get("cola", float("inf")):
        notes.append("fint wins over cola")
    if cuts.get("best", float("inf")) > least_cut * (1 + SAME):
        notes.append("best is worse")
    return "; ".join(notes)


def against_exact(cases: int, progress: Progress) -> list[Row]:
    """COLA's and best's C over the exact model's on small constrained cases."""
    ratios: dict[str, list[float]] = {name: [] for name in METHODS}
    missed = dict.fromkeys(METHODS, 0)
    solvable = 0
    for seed in range(cases):
        progress(f"exact model, case {seed + 1} of {cases}")
        graph, cluster = small_case(seed)
        truth = least(graph, cluster)
        if truth is None:
            continue
        solvable += 1
        for name in METHODS:
            plan, _, _ = timed(graph, cluster, name)
            if plan is None:
                missed[name] += 1
            elif truth[0] > 0:
                ratios[name].append(2 * total_cut(plan) / truth[0])
            else:
                ratios[name].append(1.0 if total_cut(plan) <= SAME else float("inf"))
    return [
        {
            "method": name,
            "cases": solvable,
            "no_plan": missed[name],
            "optimal": sum(ratio <= 1 + SAME for ratio in found),
            "mean_ratio": statistics.mean(ratio for ratio in found if ratio < float("inf")) if found else None,
            "max_ratio": max(found, default=None),
        }
        for name, found in ratios.items()
    ]


def small_case(seed: int) -> tuple[OperatorGraph, Cluster]:
    """Five or six operators on two or three nodes with up to three constraints that may be met."""
    draw = random.Random(seed)  # noqa: S311 - a seeded example, nothing secret
    names = [f"o{i}" for i in range(draw.randint(5, 6))]
    operators = tuple(Operator(name, load=draw.choice([0.1, 0.2, 0.3, 0.5])) for name in names)
    streams = tuple(
        Stream(a, b, rate=draw.choice([0.02, 0.05, 0.1]))
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if draw.random() < 0.5
    )
    cluster = Cluster(
        tuple(Node(f"n{k}", draw.choice([0.8, 1.0, 1.5]), worker_capacity=None) for k in range(draw.randint(2, 3)))
    )
    pairs = [tuple(draw.sample(names, 2)) for _ in range(4)]
    kinds: list[Constraint] = [
        Apart("worker", pairs[0]),
        Apart("node", pairs[1]),
        Together("node", pairs[2]),
        Together("worker", pairs[3]),
        Dedicated("worker", names[0]),
        Resource(names[1], (cluster.nodes[0].name,)),
    ]
    return OperatorGraph(f"small {seed}", operators, streams, tuple(draw.sample(kinds, draw.randint(0, 3)))), cluster


def clash_times(progress: Progress) -> list[Row]:
    """Seconds until clashing constraints among many are named, on 200 and 2,000 operators."""
    rows: list[Row] = []
    added: tuple[Constraint, ...]
    for operators in (OPERATORS, 2_000):
        progress(f"clash among {operators} operators")
        graph = vwap_graph(operators, 0)
        cluster = Cluster.uniform([(HOSTS, 1.0)], worker_capacity=None)
        names = [operator.name for operator in graph.operators]
        many = mixed_constraints(graph, cluster, 1)
        chain = (
            Together("worker", tuple(names[:2])),
            Together("worker", tuple(names[1:3])),
            Apart("worker", (names[0], names[2])),
        )
        crowd = (Apart("node", tuple(names[-HOSTS - 1 :])),)
        for what, added in (("none", ()), ("a chain", chain), ("one more apart than nodes", crowd)):
            tied = replace(graph, constraints=(*many, *added))
            problem = prepared(tied, cluster).problem
            began = time.perf_counter()
            clash = find_clash(problem)
            rows.append(
                {
                    "operators": operators,
                    "constraints": len(tied.constraints),
                    "clash": what,
                    "named": 0 if clash is None else len(clash.positions),
                    "seconds": time.perf_counter() - began,
                }
            )
    return rows
