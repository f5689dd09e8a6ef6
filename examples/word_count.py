"""Word count: lines from a DataFrame, words by a row function, counts as a DataFrame again.

Run it with `python examples/word_count.py`, or its topology alone with `penstock run examples/word_count.py:topology`.
"""

from __future__ import annotations

import penstock as ps
from penstock.deploy import local_session

TEXT = ["the quick brown fox", "jumps over the lazy dog", "the end"]


def split(row: ps.Row) -> list[tuple[str]]:
    """One row for each word of a line."""
    return [(word,) for word in row.line.split()]


def count_words(lines: ps.DataStream) -> None:
    """Add the rest of the topology to a stream of lines."""
    words = lines.flat_map(split, schema="word string", tasks=2)
    words.key_by("word").count(tasks=2).sink("counts", ps.io.collect())


def topology() -> ps.Topology:
    """The topology over generated lines."""
    top = ps.Topology("words")
    generated = ps.io.generator(lambda task, tasks: [(line,) for line in TEXT[task::tasks]] * 1000, "line string")
    count_words(top.source("lines", generated, tasks=2))
    return top


def main() -> None:
    """The topology over a DataFrame; the result is one, too."""
    spark = local_session("local[4]")
    lines = spark.createDataFrame([(line,) for line in TEXT], "line string")
    top = ps.Topology("words")
    count_words(top.source("lines", ps.io.dataframe(lines)))
    top.run(spark).orderBy("count", ascending=False).show()
    spark.stop()


if __name__ == "__main__":
    main()
