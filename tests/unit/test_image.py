"""Batch images: every type there and back, cut to what is shown, kept alive, and never read outside their bytes."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from image_strategies import any_batches, cells

from penstock import _core
from penstock.run.transport.wire import WireFault, codec_of, open_image, prepare, write_image

HEAD = 64  # bytes before the first node head


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(batch=any_batches())
def test_every_batch_comes_back(batch: pa.RecordBatch) -> None:
    image = write_image(batch)
    got = open_image(image, batch.schema)
    got.validate(full=True)
    assert got.schema.equals(batch.schema, check_metadata=True)
    assert cells(got) == cells(batch)
    assert write_image(got).size <= image.size  # nothing is dragged along


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(batch=any_batches(), data=st.data())
def test_a_mutated_image_is_a_fault_or_a_readable_batch(batch: pa.RecordBatch, data: st.DataObject) -> None:
    image = bytearray(write_image(batch).to_pybytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(image) - 1) | st.integers(0, min(len(image), 600) - 1))
        image[at] = data.draw(st.sampled_from([0, 1, 255, 127, 128, 64]) | st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 64, 200]))
    # An exact allocation, so that a sanitised build sees every byte read beyond it.
    owner = np.frombuffer(bytes(image[: len(image) - cut]), np.uint8).copy()
    try:
        got = open_image(owner, batch.schema)
    except WireFault:
        return
    try:
        got.validate(full=True)
    except pa.ArrowInvalid:
        return  # text that is not UTF-8, decimals beyond their precision and the like: wrong, but inside the image
    write_image(got)  # reads all of it


def test_every_single_bit_of_a_descriptor_may_flip() -> None:
    batch = pa.record_batch(
        {
            "s": pa.array(["a", None, "ccc"]),
            "l": pa.array([[1], [], [2, 3]]),
            "v": pa.array(["short", "long enough to need a buffer", None], pa.string_view()),
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
        }
    )
    good = write_image(batch).to_pybytes()
    faults = 0
    for bit in range(len(good) * 8):
        mutated = bytearray(good)
        mutated[bit // 8] ^= 1 << (bit % 8)
        try:
            open_image(np.frombuffer(bytes(mutated), np.uint8).copy(), batch.schema)
        except WireFault:
            faults += 1
    assert faults > len(good)  # most of what matters is noticed; flipped values and padding cannot be


def test_zero_columns_and_zero_rows() -> None:
    nothing = pa.RecordBatch.from_arrays([], names=[])
    assert open_image(write_image(nothing), nothing.schema).num_columns == 0
    schema = pa.schema([("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.string_view())), ("n", pa.null())])
    batch = pa.RecordBatch.from_pylist([], schema)
    assert open_image(write_image(batch), schema).equals(batch)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.arange(200_000)),
        pa.array(["some text that takes room"] * 50_000),
        pa.array([None, "some text that takes room"] * 25_000),
        pa.array(["some text that takes more than twelve bytes"] * 50_000, pa.string_view()),
        pa.array([[1, 2, 3, 4]] * 50_000),
        pa.array([True, None] * 400_000),
        pa.array([{"a": 1, "b": "text"}] * 50_000),
        pa.array([[1, 2]] * 50_000, pa.list_view(pa.int64())),
        pa.RunEndEncodedArray.from_arrays(pa.array(np.arange(1, 50_001)), pa.array(np.arange(50_000))),
    ],
    ids=lambda column: str(column.type),
)
def test_ten_rows_of_many_take_little_room(column: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([column], names=["c"])
    piece = batch.slice(len(column) // 2 + 3, 10)
    image = write_image(piece)
    assert image.size < 2048
    assert open_image(image, piece.schema).to_pylist() == piece.to_pylist()


def test_a_large_row_before_the_slice_stays_away() -> None:
    batch = pa.record_batch({"s": pa.array(["x" * 100_000, None, "a", None, "b"])})
    assert write_image(batch.slice(1, 3)).size < 512


def test_an_image_has_no_bytes_that_were_in_its_span_before() -> None:
    batch = pa.record_batch({"s": pa.array(["a", None, "ccc"]), "b": pa.array([True, False, None])})
    prepared = prepare(batch)
    clean, dirty = bytearray(prepared.size), bytearray(b"\xff" * prepared.size)
    prepared.write_into(clean)
    prepared.write_into(dirty)
    assert clean == dirty


def test_write_at_fills_a_span_and_refuses_a_short_one() -> None:
    batch = pa.record_batch({"a": np.arange(1000)})
    prepared = prepare(batch)
    span = np.zeros(prepared.size, np.uint8)
    assert prepared.write_at(span.ctypes.data, len(span)) == prepared.size
    assert open_image(span, batch.schema).equals(batch)
    with pytest.raises(ValueError, match="shorter"):
        prepared.write_at(span.ctypes.data, prepared.size - 1)
    with pytest.raises(ValueError, match="shorter"):
        prepared.write_into(bytearray(8))


class Owner(bytearray):
    """Bytes that can be watched."""


def test_the_owner_lives_as_long_as_the_last_child() -> None:
    batch = pa.record_batch({"s": [{"x": [1, 2], "y": "text"}] * 20, "n": list(range(20))})
    owner = Owner(write_image(batch).to_pybytes())
    alive = weakref.ref(owner)
    got = open_image(owner, batch.schema)
    del owner
    leaf = got.column(0).field(0).flatten()
    text = got.column(0).field(1).slice(3, 2)
    del got
    gc.collect()
    assert alive() is not None
    assert leaf.to_pylist() == [1, 2] * 20
    del leaf
    gc.collect()
    assert alive() is not None
    assert text.to_pylist() == ["text", "text"]
    del text
    gc.collect()
    assert alive() is None


def test_a_failed_opening_lets_its_owner_go() -> None:
    batch = pa.record_batch({"a": [1]})
    owner = Owner(write_image(batch).to_pybytes())
    alive = weakref.ref(owner)
    with pytest.raises(WireFault, match="other types"):
        open_image(owner, pa.schema([("a", pa.int32())]))
    del owner
    gc.collect()
    assert alive() is None


def test_a_prepared_image_holds_its_batch() -> None:
    values = np.arange(1000)
    alive = weakref.ref(values)
    prepared = prepare(pa.record_batch({"a": values}))
    del values
    gc.collect()
    assert alive() is not None
    image = bytearray(prepared.size)
    prepared.write_into(image)
    del prepared
    gc.collect()
    assert alive() is None
    assert open_image(image, pa.schema([("a", pa.int64())])).column(0).to_pylist() == list(range(1000))


@pytest.mark.parametrize(
    ("at", "value", "told"),
    [
        (0, 0, "no image"),
        (8, 1, "other types"),
        (16, 2**40 + 1, "claims"),
        (16, 4, "shorter than its batch"),
        (24, 10**9, "came in"),
        (HEAD, -1, "claims"),
        (HEAD, 2**39, "too short"),
        (HEAD + 8, 99, "number of nulls"),
        (HEAD + 16, 5, "too short"),
        (HEAD + 24, 1, "variadic"),
    ],
)
def test_faults_say_what_is_wrong(at: int, value: int, told: str) -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    image = bytearray(write_image(batch).to_pybytes())
    image[at : at + 8] = value.to_bytes(8, "little", signed=True)
    with pytest.raises(WireFault, match=told):
        open_image(image, batch.schema)


def test_codecs_are_made_once_and_formats_decide() -> None:
    schema = pa.schema([("a", pa.int64())])
    assert codec_of(schema) is codec_of(pa.schema([("a", pa.int64())]))
    renamed = pa.schema([pa.field("b", pa.int64(), nullable=False)])
    image = write_image(pa.record_batch({"a": [1]}))
    assert open_image(image, renamed).column("b").to_pylist() == [1]  # names do not travel
    assert codec_of(schema).schema.equals(schema)
    assert issubclass(_core.ImageFault, ValueError)
