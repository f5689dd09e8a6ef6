"""Word count as a Structured Streaming query (micro-batches, built-in SQL functions); prints one line of JSON.

    python spark_words.py grouped LINES_FILE WORDS LINES_A_BATCH

Each micro-batch is one file of lines, a large one, as micro-batch engines like it. The first two are left out of the
figures: they start the query and compile it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

FILES = 3
WARM = 2


def write_files(folder, lines, words):
    """The lines over and over, `words` words for each micro-batch."""
    text = "\n".join(lines) + "\n"
    times = max(1, words // FILES // 10 // len(lines))
    for i in range(FILES + WARM):
        Path(folder, f"{i}.txt").write_text(text * times)
    return times * len(lines) * 10


def main(case, path, words, size):
    """Run the query over all files, one after the other."""
    from pyspark.sql import functions as f

    from penstock.deploy import local_session

    settings = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    spark = local_session("local[2]", config=settings)
    ends = []
    with tempfile.TemporaryDirectory() as folder:
        words_a_file = write_files(folder, Path(path).read_text().splitlines(), words)
        stream = spark.readStream.option("maxFilesPerTrigger", 1).text(folder)
        counts = stream.select(f.explode(f.split("value", " ")).alias("word")).groupBy("word").count()

        def took(batch, number):
            batch.write.format("noop").mode("overwrite").save()
            ends.append(time.monotonic())

        query = counts.writeStream.outputMode("update").foreachBatch(took).trigger(availableNow=True).start()
        query.awaitTermination()
    measured = len(ends) - WARM
    seconds = ends[-1] - ends[WARM - 1]
    print(json.dumps({"words_per_s": words_a_file * measured / seconds}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
