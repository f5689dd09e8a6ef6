"""What an adapter sees: speeds, starved replicas, sizes of state and pauses, of a job that is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.adapt.contract import AdaptSettings
from penstock.adapt.core_shares import CoreTime
from penstock.deploy.adapting.looks import Looks, core_times, replicas
from penstock.deploy.attempt.crossing import Crossing
from penstock.deploy.driver.slots import Slots
from penstock.deploy.metrics.metric_log import MetricLog
from penstock.deploy.metrics.sums import Sums
from penstock.flow import io
from penstock.model.plan import Slot
from penstock.model.profile import Profile, TaskProfile
from penstock.run.dataflow import Dataflow
from penstock.run.engine.meters import BALANCE_COLUMNS, WORKER_COLUMNS, balance_rows

SECOND_US = 1_000_000
SLOTS = Slots(("n1", "n2", "n1"))


def of_worker(worker: int, ran: float, delayed: float | None, at_s: float = 100.0) -> pa.RecordBatch:
    """A second of a worker."""
    row = dict.fromkeys(WORKER_COLUMNS.names, 0) | {
        "time_us": round(at_s * SECOND_US),
        "interval_us": SECOND_US,
        "worker": worker,
        "node": "n",
        "cpu_us": round(ran * SECOND_US),
        "delayed_us": None if delayed is None else round(delayed * SECOND_US),
    }
    return pa.RecordBatch.from_pylist([row], WORKER_COLUMNS)


def region() -> Dataflow:
    top = ps.Topology("region")
    ticks = top.source("ticks", io.rate(10)).select("value as n")
    ticks.parallel(2, name="both").map(lambda row: row, "n bigint", name="double").merge().sink("out", io.collect())
    return top.build()


def test_what_a_thread_had_of_its_core_is_told_by_node_and_worker() -> None:
    sums = Sums()
    for worker, ran, delayed in ((0, 0.2, 0.7), (1, 0.5, 0.0), (2, 0.3, None), (9, 0.5, 0.0)):
        sums.add("workers", of_worker(worker, ran, delayed))
    assert core_times(sums, SLOTS) == {
        Slot("n1", 0): CoreTime(1.0, 0.2, 0.7),
        Slot("n2", 0): CoreTime(1.0, 0.5, 0.0),
        Slot("n1", 1): CoreTime(1.0, 0.3, 0.0),  # where nobody counts it, nobody is slow
    }


def test_replicas_are_told_by_their_region_s_last_decision() -> None:
    sums, flow = Sums(), region()
    assert replicas(flow, sums) == [[]]
    for rows in ((0, 500, 0.0), (1, 500, 0.0), (0, 300, 0.2), (1, 700, 0.1)):
        replica, weight, rate = rows
        sums.add("balance", balance_rows([(1, "both", replica, weight, rate, 0.0, 0, 0)]))
    assert [(r.tasks, r.weight, r.waited) for r in replicas(flow, sums)[0]] == [
        (("double/0",), 300.0, 0.2),
        (("double/1",), 700.0, 0.1),
    ]
    sums.add("balance", balance_rows([(2, "both", 1, 0, 0.0, 0.0, 0, -1)]))  # it takes no part any more
    assert [r.tasks for r in replicas(flow, sums)[0]] == [("double/0",)]
    assert BALANCE_COLUMNS.names[:4] == ["time_us", "region", "replica", "weight"]


def crossing(seconds: float) -> Crossing:
    return Crossing(1, 1, seconds, ("ticks/0",), True)


def test_a_look_has_all_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    top = ps.Topology("ticks")
    top.source("ticks", io.rate(10)).sink("out", io.collect())
    flow = top.build()
    tasks = {f"{o.name}/0": TaskProfile(0.1) for o in flow.operators}
    metrics = MetricLog("x")
    for worker, ran, delayed in ((0, 0.2, 0.8), (1, 0.6, 0.1), (2, 0.5, 0.1)):
        metrics.take(worker, "workers", of_worker(worker, ran, delayed))
    assignment = {task: Slot("n1", 0) for task in tasks}
    job: Any = SimpleNamespace(
        plan=SimpleNamespace(assignment=assignment, constraints=()),
        profile=lambda _: Profile(tasks, seconds=1.0),
        slots_of_workers=lambda: SLOTS,
        dataflow=flow,
    )
    workers: Any = [SimpleNamespace(address=f"host:{k % 2}", pid=k) for k in range(3)]
    crossings: list[Crossing] = []
    sizes = {"ticks/0": 70, "gone/0": 9}
    looks = Looks(AdaptSettings(interval_s=1.0), crossings, sizes)
    found = looks.at(job, workers, metrics)
    assert found is not None
    assert found.speed == {Slot("n1", 0): pytest.approx(0.2)}
    assert found.full == {Slot("n1", 0)}
    assert found.able == pytest.approx(
        {Slot("n1", 0): 0.2, Slot("n2", 0): 0.6 + 0.3 * 6 / 7, Slot("n1", 1): 0.5 + 0.4 * 6 / 7}
    )
    assert found.state_bytes == {"ticks/0": 70.0}
    assert (found.pause_s, found.latency_us, found.starved) == (None, None, frozenset())
    crossings += [crossing(seconds) for seconds in (9.0, 0.1, 0.3, 0.2, 5.0, 0.4)]
    metrics.take(0, "workers", of_worker(0, 0.01, 0.0, 101.5))  # relieved
    again = looks.at(job, workers, metrics)
    assert again is not None
    assert (again.pause_s, again.speed) == (0.3, found.speed)
    moved = looks.at(job, [SimpleNamespace(address="other:1", pid=0)], metrics)  # type: ignore[list-item]
    assert moved is not None
    assert moved.speed == {}  # nodes are others now
    job.plan = None
    assert looks.at(job, workers, metrics) is None


@pytest.mark.parametrize(
    "processes",
    [
        [("host:0", 2), ("host:0", 3)],  # worker 0, the slow one, has left, and the others have its number and the next
        [("host:0", 2), ("host:0", 1), ("host:0", 3)],
        [("host:0", 7), ("host:0", 2), ("host:0", 3)],  # it was started anew
        [("host:0", 1), ("host:0", 2), ("host:0", 3), ("host:0", 4)],
    ],
)
def test_what_is_known_of_a_slow_worker_is_held_against_no_other(processes: list[tuple[str, int]]) -> None:
    slots, looks = Slots(("n1",) * 4), Looks(AdaptSettings())

    def hellos(known: list[tuple[str, int]]) -> Any:  # noqa: ANN401 # a hello is more
        return [SimpleNamespace(address=address, pid=pid) for address, pid in known]

    three = hellos([("host:0", 1), ("host:0", 2), ("host:0", 3)])
    times = {slots.slot(worker): CoreTime(60.0, ran, 60.0 - ran) for worker, ran in ((0, 10.0), (1, 59.0), (2, 59.0))}
    assert looks._speeds(three, times, 0.0).keys() == {slots.slot(0)}
    sound = {slots.slot(worker): CoreTime(60.0, 8.0, 0.2) for worker in range(len(processes))}
    assert looks._speeds(three, sound, 1.0).keys() == {slots.slot(0)}  # relieved
    assert looks._speeds(hellos(processes), sound, 2.0) == {}
