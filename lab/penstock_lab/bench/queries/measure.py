"""`penstock bench queries`: Nexmark's queries as users write them, beside Spark in the same run, on the same events.

Each query runs over Parquet files and over a DataFrame on two workers, as Spark SQL in one batch, and as Structured
Streaming over the same files; functions in Python stand beside Spark's. Every figure is the wall time from the call to
the last row in an existing session: planning, compiling, starting and stopping workers count. The session's start and
the CPU time of all processes are told too. Each round measures every case once, so that other load on the machine meets
all alike; figures are medians of the rounds. Answers are compared first, on fewer events, which also warms Spark up.
Placements are measured in rounds of their own, each beginning with another one: what runs right after Structured
Streaming pays for what that leaves behind in the JVM.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import penstock as ps
from penstock.deploy import local_session
from penstock.errors import InvalidInput
from penstock.flow.io import Source
from penstock_lab.bench.contract import Bench, Progress, Row, Scope
from penstock_lab.bench.process_tree import tree_cpu_seconds
from penstock_lab.bench.queries.answers import Answers
from penstock_lab.bench.queries.rows import (
    ALONE,
    CHOSEN,
    EVEN,
    PLACED,
    Found,
    Key,
    form_rows,
    notes,
    placed_row,
    query_row,
)
from penstock_lab.bench.queries.spark import PYTHON, SETTINGS, STREAMING, Spark, discard, missing_python
from penstock_lab.bench.queries.tables import by_form, by_placement, by_query
from penstock_lab.nexmark.events import Events
from penstock_lab.nexmark.queries import QUERIES, UNSUPPORTED
from penstock_lab.nexmark.tables import FILES, write_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS, EVENTS_QUICK = 1_000_000, 100_000
EVENTS_COMPARED, COMPARED_PER_SECOND = 100_000, 1_000  # slower than the rest, so that many windows close
WORKERS, WORKERS_MAX = 2, 64
ROUNDS, ROUNDS_QUICK = 3, 1
PLACED_ROUNDS, PLACED_ROUNDS_QUICK = 27, 3  # runs of a quarter of a second, whose ratios are to be told to 10 %


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured once in every round."""

    query: str
    engine: str  # files, DataFrame, streaming, batch, or one of Spark's Python forms
    form: str  # which of our forms, or of those that stand beside it
    run: Callable[[], object]

    @property
    def key(self) -> Key:
        """Where its figures are kept."""
        return self.query, self.engine, self.form


def main(
    quick: bool = False, progress: Progress = lambda message: None, scope: Scope | None = None
) -> dict[str, list[Row]]:
    """Every section's rows; `quick` shrinks the whole to some minutes."""
    scope = scope or Scope()
    names, events, workers = _chosen(scope.queries), _events(scope, quick), _workers(scope)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        progress(f"making {events:,} events")
        counts = Events(events).rows()
        write_tables(Events(events), Path(folder) / "all")
        write_tables(Events(min(events, EVENTS_COMPARED), COMPARED_PER_SECOND), Path(folder) / "compared")
        began = time.monotonic()
        session = _session(workers)
        session.range(1).count()
        started_s = time.monotonic() - began
        try:
            found = _measured(session, Path(folder), names, workers, ROUNDS_QUICK if quick else ROUNDS, progress)
        finally:
            session.stop()
    sections: dict[str, list[Row]] = {
        "queries": [query_row(name, found, counts) for name in names],
        "queries_functions": [row for name in names for row in form_rows(name, found, counts)],
        "queries_placed": [placed_row(name, found, counts) for name in names if name in PLACED],
        "queries_start": [{"instance": "a Spark session, until its first answer", "seconds": started_s}],
        "queries_notes": [{"note": note} for note in notes(names, found, min(events, EVENTS_COMPARED), workers)],
    }
    return {section: rows for section, rows in sections.items() if rows}


def _session(workers: int) -> SparkSession:
    """Two slots more than workers, for a DataFrame is read by Spark's own tasks."""
    settings = {**SETTINGS, "spark.sql.shuffle.partitions": str(workers), "spark.default.parallelism": str(workers)}
    return local_session(f"local[{workers + 2}]", config=settings)


def _chosen(queries: tuple[str, ...]) -> list[str]:
    for name in queries:
        if name not in QUERIES:
            if name in UNSUPPORTED:
                msg = f"query {name!r} is not supported: it {UNSUPPORTED[name]}"
                raise InvalidInput(msg)
            raise InvalidInput.unknown_name(kind="query", name=name, known=tuple(QUERIES))
    return [name for name in QUERIES if not queries or name in queries]


def _events(scope: Scope, quick: bool) -> int:
    events = scope.events if scope.events is not None else EVENTS_QUICK if quick else EVENTS
    if events < FILES:
        msg = f"--events is {events}; give at least {FILES}, one for each file"
        raise InvalidInput(msg)
    return events


def _workers(scope: Scope) -> int:
    workers = WORKERS if scope.workers is None else scope.workers
    if not 1 <= workers <= WORKERS_MAX:
        msg = f"--workers is {workers}; give 1 to {WORKERS_MAX}"
        raise InvalidInput(msg)
    return workers


# -- measuring ---------------------------------------------------------------------------------------------------------


def _measured(
    session: SparkSession, folder: Path, names: list[str], workers: int, rounds: int, progress: Progress
) -> Found:
    missing = missing_python()
    answers: dict[Key, str] = {}
    small = Answers(Spark(session, folder / "compared"), workers)
    for number, name in enumerate(names):
        progress(f"{number + 1} of {len(names)}: comparing answers of {name}")
        answers |= small.compare(name, missing)
    spark = Spark(session, folder / "all")
    cases = [case for name in names for case in _cases(spark, name, workers, missing)]
    seconds: dict[Key, list[float]] = {case.key: [] for case in cases}
    cpu: dict[Key, list[float]] = {key: [] for key in seconds}
    placed = [_placed_cases(spark, name, workers) for name in names if name in PLACED]
    for case in chain.from_iterable(placed):
        seconds[case.key], cpu[case.key] = [], []

    def measure(at: int, of: int, chosen: Sequence[Case]) -> None:
        for number, case in enumerate(chosen):
            progress(f"round {at + 1} of {of}, {number + 1} of {len(chosen)}: {case.query} {case.engine} {case.form}")
            if answers.get(case.key, "").startswith("failed"):
                continue
            began, used = time.monotonic(), tree_cpu_seconds()
            case.run()
            seconds[case.key].append(time.monotonic() - began)
            if used is not None and (now := tree_cpu_seconds()) is not None:
                cpu[case.key].append(now - used)

    for at in range(rounds):
        measure(at, rounds, cases)
    turns = PLACED_ROUNDS if rounds == ROUNDS else PLACED_ROUNDS_QUICK
    for each in placed:
        for at in range(turns):
            first = at % len(each)
            measure(at, turns, [*each[first:], *each[:first]])
    return Found(seconds, cpu, answers, missing, _whole_answers(Answers(spark, workers), names, folder, progress))


def _whole_answers(full: Answers, names: list[str], folder: Path, progress: Progress) -> dict[str, str]:
    """Whether whole answers agree. Where Spark cannot say, the figures are told all the same."""
    whole: dict[str, str] = {}
    for name in names:
        if QUERIES[name].forms:
            progress(f"comparing the whole answer of {name}")
            try:
                whole[name] = full.digests(name, folder / "answers" / name)
            except Exception as error:  # whatever Spark or its line to us raises
                whole[name] = f"failed: {type(error).__name__}"
    return whole


def _cases(spark: Spark, name: str, workers: int, missing: dict[str, str]) -> list[Case]:
    query = QUERIES[name]
    cases = []
    for form in query.forms:
        cases.append(Case(name, "files", form, partial(run_ours, spark, name, form, workers, from_files)))
        cases.append(Case(name, "DataFrame", form, partial(run_ours, spark, name, form, workers, from_frame)))
    cases.append(Case(name, "batch", "SQL", lambda: discard(spark.batch(name))))
    if name in STREAMING:
        cases.append(Case(name, "streaming", "SQL", lambda: spark.stream(name)))
    for engine, (form, function) in PYTHON.get(name, {}).items():
        if engine not in missing:
            cases.append(Case(name, engine, form, partial(_run_python, spark, function)))
    return cases


def _placed_cases(spark: Spark, name: str, workers: int) -> list[Case]:
    """The query as the default scheduler places it, as `even` does, and in one worker."""
    form = next(iter(QUERIES[name].forms))
    run = partial(run_ours, spark, name, form)
    return [
        Case(name, CHOSEN, form, partial(run, workers, from_files)),
        Case(name, EVEN, form, partial(run, workers, from_files, scheduler="even")),
        Case(name, ALONE, form, partial(run, 1, from_files)),
    ]


SourceOf = Callable[[Spark, int, str], Source]


def from_files(spark: Spark, workers: int, table: str) -> Source:
    """A table's files, with one reader per worker."""
    return ps.io.files(spark.paths[table], tasks=workers)


def from_frame(spark: Spark, workers: int, table: str) -> Source:
    """A table as Spark reads it."""
    return ps.io.dataframe(spark.frame(table))


def run_ours(
    spark: Spark, name: str, form: str, workers: int, source_of: SourceOf, scheduler: str | None = None
) -> None:
    """Build the topology, run it to its end, keep nothing; without a scheduler, by the default one."""
    topology = QUERIES[name].topology(form, partial(source_of, spark, workers), ps.io.discard(), workers)
    topology.run(spark.session, workers=workers, scheduler=scheduler)


def _run_python(spark: Spark, function: Callable[..., object]) -> None:
    discard(function(spark.frame("bid")))  # type: ignore[arg-type]


BENCH = Bench(
    "Nexmark's queries on two workers, with Spark SQL and Structured Streaming",
    main,
    {
        "queries": "Nexmark, thousands of events a second; ratio: ours over files to Structured Streaming",
        "queries_functions": "forms of a query, thousands of events a second; ratio: to Spark's fastest beside it",
        "queries_placed": "where tasks run, seconds over files; ratios: the other's time to the default's",
        "queries_start": "start, in seconds",
        "queries_notes": "notes",
    },
    {"queries": by_query, "queries_functions": by_form, "queries_placed": by_placement},
    measure_scope=main,
)
