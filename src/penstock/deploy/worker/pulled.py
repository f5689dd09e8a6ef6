"""Batches of a DataFrame, pulled from Spark by a thread, so that the worker's loop need not wait for them.

A worker that is stopped or fails leaves the rest unread (`test_who_leaves_reads_no_further_than_the_batch_in_hand`).
The thread ends between two batches; PySpark then misses the end of the stream and ends the process instead of using it
again. Rejected: reading and dropping the rest, with which a stop took as long as Spark's whole scan.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator

import pyarrow as pa

from penstock.run.transport.protocol import PeerGone

INPUT_BATCHES = 4  # read ahead of the worker
LOOK_SECONDS = 0.05


class InputLost(PeerGone):
    """Spark has stopped handing rows in; the driver hears the reason from Spark itself."""


class PulledInput:
    """An iterator over batches that have come; None says "nothing yet"."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._queue: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(INPUT_BATCHES)
        self._thread = threading.Thread(target=self._pull, args=(batches,), name="penstock-input", daemon=True)
        self._left = False
        self.ended = False
        self._thread.start()

    def _pull(self, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                if self._left:
                    return
                self._queue.put(batch)
            self._queue.put(None)
        except BaseException as error:  # `__next__` raises it again
            self._queue.put(error)

    def __iter__(self) -> PulledInput:
        return self

    def __next__(self) -> pa.RecordBatch | None:
        if self.ended:
            raise StopIteration
        try:
            entry = self._queue.get_nowait()
        except queue.Empty:
            return None
        if entry is None:
            self.ended = True
            raise StopIteration
        if isinstance(entry, BaseException):
            self.ended = True
            msg = f"Spark's rows ended early: {type(entry).__name__}: {entry}"
            raise InputLost(msg) from entry
        return entry

    def leave(self, seconds: float | None) -> bool:
        """Read no further; whether the thread has ended within `seconds`. PySpark reads the same stream next."""
        self._left = True
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._thread.is_alive():
            if deadline is not None and time.monotonic() > deadline:
                return False
            with contextlib.suppress(queue.Empty):  # room for the batch with which the thread waits
                self._queue.get_nowait()
            self._thread.join(LOOK_SECONDS)
        return True
