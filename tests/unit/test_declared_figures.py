"""Loads and memory that a program declares: every method that makes an operator takes both, and plans know them."""

from __future__ import annotations

import inspect

import pytest

import penstock as ps
from penstock.errors import Infeasible, InvalidInput
from penstock.flow.keyed import KeyedStream
from penstock.flow.stream import DataStream

NOT_OPERATORS = {"then", "parallel", "declared"}


class Adding(ps.Stateful):
    schema = "n bigint"

    def on_row(self, key: tuple[object, ...], row: ps.Row, state: object, timers: object, emit: object) -> None:
        """Nothing is run here."""


def rows(name: str = "rows") -> ps.DataStream:
    source = ps.io.generator(lambda task, tasks: [], "k string, n bigint, at timestamp")
    return ps.Topology("declared").source(name, source, load=0.25, memory_mb=7).event_time("at")


def test_every_method_that_makes_tasks_takes_both_figures() -> None:
    found = {}
    for kind in (DataStream, KeyedStream):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            parameters = inspect.signature(method).parameters
            if not name.startswith("_") and name not in NOT_OPERATORS and "tasks" in parameters:
                found[f"{kind.__name__}.{name}"] = [
                    parameters[p].default for p in ("load", "memory_mb") if p in parameters
                ]
    assert len(found) >= 22
    assert {name: defaults for name, defaults in found.items() if defaults != [None, None]} == {}


def test_what_is_declared_reaches_the_graph() -> None:
    stream = rows()
    other = stream.topology.source("other", ps.io.generator(lambda task, tasks: [], "k string, n bigint, at timestamp"))
    window = ps.tumbling("1 second")
    said = {"load": 0.5, "memory_mb": 30}
    renamed = other.rename({"at": "other_at", "n": "m"}).event_time("other_at")
    keyed = stream.key_by("k")
    made = {
        "map": stream.map(lambda row: row, "n bigint", **said),
        "flat_map": stream.flat_map(lambda row: [], "n bigint", **said),
        "filter": stream.filter(lambda row: True, **said),
        "filter text": stream.filter("n > 1", **said),
        "map_batches": stream.map_batches(lambda batch: batch, **said),
        "split": stream.split("k", **said),
        "select": stream.select("k", "n", **said),
        "with_column": stream.with_column("m", "n * 2", **said),
        "drop": stream.drop("k", **said),
        "where": stream.where("n > 1", **said),
        "union": stream.union(other, **said),
        "rename": stream.rename({"k": "key"}, **said),
        "count all": stream.count(window=window, **said),
        "aggregate all": stream.aggregate(total="sum(n)", window=window, **said),
        "join": stream.join(renamed, on="k", window=window, **said),
        "top all": stream.top(3, by="n", **said),
        "count": keyed.count(window=window, **said),
        "aggregate": keyed.aggregate(total="sum(n)", window=window, **said),
        "reduce": keyed.reduce(lambda a, b: a, window=window, **said),
        "top": keyed.top(3, by="n", **said),
        "top_per_key": keyed.top_per_key(2, by="n", window=window, **said),
        "top of windows": keyed.count(window=window).key_by("k").top_per_key(2, by="count", **said),
        "process": keyed.process(Adding, **said),
        "replica": stream.parallel(2).map(lambda row: row, "n bigint", **said),
    }
    operator = stream.topology.operator
    assert {n: (operator(s.operator).load, operator(s.operator).memory_mb) for n, s in made.items()} == dict.fromkeys(
        made, (0.5, 30.0)
    )
    graph = rows_graph()
    figures = {o.name: (o.load, o.memory_mb) for o in graph.operators}
    assert figures == {"rows": (0.25, 7.0), "kept": (0.5, 900.0), "out": (2.0, 0.0)}


def rows_graph() -> ps.OperatorGraph:
    stream = rows().where("n > 1", name="kept", tasks=2, load=0.5, memory_mb=900)
    stream.sink("out", ps.io.discard(), tasks=1, load=2)
    return stream.topology.build().graph()


def test_memory_that_is_declared_limits_what_a_node_holds() -> None:
    graph = rows_graph()

    def of(memory_mb: float) -> ps.Cluster:
        return ps.Cluster(tuple(ps.Node(name, 9.0, memory_mb=memory_mb, worker_capacity=None) for name in ("n1", "n2")))

    assert ps.place(graph, of(1000.0)).nodes_used == 2  # 900 + 900 MB do not fit one of them
    assert ps.place(graph, of(2000.0)).nodes_used == 1
    with pytest.raises(Infeasible, match="needs memory 900 MB but the largest node offers 800 MB"):
        ps.place(graph, of(800.0))


def test_a_figure_that_cannot_be_is_told_and_leaves_no_operator_behind() -> None:
    stream = rows()
    top = stream.topology
    with pytest.raises(InvalidInput, match="load of 'where1' is -1; give a number from 0"):
        stream.where("n > 1", load=-1)
    with pytest.raises(InvalidInput, match="memory_mb of 'kept' is 'much'; give a number from 0"):
        stream.where("n > 1", name="kept", memory_mb="much")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="load of 'bad' is nan"):
        top.source("bad", ps.io.generator(lambda task, tasks: [], "n bigint"), load=float("nan"))
    with pytest.raises(
        InvalidInput, match=r"sink 'out' has no tasks of its own, .*; give it tasks=, or declare what 'rows'"
    ):
        stream.sink("out", ps.io.discard(), load=1)
    with pytest.raises(InvalidInput, match="load= says what each task takes, as a number; call the column otherwise"):
        stream.key_by("k").aggregate(load="sum(n)")  # type: ignore[arg-type]
    assert repr(top) == "Topology('declared', operators=[rows])"


def test_declare_says_both_and_leaves_what_is_not_said() -> None:
    top = rows().topology
    top.declare("rows", memory_mb=9)
    assert (top.operator("rows").load, top.operator("rows").memory_mb) == (0.25, 9.0)
    top.declare("rows", 2)
    assert (top.operator("rows").load, top.operator("rows").memory_mb) == (2.0, 9.0)
