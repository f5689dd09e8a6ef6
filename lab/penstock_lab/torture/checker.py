"""Counts what a sink has lost, repeated and put out of order: a program of its own that knows nothing of Penstock.

    python checker.py FOLDER --rows 15000,15000,14998 [--counted seen]

Source task i of a trial has numbered its rows 0, 1, ...: columns `source` and `n`. Read is what any reader of a Parquet
folder would: files whose names begin neither with a dot nor with an underscore, in the order of the numbers in their
names. With `--counted` a column holds how many rows of its source an operator had seen: n + 1 where no state is lost
and nothing was counted twice. Its own test plants every kind of fault (`tests/unit/test_torture_checker.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SOURCES_MAX, ROWS_MAX = 1_000, 2_000_000_000
LOG = "_spark_metadata"  # by which Spark knows that not every file counts


@dataclass
class Verdict:
    """What was counted; all but the first two are 0 where everything is as it should be."""

    files: int = 0
    rows: int = 0
    lost: int = 0
    repeated: int = 0
    disordered: int = 0  # rows that come after a greater number of their source
    strange: int = 0  # rows that no source has given
    miscounted: int = 0  # rows whose count by an operator is wrong

    @property
    def is_sound(self) -> bool:
        """Whether every row came once and in order."""
        return not (self.lost or self.repeated or self.disordered or self.strange or self.miscounted)


class Source:
    """The rows of one source task, as they are met."""

    def __init__(self, rows: int) -> None:
        self.seen, self.greatest = bytearray(rows), -1

    def take(self, numbers: pa.Array, verdict: Verdict) -> None:
        """Count these rows, which follow those before."""
        first, count = numbers[0].as_py(), len(numbers)
        follows = first > self.greatest and first + count <= len(self.seen)
        if follows and numbers.equals(pa.array(range(first, first + count), pa.int64())):
            self.seen[first : first + count] = b"\1" * count
            self.greatest = first + count - 1
            return
        for number in numbers.to_pylist():
            self._take_one(number, verdict)

    def _take_one(self, number: int | None, verdict: Verdict) -> None:
        if number is None or not 0 <= number < len(self.seen):
            verdict.strange += 1
        elif self.seen[number]:
            verdict.repeated += 1
        else:
            self.seen[number] = 1
            verdict.disordered += number < self.greatest
            self.greatest = max(self.greatest, number)


def judge(folder: Path, rows: list[int], counted: str | None = None) -> Verdict:
    """Read the folder and count; `rows` has how many each source gave."""
    verdict, found = Verdict(), [Source(each) for each in rows]
    for path in visible(folder):
        verdict.files += 1
        columns = ["source", "n", *([counted] if counted else [])]
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=columns):
                _take(batch, found, counted, verdict)
    verdict.lost = sum(source.seen.count(0) for source in found)
    return verdict


def _take(batch: pa.RecordBatch, found: list[Source], counted: str | None, verdict: Verdict) -> None:
    verdict.rows += batch.num_rows
    given = batch.column("source").cast(pa.int64())
    known = 0
    for number, source in enumerate(found):
        own = batch.filter(pc.equal(given, number))
        known += own.num_rows
        if own.num_rows:
            numbers = own.column("n").cast(pa.int64())
            source.take(numbers, verdict)
            if counted:
                right = pc.equal(own.column(counted).cast(pa.int64()), pc.add(numbers, 1))
                verdict.miscounted += own.num_rows - (pc.sum(right).as_py() or 0)
    verdict.strange += batch.num_rows - known


def visible(folder: Path) -> list[Path]:
    """The files that readers see, in order; refused where a log says that not all of them count."""
    if (folder / LOG).exists():
        msg = f"{folder / LOG} is there: the job that writes {folder} has not ended; wait for its end"
        raise SystemExit(msg)
    files = [path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_"))]
    return sorted(files, key=lambda path: numbers_in(path.name))


def numbers_in(name: str) -> list[tuple[int, str]]:
    """A name as it sorts where numbers count as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def main(words: list[str]) -> int:
    """The verdict as one JSON object; 1 where the folder is not as it should be."""
    reader = argparse.ArgumentParser(description="Counts rows lost, repeated and out of order in a Parquet folder.")
    reader.add_argument("folder", type=Path)
    reader.add_argument("--rows", required=True, help="of each source, with commas")
    reader.add_argument("--counted", help="a column with the number of rows of the source so far")
    given = reader.parse_args(words)
    counts = [int(word) if word.isdigit() else -1 for word in given.rows.split(",")]
    if not (len(counts) <= SOURCES_MAX and all(0 <= rows <= ROWS_MAX for rows in counts) and given.folder.is_dir()):
        reader.error(f"give a folder, and 0 to {ROWS_MAX:,} rows for each of at most {SOURCES_MAX} sources")
    verdict = judge(given.folder, counts, given.counted)
    sys.stdout.write(json.dumps(asdict(verdict)) + "\n")
    return 0 if verdict.is_sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
