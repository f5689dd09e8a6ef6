"""Parallel regions on real workers: order and completeness, whatever the plan, sizes, weights and speeds."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from region_kit import turns
from worker_kit import PATIENCE_SECONDS, LocalJob

import penstock as ps
from penstock.errors import InvalidInput
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker import Cancelled
from penstock.run.engine.worker_share import RunSettings, share_of, task_ids
from penstock.run.region.blocking_rate import Charged
from penstock.run.region.contract import UNITS, Decision, Policy, Routing, Sample, Weights, units_of
from penstock.run.region.slices import Entry
from penstock.run.transport.protocol import PeerGone

ROWS = 1_500


class Restless:
    """Other weights with every sample, replicas without any among them."""

    routing: Routing = "turns"

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def start(self, replicas: Sequence[int]) -> Weights:
        return self._weights(len(replicas))

    def decide(self, sample: Sample) -> Decision:
        count = len(sample.replicas)
        return Decision(sample.time_s, sample.replicas, self._weights(count), (0.0,) * count, tuple(range(count)))

    def _weights(self, count: int) -> Weights:
        return units_of([self._random.choice((0.0, 0.01, 1.0)) for _ in range(count - 1)] + [1.0])


def numbers(rows: int) -> tuple[ps.Topology, ps.DataStream]:
    top = ps.Topology("region")
    return top, top.source("numbers", ps.io.generator(lambda task, tasks: range(rows), "n bigint"))


def multiply(row: ps.Row) -> list[dict[str, int]]:
    """Nothing of some rows, a lot of others."""
    return [{"n": row.n}] * ((row.n * 7919) % 5 if row.n % 97 else 300)


def keeps(row: ps.Row) -> bool:
    return row.n % 3 != 0


def drops_all(row: ps.Row) -> bool:
    return False


def region(
    rows: int,
    replicas: int,
    shape: str,
    balance: str | Callable[[], Policy],
    slice_rows: int | None,
    ordered: bool = True,
    blocking: Charged = "laggard",
) -> Dataflow:
    top, stream = numbers(rows)
    inside = stream.parallel(
        replicas, ordered=ordered, balance=balance, blocking=blocking, sample_s=0.001, slice_rows=slice_rows
    )
    match shape:
        case "map":
            inside = inside.map(lambda row: {"n": row.n}, "n bigint", name="one")
        case "filter":
            inside = inside.filter(keeps, name="one")
        case "nothing":
            inside = inside.filter(drops_all, name="one").map(lambda row: {"n": row.n}, "n bigint", name="two")
        case "many":
            inside = inside.flat_map(multiply, "n bigint", name="one")
        case "chain":
            inside = inside.filter(keeps, name="one").flat_map(multiply, "n bigint", name="two").rename({"n": "n"})
    inside.merge().sink("out", ps.io.collect(), tasks=1)
    return top.build()


def expected(rows: int, shape: str) -> list[int]:
    kept = [n for n in range(rows) if shape not in {"filter", "chain"} or n % 3]
    if shape == "nothing":
        return []
    if shape in {"many", "chain"}:
        return [n for n in kept for _ in range((n * 7919) % 5 if n % 97 else 300)]
    return kept


SHAPES = ("map", "filter", "nothing", "many", "chain")


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(SHAPES),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from((1, 300, 20_000, None)),
    st.sampled_from((1, 7, 64, 4096)),
    st.sampled_from((None, 1, 5, 1000)),
    st.integers(0, 1_000_000),
)
def test_order_out_is_order_in(
    shape: str, replicas: int, workers: int, window: int | None, rows_max: int, slice_rows: int | None, seed: int
) -> None:
    rows = ROWS if rows_max > 1 else 300
    dataflow = region(rows, replicas, shape, lambda: Restless(seed), slice_rows)
    places = random.Random(seed)
    plan = {task: places.randrange(workers) for task in task_ids(dataflow)}
    job = LocalJob(dataflow, workers, plan, RunSettings(rows_max=rows_max, window_bytes=window)).run()
    assert [row["n"] for row in job.rows("out")] == expected(rows, shape)


@pytest.mark.parametrize("window", [1, 400])
def test_tiny_credits_never_lock_up(window: int) -> None:
    """Every edge holds next to nothing, and one replica makes much more of its rows than the others."""
    dataflow = region(500, 3, "many", lambda: Restless(1), 4)
    for plan in (lambda task: 0, lambda task: len(task) % 3, lambda task: int(task.rpartition("/")[2]) % 3):
        job = LocalJob(dataflow, 3, plan, RunSettings(rows_max=16, window_bytes=window)).run()
        assert [row["n"] for row in job.rows("out")] == expected(500, "many")


@pytest.mark.parametrize("policy", ["adaptive", "static", "knee", "round-robin", "oracle", "reroute", "rebalance"])
@pytest.mark.parametrize("ordered", [True, False])
def test_every_policy_runs(policy: str, ordered: bool) -> None:
    dataflow = region(6_000, 3, "chain", policy, None, ordered)
    job = LocalJob(dataflow, 3, lambda task: int(task.rpartition("/")[2]) % 3, RunSettings(rows_max=256)).run()
    found = [row["n"] for row in job.rows("out")]
    assert (found if ordered else sorted(found)) == expected(6_000, "chain")  # type: ignore[type-var]


@pytest.mark.parametrize("transport", ["auto", "socket"])
def test_blocking_as_published_runs_over_every_transport(transport: str) -> None:
    settings = RunSettings(rows_max=64, window_bytes=4096, transport=transport)
    dataflow = region(6_000, 3, "many", "adaptive", None, blocking="connection")
    job = LocalJob(dataflow, 4, lambda task: int(task.rpartition("/")[2]) % 3 + 1, settings).run()
    assert [row["n"] for row in job.rows("out")] == expected(6_000, "many")


def test_the_merger_holds_at_most_a_window_and_a_run_of_each_replica() -> None:
    """A replica with few rows stops at its first: the others could work off 800 rows, 300 kB, before it is missed."""
    window, copies, shares = 2_000, 50, (0.01, 0.33, 0.33, 0.33)
    stops_at = turns(units_of(shares)).index(0)
    others_ran_away = threading.Event()
    done = itertools.count()

    def work(row: ps.Row) -> list[dict[str, int]]:
        if row.n == stops_at:
            others_ran_away.wait(1.0)
        elif next(done) == 600:
            others_ran_away.set()
        return [{"n": row.n}] * copies

    top, stream = numbers(1_200)
    inside = stream.parallel(4, weights=shares, slice_rows=1).flat_map(work, "n bigint", name="one")
    inside.merge().sink("out", ps.io.collect())
    place = lambda task: 1 + int(task[-1]) if task.startswith("one/") else 0  # noqa: E731
    job = LocalJob(top.build(), 5, place, RunSettings(window_bytes=window))
    slices, held = job.workers[0].machine._inboxes.slices, [0]
    in_turn = slices.in_turn

    def watched(task: int, entry: Entry) -> Sequence[Entry]:
        out = in_turn(task, entry)
        held.append(sum(size for _, _, size, _ in slices.held(task)))
        return out

    slices.in_turn = watched  # type: ignore[method-assign]
    job.run()
    assert [row["n"] for row in job.rows("out")] == [n for n in range(1_200) for _ in range(copies)]
    one_run = 2 * 8 * copies  # and what a frame adds
    assert 0 < max(held) <= 3 * (window + one_run)


def test_weights_that_are_given_are_kept_and_logged() -> None:
    top, stream = numbers(5_000)
    inside = stream.parallel(2, weights=[0.9, 0.1], sample_s=0.0005, slice_rows=1)
    inside.map(lambda row: {"n": row.n}, "n bigint", name="same").merge().sink("out", ps.io.collect())
    job = LocalJob(top.build(), 2, lambda task: int(task.rpartition("/")[2]), RunSettings(rows_max=64)).run()
    assert [row["n"] for row in job.rows("out")] == list(range(5_000))
    tasks = [row for control in job.controls for tables in control.tables for row in tables["tasks"].to_pylist()]
    got = {t: sum(row["tuples_in"] for row in tasks if row["task"] == t) for t in ("same/0", "same/1")}
    assert abs(got["same/0"] - 4_500) < 50, got
    batches = [tables["balance"] for control in job.controls for tables in control.tables if "balance" in tables]
    logged = [row for batch in batches for row in batch.to_pylist()]
    assert logged
    assert {(row["region"], row["replica"], row["weight"]) for row in logged} == {
        ("parallel1", 0, 900),
        ("parallel1", 1, 100),
    }
    assert sum(row["weight"] for row in logged[:2]) == UNITS


def test_a_window_behind_the_merge_sees_event_time_in_order() -> None:
    """Watermarks must not overtake slices that are held: no row may come out late."""
    top = ps.Topology("timed")
    schema = "at timestamp, n bigint"
    source = ps.io.generator(lambda task, tasks: ((datetime.fromtimestamp(n, UTC), n) for n in range(4_000)), schema)
    stream = top.source("ticks", source).event_time("at")
    inside = stream.parallel(3, balance=lambda: Restless(5), sample_s=0.001, slice_rows=3)
    merged = inside.map(lambda row: {"at": row.at, "n": row.n}, "at timestamp, n bigint").merge()
    counted = merged.map(lambda row: {"at": row.at, "one": 1}, "at timestamp, one bigint")
    windows = counted.key_by("one").count(window=ps.tumbling("10 seconds"))
    windows.sink("out", ps.io.collect())
    windows.late.sink("late", ps.io.collect())
    job = LocalJob(top.build(), 3, None, RunSettings(rows_max=32, window_bytes=3_000)).run()
    assert job.rows("late") == []
    assert [row["count"] for row in job.rows("out")] == [10] * 400


def endless() -> ps.DataStream:
    """A second for every row, and no end."""
    schema = "at timestamp, n bigint"
    rows = ps.io.generator(
        lambda task, tasks: ((datetime.fromtimestamp(n, UTC), n) for n in itertools.count()), schema, bounded=False
    )
    return ps.Topology("endless").source("ticks", rows).event_time("at")


def run_until_seen(stream: ps.DataStream, rows: int, command: str) -> tuple[LocalJob, list[dict[str, object]]]:
    """Run on three workers until a sink has so many rows, then say something to all of them."""
    seen: list[dict[str, object]] = []
    enough = threading.Event()

    def deliver(name: str, batch: pa.RecordBatch) -> None:
        seen.extend(batch.to_pylist())
        if len(seen) >= rows:
            enough.set()

    stream.sink("out", ps.io.collect(), tasks=1)
    job = LocalJob(stream.topology.build(), 3, None, RunSettings(rows_max=32, window_bytes=3_000), deliver).start()
    came = enough.wait(PATIENCE_SECONDS)
    for control in job.controls:
        control.say(command)
    job.join()
    assert came, f"{len(seen)} of {rows} rows came"
    return job, seen


def same(row: ps.Row) -> dict[str, object]:
    return {"at": row.at, "n": row.n}


def slow(row: ps.Row) -> dict[str, object]:
    """What keeps the queue before every replica full."""
    sum(range(2_000))
    return same(row)


def test_windows_behind_a_region_that_is_always_busy_close_all_the_same() -> None:
    """Watermarks must not wait for a queue to be empty that never is."""
    inside = endless().parallel(3, sample_s=0.01, slice_rows=2).map(slow, "at timestamp, n bigint")
    counted = inside.merge().map(lambda row: {"at": row.at, "one": 1}, "at timestamp, one bigint")
    job, seen = run_until_seen(counted.key_by("one").count(window=ps.tumbling("10 seconds")), 20, "stop")
    assert job.errors == [None] * 3
    assert [row["count"] for row in seen[:20]] == [10] * 20


def test_a_region_that_is_stopped_drains_in_order() -> None:
    inside = endless().parallel(3, balance=lambda: Restless(7), sample_s=0.001, slice_rows=3)
    job, seen = run_until_seen(inside.map(same, "at timestamp, n bigint").merge(), 2_000, "stop")
    assert job.errors == [None] * 3
    assert [row["n"] for row in seen] == list(range(len(seen)))


def test_a_region_that_is_cancelled_ends_at_once_and_has_been_in_order() -> None:
    inside = endless().parallel(3, balance=lambda: Restless(8), sample_s=0.001, slice_rows=3)
    job, seen = run_until_seen(inside.map(same, "at timestamp, n bigint").merge(), 500, "cancel")
    assert all(isinstance(error, (Cancelled, PeerGone)) for error in job.errors)
    assert [row["n"] for row in seen] == list(range(len(seen)))


@pytest.mark.parametrize(("tasks", "window"), [(None, None), (1, 1)])
def test_rows_whose_function_fails_leave_by_the_side(tasks: int | None, window: int | None) -> None:
    """Into a sink inside the replicas, and over an edge that is always full, for which the merger must not wait."""
    top, stream = numbers(900)
    inside = stream.parallel(3).map(lambda row: {"n": 6 // (row.n % 3)}, "n bigint", on_error="quarantine", name="f")
    inside.errors.sink("bad", ps.io.collect(), tasks)
    inside.merge().sink("out", ps.io.collect(), tasks)
    job = LocalJob(top.build(), 3, None, RunSettings(rows_max=32, window_bytes=window)).run()
    assert [row["n"] for row in job.rows("out")] == [6 // (n % 3) for n in range(900) if n % 3]
    assert len(job.rows("bad")) == 300


# -- what is refused ---------------------------------------------------------------------------------------------------


def begun() -> ps.DataStream:
    return numbers(1)[1]


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "stateful": (lambda: begun().parallel(2).key_by("n"), "have state"),
    "top": (lambda: begun().parallel(2).top(3, "n"), "one row or batch"),
    "union": (lambda: begun().parallel(2).union(begun()), "no place in its order"),
    "none": (lambda: begun().parallel(0), "from 1 to 1000"),
    "too many": (lambda: begun().parallel(1001), "from 1 to 1000"),
    "sum": (lambda: begun().parallel(2, weights=[0.5, 0.4]), "must add up to 1"),
    "count": (lambda: begun().parallel(2, weights=[1.0]), "one for each replica"),
    "negative": (lambda: begun().parallel(2, weights=[1.5, -0.5]), "shares from 0 to 1"),
    "policy": (lambda: begun().parallel(2, balance="fair"), "fair"),
    "not numbers": (lambda: begun().parallel(2, weights=["a", None]), "shares from 0 to 1"),  # type: ignore[list-item]
    "no weights": (lambda: begun().parallel(2, weights=0.5), "shares from 0 to 1"),  # type: ignore[arg-type]
    "no policy": (lambda: begun().parallel(2, balance=3), "a policy's name"),  # type: ignore[arg-type]
    "half a policy": (lambda: begun().parallel(2, balance=dict), "a policy has routing"),  # type: ignore[arg-type]
    "blocking": (lambda: begun().parallel(2, blocking="both"), "unknown blocking of parallel"),  # type: ignore[arg-type]
    "sample": (lambda: begun().parallel(2, sample_s=0.0), "from 0.0001 to 86400"),
    "sample of nothing": (lambda: begun().parallel(2, sample_s=float("nan")), "from 0.0001 to 86400"),
    "name": (lambda: begun().parallel(2, name=""), "give text"),
    "empty": (lambda: begun().parallel(2).merge(), "no operators"),
    "sink": (lambda: begun().parallel(2).filter(keeps).sink("s", ps.io.collect()), "call merge"),
    "tasks": (lambda: begun().parallel(2).filter(keeps, tasks=3), "2 tasks"),
    "nested": (lambda: begun().parallel(2).parallel(2), "do not nest"),
    "grouping": (lambda: begun().parallel(2).filter(keeps).shuffle(), "send to themselves"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_where_it_is_written(case: str) -> None:
    write, said = REFUSED[case]
    with pytest.raises(InvalidInput, match=said):
        write()


def test_a_region_ends_once() -> None:
    top, stream = numbers(1)
    inside = stream.parallel(2).filter(keeps, name="f")
    stream.sink("all", ps.io.discard())
    with pytest.raises(InvalidInput, match="call merge"):
        top.build()
    inside.merge().sink("out", ps.io.discard())
    top.build()
    inside.filter(keeps, name="again")
    with pytest.raises(InvalidInput, match="branch after merge"):
        top.build()


def test_tasks_inside_send_to_themselves_only() -> None:
    dataflow = region(1, 3, "chain", "knee", None)
    share = share_of(dataflow, dict.fromkeys(task_ids(dataflow), 0), 0, RunSettings())
    pairs = {(e.source, e.target) for e in share.edges}
    assert {(f"one/{i}", f"two/{j}") for i, j in itertools.product(range(3), repeat=2)} & pairs == {
        (f"one/{i}", f"two/{i}") for i in range(3)
    }
    assert dataflow.graph().faults() == []


def test_forward_streams_join_tasks_of_one_index_in_the_model() -> None:
    graph = OperatorGraph("f", (Operator("a", 3), Operator("b", 3)), (Stream("a", "b", "forward", 2.0),))
    expanded = TaskGraph.expand(graph.validated())
    assert sorted(zip(expanded.source.tolist(), expanded.target.tolist(), strict=True)) == [(0, 3), (1, 4), (2, 5)]
    uneven = OperatorGraph("f", (Operator("a", 3), Operator("b", 2)), (Stream("a", "b", "forward"),))
    assert "have 3 and 2 tasks" in uneven.faults()[0]
