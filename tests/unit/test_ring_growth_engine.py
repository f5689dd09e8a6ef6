"""Whole workers whose inboxes grow while they work: the same answers, and larger rings where batches are large."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from worker_kit import LocalJob

import penstock as ps
from penstock.run.engine.worker_share import RunSettings
from penstock.run.transport.growth import GrowthLimits
from penstock.run.transport.links import Transport

EAGER = GrowthLimits(bytes_max=1 << 18, messages_min=1, obstacles_min=1, looks_between=1)
LINES = 4_000


def test_a_job_with_large_batches_gets_a_larger_inbox(caplog: pytest.LogCaptureFixture) -> None:
    batches, rows = 200, 12_000  # of 8 bytes each: more than a record of the smallest inbox takes
    got: list[int] = []

    def numbers(task: int, tasks: int) -> Iterator[pa.RecordBatch]:
        for i in range(batches):
            yield pa.record_batch({"x": pa.array(range(i * rows, (i + 1) * rows), pa.int64())})

    top = ps.Topology("large")
    sink = ps.io.callback(lambda batch: got.extend(batch.column(0).to_pylist()))
    top.source("a", ps.io.generator(numbers, "x long")).sink("out", sink, tasks=1)
    settings = RunSettings(rows_max=rows, window_bytes=1 << 17, transport="ring")
    with caplog.at_level(logging.INFO, "penstock.run.transport.inbox"):
        LocalJob(top.build(), 2, {"a/0": 0, "out/0": 1}, settings).run()
    assert got == list(range(batches * rows))
    assert "worker 1's inbox grows from 262144 bytes to 4194304" in caplog.text  # 50 times 96 KB are more than that


def test_a_circle_of_workers_that_all_grow_at_once_counts_every_word(caplog: pytest.LogCaptureFixture) -> None:
    def lines(task: int, tasks: int) -> Iterator[tuple[str]]:
        return ((f"w{i % 50} w{i % 7} w{i % 11}",) for i in range(task, LINES, tasks))

    top = ps.Topology("circle")
    words = top.source("lines", ps.io.generator(lines, "line string"), tasks=3).split("line", tasks=3)
    words.key_by("word").count(tasks=3).sink("out", ps.io.collect())
    place = {f"{name}/{i}": i for name in ("lines", "split", "count", "out") for i in range(3)}
    flow = top.build()
    names = {task for o in flow.operators for task in (f"{o.name}/{i}" for i in range(o.tasks))}
    settings = RunSettings(rows_max=200, window_bytes=40_000, transport="ring")
    job = LocalJob(flow, 3, {task: place.get(task, int(task.rpartition("/")[2])) for task in names}, settings)
    for worker in job.workers:
        worker._links._transport = Transport("ring", 8 * 1024, EAGER)
    with caplog.at_level(logging.INFO, "penstock.run.transport.inbox"):
        job.run()
    expected = Counter(itertools.chain(*(f"w{i % 50} w{i % 7} w{i % 11}".split() for i in range(LINES))))
    assert {row["word"]: row["count"] for row in job.rows("out")} == expected
    assert len({record.args[0] for record in caplog.records if "grows" in record.msg}) == 3  # type: ignore[index]
