"""Constraints of the API: what each function makes, what is refused, and that a topology hands them on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.deploy import JobOptions
from penstock.deploy.driver import binding
from penstock.deploy.driver.slots import Slots, common_tags
from penstock.deploy.line.messages import Hello
from penstock.deploy.worker.node_tags import node_tags
from penstock.errors import Infeasible, InvalidInput
from penstock.model.constraint_check import constraint_violations
from penstock.model.constraints import Apart, Dedicated, Replicas, Resource, Together
from penstock.model.plan import Plan


def words(tasks: int = 2) -> tuple[ps.Topology, ps.DataStream, ps.DataStream]:
    top = ps.Topology("words")
    lines = top.source("lines", ps.io.generator(lambda task, tasks: ["a b"], "line string"), tasks=tasks)
    counts = lines.split("line", name="words", tasks=tasks).key_by("word").count(name="counts", tasks=tasks)
    counts.sink("out", ps.io.collect())
    for name in ("lines", "words", "counts"):
        top.declare(name, 0.1)
    return top, lines, counts


def test_each_function_makes_one_record_of_streams_or_names() -> None:
    _, lines, counts = words()
    assert ps.colocate(lines, counts) == Together("worker", ("lines", "counts"))
    assert ps.colocate("lines/0", counts, where="node") == Together("node", ("lines/0", "counts"))
    assert ps.separate_workers(lines, "counts/1") == Apart("worker", ("lines", "counts/1"))
    assert ps.separate_nodes(lines.key_by("line"), counts) == Apart("node", ("lines", "counts"))
    assert ps.on_nodes(lines, "n1", "n2") == Resource("lines", ("n1", "n2"))
    assert ps.on_tag(counts, "gpu") == Resource("counts", (), ("gpu",))
    assert ps.dedicated(counts) == Dedicated("worker", "counts")
    assert ps.replicas([lines], ["counts"], isomorphic=True) == Replicas((("lines",), ("counts",)), isomorphic=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ps.colocate("a"), "colocate got 1 of streams, or names .*; give 2 or more"),
        (lambda: ps.colocate("a", 3), "colocate got 3; give streams, or names"),
        (lambda: ps.colocate("a", "a"), "colocate got 'a' twice"),
        (lambda: ps.colocate("a", "b", where="rack"), "where of colocate is 'rack'; it is 'worker' or 'node'"),
        (ps.separate_nodes, "separate_nodes got 0 of"),
        (lambda: ps.on_nodes("a"), "on_nodes got none; give names of nodes"),
        (lambda: ps.on_nodes("a", 1), "on_nodes got 1; give names of nodes"),
        (lambda: ps.on_tag("a", ""), "on_tag got ''; give tags of nodes"),
        (lambda: ps.replicas(["a"]), "replicas got 1 groups; give 2 or more"),
        (lambda: ps.replicas("ab", "cd"), "replicas got 'ab'; give groups, each a list"),
        (lambda: ps.replicas(["a"], []), "a group of replicas got 0 of"),
        (lambda: ps.dedicated(None), "dedicated got None; give streams"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_what_a_topology_requires_reaches_its_graph_and_its_certificate() -> None:
    top, lines, _ = words()
    top.require(ps.colocate(lines, "words"), ps.separate_nodes("counts/0", "counts/1"))
    top.require(ps.colocate(lines, "words"))  # a cell that was run again
    graph = top.build().graph()
    assert (
        graph.constraints
        == top.constraints
        == (Together("worker", ("lines", "words")), Apart("node", ("counts/0", "counts/1")))
    )
    cluster = ps.parse_cluster("2x2")
    plan = ps.place(graph, cluster)
    assert constraint_violations(graph, plan.assignment) == []
    moved = replace(plan, assignment={**plan.assignment, "counts/0": plan.assignment["counts/1"]})
    assert any("'counts/0' and 'counts/1' share node" in fault for fault in ps.check_plan(graph, cluster, moved))
    with pytest.raises(Infeasible, match=r"constraint 1 .*different nodes"):
        ps.place(graph, ps.parse_cluster("1x2"))


def test_a_name_that_no_plan_would_have_is_told_where_it_is_written() -> None:
    top, _, _ = words()
    with pytest.raises(InvalidInput, match=r"names 'count', which is no operator .*; known: lines, words, counts; "):
        top.require(ps.colocate("lines", "count"))
    with pytest.raises(InvalidInput, match="names 'counts/2', which is no operator or task"):
        top.require(ps.colocate("lines", "counts/2"))
    with pytest.raises(InvalidInput, match=r"'out', .*; it is part of 'counts', so name that, or give the sink tasks="):
        top.require(ps.dedicated("out"))
    assert top.constraints == ()


def test_constraints_go_with_what_they_name_and_can_be_taken_back() -> None:
    top, lines, counts = words()
    apart, alone = ps.separate_workers(lines, counts), ps.dedicated(lines)
    top.require(apart, alone)
    top.waive(alone)
    assert top.constraints == (apart,)
    with pytest.raises(InvalidInput, match="does not require Dedicated"):
        top.waive(alone)
    top.remove("counts")
    assert top.constraints == ()


def test_a_cell_that_is_run_again_leaves_no_constraint_behind() -> None:
    top = ps.Topology("cells")
    rows = top.source("rows", ps.io.generator(lambda task, tasks: [(1,)], "n bigint"))
    for _ in range(2):  # the first count is left out of the topology, as its twin is in its place
        counts = rows.key_by("n").count()
        top.require(ps.colocate(rows, counts))
    counts.sink("out", ps.io.collect())
    assert list(top.build().constraints) == [Together("worker", ("rows", "count2"))]


def test_a_reader_of_a_dataframe_may_be_named_by_tasks_that_are_not_there_yet() -> None:
    top, _, _ = words()
    built = top.build()
    readers = tuple(
        replace(o, one_per_worker=o.name == "lines", tasks=1 if o.name == "lines" else o.tasks) for o in built.operators
    )
    flow = replace(built, operators=readers)
    options = JobOptions(constraints=[ps.separate_workers("lines/2", "counts/0")])
    options.require_fitting(options.constrained(flow))
    wrong = JobOptions(constraints=[ps.dedicated("line")])
    with pytest.raises(InvalidInput, match="names unknown operator or task 'line'; known: lines, "):
        wrong.require_fitting(wrong.constrained(flow))


def test_a_worker_that_is_shared_against_nodes_that_are_not_is_told_of_nodes() -> None:
    ends = (ps.Operator("a", load=0.1), ps.Operator("b", load=0.1))
    rules = (ps.colocate("a", "b", where="worker"), ps.separate_nodes("a", "b"))
    with pytest.raises(Infeasible, match=r"must share a worker, so a node, and must be on different nodes"):
        ps.place(ps.OperatorGraph("clash", ends, (ps.Stream("a", "b"),), rules), ps.Cluster.uniform([(2, 4.0)]))


def test_tags_stand_for_the_nodes_that_have_them() -> None:
    graph = ps.OperatorGraph(
        "tagged", (ps.Operator("a"), ps.Operator("b")), (ps.Stream("a", "b"),), (ps.on_tag("b", "gpu", "fast"),)
    )
    nodes = (ps.Node("n1", 9.0), ps.Node("n2", 9.0, tags=("gpu",)), ps.Node("n3", 9.0, tags=("fast", "gpu")))
    cluster = ps.Cluster(nodes)
    for decide in (ps.place, ps.fuse):
        plan = decide(graph, cluster)
        assert plan.assignment["b/0"].node == "n3"
        assert plan.constraints == graph.constraints  # as they were stated, for clusters with other nodes
    elsewhere = replace(plan, assignment=dict.fromkeys(plan.assignment, ps.Slot("n2", 0)))
    assert [f for f in ps.check_plan(graph, cluster, elsewhere) if "lacks one of the tags gpu, fast" in f]
    with pytest.raises(
        InvalidInput, match=r"of 'b' needs tag 'gpu' and 'fast', .* tags are 'gpu'; give a node the tag"
    ):
        ps.place(graph, ps.Cluster(nodes[:2]))


def test_tags_of_a_node_are_what_spark_tells_of_every_executor_there() -> None:
    environment = {"SPARK_EXECUTOR_ATTRIBUTE_ZONE": "a", "SPARK_EXECUTOR_ATTRIBUTE_": "x", "HOME": "/", "ZONE": "b"}
    assert node_tags(["gpu"], environment) == ("ZONE=a", "gpu")
    assert node_tags([], {"SPARK_EXECUTOR_ATTRIBUTE_LONG": "x" * 300, "SPARK_EXECUTOR_ATTRIBUTE_ODD": "\n"}) == ()
    assert len(node_tags([f"r{i}" for i in range(999)], {})) == 64

    def hello(worker: int, *tags: str) -> Hello:
        return Hello(worker, 3, "e", "h", 1, 2, 3, "boot", "ipc", "3", "1", 8000.0, tags=tags)

    workers = [hello(0, "a", "b"), hello(1, "b", "c"), hello(2, "c")]
    assert common_tags(workers, ["n1", "n1", "n2"]) == {"n1": ("b",), "n2": ("c",)}


def test_constraints_come_from_a_file_of_their_own_a_topology_or_a_plan(tmp_path: Path) -> None:
    stated = [
        {"type": "resource", "operator": "a", "tags": ["gpu"]},
        {"type": "resource", "operator": "a", "nodes": ["n1"], "tags": ["gpu"]},
        {"type": "separate-nodes", "operators": ["a", "b"]},
    ]
    wanted = (Resource("a", (), ("gpu",)), Resource("a", ("n1",), ("gpu",)), Apart("node", ("a", "b")))
    path = tmp_path / "given.json"
    for others in ({}, {"name": "t", "operators": [{"name": "a"}], "streams": []}):
        path.write_text(json.dumps({"penstock": 1, **others, "constraints": stated}))
        assert ps.read_constraints(path) == wanted
    path.write_text(json.dumps(stated))
    assert ps.read_constraints(path) == wanted
    with pytest.raises(InvalidInput, match="must be an object but is"):
        ps.read_topology(path)
    plan = Plan("x", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, {"a/0": ps.Slot("n1", 0)}, constraints=wanted)
    ps.write_plan(plan, path)
    assert ps.read_constraints(path) == ps.read_plan(path).constraints == wanted
    path.write_text(json.dumps({"penstock": 1, "operators": []}))
    with pytest.raises(InvalidInput, match="constraints: is missing"):
        ps.read_constraints(path)
    path.write_text(json.dumps({"constraints": [{"type": "resource", "operator": "a"}]}))
    with pytest.raises(InvalidInput, match=r"constraints\[0\].nodes: is missing"):
        ps.read_constraints(path)


def test_a_given_plan_is_matched_to_nodes_by_their_tags() -> None:
    top, _, _ = words(tasks=1)
    flow = replace(top.build(), constraints=(ps.on_tag("counts", "gpu"),))
    places = {"lines/0": ps.Slot("x", 0), "words/0": ps.Slot("x", 0), "counts/0": ps.Slot("y", 0)}
    plan = Plan("by hand", 0, 0.0, 0.0, 0.0, 0.0, False, 2, 1.0, places)
    tagged = Slots(("n1", "n2"), tags_of={"n1": ("gpu",)})
    assert binding.given(flow, tagged, plan, None).plan.assignment["counts/0"].node == "n1"
    with pytest.raises(
        InvalidInput, match=r"allows it only on a node with tag 'gpu'; .*, of which no choice keeps that"
    ):
        binding.given(flow, Slots(("n1", "n2")), plan, None)
