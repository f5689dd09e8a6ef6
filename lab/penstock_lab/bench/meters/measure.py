"""`penstock bench meters`: CPU with meters and without in pairs of runs, and the time of a profile of a large log.

Each pair is two runs of one dataflow after each other, in changing order, so that other load meets both alike. What
metering costs is the median of the pairs' ratios; their spread is printed beside it, and says what the median is worth.
The log is synthetic.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.deploy import build_profile, local_session
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker_share import RunSettings
from penstock_lab.bench.contract import Bench, Progress, Row, per_cent
from penstock_lab.bench.engine import jobs
from penstock_lab.bench.engine.run import timed_run
from penstock_lab.bench.meters.large_log import write_log

PAIRS, PAIRS_QUICK = 10, 4
WORDS, WORDS_QUICK = 20_000_000, 4_000_000
SMALL_SHARE = 20  # batches of a few rows cost so much more for each word that so many fewer words do
LOG_ROWS, LOG_ROWS_QUICK = 10_000_000, 1_000_000
CASES = {"batches of 4,000 words": 4_000, "batches of 40 words": 40}


def main(quick: bool, progress: Progress) -> dict[str, list[Row]]:
    """Both sections."""
    pairs, words = (PAIRS_QUICK, WORDS_QUICK) if quick else (PAIRS, WORDS)
    lines = jobs.make_lines()
    overhead = []
    for name, a_batch in CASES.items():
        share = words if a_batch > 1000 else words // SMALL_SHARE
        flow = jobs.word_count(jobs.line_batches(lines, a_batch), share, jobs.split_built_in, "changes")
        overhead.append({"job": name, "pairs": pairs} | _overhead(flow, pairs, name, progress))
    return {"meters_overhead": overhead, "meters_profile": [_profile(LOG_ROWS_QUICK if quick else LOG_ROWS, progress)]}


def _overhead(flow: Dataflow, pairs: int, name: str, progress: Progress) -> Row:
    ratios: list[float] = []
    for pair in range(pairs):
        progress(f"{name}, pair {pair + 1} of {pairs}")
        cpu = {}
        for metered in (True, False) if pair % 2 else (False, True):
            cpu[metered] = timed_run(flow, jobs.paired(flow), RunSettings(metered=metered)).cpu_seconds
        ratios.append(cpu[True] / cpu[False] - 1)
    first, _, third = statistics.quantiles(ratios, n=4)
    return {"overhead": statistics.median(ratios), "quartiles": [first, third], "range": [min(ratios), max(ratios)]}


def _profile(rows: int, progress: Progress) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        progress("writing a synthetic metric log")
        written = write_log(Path(folder), rows)
        spark = local_session("local[2]")
        progress(f"a profile of {written:,} rows")
        began = time.monotonic()
        profile = build_profile(spark, folder)
        seconds = time.monotonic() - began
        return {"rows": written, "tasks": len(profile.tasks), "pairs": len(profile.edges), "seconds": seconds}


def _shown(rows: Sequence[Row]) -> list[Row]:
    """In per cent of the CPU of the run without meters."""
    return [
        {
            "job": row["job"],
            "pairs": row["pairs"],
            "overhead %": per_cent(row["overhead"]),
            "quartiles %": " to ".join(map(per_cent, row["quartiles"])),  # type: ignore[call-overload]
            "range %": " to ".join(map(per_cent, row["range"])),  # type: ignore[call-overload]
        }
        for row in rows
    ]


BENCH = Bench(
    "what metering costs, and a profile of a large synthetic log",
    main,
    {
        "meters_overhead": "CPU with meters over CPU without, pairs of runs of a word count on two workers",
        "meters_profile": "profile of a synthetic metric log, by Spark on two cores",
    },
    {"meters_overhead": _shown},
)
