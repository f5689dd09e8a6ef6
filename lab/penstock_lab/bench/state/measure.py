"""`penstock bench state`: keyed Python state on one core, beside Bytewax's and Spark's in the same run.

A counter and sessions over 100,000 keys, on the operator alone and in a job of one worker. Each round measures every
case and every peer once, so that other load on the machine meets all of them alike; figures are medians of the rounds.
Rows a second are by wall time; rows a core are by CPU time, which other load does not blur. Bytewax counts by
`stateful_map` and makes sessions by its own windows; Spark uses `applyInPandasWithState` and `transformWithState`, on
`local[1]`. Spark runs in every third round. Spark and Bytewax's sessions get a part of the rows, because all of them
would take hours; fewer keys come, which favours them.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from penstock.model.task_id import TaskId
from penstock.run.operators.state.stateful import Stateful
from penstock_lab.bench.contract import Bench, Progress, Row
from penstock_lab.bench.engine.peers import SPARK_LIMIT_SECONDS, Peer, PeerMissing, install, measured
from penstock_lab.bench.engine.run import timed_run
from penstock_lab.bench.state import jobs

Measured = dict[str, float]
Run = Callable[[], Measured]

BYTEWAX = Peer("bytewax", "bytewax_state.py", "bytewax==0.21.1", bench="state")
SPARK = Peer("spark", "spark_state.py", "pandas<3 protobuf", SPARK_LIMIT_SECONDS, "state", beside_ours=True)
ROUNDS, ROUNDS_QUICK = 5, 2
AIMS = {"count": 500_000, "sessions": 200_000}  # rows per second
LIST_LENGTHS = (100, 10_000, 1_000_000)
PUTS = 50_000
SLOW = 50  # peers that take a millisecond a row get one row in 50


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured once in every round."""

    kind: str  # what is compared: count or sessions
    what: str
    engine: str
    run: Run
    timed: bool = True  # by the clock; else by CPU time alone


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` shrinks the whole to about a minute and leaves Spark out."""
    rows, keys = (200_000, 20_000) if quick else (1_000_000, 100_000)
    batches = jobs.make_batches(rows, keys)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        path = Path(folder) / "rows.csv"
        jobs.write_rows(batches, path)
        cases = _cases(batches, path, rows, quick)
        found, skipped = _measure(cases, ROUNDS_QUICK if quick else ROUNDS, progress)
    if quick:
        skipped["spark"] = "left out by --quick: it starts a Spark session for each case"
    progress("cost by number of keys and length of a list")
    notes = [f"{what}: {why}" for what, why in skipped.items()]
    notes.append(f"{rows:,} rows, {keys:,} keys, one core; {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    return {
        "state_throughput": _throughput(cases, found),
        "state_growth": [*_by_keys(rows), *_by_length(PUTS // 10 if quick else PUTS)],
        "state_notes": [{"note": note} for note in notes],
    }


def _cases(batches: list[pa.RecordBatch], path: Path, rows: int, quick: bool) -> list[Case]:
    def alone(operator: type[Stateful]) -> Run:
        return partial(_operator, batches, rows, operator)

    def job(operator: type[Stateful]) -> Run:
        return partial(_job, batches, rows, operator)

    cases = [
        Case("count", "operator alone, told at the end", "penstock", alone(jobs.Count), timed=False),
        Case("count", "job, told at the end", "penstock", job(jobs.Count)),
        Case("count", "job, told at every row", "penstock", job(jobs.CountEach)),
        Case("count", "stateful_map", "bytewax", partial(measured, BYTEWAX, "count", path, rows)),
        Case("sessions", "operator alone, timers", "penstock", alone(jobs.Sessions), timed=False),
        Case("sessions", "job, timers", "penstock", job(jobs.Sessions)),
        Case("sessions", "session windows", "bytewax", partial(measured, BYTEWAX, "sessions", path, rows // SLOW)),
    ]
    if not quick:
        for kind in AIMS:
            pandas = partial(measured, SPARK, f"{kind}-pandas", path, rows // SLOW)
            by_row = partial(measured, SPARK, f"{kind}-rows", path, rows // SLOW)
            cases.append(Case(kind, "applyInPandasWithState", "spark", _once_per_three(pandas)))
            cases.append(Case(kind, "transformWithState", "spark", _once_per_three(by_row)))
    return cases


def _once_per_three(run: Run) -> Run:
    """The measurement in every third round only: a Spark session takes half a minute."""
    count = iter(range(1_000_000))
    return lambda: run() if next(count) % 3 == 0 else {}


def _measure(cases: list[Case], rounds: int, progress: Progress) -> tuple[dict[Case, list[Measured]], dict[str, str]]:
    """Every case once in every round; a peer that cannot answer is not asked again."""
    found: dict[Case, list[Measured]] = {case: [] for case in cases}
    skipped: dict[str, str] = {}
    for number in range(rounds):
        for case in cases:
            title = f"{case.engine}, {case.what}, {case.kind}"
            if title in skipped:
                continue
            progress(f"round {number + 1} of {rounds}: {title}")
            try:
                answer = case.run()
            except PeerMissing as missing:
                skipped[title] = str(missing)
                continue
            if answer:
                found[case].append(answer)
    return found, skipped


def _operator(batches: list[pa.RecordBatch], rows: int, operator: type[Stateful]) -> Measured:
    return {"cpu_ns_per_row": jobs.operator_seconds(batches, operator) / rows * 1e9}


def _job(batches: list[pa.RecordBatch], rows: int, operator: type[Stateful]) -> Measured:
    flow = jobs.dataflow(batches, operator)
    timed = timed_run(flow, {TaskId.of(spec.name, i): 0 for spec in flow.operators for i in range(spec.tasks)})
    return {"rows_per_s": rows / timed.seconds, "cpu_ns_per_row": timed.cpu_seconds / rows * 1e9}


def _by_keys(rows: int) -> list[Row]:
    """The cost of a row of the session idiom, by number of keys."""
    return [
        {
            "instance": "a row of the session idiom",
            "among": f"{keys:,} keys",
            "cpu_ns": jobs.operator_seconds(jobs.make_batches(rows, keys), jobs.Sessions) / rows * 1e9,
        }
        for keys in (rows // 1000, rows // 100, rows // 10)
    ]


def _by_length(puts: int) -> list[Row]:
    """The cost of putting a list that grows, by its length."""
    return [
        {
            "instance": "state[name] = a list that grows",
            "among": f"{length:,} elements",
            "cpu_ns": jobs.append_seconds(length, puts) / puts * 1e9,
        }
        for length in LIST_LENGTHS
    ]


def _median(answers: list[Measured], name: str) -> float | None:
    values = [answer[name] for answer in answers if name in answer]
    return statistics.median(values) if values else None


def _throughput(cases: list[Case], found: dict[Case, list[Measured]]) -> list[Row]:
    rows: list[Row] = []
    for case in sorted(cases, key=lambda case: (case.kind, case.engine != "penstock")):
        if not found[case]:
            continue
        rates = [answer["rows_per_s"] for answer in found[case] if case.timed]
        rate, cost = _median(found[case], "rows_per_s"), _median(found[case], "cpu_ns_per_row")
        peers = [c for c in cases if c.engine != "penstock" and c.kind == case.kind]
        ours = case.engine == "penstock"
        fastest, least = _best(max, peers, found, "rows_per_s"), _best(min, peers, found, "cpu_ns_per_row")
        rows.append(
            {
                "kind": case.kind,
                "instance": case.what,
                "engine": case.engine,
                "rows_per_s": rate,
                "least": min(rates, default=None),
                "most": max(rates, default=None),
                "cpu_ns_per_row": cost,
                "rows_per_core_s": 1e9 / cost if cost else None,
                "ratio": rate / fastest if ours and rate and fastest else None,
                "cpu_ratio": least / cost if ours and cost and least else None,
                "aim": AIMS[case.kind] if ours else None,
            }
        )
    return rows


def _best(
    choose: Callable[..., float | None], peers: list[Case], found: dict[Case, list[Measured]], name: str
) -> float | None:
    """The best of the peers' medians."""
    medians = [_median(found[peer], name) for peer in peers]
    return choose((value for value in medians if value is not None), default=None)


def _shown(rows: Sequence[Row]) -> list[Row]:
    """What fits a terminal: rates in thousands."""
    return [
        {
            "kind": row["kind"],
            "instance": row["instance"],
            "engine": row["engine"],
            "k rows/s": _thousands(row["rows_per_s"]),
            "a core": _thousands(row["rows_per_core_s"]),
            "aim": _thousands(row["aim"]),
            "ratio": row["ratio"],
            "CPU ratio": row["cpu_ratio"],
        }
        for row in rows
    ]


def _thousands(value: object) -> str | None:
    return f"{value / 1e3:,.3g}" if isinstance(value, int | float) and value < 1e5 else _whole_thousands(value)


def _whole_thousands(value: object) -> str | None:
    return f"{value / 1e3:,.0f}" if isinstance(value, int | float) else None


def _whole(value: object) -> str | None:
    return f"{value:,.0f}" if isinstance(value, int | float) else None


def _growth(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "cpu_ns": _whole(row["cpu_ns"])} for row in rows]


BENCH = Bench(
    "keyed Python state on one core, with Bytewax and Spark",
    main,
    {
        "state_throughput": "keyed Python state, one task; ratios: to the best peer in the same run",
        "state_growth": "what a row costs as keys and lists grow",
        "state_notes": "notes",
    },
    {"state_throughput": _shown, "state_growth": _growth},
    install_peers=partial(install, peers=(BYTEWAX, SPARK)),
)
