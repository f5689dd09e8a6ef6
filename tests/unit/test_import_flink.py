"""Recorded answers of a real Flink to a topology and a profile; tests/imported/flink/README.md says what ran."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from mutation_kit import damaged
from penstock.errors import InvalidInput
from penstock.imports import Imported, import_flink
from penstock.imports.flink import metric_names, read_flink, running_job
from penstock.imports.responses import read_answers
from penstock.model.cluster import Cluster
from penstock.optimise.door import place

ANSWERS = Path(__file__).parents[1] / "imported" / "flink"
CALC = "5c51e52cde5a1c4df827ddb38fbc8da9"  # Calc[2], a vertex of three subtasks
JOIN = "Join[14] -> Calc[15] -> joined[16]: Writer"


def answers() -> dict[str, Any]:
    return read_answers(ANSWERS)


def totals() -> dict[str, Any]:
    return {name: document for name, document in answers().items() if not name.startswith("metrics-")}


def between(found: Imported, source: str, target: str) -> tuple[float, float]:
    """Bytes and records per second from one operator to another."""
    edges = [
        edge
        for edge in found.profile.edges
        if edge.source.rpartition("/")[0] == source and edge.target.rpartition("/")[0] == target
    ]
    return sum(edge.rate for edge in edges), sum(edge.tuples or 0.0 for edge in edges)


def test_the_recorded_job_is_there_whole() -> None:
    found = import_flink(ANSWERS)
    operators = {operator.name: (operator.tasks, operator.source) for operator in found.graph.operators}
    assert operators == {
        "Source: bids[1]": (2, True),
        "Source: people[10]": (1, True),
        "Calc[2]": (3, False),
        "GroupAggregate[4] -> counts[5]: Writer": (3, False),
        "Calc[6]": (3, False),
        "GroupAggregate[8]": (3, False),
        "GroupAggregate[12]": (3, False),
        JOIN: (3, False),
    }
    streams = {(stream.source, stream.target): stream.grouping for stream in found.graph.streams}
    assert streams == {
        ("Source: bids[1]", "Calc[2]"): "shuffle",
        ("Source: bids[1]", "Calc[6]"): "shuffle",
        ("Calc[2]", "GroupAggregate[4] -> counts[5]: Writer"): "fields",
        ("Calc[6]", "GroupAggregate[8]"): "fields",
        ("Source: people[10]", "GroupAggregate[12]"): "fields",
        ("GroupAggregate[8]", JOIN): "fields",
        ("GroupAggregate[12]", JOIN): "fields",
    }


def test_rates_are_those_of_the_last_minute() -> None:
    found = import_flink(ANSWERS)
    # 6,000 rows a second leave the source, to each of two readers: Flink's own figures are 2,000 for each subtask.
    rate, tuples = between(found, "Source: bids[1]", "Calc[2]")
    assert (rate, tuples) == pytest.approx((438_000, 6_000))
    assert between(found, "Source: people[10]", "GroupAggregate[12]")[1] == pytest.approx(500, rel=0.01)
    # Busy 6, 4 and 4 ms of a second.
    assert [found.profile.tasks[f"Calc[2]/{i}"].load for i in range(3)] == pytest.approx([0.006, 0.004, 0.004])


def test_the_two_inputs_of_a_join_are_told_apart() -> None:
    found = read_flink(totals())
    join = next(entry for entry in answers()["job.json"]["vertices"] if entry["name"] == JOIN)
    left, right = between(found, "GroupAggregate[8]", JOIN)[1], between(found, "GroupAggregate[12]", JOIN)[1]
    # The join read 584,595 records: 582,000 of one aggregate, which wrote as many, and 2,595 of the other.
    assert join["metrics"]["read-records"] == 584_595
    assert left / right == pytest.approx(582_000 / 2_595, rel=1e-3)


def test_without_metrics_totals_are_divided_by_the_time_of_each_subtask() -> None:
    found = read_flink(totals())
    vertex = answers()[f"vertex-{CALC}.json"]["subtasks"]
    assert [found.profile.tasks[f"Calc[2]/{i}"].load for i in range(3)] == pytest.approx(
        [one["metrics"]["accumulated-busy-time"] / one["duration"] for one in vertex]
    )
    assert any("totals since the start" in note for note in found.notes)


def test_the_job_alone_is_enough_and_its_vertices_are_shared_out_evenly() -> None:
    found = import_flink(ANSWERS / "job.json")
    (entry,) = (one for one in answers()["job.json"]["vertices"] if one["id"] == CALC)
    busy = entry["metrics"]["accumulated-busy-time"] / entry["duration"] / 3
    assert [found.profile.tasks[f"Calc[2]/{i}"].load for i in range(3)] == pytest.approx([busy] * 3)


def test_sources_that_do_not_tell_their_busy_time_are_named() -> None:
    found = import_flink(ANSWERS, unknown_load=0.3)
    assert {operator.name: operator.load for operator in found.graph.operators if operator.source} == {
        "Source: bids[1]": 0.3,
        "Source: people[10]": 0.3,
    }
    assert not any(task.startswith("Source") for task in found.profile.tasks)
    assert any("nobody measured the load of 'Source: bids[1]' (0.3)" in note for note in found.notes)


def test_ways_of_sharing_out() -> None:
    documents = answers()
    inputs = {node["id"]: node for node in documents["job.json"]["plan"]["nodes"]}[CALC]["inputs"]
    for way, grouping, said in (
        ("BROADCAST", "all", False),
        ("GLOBAL", "global", False),
        ("FORWARD", "shuffle", False),  # from 2 tasks to 3 nothing can go straight on
        ("CUSTOM", "shuffle", True),
        ("RESCALE", "shuffle", True),
    ):
        inputs[0]["ship_strategy"] = way
        found = read_flink(documents)
        (stream,) = (stream for stream in found.graph.streams if stream.target == "Calc[2]")
        assert stream.grouping == grouping
        assert any(f"streams of {way} are taken for shuffle" in note for note in found.notes) == said


def incomplete(documents: dict[str, Any]) -> None:
    documents[f"vertex-{CALC}.json"]["subtasks"][1]["metrics"]["read-bytes-complete"] = False


def not_begun(documents: dict[str, Any]) -> None:
    documents[f"vertex-{CALC}.json"]["subtasks"][0]["duration"] = -1


def one_subtask_less(documents: dict[str, Any]) -> None:
    del documents[f"vertex-{CALC}.json"]["subtasks"][0]


def no_job(documents: dict[str, Any]) -> None:
    del documents["job.json"]


def two_jobs(documents: dict[str, Any]) -> None:
    documents["again.json"] = documents["job.json"]


def a_stranger(documents: dict[str, Any]) -> None:
    documents["job.json"]["plan"]["nodes"][0]["inputs"][0]["id"] = "nobody"


def twice(documents: dict[str, Any]) -> None:
    documents["job.json"]["vertices"].append(documents["job.json"]["vertices"][0])


def no_plan(documents: dict[str, Any]) -> None:
    del documents["job.json"]["plan"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (incomplete, f"vertex-{CALC}.json.subtasks[1].metrics: Flink calls it incomplete"),
        (not_begun, f"vertex-{CALC}.json.subtasks[0].duration: is -1"),
        (one_subtask_less, f"vertex-{CALC}.json.subtasks: has 2 entries but the job gives it 3 subtasks"),
        (no_job, "give one answer of /jobs/ID"),
        (two_jobs, "found: job.json, again.json"),
        (a_stranger, "job.json.plan.nodes[0].inputs[0]: names vertex 'nobody'"),
        (twice, "job.json.vertices: names a vertex twice"),
        (no_plan, "job.json.plan: must be an object"),
    ],
)
def test_faults_are_named(change: Callable[[dict[str, Any]], None], said: str) -> None:
    documents = totals()
    change(documents)
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read_flink(documents)


@given(damaged(answers()))
def test_damaged_answers_are_told_or_make_sound_topologies(documents: dict[str, Any]) -> None:
    try:
        found = read_flink(documents)
    except InvalidInput:
        return
    assert found.graph.faults() == found.profile.faults(found.graph) == []


def test_a_plan_can_be_made_of_it() -> None:
    found = import_flink(ANSWERS)
    plan = place(found.graph, Cluster.uniform([(3, 2.0)]), profile=found.profile)
    assert plan.faults == ()
    assert len(plan.assignment) == 21


def test_the_job_that_runs_is_found_and_several_are_named() -> None:
    overview = answers()["overview.json"]
    assert running_job(overview) == answers()["job.json"]["jid"]
    overview["jobs"] += [{**overview["jobs"][0], "jid": "other"}]
    with pytest.raises(InvalidInput, match=r"Flink runs 2 jobs \(.*, other\); name one"):
        running_job(overview)


def test_requests_for_metrics_are_not_longer_than_addresses_may_be() -> None:
    asked = metric_names(1000)
    assert sum(names.count(",") + 1 for names in asked) == 5000
    assert max(map(len, asked)) < 4000


def test_a_subtask_that_is_told_twice_is_refused() -> None:
    documents = totals()
    name = next(name for name in documents if name.startswith(f"vertex-{CALC}"))
    documents[name]["subtasks"][1]["subtask"] = 0
    with pytest.raises(InvalidInput, match=r"has the numbers \[0, 0, 2\], which must count from 0"):
        read_flink(documents)


def test_a_subtask_that_is_busier_than_a_thread_can_be_is_told() -> None:
    assert not any("busy" in note and "where a thread has one" in note for note in read_flink(totals()).notes)
    documents = totals()
    name = next(name for name in documents if name.startswith(f"vertex-{CALC}"))
    documents[name]["subtasks"][0]["metrics"]["accumulated-busy-time"] = 1e9
    assert any("'Calc[2]' says that a subtask was busy" in note for note in read_flink(documents).notes)
