"""Seconds from a kill to the first new row of a job with checkpoints every second; prints one line of JSON.

    python penstock_recovery.py CASE FOLDER

Cases: `worker` (the one worker's process is killed, the session goes on), `parquet` (the same, and a row has come out
when a reader of an exactly-once sink's folder sees it, which is behind the next epoch) and `driver` (driver and session
are killed, and the same program is started again). `run` is the program that the last case starts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

from recovery_notes import ROWS_PER_SECOND, first_after, killed, note, restarted


def came(path, batch):
    """Called by the sink."""
    note(path, max(batch.column("value").to_pylist()))


def shown(folder, path):
    """Note the highest row of each file that Spark's reader of the folder has come to see, until the program ends."""
    import pyarrow.parquet as pq

    seen = set()
    while True:
        found = set()
        for batch in Path(folder, "_spark_metadata").glob("[0-9]*"):  # a log of names: a file that it lacks is not read
            lines = batch.read_text().splitlines()[1:]
            found |= {json.loads(line)["path"].rpartition("/")[2] for line in lines}
        for name in sorted(found - seen):
            values = pq.read_table(Path(folder, name), columns=["value"], partitioning=None).column("value")
            note(path, max(values.to_pylist()))
        seen |= found
        time.sleep(0.005)


def topology(path, out=None):
    """A steady source, a keyed count that tells every row, and a sink that notes them, or a folder of Parquet files."""
    import penstock as ps

    top = ps.Topology("recovery")
    ticks = top.source("ticks", ps.io.rate(ROWS_PER_SECOND)).select("value % 1000 as k", "value")
    counted = ticks.key_by("k").aggregate(n="count(*)", value="last(value)", emit="each")
    counted.sink("out", ps.io.callback(partial(came, path)) if out is None else ps.io.parquet(out))
    return top


def started(folder, out=None):
    """The job on a session of its own."""
    from penstock.deploy import local_session

    spark = local_session("local[2,4]")
    top = topology(str(Path(folder, "notes")), out)
    return spark, top.start(spark, workers=1, checkpoint=str(Path(folder, "kept")), checkpoint_interval_s=1.0)


def worker_killed(folder, out=None):
    """In a session that has run the job before the kill."""
    spark, job = started(folder, out)
    path = str(Path(folder, "notes"))
    if out is not None:
        threading.Thread(target=shown, args=(out, path), daemon=True).start()
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
    if case == "driver":
        found = restarted(__file__, folder)
    else:
        found = worker_killed(folder, str(Path(folder, "out")) if case == "parquet" else None)
    print(json.dumps({"seconds": found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
