"""Seconds from a kill to the first new row of a Structured Streaming query; prints one line of JSON.

    python spark_recovery.py CASE FOLDER

Cases: `worker` (the Python processes that run the query's function are killed, and the warm daemon that forks them is
not; Spark tries the tasks again), `query` (the query is stopped and started again from its checkpoint in the same
session: the least that going on can cost) and `driver` (driver and session are killed, and the same program is started
again). Micro-batches follow each other without a pause, so every one of them is a checkpoint. One that is past its
Python function at the kill comes out unharmed: its rows, which no process of after the kill has seen, do not count.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from recovery_notes import ROWS_PER_SECOND, descendants, first_after, killed, note, restarted

WORKER = b"pyspark.worker"  # the last word of a Python daemon's command and of all that it forks


def started(folder):
    """A steady source, a keyed count behind a Python function, and a sink that notes the highest row.

    Rows say which process has worked on them; the sink passes over those of processes that are said to be gone.
    """
    from pyspark.sql.functions import count, struct, udf
    from pyspark.sql.functions import max as highest_of

    from penstock.deploy import local_session

    settings = {"spark.sql.shuffle.partitions": "2"}
    spark = local_session("local[2,4]", config=settings)
    path = str(Path(folder, "notes"))
    key_of, worker_of = udf(lambda value: value % 1000, "bigint"), udf(lambda value: os.getpid(), "bigint")
    gone = set()

    def came(batch, number):
        highest = batch.agg(highest_of("worked")).collect()[0][0]
        if highest is not None and highest.worker not in gone:
            note(path, highest.value)

    def start():
        ticks = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_SECOND).load()
        worked = struct("value", worker_of("value").alias("worker")).alias("worked")
        counts = (count("*").alias("n"), highest_of("worked").alias("worked"))
        counted = ticks.select(key_of("value").alias("k"), worked).groupBy("k").agg(*counts)
        stream = counted.writeStream.outputMode("update").foreachBatch(came)
        return stream.option("checkpointLocation", str(Path(folder, "kept"))).start()

    return spark, start, gone


def python_workers(proc=Path("/proc")):
    """Python workers below this process: what a daemon has forked, and not the daemon itself."""
    found = {pid: parent for pid, parent in descendants(os.getpid(), proc).items() if is_worker(pid, proc)}
    return [pid for pid, parent in found.items() if parent in found]


def is_worker(pid, proc):
    """Whether a process is a Python worker of Spark's, or the daemon of some; one that has ended is neither."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().rstrip(b"\0").endswith(WORKER)
    except OSError:
        return False


def warm(case, folder):
    """In the session that has run the query."""
    spark, start, gone = started(folder)
    queries = [start()]
    path = str(Path(folder, "notes"))

    def kill():
        if case == "query":
            queries[0].stop()
            return
        if not (found := python_workers()):
            sys.exit("there is no Python worker to be killed")
        gone.update(found)
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    at, highest = killed(path, kill)
    if case == "query":
        queries.append(start())
    found = first_after(path, at, highest) - at
    queries[-1].stop()
    spark.stop()
    return found


def main(case, folder):
    """One figure."""
    if case == "run":
        _, start, _ = started(folder)
        start().awaitTermination()
        return
    found = restarted(__file__, folder) if case == "driver" else warm(case, folder)
    print(json.dumps({"seconds": found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
