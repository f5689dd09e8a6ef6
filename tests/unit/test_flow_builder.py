"""What the builder makes: operators, names, groupings, schemas, time and keys."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest

import penstock as ps
from penstock.deploy import JobOptions
from penstock.errors import InvalidInput
from penstock.flow.schema import parse_schema, to_ddl
from penstock.run.contract import ERRORS, LATE, SourceTask
from penstock.run.dataflow import Grouping
from penstock.run.operators.keyed.unwindowed import KeyedFold
from penstock.run.operators.keyed.windowed import EventWindows, ProcessingWindows
from penstock.run.operators.sinks.attached import WithSinks

TRIPS = "route string, fare double, time timestamp"


def trips(top: ps.Topology, *, bounded: bool = True, name: str = "trips") -> ps.DataStream:
    return top.source(name, ps.io.generator(lambda task, tasks: [], TRIPS, bounded=bounded))


def test_the_contract_example_builds() -> None:
    top = ps.Topology("words")
    lines = top.source("lines", ps.io.generator(lambda task, tasks: ["a b"], "line string"))
    words = lines.flat_map(lambda row: [(w,) for w in row.line.split()], schema="word string", tasks=4)
    counts = words.key_by("word").count(window=ps.tumbling("10 seconds", time="processing"), tasks=2)
    counts.sink("out", ps.io.collect())
    flow = top.build()
    assert [(o.name, o.kind, o.tasks, o.role) for o in flow.operators] == [
        ("lines", "generator", 1, "source"),
        ("flat_map1", "flat_map", 4, "operator"),
        ("count1", "count", 2, "operator"),
    ]
    assert [(s.name, s.kind) for s in flow.operator("count1").sinks] == [("out", "collect")]
    assert flow.sinks()["out"][1] == counts.schema
    assert to_ddl(counts.schema) == (
        "`window_start` timestamp NOT NULL, `window_end` timestamp NOT NULL, `word` string, `count` bigint NOT NULL"
    )
    assert flow.operator("count1").inputs[0].grouping == Grouping("fields", ("word",))
    assert flow.operator("count1").stateful
    built = flow.operator("count1").build()
    assert isinstance(built, WithSinks)
    assert isinstance(built.inner, ProcessingWindows)
    assert flow.bounded
    assert flow.graph().faults() == []


def test_default_names_are_kind_and_number_and_leave_given_names_alone() -> None:
    top = ps.Topology("names")
    stream = trips(top)
    made = [
        stream.select("route"),
        stream.select("fare", name="select3"),
        stream.select("route"),
        stream.select("fare"),
    ]
    assert [s.operator for s in made] == ["select1", "select3", "select2", "select4"]


def test_groupings_are_for_the_next_operator_only() -> None:
    top = ps.Topology("groups")
    stream = trips(top)
    choose = lambda row: 0  # noqa: E731 - compared below
    expected = {
        "shuffle": (stream.shuffle(), Grouping("shuffle")),
        "local": (stream.local_or_shuffle(), Grouping("local-or-shuffle")),
        "global": (stream.global_(), Grouping("global")),
        "all": (stream.broadcast(), Grouping("all")),
        "fields": (stream.fields("route", "fare"), Grouping("fields", ("route", "fare"))),
        "partial": (stream.partial_key("route"), Grouping("partial-key", ("route",))),
        "direct": (stream.direct(choose), Grouping("direct", choose=choose)),
        "default": (stream, Grouping("shuffle")),
    }
    for name, (given, _) in expected.items():
        given.select("route", name=name).select("route", name=f"{name}-next").sink(f"{name}-out", ps.io.discard())
    flow = top.build()
    for name, (_, grouping) in expected.items():
        assert flow.operator(name).inputs[0].grouping == grouping
        assert flow.operator(f"{name}-next").inputs[0].grouping == Grouping("shuffle")


def test_keyed_operators_read_by_key_whatever_was_said_before() -> None:
    top = ps.Topology("keyed")
    stream = trips(top).shuffle()
    stream.key_by("route").count(name="plain").sink("a", ps.io.discard())
    stream.key_by("route").partial_key().count(name="halves").sink("b", ps.io.discard())
    flow = top.build()
    assert flow.operator("plain").inputs[0].grouping == Grouping("fields", ("route",))
    assert flow.operator("halves").inputs[0].grouping == Grouping("partial-key", ("route",))


@pytest.mark.parametrize(
    ("bounded", "emit", "expected"),
    [(True, None, "end"), (False, None, "changes"), (True, "each", "each"), (False, "end", "end")],
)
def test_when_aggregates_emit(bounded: bool, emit: str | None, expected: str) -> None:
    top = ps.Topology("emits")
    made = trips(top, bounded=bounded).key_by("route").count(emit=emit)  # type: ignore[arg-type]
    task = top.operator(made.operator).build()
    assert isinstance(task, KeyedFold)
    assert task.emit == expected
    assert made.bounded is bounded


def test_aggregates_have_sparks_types() -> None:
    top = ps.Topology("types")
    stream = top.source("s", ps.io.generator(lambda task, tasks: [], "k string, i int, d decimal(10,2), f float"))
    made = stream.key_by("k").aggregate(
        rows="count(*)",
        n="count(i)",
        si="sum(i)",
        sd="SUM( `d` )",
        sf="sum(f)",
        a="mean(i)",
        m="min(f)",
        last="last(i)",
    )
    assert to_ddl(made.schema) == (
        "`k` string, `rows` bigint NOT NULL, `n` bigint NOT NULL, `si` bigint, `sd` decimal(20, 2), `sf` double, "
        "`a` double, `m` float, `last` int"
    )


def test_event_time_goes_where_its_column_goes() -> None:
    top = ps.Topology("time")
    stream = trips(top).event_time("time", lateness="5 seconds")
    assert stream.filter(lambda row: True).time_column == "time"
    assert stream.select("time").time_column == "time"
    assert stream.select("fare").time_column is None
    assert stream.map(lambda row: row, "time bigint").time_column is None
    windowed = stream.key_by("route").count(window=ps.tumbling("1 minute"))
    assert windowed.time_column == "window_start"
    assert isinstance(top.operator(windowed.operator).build(), EventWindows)
    assert windowed.late.schema == stream.schema
    assert windowed.late.output == LATE
    processing = stream.key_by("route").count(window=ps.tumbling("1 minute", time="processing"))
    assert isinstance(top.operator(processing.operator).build(), ProcessingWindows)
    assert isinstance(top.operator("trips").build(), SourceTask)


def test_zoneless_time_makes_zoneless_windows() -> None:
    top = ps.Topology("ntz")
    stream = top.source("s", ps.io.generator(lambda task, tasks: [], "k string, t timestamp_ntz")).event_time("t")
    made = stream.key_by("k").count(window=ps.tumbling("1 s"))
    assert made.schema.field("window_start").type == pa.timestamp("us")


def test_side_outputs_are_streams() -> None:
    top = ps.Topology("sides")
    mapped = trips(top).map(lambda row: (row.fare,), "fare double", on_error="quarantine")
    assert to_ddl(mapped.errors.schema).endswith("`error` string NOT NULL")
    mapped.sink("good", ps.io.discard())
    mapped.errors.select("route").sink("bad", ps.io.collect())
    flow = top.build()
    assert flow.operator("select1").inputs[0].output == ERRORS


def test_join_and_top_know_their_windows() -> None:
    top = ps.Topology("join")
    left = trips(top, name="left").event_time("time")
    right = top.source(
        "right", ps.io.generator(lambda task, tasks: [], "route string, tip double, at timestamp")
    ).event_time("at")
    joined = left.join(right, on="route", window=ps.tumbling("1 minute"), how="left", tasks=2)
    assert joined.schema.names == ["window_start", "window_end", "route", "fare", "time", "tip", "at"]
    best = joined.top(3, by="fare")
    assert best.schema == joined.schema
    assert best.windowed
    ranked = left.key_by("route").count(window=ps.tumbling("1 minute"), tasks=4).top(10, tasks=2).top(10)
    ranked.sink("out", ps.io.discard())
    best.sink("best", ps.io.discard())
    flow = top.build()
    assert [i.grouping for i in flow.operator("join1").inputs] == [Grouping("fields", ("route",))] * 2
    assert flow.operator("top2").inputs[0].grouping == Grouping("fields", ("route",))
    assert flow.operator("top3").inputs[0].grouping == Grouping("global")


def test_union_keeps_what_its_streams_agree_on() -> None:
    top = ps.Topology("union")
    a, b = (trips(top, name=name).event_time("time") for name in "ab")
    assert a.union(b).time_column == "time"
    assert a.union(trips(top, name="c")).time_column is None
    assert not a.union(trips(top, name="d", bounded=False)).bounded
    assert len(top.operator("union1").inputs) == 2


class Visits(ps.Stateful):
    schema = "route string, n bigint"

    def on_row(self, key: object, row: ps.Row, state: object, timers: object, emit: object) -> None:
        pass


def test_process_takes_a_class_or_a_factory() -> None:
    top = ps.Topology("process")
    keyed = trips(top).key_by("route")
    assert to_ddl(keyed.process(Visits, tasks=3).schema) == "`route` string, `n` bigint"
    assert keyed.process(partial(Visits)).operator == "process2"


def test_dataframe_sources_read_a_schema_that_looks_like_sparks() -> None:
    def field(name: str, kind: str, nullable: bool) -> SimpleNamespace:
        return SimpleNamespace(name=name, nullable=nullable, dataType=SimpleNamespace(simpleString=lambda: kind))

    frame = SimpleNamespace(
        schema=SimpleNamespace(
            fields=[field("a b", "bigint", False), field("tags", "array<struct<x:int,y:string>>", True)]
        )
    )
    top = ps.Topology("frames")
    stream = top.source("df", ps.io.dataframe(frame))
    assert stream.schema == parse_schema("`a b` bigint not null, tags array<struct<x: int, y: string>>")
    assert top.frames == {"df": frame}
    assert top.operator("df").one_per_worker
    assert top.source("given", ps.io.dataframe(object(), schema="x int")).schema == parse_schema("x int")


def test_streams_describe_themselves() -> None:
    top = ps.Topology("words")
    stream = trips(top)
    assert repr(stream) == "DataStream(trips: `route` string, `fare` double, `time` timestamp)"
    assert repr(top) == "Topology('words', operators=[trips])"


def test_rate_has_sparks_columns() -> None:
    source = ps.io.rate(5, start=datetime(2024, 1, 1, tzinfo=UTC))
    assert to_ddl(source.schema) == "`timestamp` timestamp NOT NULL, `value` bigint NOT NULL"
    assert not source.bounded
    assert ps.io.rate(5, rows=3).bounded


def test_run_and_start_go_through_the_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.deploy.run_topology", lambda *given: ("ran", *given))
    monkeypatch.setattr("penstock.deploy.start_topology", lambda *given: ("started", *given))
    top = ps.Topology("t")
    assert top.run("spark", workers=2) == ("ran", top, "spark", JobOptions(workers=2))  # type: ignore[arg-type, comparison-overlap]
    assert top.start("spark") == ("started", top, "spark", JobOptions())  # type: ignore[arg-type, comparison-overlap]


def test_a_topology_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"has no source; .*; topology 'empty' has no sink"):
        ps.Topology("empty").build()
    top = ps.Topology("open")
    stream = trips(top)
    with pytest.raises(InvalidInput, match=r"'open' has no sink; end with stream.sink"):
        top.build()
    stream.sink("out", ps.io.discard())
    stream.select("route")
    with pytest.raises(InvalidInput, match=r"nobody reads 'select1'; give it a sink"):
        top.build()


def test_event_time_keys_and_windows_survive_new_names() -> None:
    top = ps.Topology("names")
    stream = trips(top).event_time("time")
    renamed = stream.rename({"time": "at", "fare": "price"})
    assert to_ddl(renamed.schema) == "`route` string, `price` double, `at` timestamp"
    assert renamed.time_column == "at"
    counts = renamed.key_by("route").count(window=ps.tumbling("1 minute"))  # in event time, or it would have no late
    assert counts.late.schema == renamed.schema
    told = counts.rename({"route": "way", "window_start": "since"})
    assert (told.keys, told.time_column, told.windowed) == (("way",), "since", True)
    assert told.top(3).late.schema == told.schema
    swapped = trips(top, name="more").rename({"route": "fare", "fare": "route"})
    assert to_ddl(swapped.schema) == "`fare` string, `route` double, `time` timestamp"
    assert swapped.time_column is None


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"tip": "x"}, "names column 'tip' but the stream has route, fare, time"),
        ({"fare": "route"}, "makes a column 'route'; names are text, not empty, and no two columns share one"),
        ({"fare": ""}, "makes a column ''"),
        ({"fare": 3}, "makes a column 3"),
        ("fare", "got 'fare'; give {old name: new name, ...}"),
    ],
)
def test_names_that_cannot_be_are_refused(names: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        trips(ps.Topology("names")).rename(names)
