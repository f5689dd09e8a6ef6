"""Routed batches as images: the same rows in the same order as the router gives, for every type and target."""

from __future__ import annotations

import socket

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from image_strategies import any_batches, cells

from penstock.run.columns import kernels
from penstock.run.transport.socket import SocketChannel
from penstock.run.transport.wire import codec_of, open_image, route_by_key, route_by_target, unpack_batch, write_image


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(batch=any_batches(), parts=st.integers(1, 5), seed=st.integers(0, 1000))
def test_every_row_arrives_where_it_was_sent(batch: pa.RecordBatch, parts: int, seed: int) -> None:
    targets = np.random.default_rng(seed).integers(0, parts, batch.num_rows).astype(np.uint32)
    values = cells(batch)
    seen = 0
    for part, image in route_by_target(batch, targets, parts):
        chosen = np.flatnonzero(targets == part)
        span = np.zeros(image.size, np.uint8)
        assert image.write_at(span.ctypes.data, len(span)) == image.size
        got = open_image(span, batch.schema)
        got.validate(full=True)
        assert image.rows == got.num_rows == len(chosen)
        assert cells(got) == [[column[i] for i in chosen] for column in values]
        assert cells(image.open(codec_of(batch.schema))) == cells(got)
        seen += len(chosen)
    assert seen == batch.num_rows


@settings(max_examples=60)
@given(words=st.lists(st.none() | st.text(max_size=4), max_size=60), parts=st.integers(1, 9), start=st.integers(0, 9))
def test_keys_go_where_partition_sends_them(words: list[str | None], parts: int, start: int) -> None:
    batch = pa.record_batch({"word": pa.array(words, pa.string()), "n": np.arange(len(words))}).slice(start)
    expected = {i: part for i, part in enumerate(kernels.partition(batch, ["word"], parts)) if part and part.num_rows}
    routed = dict(route_by_key(batch, ["word"], parts))
    assert routed.keys() == expected.keys()
    for part, image in routed.items():
        assert image.open(codec_of(batch.schema)).equals(expected[part])


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_keys_that_only_pyarrow_reads_meet_their_plain_equals(kind: pa.DataType) -> None:
    plain = pa.record_batch({"k": [f"key {i % 7} that is long" for i in range(100)], "i": np.arange(100)})
    other = plain.set_column(0, "k", plain.column(0).cast(kind))
    for (part, one), (also, two) in zip(route_by_key(plain, ["k"], 4), route_by_key(other, ["k"], 4), strict=True):
        assert part == also
        left, right = one.open(codec_of(plain.schema)), two.open(codec_of(other.schema))
        assert left.column(1).equals(right.column(1))
        assert left.column(0).to_pylist() == right.column(0).to_pylist()


def test_one_target_gets_the_batch_as_it_is() -> None:
    batch = pa.record_batch({"w": ["same"] * 50})
    ((part, image),) = route_by_key(batch, ["w"], 8)
    assert 0 <= part < 8
    target = bytearray(image.size)
    image.write_into(target)
    assert target == write_image(batch).to_pybytes()


@pytest.mark.parametrize("targets", [[0, 1], [0, 1, 2, 3], [0, 1, 9]])
def test_targets_that_do_not_fit_are_refused(targets: list[int]) -> None:
    with pytest.raises(ValueError, match=r"target for each row|not there"):
        route_by_target(pa.record_batch({"i": [1, 2, 3]}), np.array(targets, np.uint32), 3)


def test_a_large_dictionary_is_cut_to_what_the_rows_use() -> None:
    words = pa.array([f"a word that takes some room {i}" for i in range(50_000)])
    indices = pa.array([None, 4, 49_999, 4, *range(1000, 2000)], pa.int32())
    batch = pa.RecordBatch.from_arrays([pa.DictionaryArray.from_arrays(indices, words)], names=["d"])
    piece = batch.slice(0, 10)
    image = write_image(piece)
    assert image.size < 1500
    got = open_image(image, piece.schema)
    assert got.to_pylist() == piece.to_pylist()
    assert len(got.column(0).dictionary) == 8
    nulls = batch.slice(0, 1)
    assert open_image(write_image(nulls), nulls.schema).to_pylist() == [{"d": None}]


def test_routed_images_travel_by_socket_while_it_waits() -> None:
    left, right = socket.socketpair()
    sender, receiver = SocketChannel(left, 1, 4), SocketChannel(right, 0, 4)
    batch = pa.record_batch({"word": [f"w{i % 100}" for i in range(60_000)], "n": np.arange(60_000)})
    sizes = {part: sender.send_image(part, image, part) for part, image in route_by_key(batch, ["word"], 4)}
    assert sender.wants_write  # what waits has been copied: the images are gone
    expected = kernels.partition(batch, ["word"], 4)
    got = 0
    for _ in range(1_000_000):
        sender.flush()
        for frame in receiver.receive():
            assert frame.size == sizes[frame.edge]
            assert unpack_batch(frame, batch.schema).equals(expected[frame.edge])
            got += 1
        if got == len(sizes):
            break
    assert got == len(sizes) == 4
    sender.close()
    receiver.close()
