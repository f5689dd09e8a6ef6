"""The certificate of metered traffic: bytes and tuples of each pair of tasks do not depend on where the tasks are."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from metered_kit import Costs, Row, SimulatedRun, edges_of, rows_of, run_really

import penstock as ps
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker_share import RunSettings, task_ids

LINES = 6_000
WORDS = ("stream", "a", "of", "", "words of many lengths", "placement")


def job(lines: int = LINES) -> Dataflow:
    """Text and numbers, by key, to all, by position and to one; batches of a few rows and of many."""
    top = ps.Topology("traffic")
    rows = ps.io.generator(
        lambda task, tasks: ((i, WORDS[i * i % 6] * (i % 5)) for i in range(task, lines, tasks)),
        "i bigint, word string",
    )
    source = top.source("rows", rows, tasks=2)
    keyed = source.fields("word").map(lambda row: (row.word, row.i), "word string, i bigint", name="keyed", tasks=3)
    keyed.filter(lambda row: row.i % 7 == 0, name="seldom").sink("few", ps.io.discard())
    doubled = source.direct(lambda row: row.i // 2 % 2).flat_map(
        lambda row: [row.asDict()] * (row.i % 3), "i bigint, word string", name="some", tasks=2
    )
    doubled.broadcast().map(lambda row: (row.i,), "i bigint", name="all", tasks=2).sink("out", ps.io.discard())
    return top.build()


def plans(flow: Dataflow) -> dict[str, dict[str, int]]:
    tasks = task_ids(flow)
    return {
        "one worker": dict.fromkeys(tasks, 0),
        "spread": {task: i % 4 for i, task in enumerate(tasks)},
        "mixed": {task: (i // 3) % 3 for i, task in enumerate(tasks)},
    }


def traffic(rows: list[Row]) -> dict[tuple[object, ...], Counter[str]]:
    """Rows and bytes of each pair that sent any; marks alone cost time and are no traffic."""
    return {pair: counts for pair, counts in edges_of(rows, "tuples", "bytes").items() if counts["tuples"]}


def require_same(found: dict[str, dict[tuple[object, ...], Counter[str]]]) -> None:
    (first, expected), *others = found.items()
    assert all(counts["tuples"] and counts["bytes"] for counts in expected.values())
    for name, counts in others:
        assert counts.keys() == expected.keys(), (first, name)
        for pair, counted in counts.items():
            assert counted["tuples"] == expected[pair]["tuples"], (name, pair)
            assert counted["bytes"] == pytest.approx(expected[pair]["bytes"], rel=0.01), (name, pair)


def test_traffic_is_the_same_under_three_plans_and_two_transports() -> None:
    flow = job()
    found = {}
    for name, place in plans(flow).items():
        for transport in ("socket", "ring"):
            settings = RunSettings(rows_max=512, transport=transport)
            found[f"{name}, {transport}"] = traffic(rows_of(run_really(flow, place, settings), "edges"))
    require_same(found)


def test_traffic_does_not_depend_on_the_size_of_batches_nor_on_what_is_held() -> None:
    flow = job()
    place = plans(flow)["mixed"]
    all_settings = (RunSettings(), RunSettings(rows_max=100), RunSettings(rows_max=4096, linger_ms=2.0))
    require_same({str(s): traffic(rows_of(run_really(flow, place, s), "edges")) for s in all_settings})


def test_traffic_is_the_same_in_simulated_workers() -> None:
    flow = job(600)
    require_same(
        {
            name: traffic(rows_of(SimulatedRun(flow, p, Costs()).run().controls, "edges"))
            for name, p in plans(flow).items()
        }
    )


def test_slices_of_a_region_count_as_the_rows_that_they_hold() -> None:
    rows = ps.io.generator(lambda task, tasks: ((i, "x" * (i % 9)) for i in range(2_000)), "i bigint, word string")
    top = ps.Topology("region")
    inside = top.source("rows", rows).parallel(3, slice_rows=20)
    inside.map(lambda row: (row.word,), "word string", name="work").merge().sink("out", ps.io.discard())
    flow = top.build()
    found = {}
    for name, place in plans(flow).items():
        by_operator: dict[tuple[object, ...], Counter[str]] = {}
        for (source, target), counts in traffic(rows_of(run_really(flow, place, RunSettings()), "edges")).items():
            pair = str(source).split("/")[0], str(target).split("/")[0]  # the replicas' shares differ from run to run
            by_operator.setdefault(pair, Counter()).update(counts)
        found[name] = by_operator
    require_same(found)


def test_where_two_tasks_are_is_told_by_the_edge() -> None:
    flow = job(100)
    by_plan = {"one worker": {"call"}, "spread": {"call", "socket"}}
    for name, distances in by_plan.items():
        rows = rows_of(run_really(flow, plans(flow)[name], RunSettings(transport="socket")), "edges")
        assert {row["distance"] for row in rows} == distances


def test_a_sender_and_a_receiver_each_tell_their_part_of_an_edge() -> None:
    top = ps.Topology("two")
    batches = ps.io.generator(lambda task, tasks: iter([pa.record_batch({"i": [1, 2]})] * 50), "i bigint")
    top.source("a", batches).map(lambda row: (row.i,), "i bigint", name="b").sink("out", ps.io.discard())
    sent, received = (
        edges_of([row for t in control.tables for row in t["edges"].to_pylist()], "batches", "bytes", "transport_us")
        for control in run_really(top.build(), {"a/0": 0, "b/0": 1}, RunSettings(rows_max=2, transport="ring"))
    )
    pair = ("a/0", "b/0")
    assert (sent[pair]["batches"], sent[pair]["bytes"], sent[pair]["transport_us"]) == (50, 800, 0)
    assert (received[pair]["batches"], received[pair]["bytes"]) == (0, 0)
    assert received[pair]["transport_us"] > 0
