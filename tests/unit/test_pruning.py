"""Columns that nobody uses: which ones a source reads, and that the answer is the same without the others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from flow_kit import WholeFlow

import penstock as ps
from penstock.flow.pruning import needed_columns

TIMES = [datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC) for second in (1, 2, 11, 12, 21)]
TABLE = pa.table(
    {
        "auction": pa.array([1, 2, 1, 3, 2], pa.int64()),
        "price": pa.array([10, 20, 30, 40, 50], pa.int64()),
        "city": ["a", "b", "a", "c", "b"],
        "words": ["x y", "z", "x", "y z", "w"],
        "ts": pa.array(TIMES, pa.timestamp("us", tz="UTC")),
        "ballast": [b"0123456789"] * 5,
    }
)
WINDOW = ps.tumbling("10 seconds")
FILTERED = "sum(price * 2) filter (where auction > 1)"
Write = Callable[[ps.DataStream], ps.DataStream]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    pa.csv.write_csv(TABLE.drop(["ballast", "ts"]), tmp_path / "rows.csv")
    return tmp_path


FLOWS: list[tuple[str, Write, set[str]]] = [
    ("all of it", lambda s: s, set(TABLE.column_names)),
    ("a row function", lambda s: s.map(lambda row: {"n": row.price}, "n bigint"), set(TABLE.column_names)),
    ("a filter by function", lambda s: s.filter(lambda row: row.price > 5).select("city"), set(TABLE.column_names)),
    ("select", lambda s: s.select("price"), {"price"}),
    ("where", lambda s: s.where("price > 15").select("city"), {"price", "city"}),
    ("with_column", lambda s: s.with_column("x", "price * 2").select("x", "city"), {"price", "city"}),
    ("an expression nobody reads", lambda s: s.with_column("x", "auction * 2").select("price"), {"price"}),
    ("drop", lambda s: s.drop("ballast", "ts", "words"), {"auction", "price", "city"}),
    ("rename", lambda s: s.rename({"price": "cost"}).select("cost"), {"price"}),
    ("split", lambda s: s.split("words", keep=["city"]).select("word"), {"words"}),
    ("keys", lambda s: s.key_by("city").aggregate(t="sum(price)"), {"city", "price"}),
    ("filtered", lambda s: s.key_by("city").aggregate(t=FILTERED), {"city", "price", "auction"}),
    ("count", lambda s: s.count(), {"auction"}),
    ("top", lambda s: s.select("city", "price").top(2, by="price"), {"city", "price"}),
    ("ties", lambda s: s.top(2, by="price"), set(TABLE.column_names)),
    ("windows", lambda s: s.event_time("ts").key_by("city").count(window=WINDOW), {"city", "ts"}),
    ("late", lambda s: s.event_time("ts").key_by("city").count(window=WINDOW).late, set(TABLE.column_names)),
    ("union", lambda s: s.where("price > 9").union(s.where("auction = 1")).select("ts"), {"price", "auction", "ts"}),
    ("join", lambda s: _joined(s).select("price", "word"), {"city", "ts", "price", "words"}),
    ("routing", lambda s: s.fields("auction").map_batches(_nothing).select("city"), set(TABLE.column_names)),
    ("fields", lambda s: s.fields("auction").select("city", tasks=2), {"auction", "city"}),
]  # fmt: skip


def _nothing(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _joined(stream: ps.DataStream) -> ps.DataStream:
    timed = stream.event_time("ts")
    return timed.join(timed.select("city", "ts as at", "words as word"), "city", window=WINDOW)


@pytest.mark.parametrize(("name", "write", "columns"), FLOWS, ids=[name for name, _, _ in FLOWS])
def test_a_source_reads_what_is_used_and_the_answer_is_the_same(
    folder: Path, name: str, write: Write, columns: set[str]
) -> None:
    def built(source: ps.io.Source) -> WholeFlow:
        top = ps.Topology("t")
        write(top.source("s", source)).sink("out", ps.io.collect())
        flow = top.build()
        if source.kind == "files":
            assert set(needed_columns(flow)["s"]) == columns
            assert flow.operator("s").columns is None  # what travels does not carry it
        return WholeFlow(flow).run()

    files = ps.io.files(folder, schema=TABLE.schema)
    whole = ps.io.generator(lambda task, tasks: TABLE.to_batches(), TABLE.schema)
    assert sorted(built(files).rows(), key=repr) == sorted(built(whole).rows(), key=repr)


def test_csv_files_leave_columns_out(folder: Path) -> None:
    top = ps.Topology("t")
    top.source("s", ps.io.files(folder, "csv")).where("price > 15").select("city").sink("out", ps.io.collect())
    assert WholeFlow(top.build()).run().rows() == [("b",), ("a",), ("c",), ("b",)]


def test_two_readers_want_different_columns(folder: Path) -> None:
    top = ps.Topology("t")
    rows = top.source("s", ps.io.files(folder)).where("auction < 3")
    rows.select("city").sink("cities", ps.io.collect())
    rows.key_by("auction").aggregate(t="max(price)").sink("prices", ps.io.collect())
    flow = top.build()
    assert needed_columns(flow) == {"s": ("auction", "price", "city")}
    whole = WholeFlow(flow).run()
    assert whole.rows("cities") == [("a",), ("b",), ("a",), ("b",)]
    assert sorted(whole.rows("prices")) == [(1, 30), (2, 50)]


def test_generators_and_sinks_see_every_column() -> None:
    top = ps.Topology("t")
    rows = top.source("s", ps.io.generator(lambda task, tasks: TABLE.to_batches(), TABLE.schema))
    rows.select("city").sink("out", ps.io.collect(), tasks=1)
    assert needed_columns(top.build()) == {"s": tuple(TABLE.column_names)}
