"""Arbitrary batches: every family of types, with nulls, slices, NaN, unicode, dictionaries and nesting."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

UTC = datetime.UTC
# Few distinct values, so that keys meet; long and short texts, so that every path of the hash is taken.
TEXTS = st.sampled_from(
    ["", "a", "bb", "ccc", "dddd", "eight888", "sixteen bytes ok", "žluťoučký kůň 🐎", "x" * 40]
) | st.text(max_size=20)
REALS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), -2.25]) | st.floats(width=32)
TIMES = st.datetimes(datetime.datetime(1902, 1, 1), datetime.datetime(2200, 1, 1))


def whole(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(max(low, -3), min(high, 3)) | st.integers(low, high)


SIMPLE: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    *((getattr(pa, f"int{bits}")(), whole(bits, True)) for bits in (8, 16, 32, 64)),
    *((getattr(pa, f"uint{bits}")(), whole(bits, False)) for bits in (8, 16, 32, 64)),
    (pa.float32(), REALS),
    (pa.float64(), REALS | st.floats()),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.binary(), st.binary(max_size=20)),
    (pa.large_binary(), st.binary(max_size=20)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    (pa.timestamp("us"), TIMES),
    (pa.timestamp("ms"), TIMES.map(lambda time: time.replace(microsecond=0))),
    (pa.duration("us"), st.timedeltas(datetime.timedelta(-9), datetime.timedelta(9))),
    (pa.time64("us"), st.times()),
    (pa.decimal128(10, 2), st.integers(-(10**9), 10**9).map(lambda n: Decimal(n) / 100)),
]
RARE: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.float16(), st.floats(width=16)),
    (pa.decimal256(50, 3), st.integers(-(10**40), 10**40).map(lambda n: Decimal(n).scaleb(-3))),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["x", "yy", "🐎"])),
    (pa.dictionary(pa.int32(), pa.int64()), st.integers(0, 5)),
    (pa.string_view(), TEXTS),
    (pa.list_(pa.string()), st.lists(st.none() | TEXTS, max_size=3)),
    (pa.large_list(pa.int32()), st.lists(st.integers(0, 3), max_size=3)),
    (pa.list_(pa.int16(), 2), st.lists(st.integers(0, 3), min_size=2, max_size=2)),
    (
        pa.struct({"p": pa.int64(), "q": pa.string()}),
        st.fixed_dictionaries({"p": whole(64, True), "q": st.none() | TEXTS}),
    ),
    (pa.map_(pa.string(), pa.int64()), st.lists(st.tuples(TEXTS, whole(64, True)), max_size=2)),
    (pa.list_(pa.list_(pa.int8())), st.lists(st.none() | st.lists(st.integers(0, 3), max_size=2), max_size=2)),
]


def columns(rows: int, kinds: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> st.SearchStrategy[pa.Array]:
    """A column of so many rows that may be a slice of a longer one."""

    @st.composite
    def build(draw: st.DrawFn) -> pa.Array:
        kind, values = draw(st.sampled_from(kinds))
        before, after = draw(st.sampled_from([(0, 0), (1, 0), (3, 2), (9, 1)]))
        cells = values if draw(st.booleans()) or kind == pa.null() else st.none() | values
        size = before + rows + after
        return pa.array(draw(st.lists(cells, min_size=size, max_size=size)), kind).slice(before, rows)

    return build()


@st.composite
def batches(draw: st.DrawFn, simple_only: bool = False, rows_max: int = 24, columns_max: int = 4) -> pa.RecordBatch:
    rows = draw(st.integers(0, rows_max))
    count = draw(st.integers(1, columns_max))
    kinds = SIMPLE if simple_only else SIMPLE + RARE
    arrays = [draw(columns(rows, kinds)) for _ in range(count)]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(count)])


def shown(batch: pa.RecordBatch | None) -> str:
    """Everything about a batch as text, in which NaN equals NaN and -0.0 differs from 0.0."""
    if batch is None:
        return "None"
    batch.validate(full=True)
    return f"{batch.schema}\n{[column.to_pylist() for column in batch.columns]}"
