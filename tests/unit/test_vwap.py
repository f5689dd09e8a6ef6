"""VWAP graphs: the published sizes, a job that makes sense, and costs for which four to seven hosts make sense."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.apps import find_topology
from penstock.apps.vwap import LOAD_IN_ALL, STREAMS_IN_ALL, vwap_graph
from penstock.errors import InvalidInput
from penstock.model.taskgraph import TaskGraph


@pytest.mark.parametrize(("name", "arcs"), [("vwap:200", 283), ("vwap:217", 315)])
def test_published_sizes(name: str, arcs: int) -> None:
    graph = find_topology(name)
    assert graph.validated().name == name
    assert (len(graph.operators), len(graph.streams)) == (int(name.partition(":")[2]), arcs)
    assert graph.task_count == len(graph.operators)


@pytest.mark.parametrize("operators", [20, 21, 37, 100, 199, 500])
@pytest.mark.parametrize("seed", [0, 7])
def test_every_size_is_a_sound_job(operators: int, seed: int) -> None:
    graph = vwap_graph(operators, seed).validated()
    assert len(graph.operators) == operators
    targets = {stream.target for stream in graph.streams}
    senders = {stream.source for stream in graph.streams}
    for operator in graph.operators:
        assert operator.source == operator.name.startswith("feed") == (operator.name not in targets)
        assert operator.name.startswith("report") == (operator.name not in senders)


@pytest.mark.parametrize("seed", range(5))
def test_costs_are_fractions_of_hosts(seed: int) -> None:
    tasks = TaskGraph.expand(vwap_graph(200, seed))
    assert tasks.load.sum() == pytest.approx(LOAD_IN_ALL)
    assert tasks.rate.sum() == pytest.approx(STREAMS_IN_ALL)
    assert tasks.load.min() > 0
    assert tasks.rate.min() > 0
    # The largest operator with its streams is a worker of its own at worst, and fits a host of 1.0.
    size = tasks.load.copy()
    np.add.at(size, tasks.source, tasks.rate)
    np.add.at(size, tasks.target, tasks.rate)
    assert size.max() < 0.9


def test_seeds_differ_and_repeat() -> None:
    assert vwap_graph(200, 3) == vwap_graph(200, 3)
    assert vwap_graph(200, 3) != vwap_graph(200, 4)
    assert vwap_graph(200, 0) == find_topology("vwap:200")


@pytest.mark.parametrize("name", ["vwap:19", "vwap:0", "vwap:999999999", "vwap:", "vwap:x"])
def test_impossible_sizes_are_named(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        find_topology(name)
