"""Rows of several DataFrames, taken apart again in the worker."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.deploy.worker.tagged import AHEAD_BATCHES_MAX, TAG, Splitter, rows_of

KINDS = (
    pa.struct([("n", pa.int64()), ("s", pa.string())]),
    pa.struct([("n", pa.int64())]),
    pa.struct([("x", pa.float64())]),
)


def value(kind: pa.StructType, number: int) -> dict[str, object]:
    made: dict[str, object] = {"n": number, "s": None if number % 3 else f"é{number}", "x": number / 2}
    return {field.name: made[field.name] for field in kind}


def batch_of(tags: list[int], start: int = 0) -> pa.RecordBatch:
    columns = {TAG: pa.array(tags, pa.int32())}
    for k, kind in enumerate(KINDS):
        columns[f"s{k}"] = pa.array([value(kind, start + i) if tag == k else None for i, tag in enumerate(tags)], kind)
    return pa.RecordBatch.from_pydict(columns)


batches = st.lists(st.one_of(st.none(), st.lists(st.integers(0, 2), max_size=6)), max_size=30)


@given(batches, st.lists(st.integers(0, 2), max_size=60))
def test_every_source_gets_its_rows_in_order_whoever_asks(given_: list[list[int] | None], asks: list[int]) -> None:
    made, expected, start = [], [[], [], []], 0
    for tags in given_:
        made.append(None if tags is None else batch_of(tags, start))
        for i, tag in enumerate(tags or []):
            expected[tag].append(value(KINDS[tag], start + i))
        start += len(tags or [])
    splitter = Splitter(iter(made), len(KINDS))
    readers = [splitter.reader(k) for k in range(len(KINDS))]
    got: list[list[dict[str, object]]] = [[], [], []]
    for k in [*asks, *([0, 1, 2] * 100)]:  # then fairly, until all have ended
        batch = next(readers[k], None)
        got[k] += [] if batch is None else batch.to_pylist()
    assert got == expected
    assert [list(reader) for reader in readers] == [[], [], []]


def test_a_source_that_does_not_ask_holds_the_input_back() -> None:
    taken = 0

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        while True:
            taken += 1
            yield batch_of([1])

    splitter = Splitter(endless(), len(KINDS))
    impatient, slow = splitter.reader(0), splitter.reader(1)
    assert [next(impatient) for _ in range(100)] == [None] * 100
    assert taken == AHEAD_BATCHES_MAX
    assert next(slow) is not None
    assert next(impatient) is None
    assert taken == AHEAD_BATCHES_MAX + 1


def test_a_struct_of_null_fields_is_a_row() -> None:
    kind = pa.struct([("n", pa.int64())])
    batch = pa.RecordBatch.from_pydict(
        {
            TAG: pa.array([0, 1], pa.int32()),
            "s0": pa.array([{"n": None}, None], kind),
            "s1": pa.array([None, {"n": 1}], kind),
        }
    )
    assert [rows_of(batch, k).to_pylist() for k in (0, 1)] == [[{"n": None}], [{"n": 1}]]  # type: ignore[union-attr]
    assert rows_of(batch.slice(1), 0) is None
