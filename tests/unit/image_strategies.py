"""Arbitrary batches of every Arrow type, nested in every way, with nulls and slices."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st
from kernels_strategies import RARE, SIMPLE, TEXTS

LEAVES = [*SIMPLE, *((kind, values) for kind, values in RARE if not pa.types.is_dictionary(kind))]
LEAVES += [
    (pa.binary_view(), st.binary(max_size=30)),
    (pa.decimal32(7, 2), st.integers(0, 999).map(Decimal)),
    (pa.month_day_nano_interval(), st.integers(0, 9).map(lambda n: pa.MonthDayNano([n, 2 * n, 3 * n]))),
    (pa.date64(), st.dates()),
    (pa.binary(0), st.just(b"")),
]


class Celsius(pa.ExtensionType):  # type: ignore[misc] # pyarrow has no types
    """A type of our own over doubles."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "penstock.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls()


def _slice(draw: st.DrawFn, array: pa.Array, rows: int) -> pa.Array:
    """So many rows out of a longer array."""
    start = draw(st.integers(0, len(array) - rows))
    return array.slice(start, rows)


@st.composite
def leaf(draw: st.DrawFn, rows: int) -> pa.Array:
    kind, values = draw(st.sampled_from(LEAVES))
    size = rows + draw(st.sampled_from([0, 1, 9, 20]))
    cells = values if draw(st.booleans()) else st.none() | values
    return _slice(draw, pa.array(draw(st.lists(cells, min_size=size, max_size=size)), kind), rows)


@st.composite
def list_views(draw: st.DrawFn, rows: int, depth: int) -> pa.Array:
    """Lists that overlap and go backwards, which only list views allow."""
    size = rows + draw(st.sampled_from([0, 3, 11]))
    items = draw(arrays(draw(st.integers(0, 12)), depth))
    spans = [(draw(st.integers(0, len(items))), draw(st.integers(0, 4))) for _ in range(size)]
    offsets = [start for start, _ in spans]
    sizes = [min(count, len(items) - start) for start, count in spans]
    large = draw(st.booleans())
    mask = pa.array([draw(st.booleans()) for _ in range(size)], pa.bool_()) if draw(st.booleans()) else None
    kind = pa.LargeListViewArray if large else pa.ListViewArray
    number = pa.int64() if large else pa.int32()
    built = kind.from_arrays(pa.array(offsets, number), pa.array(sizes, number), items, mask=mask)
    return _slice(draw, built, rows)


@st.composite
def unions(draw: st.DrawFn, rows: int, depth: int) -> pa.Array:
    size = rows + draw(st.sampled_from([0, 3, 11]))
    codes = draw(st.sampled_from([[0, 1], [5, 2], [127, 0, 3]]))
    chosen = [draw(st.integers(0, len(codes) - 1)) for _ in range(size)]
    types = pa.array([codes[c] for c in chosen], pa.int8())
    if draw(st.booleans()):
        children = [draw(arrays(size, depth)) for _ in codes]
        return _slice(draw, pa.UnionArray.from_sparse(types, children, type_codes=codes), rows)
    seen = [0] * len(codes)
    offsets = []
    for c in chosen:
        offsets.append(seen[c])
        seen[c] += 1
    children = [draw(arrays(count + draw(st.integers(0, 2)), depth)) for count in seen]
    built = pa.UnionArray.from_dense(types, pa.array(offsets, pa.int32()), children, type_codes=codes)
    return _slice(draw, built, rows)


@st.composite
def dictionaries(draw: st.DrawFn, rows: int) -> pa.Array:
    size = rows + draw(st.sampled_from([0, 5]))
    words = pa.array(
        draw(st.lists(TEXTS, min_size=1, max_size=30, unique=True)),
        draw(st.sampled_from([pa.string(), pa.large_string()])),
    )
    numbers = st.integers(0, len(words) - 1)
    cells = draw(st.lists(numbers if draw(st.booleans()) else st.none() | numbers, min_size=size, max_size=size))
    kind = draw(st.sampled_from([pa.int8(), pa.uint16(), pa.int32(), pa.int64()]))
    return _slice(draw, pa.DictionaryArray.from_arrays(pa.array(cells, kind), words), rows)


@st.composite
def runs(draw: st.DrawFn, rows: int) -> pa.Array:
    size = rows + draw(st.sampled_from([0, 5, 17]))
    cells = draw(st.lists(st.none() | st.integers(0, 2), min_size=size, max_size=size))
    kind = draw(st.sampled_from([pa.int16(), pa.int32(), pa.int64()]))
    return _slice(draw, pc.run_end_encode(pa.array(cells, pa.int64()), run_end_type=kind), rows)


@st.composite
def nested(draw: st.DrawFn, rows: int, depth: int) -> pa.Array:
    """Lists, structs, fixed-size lists and maps around any other array."""
    size = rows + draw(st.sampled_from([0, 3, 10]))
    form = draw(st.sampled_from(["list", "large", "fixed", "struct", "map"]))
    mask = pa.array([draw(st.booleans()) for _ in range(size)], pa.bool_()) if draw(st.booleans()) else None
    if form == "struct":
        fields = [draw(arrays(size, depth)) for _ in range(draw(st.integers(1, 3)))]
        return _slice(draw, pa.StructArray.from_arrays(fields, [f"f{i}" for i in range(len(fields))], mask=mask), rows)
    if form == "fixed":
        width = draw(st.integers(1, 3))
        return _slice(
            draw, pa.FixedSizeListArray.from_arrays(draw(arrays(size * width, depth)), width, mask=mask), rows
        )
    counts = [draw(st.integers(0, 3)) for _ in range(size)]
    first = draw(st.integers(0, 2))  # offsets need not begin at 0
    offsets = np.concatenate([[first], first + np.cumsum(counts)]).astype(np.int64 if form == "large" else np.int32)
    items = draw(arrays(int(offsets[-1]) + draw(st.integers(0, 2)), depth))
    if form == "map":
        keys = pa.array([f"k{i}" for i in range(len(items))], pa.string())
        return _slice(draw, pa.MapArray.from_arrays(pa.array(offsets), keys, items), rows)
    kind = pa.LargeListArray if form == "large" else pa.ListArray
    return _slice(draw, kind.from_arrays(pa.array(offsets), items, mask=mask), rows)


@st.composite
def arrays(draw: st.DrawFn, rows: int, depth: int = 2) -> pa.Array:
    """Any array of so many rows."""
    forms = ["leaf", "leaf", "dictionary", "runs", "celsius"] + (["nested", "view", "union"] if depth else [])
    match draw(st.sampled_from(forms)):
        case "leaf":
            return draw(leaf(rows))
        case "dictionary":
            return draw(dictionaries(rows))
        case "runs":
            return draw(runs(rows))
        case "celsius":
            plain = pa.array([draw(st.none() | st.floats(-9, 9)) for _ in range(rows)], pa.float64())
            return pa.ExtensionArray.from_storage(Celsius(), plain)
        case "nested":
            return draw(nested(rows, depth - 1))
        case "view":
            return draw(list_views(rows, depth - 1))
        case _:
            return draw(unions(rows, depth - 1))


@st.composite
def any_batches(draw: st.DrawFn, rows_max: int = 20, columns_max: int = 3) -> pa.RecordBatch:
    """A batch of up to so many columns, perhaps of none, perhaps a slice."""
    rows = draw(st.integers(0, rows_max))
    columns = [draw(arrays(rows)) for _ in range(draw(st.integers(1, columns_max)))]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])
    start = draw(st.integers(0, rows))
    return batch.slice(start, draw(st.integers(0, rows - start)))


def cells(batch: pa.RecordBatch) -> list[list[Any]]:
    """The values as text, in which NaN equals NaN."""
    return [[repr(value) for value in column.to_pylist()] for column in batch.columns]
