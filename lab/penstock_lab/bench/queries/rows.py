"""Rows of the query benchmark, by query and by form, with verdicts on the aims, and notes."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass

from penstock_lab.bench.contract import Row
from penstock_lab.bench.queries.spark import NO_STREAMING, PYTHON, STREAMING
from penstock_lab.nexmark.queries import QUERIES, UNSUPPORTED

AIM, AIM_WINDOWS = 1.0, 10.0  # times Structured Streaming; the second for windows and joins
ENGINES = ("files", "DataFrame", "streaming", "batch")
PLACED = ("q5", "q7", "q8")  # queries of which placement is measured as well: windows and a join
CHOSEN, EVEN, ALONE = "files, default", "files, even", "files, 1 worker"  # schedulers and workers, measured by turns
PLACED_NOISE = 0.1  # ratios of one round differed by this much between two measurements of the same thing
Key = tuple[str, str, str]  # query, engine, form


@dataclass(frozen=True)
class Found:
    """Everything that one run has found."""

    seconds: dict[Key, list[float]]
    cpu: dict[Key, list[float]]  # of all processes
    answers: dict[Key, str]  # "same", or what differs
    missing: dict[str, str]  # Python forms that cannot run here
    whole: dict[str, str]  # our answer from files at full size, by query

    def rate(self, key: Key, events: int) -> float | None:
        """Events a second, by the median of the rounds."""
        times = self.seconds.get(key)
        return events / statistics.median(times) if times else None

    def cpu_seconds(self, key: Key) -> float | None:
        """CPU seconds, by the median of the rounds."""
        times = self.cpu.get(key)
        return statistics.median(times) if times else None


def query_row(name: str, found: Found, counts: dict[str, int]) -> Row:
    """One query: our first form beside Spark's."""
    query = QUERIES[name]
    form = next(iter(query.forms), "")
    events = sum(counts[table] for table in query.tables)
    keys = {engine: (name, engine, form if engine in {"files", "DataFrame"} else "SQL") for engine in ENGINES}
    rates = {engine: found.rate(key, events) for engine, key in keys.items()}
    aim = AIM_WINDOWS if query.kind in {"window", "join"} else AIM
    ratio = _ratio(rates["files"], rates["streaming"])
    return {
        "query": name,
        "title": query.title,
        "kind": query.kind,
        "form": form or None,
        "events": events,
        **{f"{engine}_events_per_s": rate for engine, rate in rates.items()},
        "seconds": {engine: found.seconds.get(key) for engine, key in keys.items()},
        "cpu_seconds": {engine: found.cpu_seconds(key) for engine, key in keys.items()},
        "ratio": ratio,
        "frame_ratio": _ratio(rates["DataFrame"], rates["streaming"]),
        "cpu_ratio": _ratio(found.cpu_seconds(keys["streaming"]), found.cpu_seconds(keys["files"])),
        "aim": aim,
        "verdict": verdict(ratio, aim, bool(rates["files"])),
        "answers": {engine: found.answers.get(key) for engine, key in keys.items() if engine != "batch"},
        "whole_answer": found.whole.get(name),
    }


def placed_row(name: str, found: Found, counts: dict[str, int]) -> Row:
    """One query under the default scheduler, under `even` and in one worker; ratios are medians over the rounds."""
    form = next(iter(QUERIES[name].forms), "")
    seconds = {engine: found.seconds.get((name, engine, form), []) for engine in (CHOSEN, EVEN, ALONE)}
    ratios = {
        engine: [theirs / ours for ours, theirs in zip(seconds[CHOSEN], seconds[engine], strict=True)]
        for engine in (EVEN, ALONE)
    }
    medians = {engine: statistics.median(each) if each else None for engine, each in ratios.items()}
    known = [ratio for ratio in medians.values() if ratio is not None]
    return {
        "query": name,
        "events": sum(counts[table] for table in QUERIES[name].tables),
        "seconds": seconds,
        **{
            f"{short}_seconds": statistics.median(seconds[engine]) if seconds[engine] else None
            for short, engine in (("default", CHOSEN), ("even", EVEN), ("one_worker", ALONE))
        },
        "ratios": ratios,
        "to_even": medians[EVEN],
        "to_one_worker": medians[ALONE],
        "verdict": "not said" if len(known) < 2 else "slower" if min(known) < 1 - PLACED_NOISE else "not slower",
    }


def verdict(ratio: float | None, aim: float, said: bool = True) -> str:
    """Whether the aim is met: ahead of Structured Streaming, windows and joins ten times."""
    if not said:
        return "not said"
    if ratio is None:
        return "no peer"
    if ratio >= aim:
        return "ahead"
    return "behind" if ratio < AIM else f"below {aim:g}x"


def form_rows(name: str, found: Found, counts: dict[str, int]) -> list[Row]:
    """Each of our forms, and the Python forms of Spark that stand beside it."""
    query = QUERIES[name]
    events = sum(counts[table] for table in query.tables)
    rows: list[Row] = []
    for form in query.forms:
        peers = [engine for engine, (beside, _) in PYTHON.get(name, {}).items() if beside == form]
        if len(query.forms) < 2 and not peers:
            continue
        rates = {engine: found.rate((name, engine, form), events) for engine in ("files", "DataFrame", *peers)}
        fastest = max((rate for engine in peers if (rate := rates[engine]) is not None), default=None)
        rows.append(
            {
                "query": name,
                "form": form,
                **rates,
                "cpu_seconds": {engine: found.cpu_seconds((name, engine, form)) for engine in rates},
                "ratio": _ratio(rates["files"], fastest),
                "frame_ratio": _ratio(rates["DataFrame"], fastest),
                "answers": {engine: found.answers.get((name, engine, form)) for engine in rates},
            }
        )
    return rows


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def notes(names: list[str], found: Found, compared: int, workers: int) -> list[str]:
    """What a reader of the tables should know."""
    told = [
        "ratio, CPU: how many times our rate and how many times our CPU time; aims are for the ratio",
        "events are synthetic (1 person, 3 auctions and 46 bids of every 50); rates count the rows of the tables read",
        f"{workers} workers, as many partitions of Spark; wall time from the call to the last row, in a warm session",
        f"answers are compared on {compared:,} events over more time, and ours over files as a whole by hashes",
    ]
    told += [f"{name}: {QUERIES[name].note}" for name in names if QUERIES[name].note]
    for name in names:
        if name in NO_STREAMING:
            told.append(f"{name} has no Structured Streaming: {NO_STREAMING[name]}")
        elif STREAMING[name].note:
            told.append(f"{name} in Structured Streaming: {STREAMING[name].note}")
    told += [f"{name} is not supported: it {why}" for name, why in UNSUPPORTED.items()]
    told += [f"{name} is not supported: it {QUERIES[name].note}" for name in names if not QUERIES[name].forms]
    told += [f"{form}: {why}" for form, why in found.missing.items()]
    told += [f"{' '.join(key)}: {text}" for key, text in found.answers.items() if text != "same"]
    told += [f"{name}, whole answer: {text}" for name, text in found.whole.items() if text != "same"]
    return [
        *told,
        f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} at the end, our own work included",
    ]
