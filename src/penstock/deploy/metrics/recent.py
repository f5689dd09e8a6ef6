"""The intervals of a job's latest minutes, kept in the driver's memory for profiles of a window. Pure.

An interval belongs to a window if it ended within it. What is kept has two limits, time and rows. A window that is
longer than what is kept is refused: the folder of `metrics=` has it all. All but the newest batches are packed, many
into one and compressed: a batch of a few rows holds twenty times what they need, so a job's memory grew for ten
minutes, by 27 MB in `make torture`. Rejected: sums of older intervals, which cannot be cut at any window.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from penstock.deploy.metrics.sums import Sums, TaskSums, require_ended, sums_of
from penstock.errors import InvalidInput
from penstock.run.operators.times import Duration, parse_duration_us

KEPT_SECONDS = 600.0
KEPT_ROWS_MAX = 1_000_000
KEPT = ("tasks", "edges", "workers", "latency", "balance")
PACKED_BATCHES = 256  # together, once there are twice as many

Window = Duration | float


def window_us(window: Window, what: str = "window") -> int:
    """A window in microseconds: "60 s", a timedelta, or a number of seconds."""
    if isinstance(window, int | float) and not isinstance(window, bool):
        if not 0 < window <= timedelta(days=3650).total_seconds():
            msg = f"{what} is {window:g} seconds; it must be above 0 and at most 3650 days"
            raise InvalidInput(msg)
        return max(1, round(window * 1e6))
    if (isinstance(window, str) and window.strip().startswith("-")) or not (found := parse_duration_us(window, what)):
        msg = f"{what} is {window!r}; it must be above 0"
        raise InvalidInput(msg)
    return found


@dataclass(frozen=True, slots=True)
class Packed:
    """Batches that came one after the other, as compressed streams of Arrow, one for each table."""

    tables: dict[str, bytes]
    rows: int
    newest_us: int  # when the last of these intervals ended

    @classmethod
    def of(cls, kept: Sequence[tuple[str, int, pa.RecordBatch]]) -> Packed:
        """The same rows in little room; no threads, which a job would keep."""
        tables = {}
        options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        for name in sorted({name for name, _, _ in kept}):
            together = pa.concat_batches([batch for table, _, batch in kept if table == name])
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, together.schema, options=options) as stream:
                stream.write_batch(together)
            tables[name] = sink.getvalue().to_pybytes()
        return cls(tables, sum(batch.num_rows for _, _, batch in kept), max(time_us for _, time_us, _ in kept))

    def since(self, from_us: int, names: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows of intervals that ended behind a time, of these tables."""
        if self.newest_us <= from_us:
            return
        for name, packed in self.tables.items():
            if name in names:
                options = pa.ipc.IpcReadOptions(use_threads=False)
                for batch in pa.ipc.open_stream(packed, options=options):
                    yield name, batch.filter(pc.greater(batch["time_us"], from_us))


class Recent:
    """Batches of the tables that profiles are made of, and of latency, the oldest first."""

    def __init__(self) -> None:
        self._packed: deque[Packed] = deque()
        self._kept: deque[tuple[str, int, pa.RecordBatch]] = deque()  # table, when its interval ended; newer than those
        self._rows = 0
        self._newest_us = 0
        self._dropped_us: int | None = None  # the latest interval that is kept no longer

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """The rows of one worker's interval."""
        if name not in KEPT or not batch.num_rows:
            return
        time_us = pc.max(batch["time_us"]).as_py()
        self._kept.append((name, time_us, batch))
        self._rows += batch.num_rows
        self._newest_us = max(self._newest_us, time_us)
        if len(self._kept) >= 2 * PACKED_BATCHES:
            self._packed.append(Packed.of([self._kept.popleft() for _ in range(PACKED_BATCHES)]))
        while (oldest := self._oldest) is not None:
            if self._rows <= KEPT_ROWS_MAX and oldest[0] >= self._newest_us - KEPT_SECONDS * 1e6:
                break
            (self._packed or self._kept).popleft()
            self._rows -= oldest[1]
            self._dropped_us = max(oldest[0], self._dropped_us or oldest[0])

    @property
    def _oldest(self) -> tuple[int, int] | None:
        """What goes next: when its last interval ended, and its rows."""
        if self._packed:
            return self._packed[0].newest_us, self._packed[0].rows
        return (self._kept[0][1], self._kept[0][2].num_rows) if self._kept else None

    def _since(self, from_us: int, names: Sequence[str] = KEPT) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows of intervals that ended behind a time."""
        for packed in self._packed:
            yield from packed.since(from_us, names)
        for name, time_us, batch in self._kept:
            if time_us > from_us and name in names:
                yield name, batch

    def forget(self) -> None:
        """Tasks are others in number from now on: what was measured before says nothing of them."""
        self._kept.clear()
        self._packed.clear()
        self._rows = 0

    def sums(self, window: Window, since_start: Sums) -> Sums:
        """Of the intervals that ended within the window before the newest; InvalidInput where some are gone.

        A task that had ended by then is among them with nothing: left out, it would have the load that is declared.
        """
        length_us = window_us(window)
        from_us = self._from_us(window)
        found = sums_of(self._since(from_us))
        for task, ever in since_start.observed.items():
            if task not in found.observed:
                require_ended(task, ever, self._newest_us, length_us)
                found.loads[task], found.busy_loads[task] = TaskSums(), TaskSums()
                found.observed[task] = ever.before_window()
            found.observed[task].is_first = found.observed[task].began_us == ever.began_us
            found.loads[task].fed = since_start.tasks[task]["tuples_in"] > 0
        return found

    def latency(self, window: Window) -> Counter[int]:
        """Rows by their latency, of the same intervals; InvalidInput where some are gone."""
        from_us = self._from_us(window)
        sums = sums_of(self._since(from_us, ("latency",)))
        return sum(sums.latency.values(), Counter())

    def _from_us(self, window: Window) -> int:
        """When a window begins."""
        from_us = self._newest_us - window_us(window)
        if self._dropped_us is not None and self._dropped_us > from_us:
            kept_s = (self._newest_us - self._dropped_us) / 1e6
            msg = (
                f"window is {window!r}, and the job keeps the last {kept_s:.0f} s; ask for less, or give metrics= a "
                "folder and make the profile of that (ps.build_profile, penstock profile --last)"
            )
            raise InvalidInput(msg)
        return from_us
