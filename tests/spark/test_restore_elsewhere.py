"""What jobs promise that go on: every source with every sink, under other plans, on fewer workers, through URIs."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from recovery_kit import KEYS, ROWS, await_epoch, await_recoveries, kill

import penstock as ps
from penstock.checkpoint.inspection import content_of, find, opened
from penstock.deploy import Job
from penstock.deploy.driver.rendezvous import wait_until
from penstock.flow import io

PATIENCE_S = 60.0
BEGAN_US = 1_767_225_600_000_000
STEP_US, WINDOW_US = 250, 3_000_000  # of event time
PADDING = "x" * 400  # no window of credit takes a whole input, so sources are on their way when a job is left
SCHEMA = "n bigint, k bigint, ts timestamp, padding string"


@dataclass
class Slowly:
    """Passes batches on at a row a millisecond, until a file is there."""

    gate: Path

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.gate.exists():
            time.sleep(0.001 * batch.num_rows)
        return batch


def rows_of(task: int = 0, tasks: int = 1) -> list[tuple[Any, ...]]:
    """Numbered rows, as far from each other in event time as those of a rate of 4,000 a second."""
    made = io.generator(lambda task, tasks: (), SCHEMA).schema
    numbers = list(range(task, ROWS, tasks))
    times = pa.array([BEGAN_US + n * STEP_US for n in numbers]).cast(made.field("ts").type)
    return [(n, n % KEYS, at, PADDING) for n, at in zip(numbers, times.to_pylist(), strict=True)]


def source_of(kind: str, spark: SparkSession, folder: Path) -> io.Source:
    if kind == "generator":
        return io.generator(rows_of, SCHEMA)
    if kind == "rate":
        return io.rate(4000, rows=ROWS, start=rows_of(0, ROWS)[0][2])
    if kind == "files":
        if not folder.exists():
            spark.createDataFrame(rows_of(), SCHEMA).repartition(5).write.parquet(str(folder))
        return io.files(folder)
    return io.dataframe(spark.createDataFrame(rows_of(), SCHEMA).repartition(4))


def topology(kind: str, source: io.Source, gate: Path, tasks: int) -> ps.Topology:
    """A keyed count and a window over the rows, by two sinks."""
    top = ps.Topology(kind)
    counts = {} if kind == "dataframe" else {"tasks": tasks}
    if kind == "rate":
        timed = top.source("numbers", source, **counts).event_time("timestamp")
        timed = timed.select("value as n", f"value % {KEYS} as k", "timestamp as ts", f"'{PADDING}' as padding")
    else:
        timed = top.source("numbers", source, **counts).event_time("ts")
    keyed = timed.map_batches(Slowly(gate), SCHEMA, name="slowly", tasks=2).key_by("k")
    keyed.aggregate(rows="count(*)", total="sum(n)", name="all", tasks=2).sink("counts", io.collect())
    window = ps.tumbling("3 seconds")
    keyed.aggregate(window=window, rows="count(*)", name="each", tasks=2).sink("windows", io.collect())
    return top


def answers() -> tuple[Counter[tuple[int, ...]], Counter[tuple[int, ...]]]:
    """Of each key its rows and their sum; of each window and key its rows."""
    counts = Counter((key, len(range(key, ROWS, KEYS)), sum(range(key, ROWS, KEYS))) for key in range(KEYS))
    windows = Counter((n * STEP_US // WINDOW_US, n % KEYS) for n in range(ROWS))
    return counts, Counter((window, key, rows) for (window, key), rows in windows.items())


def answered(job: Job) -> tuple[Counter[tuple[int, ...]], Counter[tuple[int, ...]]]:
    counts, windows = job.results["counts"].collect(), job.results["windows"].collect()
    first = min(row.window_start for row in windows)
    of_windows = (
        ((row.window_start - first).total_seconds() * 1_000_000 // WINDOW_US, row.k, row.rows) for row in windows
    )
    return Counter((row.k, row.rows, row.total) for row in counts), Counter(of_windows)


def leave(job: Job, kept: Path) -> int:
    """End a job in the middle; how many of its source's tasks still had something to read at the last epoch."""
    await_epoch(job, 2)
    job.cancel()
    store = opened(str(kept))
    (numbers,) = [each for each in content_of(store, find(store, None)).operators if each.name == "numbers"]
    return sum(words != "at its end" for words in numbers.positions.values())


@pytest.mark.parametrize("kind", ["generator", "files", "dataframe", "rate"])
def test_a_job_goes_on_under_another_plan_on_fewer_workers_and_with_other_tasks(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    gate, kept = tmp_path / "gate", tmp_path / "kept"
    source = source_of(kind, spark, tmp_path / "in")
    first = topology(kind, source, gate, tasks=2).start(
        spark, workers=3, rows_max=64, checkpoint=kept, checkpoint_interval_s=0.05
    )
    assert leave(first, kept) > 0
    gate.touch()
    tasks = 2 if kind == "generator" else 3  # whose tasks' rows are for its own function to say
    again = topology(kind, source, gate, tasks).start(
        spark, workers=2, rows_max=100, scheduler="even", checkpoint=kept, checkpoint_interval_s=0.05
    )
    assert len(set(again.worker_of.values())) == 2
    assert answered(again) == answers()
    assert dict(again.late_rows) == {}
    assert any(note.startswith("it went on from epoch ") for note in again.notes), again.notes
    assert {*again.worker_of} != {*first.worker_of} or kind == "generator"


@dataclass
class Noted:
    """Writes down which rows it is given, by task and number; slowly, until a file is there."""

    folder: Path
    gate: Path
    column: str

    def __call__(self, batch: pa.RecordBatch, task: int, sequence: int) -> None:
        Slowly(self.gate)(batch)
        lines = [f"{task} {sequence + at} {n}\n" for at, n in enumerate(batch[self.column].to_pylist())]
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write("".join(lines))

    def rows(self) -> dict[tuple[int, int], list[int]]:
        """Whenever a row was given under a number."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for path in self.folder.iterdir():
            for task, sequence, row in (map(int, line.split()) for line in path.read_text().splitlines()):
                found[task, sequence].append(row)
        return found


@pytest.mark.parametrize("kind", ["generator", "files", "dataframe", "rate"])
def test_every_pair_of_source_and_sink_keeps_its_promise_when_a_worker_is_killed(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    gate, kept, notes = tmp_path / "gate", tmp_path / "kept", tmp_path / "notes"
    notes.mkdir()
    noted = Noted(notes, gate, "value" if kind == "rate" else "n")
    top = ps.Topology(kind)
    source = source_of(kind, spark, tmp_path / "in")
    numbers = top.source("numbers", source) if kind == "dataframe" else top.source("numbers", source, tasks=2)
    numbers.sink("noted", io.callback(noted))
    rows = numbers.select(f"{noted.column} as n").map_batches(lambda batch: batch, "n bigint", name="spread", tasks=3)
    rows.sink("collected", io.collect())
    rows.sink("written", io.parquet(tmp_path / "out"))
    job = top.start(spark, workers=3, rows_max=64, checkpoint=kept, checkpoint_interval_s=0.05)
    await_epoch(job, 3)
    kill(job, job.worker_of["numbers/0"])
    await_recoveries(job, 1)
    gate.touch()
    for sink in ("collected", "written"):  # each row once
        assert sorted(row.n for row in job.results[sink].collect()) == list(range(ROWS)), sink
    given = noted.rows()
    assert {row for found in given.values() for row in found} == set(range(ROWS))  # each row at least once
    assert len(given) == ROWS
    assert all(len(set(found)) == 1 for found in given.values())  # and under one number
    assert job.recoveries == 1


def test_a_topology_that_does_not_fit_is_refused_before_any_worker_begins(spark: SparkSession, tmp_path: Path) -> None:
    gate, kept = tmp_path / "gate", tmp_path / "kept"
    source = source_of("generator", spark, tmp_path / "in")
    first = topology("generator", source, gate, 2)
    assert leave(first.start(spark, rows_max=64, checkpoint=kept, checkpoint_interval_s=0.05), kept) > 0
    gate.touch()
    attempts = sorted((kept / "attempts").iterdir())
    with pytest.raises(ps.InvalidInput, match="source 'numbers' has tasks 3 now, and had tasks 2 when the checkpoint"):
        topology("generator", source, gate, 3).start(spark, checkpoint=kept)
    fewer = topology("generator", source, gate, 2)
    fewer.remove("each")
    with pytest.raises(ps.InvalidInput, match="operator 'each', of which a checkpoint is kept, is gone"):
        fewer.start(spark, checkpoint=kept)
    assert sorted((kept / "attempts").iterdir()) == attempts
    again = topology("generator", source, gate, 2).start(spark, checkpoint=kept, checkpoint_interval_s=0.05)
    assert answered(again) == answers()


@pytest.mark.parametrize("first_has_it", [True, False])
def test_an_operator_without_state_may_come_and_go(spark: SparkSession, tmp_path: Path, first_has_it: bool) -> None:
    """Edges get other numbers by that: event time must not be put back where another edge was."""
    gate, kept = tmp_path / "gate", tmp_path / "kept"

    def made(*, has_it: bool) -> ps.Topology:
        top = ps.Topology("comes and goes")
        rows = top.source("numbers", io.generator(rows_of, SCHEMA), tasks=2).event_time("ts")
        if has_it:
            rows = rows.filter(lambda row: True, name="all of them", tasks=3)
        keyed = rows.map_batches(Slowly(gate), SCHEMA, name="slowly", tasks=2).key_by("k")
        keyed.aggregate(rows="count(*)", total="sum(n)", name="all", tasks=2).sink("counts", io.collect())
        window = ps.tumbling("3 seconds")
        keyed.aggregate(window=window, rows="count(*)", name="each", tasks=2).sink("windows", io.collect())
        return top

    options = {"workers": 2, "rows_max": 64, "checkpoint": kept, "checkpoint_interval_s": 0.05}
    assert leave(made(has_it=first_has_it).start(spark, **options), kept) > 0
    gate.touch()
    again = made(has_it=not first_has_it).start(spark, **options)
    assert answered(again) == answers()
    assert dict(again.late_rows) == {}


def test_rows_that_were_shown_and_are_gone_keep_a_job_from_going_on(spark: SparkSession, tmp_path: Path) -> None:
    kept, out = tmp_path / "kept", tmp_path / "out"

    def made() -> ps.Topology:
        top = ps.Topology("shown")
        top.source("ticks", io.rate(4000)).sink("out", io.parquet(out))
        return top

    job = made().start(spark, workers=1, checkpoint=kept, checkpoint_interval_s=0.05)
    await_epoch(job, 4)
    job.cancel()
    gone = min(out.glob("part-*.parquet"))
    gone.rename(tmp_path / gone.name)
    with pytest.raises(ps.CheckpointDamaged, match=f"{gone.name} is damaged: sink 'out' has shown its rows, and it is"):
        made().start(spark, workers=1, checkpoint=kept)
    (tmp_path / gone.name).rename(gone)
    again = made().start(spark, workers=1, checkpoint=kept)
    assert gaps_of_one([row.value for row in again.stop().collect()]) == 0


def gaps_of_one(values: list[int]) -> int:
    return int(sorted(values) != list(range(len(values))))


def test_an_endless_jobs_folder_has_whole_epochs_whenever_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of each source task go to all sink tasks, so half an epoch would leave gaps in what a task has given."""
    out = tmp_path / "out"
    top = ps.Topology("endless")
    ticks = top.source("ticks", io.rate(3000), tasks=2)
    ticks.map_batches(lambda batch: batch, "timestamp timestamp, value bigint", name="spread", tasks=3).sink(
        "out", io.parquet(out)
    )
    job = top.start(spark, workers=2, rows_max=16, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.1)
    seen = [0]

    def has_grown() -> bool:
        values = [row.value for row in spark.read.schema("value bigint").parquet(str(out)).collect()]
        assert gaps(values) == 0
        assert len(values) >= seen[-1]
        if len(values) > seen[-1]:
            seen.append(len(values))
        return len(seen) > 8

    await_epoch(job, 1)
    assert wait_until(has_grown, PATIENCE_S), f"readers saw {seen}: {job.error or job}"
    assert job.status == "running"
    assert gaps([row.value for row in job.stop().collect()]) == 0


def gaps(values: list[int]) -> int:
    """How many values are missing below the greatest of each source task, or there twice."""
    tasks = [sorted(value // 2 for value in values if value % 2 == task) for task in range(2)]
    return sum(found != list(range(len(found))) for found in tasks)


def test_gaps_are_found() -> None:
    assert [gaps(values) for values in ([], [0, 1, 2, 3, 5], [0, 2, 6], [1, 1], [1, 3])] == [0, 0, 1, 1, 0]


def test_folders_may_be_uris(spark: SparkSession, tmp_path: Path) -> None:
    kept, out = (tmp_path / "kept folder").as_uri(), (tmp_path / "out folder").as_uri()
    top = ps.Topology("uris")
    numbers = top.source("numbers", io.dataframe(spark.range(1000)))
    numbers.where("id % 2 = 0").sink("even", io.parquet(out))
    top.run(spark, workers=2, checkpoint=kept, checkpoint_interval_s=0.05)
    found = spark.read.parquet(str(tmp_path / "out folder"))
    assert sorted(row.id for row in found.collect()) == list(range(0, 1000, 2))
    assert (tmp_path / "kept folder" / "job.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept folder", "out folder"]
