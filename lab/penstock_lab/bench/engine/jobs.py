"""The dataflows that `penstock bench engine` times: word count in several forms, a latency probe, and long chains.

Lines have ten words out of 10,000 equally frequent ones, so every batch touches nearly as many keys as it can: the
worst case for a keyed count. Each worker has one task of each operator, and half of all words change workers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.flow import io
from penstock.flow.stream import DataStream, Emit
from penstock.flow.topology import Topology
from penstock.model.task_id import TaskId
from penstock.run.dataflow import Dataflow

Split = Callable[[DataStream], DataStream]

WORDS = 10_000
WORDS_A_LINE = 10
LINES_KEPT = 20_000  # different lines; sources go round them
SCHEMA = pa.schema([pa.field("line", pa.string())])


def make_lines(seed: int = 1, count: int = LINES_KEPT) -> list[str]:
    """Lines of synthetic text."""
    chance = random.Random(seed)  # noqa: S311 - a benchmark, not a secret
    return [" ".join(f"word{chance.randrange(WORDS)}" for _ in range(WORDS_A_LINE)) for _ in range(count)]


def line_batches(lines: list[str], words_a_batch: int) -> list[pa.RecordBatch]:
    """The lines as batches of `words_a_batch` words."""
    size = words_a_batch // WORDS_A_LINE
    return [
        pa.record_batch([pa.array(lines[at : at + size], pa.string())], schema=SCHEMA)
        for at in range(0, len(lines) - size + 1, size)
    ]


def cycled(batches: list[pa.RecordBatch], rows: int, task: int, tasks: int) -> Iterator[pa.RecordBatch]:
    """Batches round and round, until one task has given its share of `rows` rows."""
    left = rows // tasks
    at = task * len(batches) // tasks
    while left > 0:
        batch = batches[at % len(batches)]
        yield batch
        left -= batch.num_rows
        at += 1


def word_count(batches: list[pa.RecordBatch], words: int, split: Split, emit: Emit, tasks: int = 2) -> Dataflow:
    """Source, split, keyed count, nothing; half of the words go to the other worker."""
    topology = Topology("words")
    source = io.generator(partial(cycled, batches, words // WORDS_A_LINE), SCHEMA, tasks=tasks)
    lines = topology.source("lines", source)
    counts = split(lines.local_or_shuffle()).key_by("word").count(name="count", emit=emit, tasks=tasks)
    counts.local_or_shuffle().sink("out", io.discard(), tasks=tasks)
    return topology.build()


def split_built_in(lines: DataStream) -> DataStream:
    """The built-in operator."""
    return lines.split("line", name="split", tasks=2)


def split_by_function(lines: DataStream) -> DataStream:
    """A Python function for each line."""
    return lines.flat_map(lambda row: row.line.split(), "word string not null", name="split", tasks=2)


def split_and_map(lines: DataStream) -> DataStream:
    """A Python function for each word, after the built-in operator."""
    words = split_built_in(lines).local_or_shuffle()
    return words.map(lambda row: row.word, "word string not null", name="function", tasks=2)


def probe(
    words_per_second: float, seconds: float, sent: Callable[[pa.RecordBatch], None], vocabulary: list[str]
) -> Dataflow:
    """Words at a steady rate, each with the time at which it was due, through a Python function and a keyed count."""
    topology = Topology("probe")
    rows = int(words_per_second * seconds)
    ticks = topology.source("ticks", io.rate(words_per_second, rows=rows, tasks=2))
    count = len(vocabulary)
    words = ticks.local_or_shuffle().map(
        lambda row: (vocabulary[row.value % count], row.timestamp),
        "word string not null, due timestamp not null",
        name="function",
        tasks=2,
    )
    counts = words.key_by("word").aggregate(n="count(*)", due="last(due)", emit="each", name="count", tasks=2)
    counts.local_or_shuffle().sink("out", io.callback(sent), tasks=2)
    return topology.build()


class Lateness:
    """A sink that notes when each batch came out; the words' lateness is computed afterwards."""

    def __init__(self) -> None:
        self._came_ns: list[int] = []
        self._batches: list[pa.RecordBatch] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        """Note the time."""
        self._came_ns.append(time.time_ns())
        self._batches.append(batch)

    def us(self) -> list[int]:
        """How long after it was due each word has come out."""
        found: list[int] = []
        for came_ns, batch in zip(self._came_ns, self._batches, strict=True):
            due = batch.column("due")
            times = np.frombuffer(due.buffers()[1], np.int64)[due.offset : due.offset + len(due)]
            found += (came_ns // 1000 - times).tolist()
        return found


def chain(batches: list[pa.RecordBatch], rows: int, length: int) -> Dataflow:
    """A source, operators that pass everything on, and a sink that forgets it."""
    topology = Topology("chain")
    stream = topology.source("lines", io.generator(partial(cycled, batches, rows), SCHEMA))
    for i in range(length):
        stream = stream.union(name=f"pass{i}")
    stream.sink("out", io.discard())
    return topology.build()


def paired(dataflow: Dataflow) -> dict[str, int]:
    """Task `i` of every operator on worker `i`."""
    return {TaskId.of(operator.name, i): i for operator in dataflow.operators for i in range(operator.tasks)}
