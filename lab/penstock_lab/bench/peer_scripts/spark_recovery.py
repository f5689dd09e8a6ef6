"""Seconds from a kill to the first new row of a Structured Streaming query; prints one line of JSON.

    python spark_recovery.py CASE FOLDER

Cases: `worker` (the Python processes that run the query's function are killed; Spark tries the tasks again), `query`
(the query is stopped and started again from its checkpoint in the same session: the least that going on can cost) and
`driver` (driver and session are killed, and the same program is started again). Micro-batches follow each other without
a pause, so every one of them is a checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from recovery_notes import ROWS_PER_SECOND, first_after, killed, note, restarted, session_of


def started(folder):
    """A steady source, a keyed count behind a Python function, and a sink that notes the highest row."""
    from pyspark.sql.functions import udf

    from penstock.deploy import local_session

    settings = {"spark.sql.shuffle.partitions": "2"}
    spark = local_session("local[2,4]", config=settings)
    path = str(Path(folder, "notes"))
    key_of = udf(lambda value: value % 1000, "bigint")

    def came(batch, number):
        highest = batch.agg({"value": "max"}).collect()[0][0]
        if highest is not None:
            note(path, highest)

    def start():
        ticks = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_SECOND).load()
        counted = ticks.select(key_of("value").alias("k"), "value").groupBy("k").agg({"*": "count", "value": "max"})
        counted = counted.withColumnRenamed("max(value)", "value").withColumnRenamed("count(1)", "n")
        stream = counted.writeStream.outputMode("update").foreachBatch(came)
        return stream.option("checkpointLocation", str(Path(folder, "kept"))).start()

    return spark, start


def python_workers():
    """Processes of Spark's Python daemon, below this driver's JVM."""
    return [pid for pid in session_of(os.getsid(0)) if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def warm(case, folder):
    """In the session that has run the query."""
    spark, start = started(folder)
    queries = [start()]
    path = str(Path(folder, "notes"))

    def kill():
        if case == "query":
            queries[0].stop()
            return
        for pid in python_workers():
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
        _, start = started(folder)
        start().awaitTermination()
        return
    found = restarted(__file__, folder) if case == "driver" else warm(case, folder)
    print(json.dumps({"seconds": found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
