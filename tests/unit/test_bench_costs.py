"""`penstock bench costs`: what its meters add up to, on rows made by hand, and that its plans run the same readings."""

from __future__ import annotations

import pytest

from penstock_lab.bench.costs.jobs import PACES, job
from penstock_lab.bench.costs.measure import PLANS, places, profile_of
from penstock_lab.bench.engine.run import Timed

TASKS = [
    {"task": "a/0", "cpu_us": 100_000},
    {"task": "b/0", "cpu_us": 50_000},
    {"task": "c/0", "cpu_us": 10_000},
]
EDGE = {"tuples": 100, "bytes": 1_000, "batches": 10, "send_us": 40, "receive_us": 0}
EDGES = [
    {"source": "a/0", "target": "b/0", "distance": "call", **EDGE},
    {"source": "b/0", "target": "c/0", "distance": "ring", **EDGE},
    {"source": "b/0", "target": "c/0", "distance": "ring", **dict.fromkeys(EDGE, 0), "receive_us": 60},
]
RUN = Timed(
    1.0,
    1.0,
    {},
    metered={"tasks": TASKS, "edges": EDGES, "workers": []},
)


def test_a_profile_holds_all_that_was_metered() -> None:
    profile = profile_of(RUN)
    assert {task: found.load for task, found in profile.tasks.items()} == pytest.approx(
        {"a/0": 0.1, "b/0": 0.05, "c/0": 0.01}
    )
    call, ring = profile.edges
    assert (call.distance, call.batches, call.send_cpu, call.receive_cpu) == ("call", 10, 40e-6, 0.0)
    assert (ring.distance, ring.rate, ring.send_cpu, ring.receive_cpu) == ("ring", 1_000, 40e-6, 60e-6)


def test_plans_differ_in_places_alone() -> None:
    flow = job(PACES[0], 0.01)
    assert [len(set(places(flow, plan).values())) for plan in PLANS] == [1, 3, 3]
    assert [len({slot.node for slot in places(flow, plan).values()}) for plan in PLANS] == [1, 1, 3]
