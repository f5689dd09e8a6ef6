"""Seconds from a kill to the first new row of a job with checkpoints every second; prints one line of JSON.

    python penstock_recovery.py CASE FOLDER

Cases: `worker` (the one worker's process is killed, the session goes on) and `driver` (driver and session are killed,
and the same program is started again). `run` is the program that the second case starts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

from recovery_notes import ROWS_PER_SECOND, first_after, killed, note, restarted


def came(path, batch):
    """Called by the sink."""
    note(path, max(batch.column("value").to_pylist()))


def topology(path):
    """A steady source, a keyed count that tells every row, and a sink that notes them."""
    import penstock as ps

    top = ps.Topology("recovery")
    ticks = top.source("ticks", ps.io.rate(ROWS_PER_SECOND)).select("value % 1000 as k", "value")
    counted = ticks.key_by("k").aggregate(n="count(*)", value="last(value)", emit="each")
    counted.sink("out", ps.io.callback(partial(came, path)))
    return top


def started(folder):
    """The job on a session of its own."""
    from penstock.deploy import local_session

    spark = local_session("local[2,4]")
    top = topology(str(Path(folder, "notes")))
    return spark, top.start(spark, workers=1, checkpoint=str(Path(folder, "kept")), checkpoint_interval_s=1.0)


def worker_killed(folder):
    """In a session that has run the job before the kill."""
    spark, job = started(folder)
    path = str(Path(folder, "notes"))
    at, highest = killed(path, lambda: os.kill(job.workers[0].pid, signal.SIGKILL))
    found = first_after(path, at, highest) - at
    job.cancel()
    spark.stop()
    return found


def main(case, folder):
    """One figure."""
    if case == "run":
        _, job = started(folder)
        job.wait()
        return
    found = worker_killed(folder) if case == "worker" else restarted(__file__, folder)
    print(json.dumps({"seconds": found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
