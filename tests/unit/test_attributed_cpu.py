"""The certificate of attributed CPU, by counts: pieces of work cost a set time, and each time is where it belongs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import pytest
from metered_kit import Costs, SimulatedRun, edges_of, rows_of

import penstock as ps
from penstock.run.dataflow import Dataflow

COSTS = Costs(send=70_000, receive=30_000, open=50_000)  # ns, of a batch between workers
TASK_NS = {"rows/0": 400_000, "first/0": 900_000, "second/0": 250_000}  # of a call of each task's code
BATCHES = 40
ROUNDED_US_MAX = 3 + 2 * 2 * 2  # parts of a microsecond of tasks and ends
PLANS = {
    "fused": {"rows/0": 0, "first/0": 0, "second/0": 0},
    "in two": {"rows/0": 0, "first/0": 0, "second/0": 1},
    "unfused": {"rows/0": 0, "first/0": 1, "second/0": 2},
}


def chain() -> Dataflow:
    """Three tasks one behind the other, and so many batches."""
    top = ps.Topology("chain")
    rows = ps.io.generator(lambda task, tasks: iter(range(2 * BATCHES)), "i bigint")
    first = top.source("rows", rows).map(lambda row: (row.i,), "i bigint", name="first")
    first.map(lambda row: (row.i,), "i bigint", name="second").sink("out", ps.io.discard())
    return top.build()


class Metered:
    """One simulated run of a plan, and what its workers told."""

    def __init__(self, place: Mapping[str, int], seed: int, costs: Costs = COSTS) -> None:
        run = SimulatedRun(chain(), place, costs, seed, task_ns=TASK_NS, rows_max=2).run()
        self.paid = run.paid
        self.tasks = {str(row["task"]): row for row in rows_of(run.controls, "tasks")}
        self.edges = edges_of(rows_of(run.controls, "edges"), "send_us", "receive_us", "batches", "tuples")
        self.workers = rows_of(run.controls, "workers")
        self.worked_us = sum(clock.ns for clock in run.clocks) // 1000


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("plan", PLANS)
def test_each_piece_of_work_is_charged_where_it_belongs(plan: str, seed: int) -> None:
    place = PLANS[plan]
    found = Metered(place, seed)
    for name, cost_ns in TASK_NS.items():
        row = found.tasks[name]
        assert row["cpu_us"] == row["busy_us"] == found.paid[name] * cost_ns // 1000, name
        assert name == "rows/0" or row["runs"] == found.paid[name], "opening, watermarks and ends are no batches"
    for source, target in (("rows/0", "first/0"), ("first/0", "second/0")):
        counts = found.edges[source, target]
        assert counts["tuples"] == 2 * BATCHES
        apart = place[source] != place[target]
        assert counts["send_us"] == (counts["batches"] * COSTS.send // 1000 if apart else 0)
        assert counts["receive_us"] == (counts["batches"] * (COSTS.receive + COSTS.open) // 1000 if apart else 0)
    assert sum(int(str(row["cpu_us"])) for row in found.workers) == found.worked_us  # and nothing else
    assert all(row["loop_us"] == 0 for row in found.workers)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("plan", PLANS)
def test_what_a_loop_takes_belongs_to_sources_and_to_edges_from_other_workers(plan: str, seed: int) -> None:
    found = Metered(PLANS[plan], seed, replace(COSTS, look=10_000))
    own_us = {name: found.paid[name] * cost_ns // 1000 for name, cost_ns in TASK_NS.items()}
    load_us = {name: int(str(found.tasks[name]["cpu_us"])) for name in TASK_NS}
    assert load_us["rows/0"] > own_us["rows/0"]  # its worker looks around, whether it finds something or not
    assert [load_us[name] for name in ("first/0", "second/0")] == [own_us[name] for name in ("first/0", "second/0")]
    charged = sum(load_us.values()) + sum(edge["send_us"] + edge["receive_us"] for edge in found.edges.values())
    assert found.worked_us - ROUNDED_US_MAX <= charged <= found.worked_us
    assert all(row["loop_us"] == 0 for row in found.workers)


def test_fusing_saves_what_the_edges_cost_and_nothing_of_the_tasks() -> None:
    """w_v does not depend on the plan: CPU of the fused run and w_e of the unfused make the CPU of the unfused."""
    fused, apart = Metered(PLANS["fused"], 1), Metered(PLANS["unfused"], 1)
    w_e = sum(counts["send_us"] + counts["receive_us"] for counts in apart.edges.values())
    w_v = [sum(int(str(row["cpu_us"])) for row in run.tasks.values()) for run in (fused, apart)]
    assert w_v[0] == w_v[1]
    assert (fused.worked_us, apart.worked_us) == (w_v[0], w_v[1] + w_e)
    assert w_e == sum(counts["batches"] for counts in apart.edges.values()) * sum(asdict(COSTS).values()) // 1000
