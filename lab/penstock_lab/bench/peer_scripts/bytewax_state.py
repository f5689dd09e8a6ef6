"""Keyed state in Bytewax on one worker; prints one line of JSON.

    python bytewax_state.py CASE ROWS_FILE ROWS

Cases: `count` (`stateful_map`, one result a row) and `sessions` (its session windows by event time, with a count).
Rows are read before the clock starts; it counts from the source's first batch to the sink's close.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

ROWS_A_BATCH = 4096
GAP = timedelta(seconds=10)


def flow(case, rows, seen):
    """The dataflow of one case."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import DynamicSource, StatelessSourcePartition
    from bytewax.operators import windowing
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    class Part(StatelessSourcePartition):
        def __init__(self):
            self.at = 0

        def next_batch(self):
            if "began" not in seen:
                seen["began"], seen["cpu"] = time.monotonic(), time.process_time()
            if self.at >= len(rows):
                raise StopIteration
            self.at += ROWS_A_BATCH
            return rows[self.at - ROWS_A_BATCH : self.at]

    class Source(DynamicSource):
        def build(self, step_id, worker_index, worker_count):
            return Part()

    class SinkPart(StatelessSinkPartition):
        def write_batch(self, items):
            seen["results"] = seen.get("results", 0) + len(items)

        def close(self):
            seen["ended"], seen["used"] = time.monotonic(), time.process_time()

    class Sink(DynamicSink):
        def build(self, step_id, worker_index, worker_count):
            return SinkPart()

    dataflow = Dataflow("state")
    stream = op.input("rows", dataflow, Source())
    if case == "count":
        results = op.stateful_map("count", stream, lambda n, _: ((n or 0) + 1, (n or 0) + 1))
    else:
        clock = windowing.EventClock(lambda item: item[1], wait_for_system_duration=timedelta(0))
        windower = windowing.SessionWindower(gap=GAP)
        results = windowing.count_window("sessions", stream, clock, windower, key=lambda item: item[0]).down
    op.output("out", results, Sink())
    return dataflow


def main(case, path, count):
    """Read, run, and say how long it took."""
    from bytewax.testing import run_main

    rows = []
    with Path(path).open() as file:
        for line in itertools.islice(file, count):
            user, _, at = line.rstrip().partition(",")
            rows.append((user, datetime.fromtimestamp(int(at) / 1e6, timezone.utc)))
    seen = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["BYTEWAX_DATAFLOW_API_CACHE_PATH"] = cache
        run_main(flow(case, rows, seen))
    seconds = seen["ended"] - seen["began"]
    used = seen["used"] - seen["cpu"]
    results = seen.get("results", 0)
    print(json.dumps({"rows_per_s": count / seconds, "cpu_ns_per_row": used / count * 1e9, "results": results}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
