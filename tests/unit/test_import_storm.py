"""Storm's answers, as its documentation has them, to a topology and a profile; figures are worked out by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from mutation_kit import damaged
from penstock.errors import InvalidInput
from penstock.imports import import_storm
from penstock.imports.responses import read_answers
from penstock.imports.storm import read_storm
from penstock.model.cluster import Cluster
from penstock.optimise.door import place

ANSWERS = Path(__file__).parents[1] / "imported" / "storm"


def answers() -> dict[str, Any]:
    return read_answers(ANSWERS)


def test_operators_and_loads() -> None:
    found = import_storm(ANSWERS)
    operators = {operator.name: operator for operator in found.graph.operators}
    assert {name: (operator.tasks, operator.source) for name, operator in operators.items()} == {
        "words": (2, True),
        "split": (4, False),
        "count": (2, False),
        "report": (1, False),
    }
    # The executor of split/0 and split/1 executed 400,000 tuples of 0.5 ms in 600 s: 200 s of work for two tasks.
    assert [found.profile.tasks[f"split/{i}"].load for i in range(4)] == pytest.approx([1 / 6, 1 / 6, 1 / 12, 1 / 12])
    assert [found.profile.tasks[f"count/{i}"].load for i in range(2)] == pytest.approx([1 / 3, 1 / 6])
    assert found.profile.tasks["report/0"].load == pytest.approx(0.11)
    # Nobody measures a spout; 25 % of a core were requested for each task.
    assert operators["words"].load == 0.25
    assert "words/0" not in found.profile.tasks


def test_streams_groupings_and_rates() -> None:
    found = import_storm(ANSWERS, tuple_bytes=10)
    streams = {(stream.source, stream.target): stream for stream in found.graph.streams}
    assert {ends: stream.grouping for ends, stream in streams.items()} == {
        ("words", "split"): "local-or-shuffle",
        ("split", "count"): "fields",
        ("count", "report"): "all",
        ("split", "report"): "shuffle",
    }
    # split reads 600,000 tuples in 600 s, 1,000 a second, of 10 bytes; 2 x 4 pairs.
    assert streams["words", "split"].rate == pytest.approx(1000 * 10 / 8)
    edges = {(edge.source, edge.target): edge for edge in found.profile.edges}
    # Executor [8-8], the first task of words, emitted 2/3; split/0 executed 1/3.
    assert edges["words/0", "split/0"].tuples == pytest.approx(1000 * 2 / 3 * 1 / 3)
    assert edges["words/1", "split/3"].rate == pytest.approx(1000 * 10 * 1 / 3 * 1 / 6)
    assert sum(edge.tuples or 0.0 for edge in found.profile.edges) == pytest.approx(1000 + 5000 + 100 + 10)
    assert not any(edge.source.startswith("__") for edge in found.profile.edges)


def test_what_is_assumed_is_said() -> None:
    notes = " ".join(import_storm(ANSWERS, tuple_bytes=64).notes)
    for said in ("each is taken for 64 bytes", "wall time", "per executor, not per pair", "CPU that was requested"):
        assert said in notes
    without = answers()
    del without["visualization.json"]
    found = read_storm(without)
    assert {stream.grouping for stream in found.graph.streams} == {"shuffle"}
    assert any("no visualization was given" in note for note in found.notes)


def test_other_documents_are_left_alone_and_named() -> None:
    found = read_storm({**answers(), "notes.json": {"a": 1}, "list.json": [1]})
    assert found.graph == import_storm(ANSWERS).graph
    assert found.notes[5:6] == ("not read, because they are none of the known answers: notes.json, list.json",)


def test_many_faults_are_counted() -> None:
    documents = answers()
    for name in ("words", "split", "count", "report"):
        del documents[f"{name}.json"]
        documents["topology.json"]["bolts"] += documents["topology.json"]["bolts"][:1]
    with pytest.raises(InvalidInput, match=r"bolts\[0\].*; and 3 more faults$"):
        read_storm(documents)


def test_an_unmeasured_spout_gets_the_load_that_is_asked_for() -> None:
    documents = answers()
    del documents["topology.json"]["spouts"][0]["requestedCpu"]
    del documents["words.json"]["requestedCpu"]
    assert read_storm(documents, unknown_load=0.4).graph.operators[0].load == 0.4


def test_totals_serve_where_executors_do_not_add_up() -> None:
    documents = answers()
    del documents["split.json"]["executorStats"][1]
    found = read_storm(documents)
    assert [found.profile.tasks[f"split/{i}"].load for i in range(4)] == [0.125] * 4  # 300 s over 600 s and 4 tasks


def test_all_time_is_the_time_since_the_start() -> None:
    documents = answers()
    for document in documents.values():
        if "window" in document:
            document["window"] = ":all-time"
    assert read_storm(documents).profile.tasks["report/0"].load == pytest.approx(66 / 1800)


def without_component(documents: dict[str, Any]) -> None:
    del documents["count.json"]


def other_window(documents: dict[str, Any]) -> None:
    documents["count.json"]["window"] = "10800"


def unknown_input(documents: dict[str, Any]) -> None:
    documents["report.json"]["inputStats"][0]["component"] = "nobody"


def no_topology(documents: dict[str, Any]) -> None:
    del documents["topology.json"]


def young(documents: dict[str, Any]) -> None:
    documents["topology.json"]["uptimeSeconds"] = 0


def odd_executor(documents: dict[str, Any]) -> None:
    documents["count.json"]["executorStats"][0]["id"] = "first"


def negative(documents: dict[str, Any]) -> None:
    documents["count.json"]["inputStats"][0]["executed"] = -5


def no_tasks(documents: dict[str, Any]) -> None:
    documents["topology.json"]["bolts"][1]["tasks"] = 0


def a_circle(documents: dict[str, Any]) -> None:
    documents["split.json"]["inputStats"][0]["component"] = "report"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_component, "topology.json.bolts[1]: no answer of .../component/count was given"),
        (other_window, "count.json.window: must be the topology's, '600'"),
        (unknown_input, "'report' reads 'nobody', which the topology does not have"),
        (no_topology, "give one answer of /api/v1/topology/ID, and those of its components; found: none"),
        (young, "topology.json.uptimeSeconds: must be more than 0"),
        (odd_executor, "count.json.executorStats[0].id: must be the executor's tasks as [24-25] but is 'first'"),
        (negative, "count.json.inputStats[0].executed: is -5"),
        (no_tasks, "topology.json.bolts[1].tasks: is 0; an operator has 1 to"),
        (a_circle, "streams form a cycle"),
    ],
)
def test_faults_are_named(change: Callable[[dict[str, Any]], None], said: str) -> None:
    documents = answers()
    change(documents)
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read_storm(documents)


@given(damaged(answers()))
def test_damaged_documents_are_told_or_make_sound_topologies(documents: dict[str, Any]) -> None:
    try:
        found = read_storm(documents)
    except InvalidInput:
        return
    assert found.graph.faults() == found.profile.faults(found.graph) == []


def test_a_plan_can_be_made_of_it() -> None:
    found = import_storm(ANSWERS)
    plan = place(found.graph, Cluster.uniform([(3, 1.0)]), profile=found.profile)
    assert plan.faults == ()
    assert len(plan.assignment) == 9


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_sizes_and_loads_that_cannot_be_are_refused(value: float) -> None:
    with pytest.raises(InvalidInput, match="tuple_bytes"):
        import_storm(ANSWERS, tuple_bytes=value)
    with pytest.raises(InvalidInput, match="unknown_load"):
        import_storm(ANSWERS, unknown_load=value)


def test_folders_without_answers_and_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no JSON files"):
        import_storm(tmp_path)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        import_storm(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps([1, 2]))
    with pytest.raises(InvalidInput, match=r"found: none; not recognised: a\.json"):
        import_storm(tmp_path)
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(InvalidInput, match="nested too deeply"):
        import_storm(tmp_path)
