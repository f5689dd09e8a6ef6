"""Rows of 100 KB and of 10 MB through sources, operators, groupings and between workers: cut by bytes, never lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flow_kit import Recorder, opened
from worker_kit import LocalJob

import penstock as ps
from penstock.run.contract import BATCH_BYTES_MAX, ENDED
from penstock.run.engine.worker import TaskFault
from penstock.run.engine.worker_share import RunSettings
from penstock.run.machine.instructions import EdgeLayout, Run, Send, TaskLayout, WorkerLayout
from penstock.run.machine.machine import Machine
from penstock.run.operators.convert import row_bytes
from penstock.run.operators.sources.generated import GeneratorSource
from penstock.run.transport.wire import BODY_BYTES_MAX, cut, prepare

both_transports = pytest.mark.parametrize("transport", ["socket", "ring"])
LENGTHS = [*([100_000] * 300), *([10_000_000] * 4)]  # 70 MB
SCHEMA = "n bigint, blob binary"


def values(task: int, tasks: int) -> Iterator[tuple[int, bytes]]:
    return ((n, bytes([n % 251]) * LENGTHS[n]) for n in range(task, len(LENGTHS), tasks))


class Taken:
    """A sink that looks at each batch and keeps how long its rows were."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self.sizes: list[tuple[int, int]] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        for n, blob in zip(batch["n"].to_pylist(), batch["blob"], strict=True):
            data = blob.as_buffer()
            assert data[0] == data[len(data) - 1] == n % 251
            self.rows.append((n, data.size))
        self.sizes.append((batch.num_rows, prepare(batch).size))


@both_transports
def test_large_rows_go_between_workers_in_pieces(transport: str) -> None:
    top = ps.Topology("large")
    rows = top.source("rows", ps.io.generator(values, SCHEMA), tasks=2)
    found = {"shuffled": Taken(), "keyed": Taken(), "mapped": Taken()}
    rows.shuffle().sink("shuffled", ps.io.callback(found["shuffled"]), tasks=2)
    rows.fields("n").sink("keyed", ps.io.callback(found["keyed"]), tasks=2)
    rows.map(lambda row: row, SCHEMA, tasks=2).sink("mapped", ps.io.callback(found["mapped"]))
    LocalJob(top.build(), 3, settings=RunSettings(transport=transport)).run()
    for taken in found.values():
        assert sorted(taken.rows) == list(enumerate(LENGTHS))
        assert all(rows == 1 or size <= 3 * BATCH_BYTES_MAX for rows, size in taken.sizes)  # of 70 MB


def one_batch(rows: int, bytes_each: int) -> pa.RecordBatch:
    """Rows of zeros, which take no memory until somebody copies them."""
    ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * bytes_each)
    blob = pa.Array.from_buffers(pa.binary(), rows, [None, ends, pa.py_buffer(np.zeros(rows * bytes_each, np.uint8))])
    return pa.record_batch([pa.array(np.zeros(rows, np.int64)), blob], names=["n", "blob"])


@both_transports
def test_a_batch_beyond_the_limit_of_a_frame_is_cut(transport: str) -> None:
    whole = one_batch(270, 1_000_000)
    assert prepare(whole).size > BODY_BYTES_MAX
    top = ps.Topology("beyond")
    taken = Taken()
    source = ps.io.generator(lambda *_: [whole], whole.schema)
    top.source("rows", source).fields("n").sink("out", ps.io.callback(taken), tasks=2)
    LocalJob(top.build(), 2, {"rows/0": 0, "out/0": 1, "out/1": 1}, RunSettings(transport=transport)).run()
    assert taken.rows == [(0, 1_000_000)] * 270


@both_transports
def test_a_row_beyond_the_limit_is_named_with_its_operator(transport: str) -> None:
    row = one_batch(1, BODY_BYTES_MAX + 1)
    top = ps.Topology("too-large")
    source = ps.io.generator(lambda *_: [row], row.schema)
    top.source("rows", source).fields("n").sink("out", ps.io.discard(), tasks=2)
    job = LocalJob(top.build(), 2, {"rows/0": 0, "out/0": 1, "out/1": 1}, RunSettings(transport=transport))
    with pytest.raises(TaskFault, match=r"operator 'rows' .* one row takes 2684\d+ bytes .* the limit is 268435456"):
        job.run()


def test_a_batch_is_cut_between_rows_until_its_pieces_are_small() -> None:
    pieces = cut(one_batch(40, 1_000_000))
    assert [piece.num_rows for piece in pieces] == [10, 10, 10, 10]  # 40 MB, 20 MB, 10 MB
    assert [piece.num_rows for piece in cut(one_batch(2, BATCH_BYTES_MAX))] == [1, 1]


# -- where batches are made ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [10, 100_000, 10_000_000])
def test_a_generators_rows_are_gathered_up_to_so_many_bytes(length: int) -> None:
    value = "x" * length
    task = opened(lambda: GeneratorSource(lambda *_: [(value,)] * 40, pa.schema({"text": pa.string()})))
    out = Recorder()
    while task.poll(0, out) != ENDED:
        pass
    batches = out.batches["out"]
    assert sum(batch.num_rows for batch in batches) == 40
    assert all(batch.num_rows * length <= BATCH_BYTES_MAX + length for batch in batches)


def test_a_parquet_file_is_read_in_batches_of_so_many_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    blobs = [rng.bytes(1_000_000) for _ in range(40)]
    pq.write_table(pa.table({"blob": blobs}), tmp_path / "large.parquet")
    task = opened(ps.io.files(tmp_path).build)
    out = Recorder()
    while task.poll(0, out) != ENDED:
        pass
    assert [row for (row,) in out.rows()] == blobs
    assert max(batch.num_rows for batch in out.batches["out"]) <= 16


def test_a_row_is_as_long_as_what_it_holds() -> None:
    assert row_bytes(("abc", b"de", None, 1.5)) == 3 + 2 + 8 + 8
    assert row_bytes({"a": "abc", "b": ["x", ("yy",)], "c": {"k": "z"}}) == 3 + 1 + 2 + 1


# -- where they are joined -------------------------------------------------------------------------------------------


def test_what_waits_is_joined_up_to_so_many_bytes() -> None:
    busy = Machine(WorkerLayout((TaskLayout("sink/0", 1.0),), (EdgeLayout(None, 0, window=1 << 30),)))
    for name in "abcde":
        busy.received(0, name, 6 << 20, 60)
    busy.received(0, "large", 40 << 20, 1)
    runs = []
    while isinstance(run := busy.next(0), Run):
        runs.append(run.inputs[0][1])
    assert runs == [("a", "b"), ("c", "d"), ("e",), ("large",)]


def test_what_is_held_for_others_to_join_it_goes_out_at_so_many_bytes() -> None:
    busy = Machine(
        WorkerLayout(
            (TaskLayout("source/0", 0.0, is_source=True),), (EdgeLayout(0, None, window=1 << 30),), linger_us=99
        )
    )
    for name in "abc":
        assert busy.holds(0, 60)
        busy.hold(0, name, 6 << 20, 60)
    send = busy.next(0)
    assert isinstance(send, Send)
    assert send.payloads == ("a", "b", "c")


@both_transports
def test_slices_of_a_region_that_fill_their_windows_go_through(transport: str) -> None:
    """Each row is as large as a window, so that nothing follows a slice that could push its mark out."""
    whole = one_batch(40, 1_000_000)
    top = ps.Topology("region")
    taken = Taken()
    stream = top.source("rows", ps.io.generator(lambda *_: [whole], whole.schema))
    stream.parallel(2).map(lambda row: row, whole.schema).merge().sink("out", ps.io.callback(taken))
    LocalJob(top.build(), 3, settings=RunSettings(transport=transport)).run()
    assert taken.rows == [(0, 1_000_000)] * 40
