"""Seconds from `top.start(spark)` to the first tuple at a sink, on a Spark session that has run a job before.

    python first_tuple.py first LINES_FILE WORDS LINES_A_BATCH

The session's first job is not counted: it starts Spark's Python daemon, which a warm session has.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

RUNS = 5
WORKERS = 2


def job(note):
    """A source, a function and a sink that notes when the first row came, on two workers."""
    import penstock as ps

    top = ps.Topology("first")
    words = top.source("words", ps.io.generator(lambda task, tasks: [("a",), ("b",)], "word string"))

    def came(row):
        target = Path(note)
        if not target.exists():
            target.write_text(str(time.time()))

    words.map(lambda row: (row.word,), "word string").sink("out", ps.io.callback(came, rows=True))
    return top


def main():
    """The median of several jobs."""
    from penstock.deploy import local_session

    spark = local_session("local[3]")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(RUNS + 1):
            note = Path(folder, str(i))
            began = time.time()
            job(str(note)).run(spark, workers=WORKERS)
            if i:
                found.append(float(note.read_text()) - began)
    print(json.dumps({"seconds": statistics.median(found), "least": min(found), "most": max(found)}))
    spark.stop()


if __name__ == "__main__":
    main()
