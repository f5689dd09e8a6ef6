"""The windowed join against nested loops."""

from __future__ import annotations

import math
import struct
from collections import Counter
from functools import partial
from random import Random

import pyarrow as pa
import pytest
from flow_kit import US, Recorder, cut, cuts, drive
from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.schema import parse_schema
from penstock.flow.windows import sliding, tumbling
from penstock.run.contract import LATE
from penstock.run.operators.keyed.join import LATE_RIGHT, Side, WindowJoin, joined_schema, matches
from penstock.run.operators.keyed.windowed import windowed_schema
from penstock.run.operators.times import Window

LEFT = Side(parse_schema("user string, left_time timestamp, page array<bigint>"), ("user",), "left_time")
RIGHT = Side(parse_schema("who string, right_time timestamp, price bigint"), ("who",), "right_time")
rows = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 60), st.integers(0, 99)), max_size=20)


def batch_of(values: list, side: Side) -> pa.RecordBatch:
    number = [[v[2]] if side is LEFT else v[2] for v in values]
    columns = [
        pa.array([v[0] for v in values], pa.string()),
        pa.array([v[1] for v in values], pa.int64()).cast(US),
        pa.array(number, side.schema.field(2).type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=side.schema)


def build(window: Window, how: str) -> partial:
    return partial(WindowJoin, LEFT, RIGHT, window, how, windowed_schema(joined_schema(LEFT, RIGHT, how), US))


def nested_loops(lefts: list, rights: list, window: Window, how: str) -> Counter:
    found: Counter = Counter()
    for start in range(-window.size_us, 61, 1):
        if start % window.slide_us:
            continue
        inside = [[v for v in values if start <= v[1] < start + window.size_us] for values in (lefts, rights)]
        bounds = (start, start + window.size_us)
        for a in inside[0]:
            matches = [b for b in inside[1] if b[0] == a[0] and a[0] is not None]
            for b in matches:
                found[*bounds, a[0], a[1], a[2], b[1], b[2]] += 1
            if not matches and how in {"left", "full"}:
                found[*bounds, a[0], a[1], a[2], None, None] += 1
        for b in inside[1]:
            if how in {"right", "full"} and not any(a[0] == b[0] and b[0] is not None for a in inside[0]):
                found[*bounds, b[0], None, None, b[1], b[2]] += 1
    return found


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@given(
    lefts=rows,
    rights=rows,
    sizes=cuts,
    window=st.sampled_from([tumbling("20 us"), sliding("20 us", "10 us")]),
    order=st.randoms(use_true_random=False),
    move_at=st.one_of(st.none(), st.integers(0, 8)),
)
def test_join_is_nested_loops(
    how: str, lefts: list, rights: list, sizes: list, window: Window, order: Random, move_at: int | None
) -> None:
    steps = [(piece, 0) for piece in cut(batch_of(lefts, LEFT), sizes)]
    steps += [(piece, 1) for piece in cut(batch_of(rights, RIGHT), sizes[::-1])]
    order.shuffle(steps)
    out = drive(build(window, how), steps, move_at=move_at, rows_max=3)
    found = Counter((*row[:4], None if row[4] is None else row[4][0], *row[5:]) for row in unhashable_to_tuple(out))
    assert found == nested_loops(lefts, rights, window, how)


def unhashable_to_tuple(out: Recorder) -> list:
    return [tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in out.rows()]


def test_a_row_that_misses_one_of_its_windows_is_late_and_joined_in_the_others() -> None:
    steps = [10, (batch_of([("a", 5, 1)], LEFT), 0), (batch_of([("a", 6, 2)], RIGHT), 1)]
    out = drive(build(sliding("20 us", "10 us"), "inner"), steps)  # [-10, 10) has closed, [0, 20) has not
    assert out.rows() == [(0, 20, "a", 5, [1], 6, 2)]
    assert (out.rows(LATE), out.rows(LATE_RIGHT)) == ([("a", 5, [1])], [("a", 6, 2)])


def test_late_rows_of_both_sides_come_out_apart() -> None:
    steps = [
        (batch_of([("a", 1, 1)], LEFT), 0),
        20,
        (batch_of([("a", 2, 2)], LEFT), 0),
        (batch_of([("a", 3, 3)], RIGHT), 1),
        (batch_of([("b", 25, 4)], RIGHT), 1),
        (batch_of([("b", 39, 5)], LEFT), 0),
    ]
    out = drive(build(tumbling("20 us"), "inner"), steps)
    assert out.rows(LATE) == [("a", 2, [2])]
    assert out.rows(LATE_RIGHT) == [("a", 3, 3)]
    assert out.rows() == [(20, 40, "b", 39, [5], 25, 4)]


def test_keys_that_are_equal_in_spark_are_joined_whatever_their_bits() -> None:
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    keys = pa.array([0.0, -0.0, math.nan, other_nan, 1.5, None])
    left = pa.RecordBatch.from_arrays([keys], names=["k"])
    for kind in (pa.float64(), pa.float32()):
        side = left.set_column(0, "k", keys.cast(kind))
        found = matches(side, ["k"], side, ["k"], "inner")
        pairs = set(zip(*(rows.to_pylist() for rows in found), strict=True))
        assert pairs == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 4)}
