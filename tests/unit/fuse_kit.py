"""Small constrained cases for the fusion tests, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import replace

from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart, Constraint, Dedicated, Replicas, Resource, Together
from penstock.model.topology import Operator, OperatorGraph, Stream

KINDS = ("resource", "cw", "cn", "sw", "sn", "dw", "dn", "replicas", "isomorphic")


def graph_of(loads: dict[str, float], streams: dict[tuple[str, str], float], *constraints: Constraint) -> OperatorGraph:
    """Operators of one task each."""
    operators = tuple(Operator(name, load=load) for name, load in loads.items())
    return OperatorGraph(
        "case", operators, tuple(Stream(a, b, rate=rate) for (a, b), rate in streams.items()), constraints
    )


def random_case(
    seed: int,
    constraints_max: int = 4,
    operators: tuple[int, int] = (3, 6),
    kinds: tuple[str, ...] = KINDS,
    worker_capacity: tuple[float | None, ...] = (None,),
) -> tuple[OperatorGraph, Cluster]:
    """Up to six tasks, unless told otherwise, on two or three nodes with a few constraints, which may clash.

    Workers have threads enough, as in the paper, unless `worker_capacity` says what to draw from.
    """
    draw = random.Random(seed)
    drawn_operators = [
        Operator(f"o{i}", load=draw.choice([0.1, 0.2, 0.3, 0.5]), memory_mb=draw.choice([0.0, 0.0, 10.0]))
        for i in range(draw.randint(*operators))
    ]
    count = len(drawn_operators)
    streams = [
        Stream(f"o{a}", f"o{b}", rate=draw.choice([0.02, 0.05, 0.1, 0.2]))
        for a in range(count)
        for b in range(a + 1, count)
        if draw.random() < 0.5
    ]
    nodes = [
        Node(f"n{k}", draw.choice([0.8, 1.0, 1.5]), memory_mb=draw.choice([None, None, 20.0]), worker_capacity=None)
        for k in range(draw.randint(2, 3))
    ]
    if worker_capacity != (None,):  # drawn last, so that the other cases are what they were
        nodes = [replace(node, worker_capacity=draw.choice(worker_capacity)) for node in nodes]
    names, hosts = [o.name for o in drawn_operators], [node.name for node in nodes]
    joined = {(stream.source, stream.target) for stream in streams}
    given = [drawn(draw, names, hosts, joined, kinds) for _ in range(draw.randint(0, constraints_max))]
    kept = tuple(constraint for constraint in given if constraint is not None)
    return OperatorGraph(f"seed {seed}", tuple(drawn_operators), tuple(streams), kept), Cluster(tuple(nodes))


def drawn(
    draw: random.Random, names: list[str], hosts: list[str], joined: set[tuple[str, str]], kinds: tuple[str, ...]
) -> Constraint | None:
    """A constraint of a random kind, or None where there are too few operators for it."""
    kind, (a, b) = draw.choice(kinds), draw.sample(names, 2)
    simple: dict[str, Constraint] = {
        "resource": Resource(a, tuple(draw.sample(hosts, draw.randint(1, len(hosts) - 1)))),
        "cw": Together("worker", (a, b)),
        "cn": Together("node", (a, b)),
        "sw": Apart("worker", (a, b)),
        "sn": Apart("node", (a, b)),
        "dw": Dedicated("worker", a),
        "dn": Dedicated("node", a),
    }
    if kind in simple:
        return simple[kind]
    if len(names) < 4:
        return None
    a, b, c, d = draw.sample(names, 4)
    alike = ((a, b) in joined, (b, a) in joined) == ((c, d) in joined, (d, c) in joined)
    return Replicas(((a, b), (c, d)), isomorphic=kind == "isomorphic" and alike)
