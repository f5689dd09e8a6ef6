"""Instances on nodes whose slots are short, for the tests of `best`."""

from __future__ import annotations

from dataclasses import replace

from penstock.model.cluster import Cluster
from penstock.model.topology import OperatorGraph
from penstock.testing.instances import random_cluster, random_topology


def slotted(operators: int, tasks: int, seed: int = 1) -> tuple[OperatorGraph, Cluster]:
    """A topology on nodes whose slots each carry little more than the largest task."""
    graph = random_topology(seed, operators=operators, tasks_per_operator=tasks)
    limit = 1.05 * max(max(operator.loads()) for operator in graph.operators)
    nodes = random_cluster(seed, graph).nodes
    return graph, Cluster(
        tuple(replace(n, slots=max(2, int(n.capacity / limit) + 1), worker_capacity=limit) for n in nodes)
    )
