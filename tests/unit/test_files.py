"""Files: what is written is read back, and whatever is wrong with a file is named, all of it at once."""

from __future__ import annotations

import contextlib
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.model import documents
from penstock.model.costs import DistanceCost, EndCost, StreamCosts
from penstock.model.files import parse_cluster, plan_document, read_costs, read_profile, write_costs, write_profile
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import Operator, OperatorGraph, Stream

SOUND = {
    "penstock": 1,
    "name": "words",
    "operators": [
        {"name": "a", "tasks": 2, "load": 1.5, "source": True},
        {"name": "b", "tasks": 3, "load": [1, 2, 3], "memory_mb": 64},
    ],
    "streams": [{"from": "a", "to": "b", "grouping": "fields", "rate": [[1, 2, 3], [4, 5, 6]]}],
    "constraints": [
        {"type": "resource", "operator": "a", "nodes": ["n1"]},
        {"type": "colocate-worker", "operators": ["a", "b/0"]},
        {"type": "colocate-node", "operators": ["a", "b"]},
        {"type": "separate-workers", "operators": ["a", "b"]},
        {"type": "separate-nodes", "operators": ["a", "b"]},
        {"type": "replicas", "groups": [["a/0", "b/0"], ["a/1", "b/1"]], "isomorphic": True},
        {"type": "dedicated-worker", "operator": "a"},
        {"type": "dedicated-node", "operator": "b"},
    ],
}


def write(path: Path, document: object) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_a_sound_topology_is_read_whole(tmp_path: Path) -> None:
    graph = ps.read_topology(write(tmp_path / "t.json", SOUND))
    assert graph.task_count == 5
    assert graph.operators[1].loads() == (1.0, 2.0, 3.0)
    assert graph.operators[1].source is False
    assert graph.streams[0].rate == ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
    assert [constraint.type for constraint in graph.constraints] == [c["type"] for c in SOUND["constraints"]]  # type: ignore[index]


def test_yaml_is_read_as_json_is(tmp_path: Path) -> None:
    text = (
        "name: words\noperators:\n  - {name: a, tasks: 2}\n  - {name: b}\nstreams:\n  - {from: a, to: b, rate: 2.5}\n"
    )
    graph = ps.read_topology(write(tmp_path / "t.yaml", text))
    assert [operator.tasks for operator in graph.operators] == [2, 1]
    assert graph.streams[0].rate == 2.5


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"operators": []}, "has no operators"),
        ({"operators": [{"name": "a", "tasks": 0}]}, "tasks 0; the least is 1"),
        ({"operators": [{"name": "a", "tasks": -3}]}, "tasks -3"),
        ({"operators": [{"name": "a", "tasks": 1.5}]}, "must be a whole number but is 1.5"),
        ({"operators": [{"name": "a", "tasks": True}]}, "must be a whole number but is True"),
        ({"operators": [{"name": "a"}, {"name": "a"}]}, "'a' is used twice"),
        ({"operators": [{"name": "a", "load": -1}]}, "load of operator 'a' is -1"),
        ({"operators": [{"name": "a", "load": math.nan}]}, "load of operator 'a' is nan"),
        ({"operators": [{"name": "a", "load": math.inf}]}, "load of operator 'a' is inf"),
        ({"operators": [{"name": "a", "load": [1, 2]}]}, "1 tasks but 2 load values"),
        ({"operators": [{"name": "a", "load": "much"}]}, "operators[0].load: must be a number but is 'much'"),
        ({"operators": [{"name": "a", "memory": 5}]}, "unknown key 'memory'"),
        ({"operators": [{"tasks": 1}]}, "operators[0].name: is missing"),
        ({"operators": [{"name": "a/b"}]}, "contains '/'"),
        ({"operators": "a"}, "must be a list"),
        ({"operators": [7]}, "operators[0]: must be an object but is 7"),
        ({"streams": [{"from": "a", "to": "nowhere"}]}, "unknown operator 'nowhere'"),
        ({"streams": [{"from": "a", "to": "b", "rate": -2}]}, "rate of stream 'a' -> 'b' is -2"),
        ({"streams": [{"from": "a", "to": "b", "rate": [[1, 2, 3]]}]}, "1 rows of 3; it must be 2 rows of 3"),
        ({"streams": [{"from": "a", "to": "b", "rate": [[1, 2], [3, 4]]}]}, "2 rows of 2; it must be 2 rows of 3"),
        ({"streams": [{"from": "a", "to": "b", "grouping": "odd"}]}, "unknown grouping 'odd'"),
        ({"streams": [{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]}, "cycle: a -> b -> a"),
        ({"streams": [{"from": "a", "to": "a"}]}, "cycle: a -> a"),
        ({"constraints": [{"type": "odd"}]}, "unknown type 'odd'"),
        ({"constraints": [{"operator": "a"}]}, "constraints[0].type: is missing; known: resource, colocate-worker, "),
        ({"constraints": [{"type": "dedicated-node", "operators": ["a"]}]}, "'operators'; known: type, operator"),
        ({"constraints": [{"type": "resource", "operator": "z", "nodes": ["n1"]}]}, "unknown operator or task 'z'"),
        ({"constraints": [{"type": "colocate-node", "operators": ["a"]}]}, "needs 2 or more"),
        ({"constraints": [{"type": "resource", "operator": "a/2", "nodes": ["n1"]}]}, "unknown operator or task 'a/2'"),
        ({"penstock": 2}, "format version 2"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_each_fault_of_a_topology_is_named(tmp_path: Path, change: dict[str, object], expected: str) -> None:
    document = {**SOUND, "constraints": [], **({"streams": []} if "operators" in change else {}), **change}
    with pytest.raises(ps.InvalidInput) as caught:
        ps.read_topology(write(tmp_path / "t.json", document))
    assert expected in str(caught.value)


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    document = {
        "operators": [{"name": "a", "tasks": 0}, {"name": "b", "load": -1}, {"name": "b"}],
        "streams": [{"from": "a", "to": "c"}],
    }
    with pytest.raises(ps.InvalidInput) as caught:
        ps.read_topology(write(tmp_path / "t.json", document))
    assert len(caught.value.faults) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[1, 2]", "must be an object"),
        ("null", "must be an object"),
        ('{"name": "a", "name": "b"}', "key 'name' appears twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"penstock": ' + "9" * 10_000 + "}", "not valid JSON"),
    ],
)
def test_documents_that_are_no_topology(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ps.InvalidInput, match=expected):
        ps.read_topology(write(tmp_path / "t.json", text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &x [1]\nb: *x\n", "aliases are not allowed"),
        ("name: a\nname: b\n", "appears twice"),
        ("!!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("a: [", "not valid YAML"),
    ],
)
def test_yaml_that_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ps.InvalidInput, match=expected):
        ps.read_topology(write(tmp_path / "t.yaml", text))


def test_unreadable_and_oversized_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ps.InvalidInput, match="No such file"):
        ps.read_topology(tmp_path / "none.json")
    with pytest.raises(ps.InvalidInput, match="directory"):
        ps.read_topology(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"name": "\xe9"}')
    with pytest.raises(ps.InvalidInput, match="not UTF-8 text: byte 10 is 0xe9"):
        ps.read_topology(tmp_path / "latin.json")
    monkeypatch.setattr(documents, "FILE_BYTES_MAX", 2 * 1024 * 1024)
    (tmp_path / "big.json").write_text(" " * (2 * 1024 * 1024 + 1))
    with pytest.raises(ps.InvalidInput, match="larger than 2 MiB"):
        ps.read_topology(tmp_path / "big.json")


def test_the_shorthand_and_the_cluster_file_agree(tmp_path: Path) -> None:
    nodes = [{"name": f"n{i}", "capacity": c} for i, c in enumerate([6, 6, 4.5], start=1)]
    assert parse_cluster("2x6,1x4.5") == parse_cluster(str(write(tmp_path / "c.json", {"nodes": nodes})))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0x4", "has no nodes"),
        ("2x0", "must be finite, at least 1e-12 and at most 1e\\+15"),
        ("2x-1", "must be finite, at least 1e-12 and at most 1e\\+15"),
        ("2x1e999", "must be finite, at least 1e-12 and at most 1e\\+15"),
        ("2x1.2.3", "COUNTxCAPACITY"),
        ("999999999x1", "the limit is 100000"),
        ("cluster", "neither a file nor a shorthand"),
        ("3x", "neither a file nor a shorthand"),
        ("", "neither a file nor a shorthand|directory"),
    ],
)
def test_bad_clusters(text: str, expected: str) -> None:
    with pytest.raises(ps.InvalidInput, match=expected):
        parse_cluster(text)


def test_profile_faults_are_named(tmp_path: Path) -> None:
    graph = ps.OperatorGraph("g", (ps.Operator("a", 2), ps.Operator("b")), (ps.Stream("a", "b"),))
    document = {
        "tasks": {"a/0": {"load": -1}, "a/9": {"load": 1}, "a": {"load": 1}},
        "edges": [{"from": "a/0", "to": "z/0", "rate": 1}, {"from": "b/0", "to": "a/0", "rate": 1}],
    }
    with pytest.raises(ps.InvalidInput) as caught:
        ps.read_profile(write(tmp_path / "p.json", document), graph)
    assert len(caught.value.faults) == 5


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    graph = ps.OperatorGraph("g", (ps.Operator("a", 3), ps.Operator("b", 2)), (ps.Stream("a", "b", rate=0.1),))
    cluster = ps.Cluster.uniform([(2, 3.0)])
    plan = ps.place(graph, cluster, "even")
    ps.write_plan(plan, tmp_path / "plan.json")
    again = ps.read_plan(tmp_path / "plan.json")
    assert again.assignment == plan.assignment
    assert plan_document(again) == plan_document(plan)
    assert ps.check_plan(graph, cluster, again) == []
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_plan_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    plan = ps.place(ps.OperatorGraph("g", (ps.Operator("a"),)), ps.Cluster.uniform([(1, 1.0)]), "even")
    with pytest.raises(ps.InvalidInput, match="cannot write"):
        ps.write_plan(plan, tmp_path / "nowhere" / "plan.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(list(SOUND)) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(document=st.dictionaries(st.sampled_from([*SOUND, "x"]), json_values, max_size=6))
def test_no_document_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, document: dict[str, object]) -> None:
    path = write(tmp_path_factory.mktemp("fuzz") / "t.json", document)
    with contextlib.suppress(ps.InvalidInput):  # anything else is a failure
        ps.read_topology(path).validated()


@given(where=st.integers(0, 2000), byte=st.integers(0, 255))
def test_no_changed_byte_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, where: int, byte: int) -> None:
    data = bytearray(json.dumps(SOUND).encode())
    data[where % len(data)] = byte
    path = tmp_path_factory.mktemp("fuzz") / "t.json"
    path.write_bytes(bytes(data))
    with contextlib.suppress(ps.InvalidInput):  # anything else is a failure
        ps.read_topology(path)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(
        ps.InvalidInput, match=r"cannot read .*pipe.json: it is not a regular file; write what it gives"
    ):
        ps.read_topology(tmp_path / "pipe.json")


def test_a_profile_with_every_figure_comes_back_as_it_was(tmp_path: Path) -> None:
    cost = DistanceCost(EndCost(1.5, 2.0, 0.25), EndCost(1.0, 3.0, 0.5))
    costs = StreamCosts(DistanceCost(), cost, DistanceCost(EndCost(9.0), EndCost(8.0)), "measured")
    profile = Profile(
        {"a/0": TaskProfile(0.4, 50.0, 0.1, 12.0)},
        (EdgeProfile("a/0", "b/1", 12.5, 300.0, 3.0, "ring", 0.01, 0.02, 45.0),),
        costs,
    )
    write_profile(profile, tmp_path / "profile.json")
    graph = OperatorGraph("t", (Operator("a"), Operator("b", tasks=2)), (Stream("a", "b"),))
    assert read_profile(tmp_path / "profile.json", graph) == profile
    write_costs(costs, tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json") == costs


def test_a_profile_names_figures_that_cannot_be(tmp_path: Path) -> None:
    graph = OperatorGraph("t", (Operator("a"), Operator("b")), (Stream("a", "b"),))
    wrong = StreamCosts(socket=DistanceCost(receive=EndCost(tuple_ns=-1.0)))
    edge = EdgeProfile("a/0", "b/0", 1.0, distance="telepathy", send_cpu=-2.0)  # type: ignore[arg-type] # on purpose
    found = Profile({}, (edge,), wrong).faults(graph)
    assert any("distance of 'a/0' -> 'b/0' is 'telepathy'" in fault for fault in found)
    assert any("send_cpu of 'a/0' -> 'b/0' is -2" in fault for fault in found)
    assert any("socket.receive.tuple_ns is -1" in fault for fault in found)
