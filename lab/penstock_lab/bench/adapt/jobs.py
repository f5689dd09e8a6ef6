"""The jobs of `penstock bench adapt`: a stream through a task that moves, two beside it, and notes of what came when.

    numbers -> state -> out        state/0 moves to and fro between two workers
    numbers-a -> other-a -> out-a  on the one of them
    numbers-b -> other-b -> out-b  on the other; sources and sinks are on a third

Rows are numbered, and each has the time at which it was due. What a source gives follows from a row's number and from
when the schedule began, which is a file, so that a source that is asked again gives the same. Sinks write down when
which numbers came; the processes that do so may be others later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.flow import io
from penstock_lab.bench.adapt.gaps import Arrival

SCHEMA = pa.schema([pa.field(name, pa.int64()) for name in ("k", "v", "due")])
FILL_ROWS = 4096  # of a batch that fills the state, and of one of a source at full speed
FEW_KEYS = 100
SPREAD = 7919  # a prime: numbers meet all keys
NATIVE_BYTES_A_KEY, PYTHON_BYTES_A_KEY = 48, 60  # in a part before compression
END = "end"  # a file; it says how many batches a source gives in all: nothing in it, no more
CLOSE_S = 1.0  # from the word that a source ends until it does, beyond which no batch is due
OTHERS = ("a", "b")
STATE = "state"


@dataclass(frozen=True)
class Numbered:
    """A source: first each key once, as fast as they are taken, then numbered rows on a schedule until the gate `end`.

    Without a rate rows come as fast as they are taken.
    """

    folder: str
    name: str
    keys: int
    rows_per_second: float | None
    batch_s: float = 0.01  # from one batch to the next

    def __call__(self, task: int, tasks: int, start: int) -> Iterator[pa.RecordBatch | None]:
        """Batches, and None while the next one is not due."""
        fill = -(-self.keys // FILL_ROWS) if self.keys > FEW_KEYS else 0
        for at in range(start, fill):
            keys = np.arange(at * FILL_ROWS, min((at + 1) * FILL_ROWS, self.keys))
            yield _batch(keys, np.full(len(keys), -1), 0)
        rows = FILL_ROWS if self.rows_per_second is None else max(1, round(self.rows_per_second * self.batch_s))
        began_us, at = self._began_us(), max(0, start - fill)
        while (whole := self._whole()) is None or at < whole:
            due_us = began_us + int(at * self.batch_s * 1e6)
            if self.rows_per_second is not None and time.time_ns() // 1000 < due_us:
                yield None
                continue
            numbers = np.arange(at * rows, (at + 1) * rows)
            yield _batch(numbers * SPREAD % self.keys, numbers, due_us)
            at += 1

    def close(self) -> int:
        """Have it end soon; how many rows it will have given by then, however often it is asked again."""
        if self.rows_per_second is None or self.keys > FEW_KEYS:
            msg = "how many rows a source gives at full speed, or beside those that fill a state, is not known"
            raise ValueError(msg)
        whole = int(((time.time_ns() // 1000 - self._began_us()) / 1e6 + CLOSE_S) / self.batch_s)
        hidden = Path(self.folder, f"{END}.new")
        hidden.write_text(str(whole))
        hidden.replace(Path(self.folder, END))
        return whole * max(1, round(self.rows_per_second * self.batch_s))

    def _whole(self) -> int | None:
        """How many batches it gives in all, if that is known yet."""
        try:
            return int(Path(self.folder, END).read_text() or 0)
        except FileNotFoundError:
            return None

    def _began_us(self) -> int:
        """When the schedule began: the first who asks decides."""
        path = Path(self.folder, f"began-{self.name}")
        if not path.exists():
            hidden = path.with_suffix(f".{os.getpid()}")
            hidden.write_text(str(time.time_ns() // 1000))
            hidden.replace(path)
        return int(path.read_text())


def _batch(keys: np.ndarray, numbers: np.ndarray, due_us: int) -> pa.RecordBatch:
    due = np.full(len(keys), due_us)
    return pa.record_batch([pa.array(c, pa.int64()) for c in (keys, numbers, due)], schema=SCHEMA)


class Noted:
    """A sink that writes down when rows came, which were the last of them, how many, and how old the oldest was."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder, self.name = folder, name

    def __call__(self, batch: pa.RecordBatch) -> None:
        """Note the time."""
        now_us = time.time_ns() // 1000
        numbers = batch.column("v").to_numpy()
        if (last := int(numbers.max())) < 0:
            return  # they fill the state
        due = batch.column("due").to_numpy()
        line = f"{now_us} {last} {batch.num_rows} {now_us - int(due[numbers >= 0].min())}\n"
        with Path(self.folder, f"came-{self.name}-{os.getpid()}").open(
            "a"
        ) as log:  # a task that moves leaves none open
            log.write(line)


def arrivals(folder: str | Path, name: str, last_bytes: int | None = None) -> list[Arrival]:
    """What a sink has noted so far, in order of time; of each process its last so many bytes, where that is enough."""
    found = []
    for path in Path(folder).glob(f"came-{name}-*"):
        with path.open("rb") as file:
            if last_bytes is not None and path.stat().st_size > last_bytes:
                file.seek(-last_bytes, os.SEEK_END)
                file.readline()  # of which the beginning is missing
            found += [arrival for line in file.read().splitlines(keepends=True) if (arrival := _arrival(line))]
    return sorted(found)


def _arrival(line: bytes) -> Arrival | None:
    """None of a line that is being written."""
    if not line.endswith(b"\n"):
        return None
    came_us, last, rows, late_us = map(int, line.split())
    return Arrival(came_us / 1e6, last, rows, late_us / 1e6)


class Running(ps.Stateful):
    """Rows and their sum of each key, as Python state; each row goes on."""

    schema = "k bigint, v bigint, due bigint"

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401
        """One more."""
        state["n"] = state.get("n", 0) + 1
        state["total"] = state.get("total", 0) + row.v
        emit((key, row.v, row.due))


def watched(folder: str, kind: str, megabytes: int, rows_per_second: float, *, others_paced: bool) -> ps.Topology:
    """One stream through the task that moves, with so much state, and two others."""
    top = ps.Topology("watched")
    size = NATIVE_BYTES_A_KEY if kind == "native" else PYTHON_BYTES_A_KEY
    keys = max(FEW_KEYS, megabytes * 1_000_000 // size)
    source = Numbered(folder, "numbers", keys, rows_per_second)
    rows = top.source("numbers", io.generator(source, SCHEMA, bounded=False)).key_by("k")
    if kind == "native":
        kept = rows.aggregate(n="count(*)", s="sum(v)", v="last(v)", due="last(due)", emit="each", name=STATE)
    else:
        kept = rows.process(Running, name=STATE)
    kept.sink("out", io.callback(Noted(folder, STATE)), tasks=1)
    for other in OTHERS:
        paced = rows_per_second if others_paced else None
        beside = Numbered(folder, f"numbers-{other}", FEW_KEYS, paced)
        stream = top.source(f"numbers-{other}", io.generator(beside, SCHEMA, bounded=False)).key_by("k")
        counted = stream.aggregate(n="count(*)", v="last(v)", due="last(due)", emit="each", name=f"other-{other}")
        counted.sink(f"out-{other}", io.callback(Noted(folder, other)), tasks=1)
    at_the_ends = ("numbers", "out", *(f"{end}-{other}" for other in OTHERS for end in ("numbers", "out")))
    top.require(ps.colocate(*at_the_ends))
    top.require(ps.separate_workers("numbers/0", *(f"other-{other}/0" for other in OTHERS)))
    top.require(ps.separate_workers("numbers/0", f"{STATE}/0"))
    return top
