"""`penstock bench checkpoint`: what checkpoints cost a job that runs, and how long it takes to go on after a kill.

Throughput and latency are measured with and without checkpoints by turns, so that other load on the machine meets all
alike; what counts is the ratio within a round, its median and its spread. The pause is what the loop of a worker spends
in one step at a marker. Recovery is the time from a kill to the first row that had not come out before, beside Spark
Structured Streaming and Bytewax at the same rate and with a checkpoint every second. Rows come out where a function is
given them, at least once with every engine, and for ours also where a reader of an exactly-once sink sees them.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.checkpoint.store import Store
from penstock.errors import InternalError
from penstock.model.task_id import TaskId
from penstock.run.dataflow import Dataflow
from penstock_lab.bench.checkpoint import jobs
from penstock_lab.bench.checkpoint.run import Watched, watched_run
from penstock_lab.bench.contract import Bench, Progress, Row, per_cent
from penstock_lab.bench.engine.jobs import paired
from penstock_lab.bench.engine.peers import SPARK_LIMIT_SECONDS, Peer, PeerMissing, install, measured

BYTEWAX = Peer("bytewax", "bytewax_recovery.py", "bytewax==0.21.1", bench="checkpoint")
SPARK = Peer("spark", "spark_recovery.py", limit_seconds=SPARK_LIMIT_SECONDS, bench="checkpoint")
OURS = Peer("penstock", "penstock_recovery.py", limit_seconds=SPARK_LIMIT_SECONDS, bench="checkpoint")

ROUNDS, ROUNDS_QUICK = 5, 2
KEYS = 100_000  # of the jobs that are timed for throughput and latency: 4 MB of state
LOWER_AIMS = {10.0: 0.03, 1.0: 0.10}  # by interval in seconds: so much less throughput at most
LATENCY_AIM = 2.0  # p99 during epochs over p99 without
PROBE_ROWS_PER_SECOND = 20_000.0
PAUSE_AIM_MS = 10.0  # for 10 MB of native state
RESTORED_TASKS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Kill:
    """One way to end a job by force, and what goes on."""

    engine: Peer
    case: str
    what: str


KILLS = (
    Kill(OURS, "worker", "the worker's process is killed; the session goes on; rows as a callback sink gets them"),
    Kill(
        OURS, "parquet", "the same; rows as readers of an exactly-once Parquet folder see them, behind the next epoch"
    ),
    Kill(SPARK, "worker", "the Python workers are killed; Spark tries the tasks of the micro-batch again"),
    Kill(SPARK, "query", "the query is stopped and started from its checkpoint in the same session"),
    Kill(OURS, "driver", "driver and session are killed; the same program is started again"),
    Kill(SPARK, "driver", "driver and session are killed; the same program is started again"),
    Kill(BYTEWAX, "driver", "the process is killed and started again from its recovery store"),
)


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` has shorter runs, less state, and no kills of whole sessions."""
    rounds = ROUNDS_QUICK if quick else ROUNDS
    intervals, seconds = ((1.0,), 4.0) if quick else ((10.0, 1.0), 21.0)
    notes = [f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} at the beginning"]
    sections = {
        "checkpoint_throughput": _throughput(rounds, intervals, seconds, progress),
        "checkpoint_latency": _latency(rounds, 4.0 if quick else 10.0, progress),
        "checkpoint_pause": _pauses((1, 10) if quick else (1, 10, 100), progress),
        "checkpoint_restore": _restores(10 if quick else 100, progress),
        "checkpoint_recovery": _recovery(KILLS[:3] if quick else KILLS, 1 if quick else rounds, notes, progress),
    }
    if quick:
        notes.append("left out by --quick: every 10 s, 100 MB of state, restarts of whole sessions, Bytewax")
    return sections | {"checkpoint_notes": [{"note": note} for note in notes]}


# -- throughput and latency --------------------------------------------------------------------------------------------


def _run(dataflow: Dataflow, interval_s: float | None, **named: Callable[[], object]) -> Watched:
    """On two workers; without an interval there are no checkpoints."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        root = None if interval_s is None else Path(folder)
        return watched_run(dataflow, paired(dataflow), root, interval_s or 1.0, **named)  # type: ignore[arg-type]


def _throughput(rounds: int, intervals: Sequence[float], seconds: float, progress: Progress) -> list[Row]:
    cases: list[float | None] = [None, *intervals]
    rates: dict[float | None, list[float]] = {case: [] for case in cases}
    epochs: dict[float | None, list[float]] = {case: [] for case in cases}
    for number in range(rounds):
        turn = number % len(cases)
        for case in [*cases[turn:], *cases[:turn]]:
            progress(f"round {number + 1} of {rounds}: throughput, {_every(case)}")
            found = _run(jobs.busy_count(seconds, KEYS), case)
            rates[case].append(found.tuples_in.get("count", 0) / found.seconds)
            epochs[case] += [epoch.seconds for epoch in found.epochs]
    rows: list[Row] = []
    for case in cases:
        lower = [1 - rate / plain for rate, plain in zip(rates[case], rates[None], strict=True)]
        rows.append(
            {
                "instance": f"keyed count, {KEYS:,} keys, two workers",
                "checkpoints": _every(case),
                "rows_per_s": statistics.median(rates[case]),
                "lower": statistics.median(lower) if case else None,
                "least": min(lower) if case else None,
                "most": max(lower) if case else None,
                "aim": LOWER_AIMS.get(case or 0.0),
                "epochs": len(epochs[case]) or None,
                "epoch_s": statistics.median(epochs[case]) if epochs[case] else None,
            }
        )
    return rows


def _every(case: float | None) -> str:
    return "none" if case is None else f"every {case:g} s"


def _latency(rounds: int, seconds: float, progress: Progress) -> list[Row]:
    found: dict[str, dict[int, tuple[float, float]]] = {"none": {}, "every 1 s": {}, "during epochs": {}}  # by round
    for number in range(rounds):
        for case in (None, 1.0) if number % 2 else (1.0, None):
            progress(f"round {number + 1} of {rounds}: latency, checkpoints {_every(case)}")
            sink = jobs.Lateness()
            run = _run(jobs.paced_count(PROBE_ROWS_PER_SECOND, seconds, KEYS, sink), case, at_end=sink.rows)
            came = np.concatenate([when for when, _ in run.answers])
            late = np.concatenate([us for _, us in run.answers])
            settled = came > came.min() + 1_000_000_000  # the first second starts the job
            found[_every(case)][number] = _percentiles(late[settled])
            inside = np.zeros(len(came), np.bool_)
            for epoch in run.epochs:
                inside |= (came >= epoch.began_ns) & (came <= epoch.committed_ns)
            if (inside & settled).any():
                found["during epochs"][number] = _percentiles(late[inside & settled])
    rows: list[Row] = []
    for what, figures in found.items():
        ratios = [p99 / found["none"][number][1] for number, (_, p99) in figures.items()]
        rows.append(
            {
                "instance": f"{PROBE_ROWS_PER_SECOND:,.0f} rows/s, {KEYS:,} keys",
                "checkpoints": what,
                "p50_ms": _median([p50 for p50, _ in figures.values()]),
                "p99_ms": _median([p99 for _, p99 in figures.values()]),
                "ratio": _median(ratios) if what != "none" else None,
                "least": min(ratios, default=None) if what != "none" else None,
                "most": max(ratios, default=None) if what != "none" else None,
                "aim": LATENCY_AIM if what == "during epochs" else None,
            }
        )
    return rows


def _percentiles(late_us: npt.NDArray[np.int64]) -> tuple[float, float]:
    p50, p99 = np.percentile(late_us, [50, 99])
    return float(p50) / 1e3, float(p99) / 1e3


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


# -- pauses and restores -----------------------------------------------------------------------------------------------


def _state(kind: str, megabytes: int, seconds: float, tasks: int = 1) -> Dataflow:
    size = jobs.NATIVE_BYTES_A_KEY if kind == "native" else jobs.PYTHON_BYTES_A_KEY
    make = jobs.native_state if kind == "native" else jobs.python_state
    return make(megabytes * 1_000_000 // size, seconds, tasks)


def _alone(dataflow: Dataflow) -> dict[str, int]:
    """Every task on one worker."""
    return {TaskId.of(spec.name, i): 0 for spec in dataflow.operators for i in range(spec.tasks)}


def _pauses(sizes: Sequence[int], progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for kind in ("native", "python"):
        for megabytes in sizes:
            progress(f"pause at a marker: {megabytes} MB of {kind} state")
            dataflow = _state(kind, megabytes, 4.0 + megabytes / 20)
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
                found = watched_run(dataflow, _alone(dataflow), Path(folder), 1.0)
            whole = sorted(found.epochs, key=lambda epoch: epoch.size)[len(found.epochs) // 2 :]  # all keys are there
            pauses = found.pauses_ms[-len(whole) :]
            longest = max(pauses, default=0.0)
            rows.append(
                {
                    "state": kind,
                    "mb": megabytes,
                    "pause_ms": _median(pauses),
                    "longest_ms": longest,
                    "ms_per_10_mb": longest / megabytes * 10 if megabytes >= 10 else None,
                    "aim": PAUSE_AIM_MS if kind == "native" and megabytes >= 10 else None,
                    "slice_ms": max(found.slices_ms, default=None),
                    "epochs": len(found.epochs),
                    "epoch_s": _median([epoch.seconds for epoch in whole]),
                    "file_mb": _median([epoch.size / 1e6 for epoch in whole]),
                    "kind": "full",
                }
            )
    return rows


def _restores(megabytes: int, progress: Progress) -> list[Row]:
    """State of one task that goes on in one, two and three tasks; each has a worker of its own."""
    rows: list[Row] = []
    for kind in ("native", "python"):
        for tasks in RESTORED_TASKS:
            progress(f"restore of {megabytes} MB of {kind} state into {tasks} tasks")
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
                saved = _state(kind, megabytes, 2.0)
                before = watched_run(saved, _alone(saved), Path(folder), 0.5)
                epoch = _last_with_state(Path(folder))
                again = _state(kind, megabytes, 1.0, tasks)
                plan = {task: max(0, TaskId(task).number) for task in _alone(again)}
                after = watched_run(again, plan, Path(folder), 60.0, restore=epoch)
            rows.append(
                {
                    "state": kind,
                    "mb": megabytes,
                    "tasks": f"1 -> {tasks}",
                    "seconds": after.restore_s,
                    "peak_mb_of_a_worker": after.peak_mb,
                    "peak_mb_before": before.peak_mb,
                }
            )
    return rows


def _last_with_state(folder: Path) -> int:
    """The newest epoch in which no task had finished; those behind it are removed, as if the job had died then."""
    store = Store(str(folder))
    for epoch in reversed(store.numbers()):
        if not any(part.finished for part in store.manifest(epoch).parts):
            return epoch
        Path(folder, "manifests", f"{epoch:08d}.json").unlink()
    msg = f"no epoch in {folder} has state: the run was too short"
    raise InternalError(msg)


# -- recovery ----------------------------------------------------------------------------------------------------------


def _recovery(kills: Sequence[Kill], rounds: int, notes: list[str], progress: Progress) -> list[Row]:
    found: dict[Kill, list[float]] = {kill: [] for kill in kills}
    missing: set[Kill] = set()
    for number in range(rounds):
        for kill in kills:
            if kill in missing:
                continue
            progress(f"round {number + 1} of {rounds}: {kill.engine.name}, {kill.what}")
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
                try:
                    found[kill].append(measured(kill.engine, kill.case, Path(folder))["seconds"])
                except PeerMissing as why:
                    missing.add(kill)
                    notes.append(f"{kill.engine.name}, {kill.case}: {why}")
    return [
        {
            "engine": kill.engine.name,
            "killed": kill.case,
            "seconds": _median(seconds),
            "least": min(seconds),
            "most": max(seconds),
            "times": len(seconds),
            "what": kill.what,
        }
        for kill, seconds in found.items()
        if seconds
    ]


def _shown_throughput(rows: Sequence[Row]) -> list[Row]:
    names = {"lower": "lower %", "least": "least %", "most": "most %", "aim": "aim %"}
    return [{names.get(k, k): per_cent(v) if k in names else v for k, v in row.items()} for row in rows]


BENCH = Bench(
    "what checkpoints cost, and how soon a job goes on, with Spark and Bytewax",
    main,
    {
        "checkpoint_throughput": "throughput with checkpoints, by turns with none; ratios within a round",
        "checkpoint_latency": "latency at a steady rate, from when a row was due",
        "checkpoint_pause": "what the loop spends at a marker, and what an epoch takes beside it",
        "checkpoint_restore": "restore, from one task into others",
        "checkpoint_recovery": "from a kill to the first new row, 1,000 rows/s, a checkpoint every second",
        "checkpoint_notes": "notes",
    },
    {"checkpoint_throughput": _shown_throughput},
    install_peers=partial(install, peers=(BYTEWAX,)),
)
