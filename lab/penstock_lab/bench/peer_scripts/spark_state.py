"""Keyed Python state in Structured Streaming, on one core and one partition; prints one line of JSON.

    python spark_state.py CASE ROWS_FILE ROWS

Cases: `count-pandas` and `sessions-pandas` (`applyInPandasWithState`), `count-rows` and `sessions-rows`
(`transformWithState` with rows, which Spark's guide advises where there are many keys). Each micro-batch is one file;
the first two are left out of the figures: they start the query and its Python.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

FILES = 5
WARM = 2
GAP_MS = 10_000
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def by_pandas(stream, case):
    """`applyInPandasWithState`."""
    import pandas as pd
    from pyspark.sql.streaming.state import GroupStateTimeout

    def count(key, frames, state):
        n = state.get[0] if state.exists else 0
        n += sum(len(frame) for frame in frames)
        state.update((n,))
        yield pd.DataFrame({"user": [key[0]], "n": [n]})

    def sessions(key, frames, state):
        n = state.get[0] if state.exists else 0
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"user": [key[0]], "n": [n]})
            return
        last = None
        for frame in frames:
            n += len(frame)
            last = frame.ts.max()
        state.update((n,))
        state.setTimeoutTimestamp(int(last.timestamp() * 1000) + GAP_MS)

    on_time = case == "sessions"
    function, timeout = (sessions, GroupStateTimeout.EventTimeTimeout) if on_time else (count, "NoTimeout")
    keyed = stream.withWatermark("ts", "0 seconds").groupBy("user")
    return keyed.applyInPandasWithState(function, "user string, n bigint", "n bigint", "update", timeout)


def by_rows(stream, case):
    """`transformWithState`."""
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle):
            self.handle = handle
            self.n = handle.getValueState("n", "n bigint")

        def handleInputRows(self, key, rows, timers):
            n = self.n.get()[0] if self.n.exists() else 0
            for _ in rows:
                n += 1
                yield Row(user=key[0], n=n)
            self.n.update((n,))

        def close(self):
            pass

    class Sessions(Count):
        def handleInputRows(self, key, rows, timers):
            n, last = self.n.get()[0] if self.n.exists() else 0, None
            for row in rows:
                n, last = n + 1, row.ts
            self.n.update((n,))
            for timer in list(self.handle.listTimers()):
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(int(last.timestamp() * 1000) + GAP_MS)
            return iter(())

        def handleExpiredTimer(self, key, timers, expired):
            yield Row(user=key[0], n=self.n.get()[0])
            self.n.clear()

    keyed = stream.withWatermark("ts", "0 seconds").groupBy("user")
    on_time = case == "sessions"
    return keyed.transformWithState(
        statefulProcessor=Sessions() if on_time else Count(),
        outputStructType="user string, n bigint",
        outputMode="Update",
        timeMode="EventTime" if on_time else "None",
    )


def write_files(spark, path, rows, folder):
    """The first rows as Parquet files, one for each micro-batch, in order."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    table = csv.read_csv(path, csv.ReadOptions(column_names=["user", "ts"])).slice(0, rows)
    table = table.set_column(1, "ts", table["ts"].cast(pa.timestamp("us", tz="UTC")))
    for i in range(FILES):
        pq.write_table(table.slice(i * rows // FILES, rows // FILES), Path(folder, f"{i}.parquet"))


def main(case, path, rows):
    """Run the query over all files, one after the other."""
    from penstock.deploy import local_session

    kind, _, form = case.partition("-")
    settings = {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.stateStore.providerClass": ROCKS}
    spark = local_session("local[1]", config=settings)
    ends = []
    with tempfile.TemporaryDirectory() as folder:
        write_files(spark, path, rows, folder)
        source = spark.readStream.schema("user string, ts timestamp").option("maxFilesPerTrigger", 1)
        stream = source.parquet(folder)
        results = by_pandas(stream, kind) if form == "pandas" else by_rows(stream, kind)

        def took(batch, number):
            batch.write.format("noop").mode("overwrite").save()
            if len(ends) < FILES:  # a last one without rows may follow, for the watermark
                ends.append(time.monotonic())

        query = results.writeStream.outputMode("update").foreachBatch(took).trigger(availableNow=True).start()
        query.awaitTermination()
    measured = FILES - WARM
    seconds = ends[FILES - 1] - ends[WARM - 1]
    print(json.dumps({"rows_per_s": rows // FILES * measured / seconds}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
