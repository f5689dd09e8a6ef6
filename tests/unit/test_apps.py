"""Built-in topologies: the papers' shapes and counts, sound loads, and names that fail clearly."""

from __future__ import annotations

import pytest

from penstock.apps import find_topology, list_topologies
from penstock.apps.applications import APPLICATIONS
from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster
from penstock.model.taskgraph import TaskGraph

TASKS = {"trending": [5, 9, 4, 1], "routes": [16, 16, 8, 4, 1], "smart-home": [10, 10, 10, 10]}


@pytest.mark.parametrize("name", APPLICATIONS)
def test_application_is_sound_and_has_the_papers_task_counts(name: str) -> None:
    graph = find_topology(name)
    assert graph.validated().name == name
    assert [operator.tasks for operator in graph.operators] == TASKS[name]
    assert [operator.source for operator in graph.operators] == [True] + [False] * (len(graph.operators) - 1)


def test_trending_rates_fall_from_step_to_step() -> None:
    rates = [stream.rate for stream in find_topology("trending").streams]
    assert rates == [20_000.0, 8_000.0, 1_280.0]


def test_routes_needs_three_of_the_demo_clusters_nodes() -> None:
    load = TaskGraph.expand(find_topology("routes")).load.sum()
    capacities = sorted((node.capacity for node in Cluster.uniform([(2, 16.0), (2, 8.0)]).nodes), reverse=True)
    assert sum(capacities[:2]) < load < sum(capacities[:3])


def test_routes_output_shrinks_at_every_operator() -> None:
    graph = find_topology("routes")
    tasks = TaskGraph.expand(graph)
    sent = [
        tasks.rate[tasks.operator_of[tasks.source] == number].sum() for number, _ in enumerate(graph.operators[:-1])
    ]
    assert sent == sorted(sent, reverse=True)
    assert sent[0] == pytest.approx(16_000 * 200)


def test_smart_home_fits_the_four_nodes_that_the_paper_reports() -> None:
    load = TaskGraph.expand(find_topology("smart-home")).load.sum()
    assert 3 * 3.2 < load < 4 * 3.2


def test_smart_home_is_a_diamond() -> None:
    pairs = {(stream.source, stream.target) for stream in find_topology("smart-home").streams}
    middle = ("plug-prediction", "house-prediction")
    assert pairs == {("source", name) for name in middle} | {(name, "sink") for name in middle}


@pytest.mark.parametrize("name", ["linear:12", "diamond:30", "star:32"])
def test_layout_shorthand_gives_that_many_tasks(name: str) -> None:
    assert find_topology(name).task_count == int(name.partition(":")[2])


@pytest.mark.parametrize(
    "name", ["linear:x", "linear:", "linear: 10", "linear:1_0", "linear:１０", "linear:9", "ring:10", "", "Routes"]
)
def test_unknown_topology_is_named_in_the_error(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_topology(name)
    assert name in str(caught.value)


def test_unknown_name_lists_every_known_one() -> None:
    with pytest.raises(InvalidInput) as caught:
        find_topology("ring")
    assert all(row.name in str(caught.value) for row in list_topologies())
    assert [row.name for row in list_topologies()] == ["linear:N", "diamond:N", "star:N", "vwap:N", *APPLICATIONS]
