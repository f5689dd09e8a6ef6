"""Batches that a thread pulls from Spark, and what a worker does that wants no more of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.deploy.worker.pulled import INPUT_BATCHES, InputLost, PulledInput

BATCH = pa.RecordBatch.from_pydict({"n": [1, 2]})


def test_all_batches_come_and_then_the_end() -> None:
    pulled = PulledInput(iter([BATCH] * 20))
    assert sum(batch.num_rows for batch in pulled if batch is not None) == 40
    assert pulled.ended
    assert pulled.leave(None)


def test_who_leaves_reads_no_further_than_the_batch_in_hand() -> None:
    taken = []

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            taken.append(1)
            yield BATCH

    pulled = PulledInput(endless())
    while next(pulled) is None:
        pass
    assert pulled.leave(None)
    assert len(taken) <= 2 * INPUT_BATCHES + 3


def test_who_cannot_leave_says_so() -> None:
    gate = threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        gate.wait()
        yield BATCH

    pulled = PulledInput(slow())
    assert not pulled.leave(0.0)
    gate.set()
    assert pulled.leave(None)


def test_what_spark_breaks_off_is_its_own_failure() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield BATCH
        msg = "Tried reading schema message"
        raise pa.ArrowInvalid(msg)

    pulled = PulledInput(broken())
    with pytest.raises(InputLost, match="Spark's rows ended early: ArrowInvalid"):
        list(pulled)
    assert pulled.ended
