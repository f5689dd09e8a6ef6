"""Types in = types out: every value of every type comes out as it went in, whatever way it takes, in any time zone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from oracle_kit import quick_questions
from pyspark.sql import DataFrame, SparkSession
from type_kit import BERLIN, COLUMNS, session_zone, told, wide_frame

import penstock as ps
from penstock.flow.stream import DataStream
from penstock.run.columns.kernels import Row
from penstock.run.operators.state.keyed_state import KeyState
from penstock.run.operators.state.process import Emit, Stateful, Timers

one_session = pytest.mark.parametrize("spark", ["local[8]"], indirect=True)


def keep_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def as_dict(row: Row) -> dict[str, object]:
    return row.asDict()


def kept_in_state(schema: pa.Schema) -> type[Stateful]:
    """Rows by `n` that go through keyed state and come out at the end."""

    class Kept(Stateful):
        def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
            emit(row)

    Kept.schema = schema
    return Kept


def ways(rows: DataStream) -> dict[str, DataStream]:
    """Every kind of operator that hands rows on as they are."""
    by_n = rows.key_by("n")
    firsts = {name: f"first({name})" for name in COLUMNS}
    return {
        "straight": rows,
        "map": rows.map(lambda row: row, rows.schema, tasks=2),
        "map_dicts": rows.map(as_dict, rows.schema, tasks=2),
        "flat_map": rows.flat_map(lambda row: [tuple(row)], rows.schema, tasks=2),
        "filter": rows.filter(lambda row: row.n >= 0, tasks=2),
        "batches": rows.map_batches(keep_batch, tasks=2),
        "reduce": by_n.reduce(lambda a, b: a, tasks=2),
        "process": by_n.process(kept_in_state(rows.schema), tasks=2),
        "first": by_n.aggregate(tasks=2, **firsts),
        "newest": by_n.top(1000, by="n", tasks=2),
    }


def check(found: dict[str, DataFrame], expected: DataFrame) -> None:
    """One query for all: each row's values as Spark tells them, by the way that it took."""
    for way, frame in found.items():
        assert frame.dtypes == expected.dtypes, way
    wanted = told({"": expected})[""]
    for way, rows in told(found).items():
        for ours, theirs in zip(rows, wanted, strict=True):
            assert ours == theirs, way


@one_session
@pytest.mark.parametrize(("zone", "transport"), [(BERLIN, "ring"), ("America/St_Johns", "socket")])
def test_every_type_comes_out_as_it_went_in(spark: SparkSession, tmp_path: Path, zone: str, transport: str) -> None:
    with quick_questions(spark), session_zone(spark, zone):
        frame = wide_frame(spark, seed=len(zone)).repartition(2)
        frame.write.parquet(str(tmp_path / "sparks"))
        top = ps.Topology("types")
        rows = top.source("frame", ps.io.dataframe(frame))
        for way, stream in ways(rows).items():
            stream.sink(f"{way}_out", ps.io.collect())
        top.source("files", ps.io.files(tmp_path / "sparks")).sink("from_files", ps.io.collect())
        rows.sink("to_files", ps.io.parquet(tmp_path / "ours"), tasks=2)
        check(top.run(spark, workers=2, scheduler="even", transport=transport, take_last_slot=True, rows_max=50), frame)


# -- aggregates ------------------------------------------------------------------------------------------------------

# Floats are quarters and integers small, so that doubles are exact in any order; decimals fill their digits.
NUMBERS = {
    "i8": "cast(id % 100 - 50 as tinyint)",
    "i16": "cast(id * 31 as smallint)",
    "i32": "cast(id * 4000037 as int)",
    "i64": "id * 9000000001",
    "f32": "cast(id / 4 as float)",
    "f64": "id / -4",
    "money": "cast(id * 5 - 300 as decimal(5,2))",
    "exact": "cast(id * 3333333333333 as decimal(20,4))",
    "whole": "cast(id * 123456789012345678901234567bd - 5 as decimal(38,0))",
    "deep": "cast(id / 7 as decimal(38,18))",
    "tiny": "cast(id * 0.0000000000000000000000000000000007bd as decimal(38,34))",
    "nothing": "cast(null as decimal(10,2))",
}
ORDERED = {
    "flag": "id % 3 = 0",
    "word": "cast(id as string)",
    "raw": "cast(cast(id as string) as binary)",
    "day": "date_add(date'0001-01-01', cast(id * 9999 as int))",
    "at": "timestamp_micros(id * 123456789012345)",
    "told": "cast(timestamp_micros(id * -123456789012345) as timestamp_ntz)",
}


@one_session
def test_aggregates_have_sparks_types_and_values(spark: SparkSession) -> None:
    with quick_questions(spark), session_zone(spark, BERLIN):
        columns = ", ".join(f"if(id % 11 = 5, null, {sql}) as {name}" for name, sql in (NUMBERS | ORDERED).items())
        frame = spark.sql(f"select cast(id % 7 as string) as n, {columns} from range(200)")
        wanted = {f"{op}_{name}": f"{op}({name})" for name in NUMBERS for op in ("count", "sum", "avg", "min", "max")}
        wanted |= {f"{op}_{name}": f"{op}({name})" for name in ORDERED for op in ("count", "min", "max")}
        top = ps.Topology("aggregates")
        by_n = top.source("frame", ps.io.dataframe(frame)).key_by("n")
        by_n.aggregate(tasks=2, **wanted).sink("out", ps.io.collect())
        frame.createOrReplaceTempView("numbers")
        answers = ", ".join(f"{sql} as {name}" for name, sql in wanted.items())
        check({"": top.run(spark, workers=1)}, spark.sql(f"select n, {answers} from numbers group by n"))
