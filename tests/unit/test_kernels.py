"""Hashing, routing and splitting against their plain references."""

from __future__ import annotations

import subprocess
import sys

import kernels_reference as reference
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_strategies import TEXTS, batches, shown

from penstock.errors import InvalidInput
from penstock.run.columns import kernels
from penstock.run.columns.native_schema import RECENT_MAX, Recent


@given(batches(), st.data())
def test_hashes_equal_the_reference(batch: pa.RecordBatch, data: st.DataObject) -> None:
    columns = data.draw(st.permutations(batch.schema.names).map(lambda names: names[: data.draw(st.integers(0, 4))]))
    np.testing.assert_array_equal(kernels.hash_rows(batch, columns), reference.hash_rows(batch, columns))


PINNED = [
    (pa.array([1], pa.int64()), 0),
    (pa.array([1], pa.int8()), 0),
    (pa.array([True]), 0),
    (pa.array([None], pa.int64()), 1),
    (pa.array(["penstock"]), 2),
    (pa.array([b"penstock"]), 2),
    (pa.array(["penstock"]).dictionary_encode(), 2),
    (pa.array([""]), 3),
    (pa.array(["a sentence that is longer than sixteen bytes"]), 4),
    (pa.array([0.0]), 5),
    (pa.array([-0.0], pa.float32()), 5),
    (pa.array([float("nan")]), 6),
    (pa.array([["a", None]]), 7),
]
PINNED_HASHES = [
    5566123627271492903,
    18140665521927540414,
    7430806954580759114,
    12280308009835306574,
    1789326346056490782,
    10106435977716255150,
    7919813147731433145,
    11565337934682957473,
]


@pytest.mark.parametrize(("column", "which"), PINNED, ids=lambda value: str(value)[:30])
def test_hashes_never_change(column: pa.Array, which: int) -> None:
    assert int(kernels.hash_rows(pa.record_batch([column], names=["c"]), ["c"])[0]) == PINNED_HASHES[which]


def test_hashes_are_equal_in_another_process() -> None:
    code = (
        "import pyarrow as pa; from penstock.run.columns.kernels import hash_rows;"
        "print(int(hash_rows(pa.record_batch({'a': ['x'], 'b': [7]}), ['a', 'b'])[0]))"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(there) == int(kernels.hash_rows(pa.record_batch({"a": ["x"], "b": [7]}), ["a", "b"])[0])


@given(batches(), st.integers(1, 9), st.data())
def test_partitions_equal_the_reference(batch: pa.RecordBatch, parts: int, data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.sampled_from(batch.schema.names), min_size=1, unique=True))
    found = kernels.partition(batch, columns, parts)
    assert [shown(part) for part in found] == [shown(part) for part in reference.partition(batch, columns, parts)]


def test_parts_are_slices_of_one_batch_and_one_part_is_the_batch_itself() -> None:
    batch = pa.record_batch({"k": list(range(100))})
    parts = [part for part in kernels.partition(batch, ["k"], 4) if part is not None]
    assert len({part.column(0).buffers()[1].address for part in parts}) == 1
    assert kernels.partition(batch, ["k"], 1)[0] is batch
    same = pa.record_batch({"k": [5] * 10})
    assert [part for part in kernels.partition(same, ["k"], 4) if part is not None] == [same]


def test_keys_spread_evenly_over_parts_and_over_table_slots() -> None:
    batch = pa.record_batch({"k": np.arange(64_000)})
    sizes = [part.num_rows if part else 0 for part in kernels.partition(batch, ["k"], 16)]
    assert min(sizes) > 3_700
    assert max(sizes) < 4_300
    low_bits = np.bincount((kernels.hash_rows(batch, ["k"]) & np.uint64(15)).astype(np.int64), minlength=16)
    assert low_bits.min() > 3_700


@given(batches(columns_max=2, rows_max=200), st.integers(1, 9), st.data())
def test_spread_keeps_every_row_once_in_order_from_the_first_part(
    batch: pa.RecordBatch, parts: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, parts - 1))
    found = kernels.spread(batch, parts, first)
    rotated = [part for part in found[first:] + found[:first] if part is not None]
    assert len(found) == parts
    assert shown(pa.concat_batches([batch.slice(0, 0), *rotated])) == shown(batch)
    sizes = [part.num_rows for part in rotated]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert batch.num_rows >= 2 * kernels.SPREAD_ROWS_MIN or len(rotated) <= 1


@given(
    batches(),
    st.lists(st.none() | st.text("ab ,é", max_size=30)),
    st.sampled_from([" ", ",", "é", ", ", "ab"]),
    st.data(),
)
def test_splits_equal_the_reference(
    beside: pa.RecordBatch, texts: list[str | None], separator: str, data: st.DataObject
) -> None:
    kind = data.draw(
        st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.string_view()])
    )
    rows = min(beside.num_rows, len(texts))
    text = pa.array(texts, kind).slice(len(texts) - rows)
    names = ["text", *beside.schema.names]
    batch = pa.RecordBatch.from_arrays([text, *(column.slice(0, rows) for column in beside.columns)], names=names)
    keep = data.draw(st.lists(st.sampled_from(names), unique=True))
    found = kernels.split_words(batch, "text", "word", separator, keep)
    assert shown(found) == shown(reference.split_words(batch, "text", "word", separator, keep))


@given(st.lists(TEXTS))
def test_split_pieces_join_to_the_text_without_its_separators(texts: list[str]) -> None:
    words = kernels.split_words(pa.record_batch({"t": pa.array(texts, pa.string())}), "t", "w")
    assert "".join(words.column(0).to_pylist()) == "".join(texts).replace(" ", "")


def test_faults_are_named_at_the_door() -> None:
    batch = pa.record_batch({"a": [1], "t": ["x"]})
    with pytest.raises(InvalidInput, match=r"'b'.*columns are a, t"):
        kernels.partition(batch, ["b"], 2)
    with pytest.raises(InvalidInput, match="0 parts"):
        kernels.partition(batch, ["a"], 0)
    with pytest.raises(InvalidInput, match="first part 3"):
        kernels.spread(batch, 3, 3)
    with pytest.raises(InvalidInput, match=r"needs text in column 'a'.*int64"):
        kernels.split_words(batch, "a", "w")
    with pytest.raises(InvalidInput, match="separator"):
        kernels.split_words(batch, "t", "w", "")
    with pytest.raises(InvalidInput, match="'a' twice"):
        kernels.split_words(batch, "t", "a", " ", ["a"])
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(InvalidInput, match="'u' of type sparse_union"):
        kernels.hash_rows(pa.record_batch([union], names=["u"]), ["u"])


def test_rows_with_columns_that_only_pyarrow_copies_are_partitioned_too() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0] * 40, pa.int8()), [pa.array(range(40))])
    batch = pa.record_batch([pa.array(range(40)), union], names=["k", "u"])
    parts = [part for part in kernels.partition(batch, ["k"], 3) if part is not None]
    assert len(parts) == 3
    assert all(part.column(0).to_pylist() == part.column(1).to_pylist() for part in parts)


def test_a_dictionary_is_shared_by_the_parts_and_outlives_the_batch() -> None:
    words = pa.array([f"w{i}" for i in range(200)]).dictionary_encode()
    batch = pa.record_batch([words], names=["w"])
    address = batch.column(0).dictionary.buffers()[2].address
    parts = [part for part in kernels.partition(batch, ["w"], 3) if part is not None]
    assert {part.column(0).dictionary.buffers()[2].address for part in parts} == {address}
    expected = sorted(words.to_pylist())
    del batch, words
    assert sorted(value for part in parts for value in part.column(0).to_pylist()) == expected


def test_two_schemas_that_take_turns_stay_in_front_and_others_push_them_out_last() -> None:
    made: list[str] = []

    def make(schema: pa.Schema) -> str:
        made.append(schema.names[0])
        return schema.names[0]

    recent = Recent(make)
    schemas = [pa.schema([(f"c{i}", pa.int64())]) for i in range(RECENT_MAX + 10)]
    for schema in schemas[:RECENT_MAX]:
        recent(schema)
    for schema in schemas[RECENT_MAX:]:
        assert [recent(schemas[0]), recent(schemas[1])] == ["c0", "c1"]
        recent(schema)
    assert made == [schema.names[0] for schema in schemas]  # none was made twice
    assert {entry[2] for entry in recent._entries[:3]} >= {"c0", "c1"}
