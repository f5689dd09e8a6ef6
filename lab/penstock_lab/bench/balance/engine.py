"""The engine half of `penstock bench balance`: regions on worker processes, in which replicas sleep for a row's cost.

Source, splitter, merger and sink share one worker; each replica has one of its own. Replicas sleep instead of
computing, so sixteen fit on two cores, and the engine's own CPU shows as time over the oracle's. A sleep that ends late
shortens the next one, or a busy machine would add its delays to every slice.

The cost of splitting and merging is measured against a shuffle to the same number of tasks, without order.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

import pyarrow as pa

from penstock.flow import io
from penstock.flow.topology import Topology
from penstock.model.task_id import TaskId
from penstock.run.contract import MAIN, Outputs, Task
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker_share import task_ids
from penstock.run.region.blocking_rate import Charged
from penstock.run.region.contract import Policy, units_of
from penstock.run.region.policies import find_policy
from penstock.run.region.policies.oracle import Known, Oracle
from penstock_lab.bench.contract import Progress, Row
from penstock_lab.bench.engine.run import Timed, timed_run

BASE_S = 200e-6  # a row's cost on a replica that is not slowed
BATCH_ROWS = 1_000
SCHEMA = pa.schema([pa.field("n", pa.int64())])
ORACLE_SAMPLE_S = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """Each replica's cost in multiples of the base cost, at first and from a certain row on."""

    factors: tuple[float, ...]
    later: tuple[float, ...] = ()
    from_row: int = 0

    def capacity(self, *, later: bool = False) -> float:
        """Rows per second of all replicas together."""
        return sum(1 / (BASE_S * factor) for factor in (self.later if later else self.factors))

    def ideal(self, *, later: bool = False) -> tuple[int, ...]:
        """Weights in proportion to speed."""
        return units_of([1 / factor for factor in (self.later if later else self.factors)])

    def oracle(self) -> Policy:
        """The policy that knows these costs."""
        known = [Known(0.0, {i: 1 / factor for i, factor in enumerate(self.factors)})]
        if self.later:
            known.append(Known(0.0, {i: 1 / factor for i, factor in enumerate(self.later)}, self.from_row))
        return Oracle(known)


class Work(Task):
    """A replica: sleeps for the cost of its rows and passes them on."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._overslept_s = 0.0

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Rows are numbered, so a load that ends with a row ends there for every replica."""
        load, index, rows = self._load, self.context.index, batch.num_rows
        before = rows
        if load.later:
            before = min(rows, max(0, load.from_row - batch.column(0)[0].as_py()))
        seconds = before * BASE_S * load.factors[index]
        seconds += (rows - before) * BASE_S * load.later[index] if load.later else 0.0
        self._wait(seconds)
        out.emit(batch)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds - min(self._overslept_s, seconds)
        self._overslept_s = max(0.0, self._overslept_s - seconds)
        time.sleep(max(0.0, until - time.monotonic()))
        self._overslept_s += max(0.0, time.monotonic() - until)


def numbered(rows: int, batch_rows: int, task: int, tasks: int) -> Iterator[pa.RecordBatch]:
    """Rows 0, 1, 2, ... in batches."""
    for start in range(0, rows, batch_rows):
        yield pa.record_batch([pa.array(range(start, min(start + batch_rows, rows)), pa.int64())], schema=SCHEMA)


class InOrder(Task):
    """The end: refuses rows that are out of order or missing."""

    def __init__(self, rows: int, *, ordered: bool) -> None:
        self._rows, self._ordered, self._next = rows, ordered, 0

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Check the first row of each batch, which is enough for a benchmark."""
        if self._ordered and batch.column(0)[0].as_py() != self._next:
            msg = f"row {batch.column(0)[0]} came where {self._next} was due"
            raise AssertionError(msg)
        self._next += batch.num_rows

    def finish(self, out: Outputs) -> None:
        """All rows must have come."""
        if self._next != self._rows:
            msg = f"{self._next} of {self._rows} rows came"
            raise AssertionError(msg)


Inside = Callable[[], Task]


def region_flow(
    rows: int,
    replicas: int,
    inside: Inside,
    policy: Callable[[], Policy],
    sample_s: float,
    batch_rows: int = BATCH_ROWS,
    blocking: Charged = "laggard",
) -> Dataflow:
    """Source, region, check of order."""
    topology = Topology("balance")
    source = topology.source("rows", io.generator(partial(numbered, rows, batch_rows), SCHEMA))
    region = source.parallel(replicas, balance=policy, blocking=blocking, sample_s=sample_s, name="region")
    merged = region.then("work", inside, {MAIN: SCHEMA}, name="work", tasks=replicas).merge()
    merged.then("check", partial(InOrder, rows, ordered=True), {MAIN: SCHEMA}, name="check", tasks=1).sink(
        "end", io.discard()
    )
    return topology.build()


def shuffled_flow(rows: int, replicas: int, inside: Inside, batch_rows: int) -> Dataflow:
    """The same without order: a shuffle to `replicas` tasks, and back to one."""
    topology = Topology("shuffled")
    source = topology.source("rows", io.generator(partial(numbered, rows, batch_rows), SCHEMA))
    worked = source.then("work", inside, {MAIN: SCHEMA}, name="work", tasks=replicas)
    worked.then("check", partial(InOrder, rows, ordered=False), {MAIN: SCHEMA}, name="check", tasks=1).sink(
        "end", io.discard()
    )
    return topology.build()


def spread(dataflow: Dataflow) -> dict[str, int]:
    """Replicas on workers of their own, everything else on the first."""
    return {task: 1 + TaskId(task).number if task.startswith("work/") else 0 for task in task_ids(dataflow)}


def run_load(load: Load, name: str, rows: int, sample_s: float, blocking: Charged = "laggard") -> Timed:
    """One run of a region under a load."""
    policy = load.oracle if name == "oracle" else find_policy(name).build
    interval = ORACLE_SAMPLE_S if name == "oracle" else sample_s
    dataflow = region_flow(rows, len(load.factors), partial(Work, load), policy, interval, blocking=blocking)
    return timed_run(dataflow, spread(dataflow))


def half(replicas: int, factor: float) -> tuple[float, ...]:
    """Costs in which the first half of the replicas is `factor` times as expensive."""
    return tuple(factor if i < replicas // 2 else 1.0 for i in range(replicas))


# -- sections ----------------------------------------------------------------------------------------------------------


def constant(quick: bool, progress: Progress) -> list[Row]:
    """Half of the replicas 10 times slower: execution time over the oracle's, at most 1.15."""
    rows: list[Row] = []
    run_s, sample_s = (6.0, 0.25) if quick else (60.0, 1.0)
    for replicas in (4,) if quick else (2, 4, 8, 16):
        load = Load(half(replicas, 10.0))
        count = int(run_s * load.capacity())
        progress(f"engine: {replicas} replicas, half of them 10 times slower")
        oracle = run_load(load, "oracle", count, sample_s)
        row: Row = {"replicas": replicas, "rows": count, "aim": 1.15, "oracle_s": oracle.seconds}
        row["oracle_over_ideal"] = oracle.seconds / run_s
        for name in ("knee",) if quick else ("knee", "adaptive"):
            row[name] = run_load(load, name, count, sample_s).seconds / oracle.seconds
        rows.append(row | {"knee_meets": float(str(row["knee"])) <= 1.15})
    return rows


def recovering(quick: bool, progress: Progress) -> list[Row]:
    """Half 100 times slower for an eighth of the rows: total time (at most 1.2), final throughput (at least 0.95)."""
    rows: list[Row] = []
    if quick:
        return rows
    run_s = 60.0
    for replicas in (2, 4, 8, 16):
        before, later = half(replicas, 100.0), (1.0,) * replicas
        speeds = Load(before, later)
        count = int(run_s / (0.125 / speeds.capacity() + 0.875 / speeds.capacity(later=True)))
        load = Load(before, later, count // 8)
        progress(f"engine: {replicas} replicas, half of them 100 times slower for an eighth")
        oracle = run_load(load, "oracle", count, 1.0)
        for name in ("knee", "adaptive"):
            run = run_load(load, name, count, 1.0)
            total, final = run.seconds / oracle.seconds, _final_rate(run) / _final_rate(oracle)
            row: Row = {"replicas": replicas, "policy": name, "oracle_s": oracle.seconds}
            row |= {"total": total, "aim_total": 1.2, "final": final, "aim_final": 0.95}
            rows.append(row | {"meets": total <= 1.2 and final >= 0.95})
    return rows


def one_loaded(quick: bool, progress: Progress) -> list[Row]:
    """Three replicas, one 100 times slower until a row: within 10 % of the ideal weights in 10 samples, both times."""
    rows: list[Row] = []
    sample_s, loaded_s, free_s = (0.25, 5.0, 5.0) if quick else (1.0, 30.0, 30.0)
    before, later = (100.0, 1.0, 1.0), (1.0, 1.0, 1.0)
    speeds = Load(before, later)
    loaded_rows = int(loaded_s * speeds.capacity())
    load = Load(before, later, loaded_rows)
    count = loaded_rows + int(free_s * speeds.capacity(later=True))
    for name in ("knee",) if quick else ("knee", "adaptive"):
        progress(f"engine: three replicas, one of them 100 times slower: {name}")
        run = run_load(load, name, count, sample_s)
        settled = _settled(run, load.ideal(), 0)
        back = _settled(run, load.ideal(later=True), loaded_rows)
        rows.append(
            {"policy": name, "sample_s": sample_s, "settled_samples": settled, "back_samples": back, "aim": 10}
            | {
                "seconds": run.seconds,
                "meets": settled is not None and settled <= 10 and back is not None and back <= 10,
            }
        )
    return rows


def charged(quick: bool, progress: Progress) -> list[Row]:
    """Three replicas, one slower: the time over the oracle's, by whom a wait is charged to."""
    rows: list[Row] = []
    for factor, run_s, sample_s in ((10.0, 4.0, 0.25), (100.0, 4.0, 0.25))[: 1 if quick else 2]:
        load = Load((factor, 1.0, 1.0))
        count = int(run_s * load.capacity())
        progress(f"engine: three replicas, one of them {factor:g} times slower, by whom a wait is charged to")
        oracle = run_load(load, "oracle", count, sample_s).seconds
        for blocking in get_args(Charged):
            row: Row = {"slower": factor, "charged_to": blocking, "rows": count, "oracle_s": oracle}
            for name in ("adaptive", "knee"):
                row[name] = run_load(load, name, count, sample_s, blocking).seconds / oracle
            rows.append(row)
    return rows


def alike(quick: bool, progress: Progress) -> list[Row]:
    """Equal replicas: how far any weight is from even at the end (60 samples in full), at most 5 %."""
    rows: list[Row] = []
    run_s, sample_s = (6.0, 0.25) if quick else (75.0, 1.0)
    load = Load((1.0, 1.0, 1.0))
    for name in ("knee",) if quick else ("knee", "adaptive"):
        progress(f"engine: equal replicas: {name}")
        run = run_load(load, name, int(run_s * load.capacity()), sample_s)
        later = [weights for at, weights, _ in _decisions(run) if at >= 0.8 * run_s]
        farthest = max(abs(w - i) / i for weights in later for w, i in zip(weights, load.ideal(), strict=True))
        rows.append(
            {"policy": name, "samples": len(_decisions(run)), "farthest": farthest, "aim": 0.05}
            | {"over_ideal_time": run.seconds / run_s, "meets": farthest <= 0.05}
        )
    return rows


def overhead(quick: bool, progress: Progress) -> list[Row]:
    """Throughput of an ordered region with equal replicas over that of an unordered shuffle, at least 0.9."""
    rows: list[Row] = []
    repeats = 1 if quick else 5
    cases: list[tuple[str, int, Inside, int, int]] = [
        ("waited, 20 us a row", 4, partial(Work, Load((0.1,) * 4)), 400_000, 4096),
        ("Python function", 2, partial(_PythonRows), 6_000_000, 4096),
        ("nothing at all", 2, partial(_PassOn), 20_000_000, 4096),
    ]
    for what, replicas, inside, full, batch_rows in cases:
        count = full // 4 if quick else full
        progress(f"engine: ordered region against shuffle: {what}")
        even = find_policy("round-robin").build
        flows = {
            "shuffle": shuffled_flow(count, replicas, inside, batch_rows),
            "region": region_flow(count, replicas, inside, even, 1.0, batch_rows),
            "knee": region_flow(count, replicas, inside, find_policy("knee").build, 1.0, batch_rows),
        }
        # The flows take turns, so that a busy moment of the machine meets all of them alike.
        runs = {name: [] for name in flows}  # type: dict[str, list[Timed]]
        for _ in range(repeats):
            for name, dataflow in flows.items():
                runs[name].append(timed_run(dataflow, spread(dataflow)))
        seconds = {name: statistics.median(run.seconds for run in found) for name, found in runs.items()}
        burnt = {name: statistics.median(run.cpu_seconds for run in found) for name, found in runs.items()}
        share = seconds["shuffle"] / seconds["region"]
        rows.append(
            {"row": what, "replicas": replicas, "rows": count, "shuffle_rows_s": count / seconds["shuffle"]}
            | {"throughput_of_shuffle": share, "with_knee": seconds["shuffle"] / seconds["knee"]}
            | {"cpu_over_shuffle": burnt["region"] / burnt["shuffle"], "aim": 0.9, "meets": share >= 0.9}
        )
    return rows


class _PassOn(Task):
    """The cheapest replica there is."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Pass on."""
        out.emit(batch)


class _PythonRows(Task):
    """A replica as expensive as a user's simple function: a few steps of Python for each row."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Some arithmetic, thrown away."""
        for n in batch.column(0).to_pylist():
            _ = (n * 31 + 7) % 1009
        out.emit(batch)


def _decisions(run: Timed) -> list[tuple[float, tuple[int, ...], int]]:
    """Seconds since the first decision's interval began, weights, rows sent so far."""
    by_time: dict[int, list[Row]] = {}
    for row in run.balance:
        by_time.setdefault(int(str(row["time_us"])), []).append(row)
    times = sorted(by_time)
    interval = times[1] - times[0] if len(times) > 1 else 0
    return [
        (
            (at - times[0] + interval) / 1e6,
            tuple(int(str(row["weight"])) for row in by_time[at]),
            sum(int(str(row["sent"])) for row in by_time[at]),
        )
        for at in times
    ]


def _settled(run: Timed, ideal: Sequence[int], from_row: int) -> int | None:
    """Samples from a row on until all weights are within 10 % of the ideal ones."""
    later = [weights for _, weights, sent in _decisions(run) if sent >= from_row]
    for number, weights in enumerate(later, start=1):
        if all(abs(w - i) <= max(0.1 * i, 0.5) for w, i in zip(weights, ideal, strict=True)):
            return number
    return None


def _final_rate(run: Timed) -> float:
    """Rows per second over the last quarter of the decisions."""
    decided = _decisions(run)
    first, last = decided[3 * len(decided) // 4], decided[-1]
    return (last[2] - first[2]) / max(1e-9, last[0] - first[0])


SECTIONS: dict[str, Callable[[bool, Progress], list[Row]]] = {
    "engine_half_10x_slower": constant,
    "engine_by_who_is_charged": charged,
    "engine_half_100x_slower_for_an_eighth": recovering,
    "engine_three_replicas_one_100x_slower": one_loaded,
    "engine_equal_replicas": alike,
    "engine_order_against_shuffle": overhead,
}
TITLES = {
    "engine_half_10x_slower": "engine: half of the replicas 10x slower, execution time over the oracle's",
    "engine_by_who_is_charged": "engine: three replicas, one slower, over the oracle's, by who is charged for a wait",
    "engine_half_100x_slower_for_an_eighth": "engine: half 100x slower for an eighth, over the oracle's",
    "engine_three_replicas_one_100x_slower": "engine: three replicas, one 100x slower; samples until first ideal",
    "engine_equal_replicas": "engine: equal replicas, farthest from even at the end",
    "engine_order_against_shuffle": "engine: ordered region over unordered shuffle, equal replicas",
}
