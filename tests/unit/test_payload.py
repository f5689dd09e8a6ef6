"""One size of a batch for metering: a sum over its rows, however the batch came to be and however it travels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from image_strategies import any_batches

from penstock._core import PreparedImage, Tally
from penstock.run.transport.wire import codec_of, open_image, prepare, route_by_target, write_image

WORDS = ["", "a", "stream", "of words"]


def payload(batch: pa.RecordBatch) -> int:
    return codec_of(batch.schema).payload(batch)


def metered(batch: pa.RecordBatch) -> int:
    """What the meters count for a batch that is passed by a call."""
    tally = Tally(1, [codec_of(batch.schema)])
    tally.passed(0, 0, batch, batch.num_rows)
    tally.take_tasks()
    ((_, _, size, *_),) = tally.take_edges()
    return size


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(batch=any_batches(), parts=st.integers(1, 4), seed=st.integers(0, 1000))
def test_a_size_is_a_sum_over_rows(batch: pa.RecordBatch, parts: int, seed: int) -> None:
    by_row = [payload(batch.slice(i, 1)) for i in range(batch.num_rows)]
    assert payload(batch) == prepare(batch).payload == sum(by_row)
    half = batch.num_rows // 2
    assert payload(batch.slice(half)) == sum(by_row[half:])
    targets = np.random.default_rng(seed).integers(0, parts, batch.num_rows).astype(np.uint32)
    routed: dict[int, PreparedImage] = dict(route_by_target(batch, targets, parts))
    for part, image in routed.items():
        assert image.payload == sum(size for size, target in zip(by_row, targets, strict=True) if target == part)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(batch=any_batches())
def test_a_size_is_the_same_at_both_ends_of_a_transport(batch: pa.RecordBatch) -> None:
    assert payload(open_image(write_image(batch), batch.schema)) == payload(batch)


@pytest.mark.parametrize(
    ("kind", "values", "size"),
    [
        (pa.int64(), [1, None], 16),
        (pa.bool_(), [True, None, False], 3),
        (pa.null(), [None], 0),
        (pa.decimal128(9, 2), [None, None], 32),
        (pa.binary(5), [b"12345"], 5),
        (pa.string(), ["", "abc", None], 12 + 3),
        (pa.large_string(), ["", "abc"], 16 + 3),
        (pa.string_view(), ["short", "longer than twelve"], 32 + 18),
        (pa.list_(pa.int32()), [[1, 2, 3], [], None], 12 + 12),
        (pa.list_(pa.string()), [["ab"], ["c", "d"]], 8 + 12 + 4),
        (pa.list_(pa.int16(), 3), [[1, 2, 3]], 6),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "xyz"}], 8 + 4 + 3),
        (pa.map_(pa.string(), pa.int8()), [[("k", 1)]], 4 + 4 + 1 + 1),
        (pa.dictionary(pa.int8(), pa.string()), ["a long value"] * 3, 3),
    ],
)
def test_what_a_value_counts(kind: pa.DataType, values: list[object], size: int) -> None:
    assert payload(pa.record_batch({"v": pa.array(values, kind)})) == size


def test_nulls_and_room_to_spare_count_nothing() -> None:
    plain, holes = pa.record_batch({"i": [1, 2, 3]}), pa.record_batch({"i": pa.array([1, None, 3])})
    assert payload(plain) == payload(holes) == 24
    assert plain.nbytes != holes.nbytes  # which a profile must not see


def test_runs_count_as_the_rows_that_they_stand_for() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([3, 5], pa.array(["ab", "c"]))
    batch = pa.record_batch({"r": runs})
    assert payload(batch) == 3 * 6 + 2 * 5
    assert payload(batch.slice(2, 2)) == 6 + 5


@given(rows=st.lists(st.sampled_from(WORDS), min_size=64, max_size=300))
def test_batches_of_many_rows_are_measured_exactly(rows: list[str]) -> None:
    batch = pa.record_batch({"w": rows})
    assert metered(batch) == payload(batch)


def test_small_batches_are_sampled_by_chance_and_without_bias() -> None:
    batches = [pa.record_batch({"w": [WORDS[(i * i + j) % 4] for j in range(1 + i % 7)]}) for i in range(4_000)]
    tally = Tally(1, [codec_of(batches[0].schema)])
    for batch in batches:
        tally.passed(0, 0, batch, batch.num_rows)
    tally.take_tasks()
    ((_, rows, size, count, *_),) = tally.take_edges()
    assert (rows, count) == (sum(batch.num_rows for batch in batches), 4_000)
    assert size == pytest.approx(sum(map(payload, batches)), rel=0.02)


def test_small_batches_whose_rows_are_alike_are_exact() -> None:
    batch = pa.record_batch({"w": ["four"] * 3})
    tally = Tally(1, [codec_of(batch.schema)])
    for _ in range(1_000):
        tally.passed(0, 0, batch, 3)
    assert tally.take_tasks()[2] == [24_000]


def test_a_batch_of_another_type_than_its_stream_declares_is_counted_all_the_same() -> None:
    tally = Tally(1, [codec_of(pa.schema([("w", pa.string())]))])
    other = pa.record_batch({"w": pa.array(["ab"] * 64, pa.string_view())})
    tally.passed(0, 0, other, 64)
    assert tally.take_tasks()[2] == [other.nbytes]
