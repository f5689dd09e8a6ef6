"""`penstock bench engine`: how fast dataflows run, beside other engines in the same run.

Word count on two worker processes: built-in operators in large and small batches, row functions, one update per word;
latency at a steady rate; the cost of long chains in one worker; the cost of metering; start to first tuple on Spark.
Each round measures every case and every peer once, so that other load on the machine meets all of them alike. Figures
are medians of the rounds; the ratio to the peers counts.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.flow.stream import Emit
from penstock.run.engine.worker_share import RunSettings
from penstock_lab.bench.contract import Bench, Progress, Row
from penstock_lab.bench.engine import jobs
from penstock_lab.bench.engine.peers import BYTEWAX, FIRST_TUPLE, SPARK, Peer, PeerMissing, install, measured
from penstock_lab.bench.engine.run import Timed, timed_run

Measured = dict[str, float]
Run = Callable[[], Measured]

PROBE_WORDS_PER_SECOND = 20_000.0
LARGE, SMALL = 10_000, 1_000  # words in a batch
CHAIN_LENGTHS = (1, 2, 4, 8, 16)
CHAIN_ROWS = 1_000  # in a batch
METERING_PAIRS = 6
TRANSPORTS = ("ring", "socket")
ROUNDS, ROUNDS_QUICK = 5, 2


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured once in every round."""

    section: str
    what: str
    engine: str
    run: Run
    rival: str = ""  # the peers' case that it is compared with
    aim: float | None = None  # least ratio to the rival
    transport: str | None = None  # between our two workers


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` shrinks the whole to about a minute and leaves Spark out."""
    with _lines_file() as (path, lines):
        cases = _cases(path, lines, quick)
        found, skipped = _measure(cases, ROUNDS_QUICK if quick else ROUNDS, progress)
    if quick:
        skipped["start to first tuple"] = "left out by --quick: it starts a Spark session"
    sections: dict[str, list[Row]] = {
        "engine_throughput": _throughput(cases, found),
        "engine_latency": _latency(cases, found),
        "engine_chain": _chain(cases, found),
        "engine_metering": _metering(found),
        "engine_start": _start(cases, found),
    }
    sections["engine_notes"] = [{"note": f"{what}: {why}"} for what, why in skipped.items()]
    sections["engine_notes"].append({"note": _machine()})
    return {section: rows for section, rows in sections.items() if rows}


@contextmanager
def _lines_file() -> Iterator[tuple[Path, list[str]]]:
    """The text, for us as a list and for peers as a file."""
    lines = jobs.make_lines()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        path = Path(folder) / "lines.txt"
        path.write_text("\n".join(lines) + "\n")
        yield path, lines


def _cases(path: Path, lines: list[str], quick: bool) -> list[Case]:
    share = 8 if quick else 1
    million = 1_000_000 // share
    large, small = jobs.line_batches(lines, LARGE), jobs.line_batches(lines, SMALL)
    built_in, function, each_word = jobs.split_built_in, jobs.split_by_function, jobs.split_and_map

    def ours(batches: list[pa.RecordBatch], words: int, split: jobs.Split, emit: Emit, transport: str = "ring") -> Run:
        return partial(_word_count, batches, words, split, emit, RunSettings(transport=transport))

    def peer(engine: Peer, case: str, words: int, lines_a_batch: int) -> Run:
        return partial(measured, engine, case, path, words, lines_a_batch)

    seconds = 1.0 if quick else 3.0
    probe_words = int(PROBE_WORDS_PER_SECOND * seconds)
    at_rate = "20,000 words/s, a row function"
    grouped = [
        ("built-in, 10,000-word batches", ours(large, 20 * million, built_in, "changes"), 4.0),
        ("built-in, 1,000-word batches", ours(small, 10 * million, built_in, "changes"), 2.0),
    ]
    record = [
        ("a row function per line", ours(large, 8 * million, function, "changes"), 5.0),
        ("a row function per word", ours(large, 5 * million, each_word, "changes"), 5.0),
        ("one update per word", ours(large, 8 * million, built_in, "each"), 1.0),
    ]
    cases = [
        Case("throughput", grouped[0][0], "penstock", grouped[0][1], "grouped", grouped[0][2], "ring"),
        Case("throughput", "grouped by hand", "bytewax", peer(BYTEWAX, "grouped", 6 * million, 1_000), "grouped"),
        Case("throughput", grouped[1][0], "penstock", grouped[1][1], "grouped", grouped[1][2], "ring"),
        *(
            Case(
                "throughput",
                what,
                "penstock",
                ours(rows, count * million, built_in, "changes", "socket"),
                "grouped",
                None,
                "socket",
            )
            for what, rows, count in ((grouped[0][0], large, 20), (grouped[1][0], small, 10))
        ),
        *(Case("throughput", what, "penstock", run, "record", aim, "ring") for what, run, aim in record),
        Case("throughput", "one update per word", "bytewax", peer(BYTEWAX, "record", million // 2, 100), "record"),
        *(
            Case("latency", at_rate, "penstock", partial(_probe, seconds, lines, transport), "latency", None, transport)
            for transport in TRANSPORTS
        ),
        Case("latency", at_rate, "bytewax", peer(BYTEWAX, "latency", probe_words, 1), "latency"),
        *(Case("chain", str(n), "penstock", partial(_chained, lines, 2 * million, n)) for n in CHAIN_LENGTHS),
        Case("metering", "built-in, 1,000-word batches", "penstock", partial(_metering_pairs, small, 2 * million)),
    ]
    if not quick:
        spark = peer(SPARK, "grouped", 20 * million, 0)
        cases.append(Case("throughput", "micro-batch SQL", "spark", _once_per_three(spark), "grouped"))
        cases.append(Case("start", "warm session", "penstock", _once_per_three(peer(FIRST_TUPLE, "first", 0, 0))))
    return cases


def _once_per_three(run: Run) -> Run:
    """The measurement in every third round only: starting a Spark session takes half a minute."""
    count = iter(range(1_000_000))
    return lambda: run() if next(count) % 3 == 0 else {}


def _measure(cases: list[Case], rounds: int, progress: Progress) -> tuple[dict[Case, list[Measured]], dict[str, str]]:
    """Every case once in every round; a peer that cannot answer is not asked again."""
    found: dict[Case, list[Measured]] = {case: [] for case in cases}
    skipped: dict[str, str] = {}
    for number in range(rounds):
        for case in cases:
            title = ", ".join(part for part in (case.engine, case.what, case.transport) if part)
            if title in skipped:
                continue
            progress(f"round {number + 1} of {rounds}: {case.section}: {title}")
            try:
                answer = case.run()
            except PeerMissing as missing:
                skipped[title] = str(missing)
                continue
            if answer:
                found[case].append(answer)
    return found, skipped


# -- one measurement --------------------------------------------------------------------------------------------------


def _word_count(
    batches: list[pa.RecordBatch], words: int, split: jobs.Split, emit: Emit, settings: RunSettings
) -> Measured:
    dataflow = jobs.word_count(batches, words, split, emit)
    timed = timed_run(dataflow, jobs.paired(dataflow), settings)
    counted = timed.tuples_in.get("count", 0) or words
    return {"words_per_s": counted / timed.seconds, "cpu_ns_per_word": timed.cpu_seconds / counted * 1e9}


def transport_latency(
    rounds: int = ROUNDS, seconds: float = 3.0, progress: Progress = lambda message: None
) -> list[Row]:
    """Word count through two workers at 20,000 words/s, over rings and over sockets by turns; rows as in the bench."""
    lines, at_rate = jobs.make_lines(), "20,000 words/s, a row function"
    cases = [
        Case("latency", at_rate, "penstock", partial(_probe, seconds, lines, transport), "latency", None, transport)
        for transport in TRANSPORTS
    ]
    found, _ = _measure(cases, rounds, progress)
    return _latency(cases, found)


def _probe(seconds: float, lines: list[str], transport: str) -> Measured:
    vocabulary = sorted({word for line in lines for word in line.split()})
    late = jobs.Lateness()
    dataflow = jobs.probe(PROBE_WORDS_PER_SECOND, seconds, late, vocabulary)
    timed: Timed = timed_run(
        dataflow,
        jobs.paired(dataflow),
        RunSettings(transport=transport),
        at_end=late.us,
    )
    times = np.array([time for answer in timed.answers for time in answer])  # type: ignore[attr-defined]
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50_ms": float(p50) / 1e3, "p99_ms": float(p99) / 1e3, "words": float(len(times))}


def _chained(lines: list[str], rows: int, length: int) -> Measured:
    batches = jobs.line_batches(lines, CHAIN_ROWS * jobs.WORDS_A_LINE)
    dataflow = jobs.chain(batches, rows, length)
    timed = timed_run(dataflow, jobs.paired(dataflow))
    return {"ns_per_tuple": timed.cpu_seconds / rows * 1e9}


def _metering_pairs(batches: list[pa.RecordBatch], words: int) -> Measured:
    """CPU with meters and without, by turns, so that other load on the machine meets both alike."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(METERING_PAIRS):
        # The order changes from pair to pair: when the run with meters came first each time, they seemed to cost 6 to
        # 11 %.
        for metered in (True, False) if pair % 2 else (False, True):
            settings = RunSettings(metered=metered)
            answer = _word_count(batches, words, jobs.split_built_in, "changes", settings)
            found[metered].append(answer["cpu_ns_per_word"])
    return {"on": statistics.median(found[True]), "off": statistics.median(found[False])}


# -- rows -------------------------------------------------------------------------------------------------------------


def _median(answers: list[Measured], name: str) -> float | None:
    values = [answer[name] for answer in answers if name in answer]
    return statistics.median(values) if values else None


def _fastest(cases: list[Case], found: dict[Case, list[Measured]], rival: str) -> float | None:
    rates = [_median(found[c], "words_per_s") for c in cases if c.engine != "penstock" and c.rival == rival]
    return max((rate for rate in rates if rate is not None), default=None)


def _cpu_ratio(cases: list[Case], found: dict[Case, list[Measured]], case: Case) -> float | None:
    """The thriftiest peer's CPU time for a word over ours; other load on the machine does not blur this ratio."""
    name = "cpu_ns_per_word"
    costs = [_median(found[c], name) for c in cases if c.engine != "penstock" and c.rival == case.rival]
    least = min((cost for cost in costs if cost is not None), default=None)
    own = _median(found[case], name)
    return least / own if case.engine == "penstock" and least and own else None


def _throughput(cases: list[Case], found: dict[Case, list[Measured]]) -> list[Row]:
    rows: list[Row] = []
    for case in cases:
        answers = found[case]
        rate = _median(answers, "words_per_s")
        if case.section != "throughput" or rate is None:
            continue
        rates = [answer["words_per_s"] for answer in answers]
        fastest = _fastest(cases, found, case.rival)
        ours = case.engine == "penstock"
        rows.append(
            {
                "instance": case.what,
                "engine": case.engine,
                "transport": case.transport,
                "words_per_s": rate,
                "least": min(rates),
                "most": max(rates),
                "cpu_ns_per_word": _median(answers, "cpu_ns_per_word"),
                "rival": case.rival if ours else None,
                "ratio": rate / fastest if ours and fastest else None,
                "aim": case.aim,
                "cpu_ratio": _cpu_ratio(cases, found, case),
            }
        )
    return rows


def _latency(cases: list[Case], found: dict[Case, list[Measured]]) -> list[Row]:
    return [
        {
            "instance": case.what,
            "engine": case.engine,
            "transport": case.transport,
            "p50_ms": _median(found[case], "p50_ms"),
            "p99_ms": _median(found[case], "p99_ms"),
            "least_p50_ms": min(answer["p50_ms"] for answer in found[case]),
            "least_p99_ms": min(answer["p99_ms"] for answer in found[case]),
        }
        for case in cases
        if case.section == "latency" and found[case]
    ]


def _chain(cases: list[Case], found: dict[Case, list[Measured]]) -> list[Row]:
    rows: list[Row] = []
    for case in cases:
        cost = _median(found[case], "ns_per_tuple") if case.section == "chain" else None
        if cost is not None:
            first = float(str(rows[0]["cpu_ns_per_tuple"])) if rows else cost
            more = int(case.what) - CHAIN_LENGTHS[0]
            each = (cost - first) / more if more else None
            rows.append({"operators": int(case.what), "cpu_ns_per_tuple": cost, "ns_for_each_more": each})
    return rows


def _metering(found: dict[Case, list[Measured]]) -> list[Row]:
    """CPU with meters over CPU without; the rounds' median is what counts."""
    return [
        {
            "instance": case.what,
            "cpu_ns_per_word_on": _median(answers, "on"),
            "cpu_ns_per_word_off": _median(answers, "off"),
            "cost": statistics.median(answer["on"] / answer["off"] for answer in answers) - 1,
            "aim": 0.02,
        }
        for case, answers in found.items()
        if case.section == "metering" and answers
    ]


def _start(cases: list[Case], found: dict[Case, list[Measured]]) -> list[Row]:
    return [
        {"instance": case.what, "seconds": _median(found[case], "seconds"), "aim": 1.0}
        for case in cases
        if case.section == "start" and found[case]
    ]


def _machine() -> str:
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} processors, load average {load:.1f} at the end, our own work included"


BENCH = Bench(
    "word count on two workers, with Bytewax and Spark",
    main,
    {
        "engine_throughput": "word count on two workers; ratio: to the fastest peer of the same kind in the same run",
        "engine_latency": "latency in ms at a steady rate, from the time at which each word was due",
        "engine_chain": "CPU per tuple through operators that pass everything on, in one worker",
        "engine_metering": "what metering costs: CPU with meters over CPU without",
        "engine_start": "start to first tuple on a warm Spark session",
        "engine_notes": "notes",
    },
    install_peers=install,
)
