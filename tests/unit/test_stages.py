"""What a run tells of its stages and of the bytes between nodes, from sums that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.deploy.metrics.stages import Stage, bytes_between_nodes, foretold_bytes, stages_of
from penstock.deploy.metrics.sums import SUMMED, EdgeSums, Sums
from penstock.model.files import parse_cluster, read_plan, write_plan
from penstock.model.profile import EdgeProfile, Profile, TaskProfile


def some_sums() -> Sums:
    def counts(busy_us: int, runs: int) -> dict[str, int]:
        return dict.fromkeys(SUMMED, 0) | {"busy_us": busy_us, "runs": runs}

    return Sums(
        tasks={"a/0": counts(1_000, 10), "b/0": counts(300, 1), "b/1": counts(300, 2)},
        edges={
            ("a/0", "b/0"): EdgeSums(5, 4_000, 1, transport_us=80, queue_us=20),
            ("a/0", "b/1"): EdgeSums(5, 6_000, 3, transport_us=40, queue_us=0),
        },
        began_us=0,
        ended_us=2_000_000,
    )


def test_a_stage_is_the_mean_over_the_tasks_of_an_operator() -> None:
    assert stages_of(some_sums()) == [Stage("b", 200, 30, 5), Stage("a", 100)]
    assert Stage("b", 200, 30, 5).in_ms() == {
        "operator": "b",
        "execute_ms": 0.2,
        "transport_ms": 0.03,
        "queue_ms": 0.005,
    }


def test_bytes_between_nodes_are_those_of_pairs_on_two_nodes() -> None:
    assert bytes_between_nodes(some_sums(), {"a/0": "n1", "b/0": "n1", "b/1": "n2"}) == 3_000
    assert bytes_between_nodes(some_sums(), dict.fromkeys(("a/0", "b/0", "b/1"), "n1")) == 0


def test_a_plan_of_a_profile_foretells_bytes_at_the_throughput_of_the_run(tmp_path: Path) -> None:
    topology = ps.Topology("two")
    topology.source("a", ps.io.rate(1, rows=3)).map(lambda row: (row.value,), "value bigint", name="b").sink(
        "out", ps.io.discard()
    )
    graph = topology.build().graph()
    edges = (EdgeProfile("a/0", "b/0", 800.0),)
    profile = Profile({t: TaskProfile(0.9) for t in ("a/0", "b/0")}, edges, seconds=4.0, rows=400.0)
    plan = ps.place(graph, parse_cluster("2x1"), "best", profile=profile)
    assert (plan.cost, plan.rows_per_second) == (800, 100)
    assert foretold_bytes(plan, 250.0) == 2_000  # two and a half times as fast
    assert foretold_bytes(replace(plan, rows_per_second=None), 250.0) is None
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json").rows_per_second == pytest.approx(100)
    assert ps.place(graph, parse_cluster("2x1"), "best").rows_per_second is None
