"""Too much load for a minute, and much load for long.

The source gives rows on a schedule and is slowed where nobody takes them: what it did not give is not owed. It says at
the end how many there were, and the checker counts those. Latency is from the moment that a batch is given to that at
which the last operator has it, as both stand on one machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.flow import io
from penstock_lab.torture.contract import is_clean, percentile
from penstock_lab.torture.jobs import Counting, Gates
from penstock_lab.torture.processes import Held, held
from penstock_lab.torture.trial import Broken, Trial, checked

SCHEMA = "source int, n bigint, given double"
ROWS = 50  # of a batch of the overload
ROW_S = 0.00004  # that the slow operator takes for a row: 25,000 rows a second
TIMES = 10  # as many rows as it can take
CALM_S, FLOOD_S, AFTER_S = 15.0, 60.0, 20.0
QUICK_FLOOD_S = 10.0
MEMORY_GROWTH_MAX, LATENCY_BACK_MAX_S = 0.10, 5.0
SAMPLE_S = 0.25
SOAK_ROWS = 1_000
SOAK_SHARE = 0.7
MAXIMUM_S = 10.0  # how long the maximum is measured
SOAK_GROWTH_MAX = 0.01
QUICK_MINUTES, SOAK_SAMPLE_S = 0.5, 1.0
CLOSING = 3  # samples at the end, when the job is closing
WATCHED = tuple(
    (at, who, name)
    for at, who in enumerate(("driver", "workers"))
    for name in ("memory_bytes", "descriptors", "threads", "segments")
)
LAG_S = 0.1  # behind its schedule by more than this a source has been slowed


@dataclass(frozen=True)
class Wave:
    """A schedule: rows a second up to a time, then the next; None ends it when the gate is set."""

    rows: int  # of a batch
    steps: tuple[tuple[float, float], ...]  # until (seconds since the start), rows a second

    def rate(self, at_s: float) -> float | None:
        """Rows a second at this time; None behind the last step."""
        return next((rate for until, rate in self.steps if at_s < until), None)


class Waves:
    """The source of one wave."""

    def __init__(self, gates: Gates, wave: Wave) -> None:
        self.gates, self.wave = gates, wave

    def __call__(self, task: int, tasks: int) -> Iterator[pa.RecordBatch | None]:
        """Batches when they are due; then how many rows there were."""
        self.gates.at(f"began-{task}").write_text(str(time.time()))
        began = due = time.monotonic()
        first, rows = 0, self.wave.rows
        while (rate := self.wave.rate((now := time.monotonic()) - began)) is not None:
            if now < due:
                yield None
                continue
            due = now if now - due > LAG_S else due + rows * tasks / rate
            numbers = pa.array(range(first, first + rows), pa.int64())
            given = pa.array([time.time()] * rows)
            yield pa.record_batch({"source": pa.array([task] * rows, pa.int32()), "n": numbers, "given": given})
            first += rows
        self.gates.at(f"given-{task}").write_text(str(first))


class Slow:
    """The operator that takes its time, and notes how old its rows are."""

    def __init__(self, gates: Gates, row_s: float) -> None:
        self.gates, self.row_s = gates, row_s
        self._log: Any = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, later."""
        if self._log is None:
            self._log = self.gates.at(f"ages-{os.getpid()}").open("a", buffering=1)
        time.sleep(self.row_s * batch.num_rows)
        now = time.time()
        self._log.write(f"{now} {now - batch.column('given')[0].as_py()}\n")
        return batch


def ages(gates: Gates) -> list[tuple[float, float]]:
    """When rows were worked off, and how old they were then."""
    found = []
    for path in Path(gates.folder).glob("ages-*"):
        for line in path.read_text().splitlines():
            at, _, age = line.partition(" ")
            found.append((float(at), float(age)))
    return sorted(found)


def overload(trial: Trial) -> None:
    """Ten times what the slow operator can take."""
    flood_s = FLOOD_S if trial.minutes else QUICK_FLOOD_S
    ends = (CALM_S, CALM_S + flood_s, CALM_S + flood_s + AFTER_S)
    most = 1 / ROW_S
    wave = Wave(ROWS, ((ends[0], most / 2), (ends[1], most * TIMES), (ends[2], most / 2)))
    top = ps.Topology("overload")
    slow = top.source("waves", io.generator(Waves(trial.gates, wave), SCHEMA)).map_batches(
        Slow(trial.gates, ROW_S), SCHEMA, name="slow", tasks=1
    )
    slow.select("source", "n").sink("out", io.parquet(trial.out))
    trial.sink, trial.interval_s = "parquet", 1.0
    trial.begin_topology(top)
    samples = sampled(trial, SAMPLE_S, ends[2] + 60.0)
    trial.ended()
    began = float(trial.gates.at("began-0").read_text())
    calm = [memory for at, memory in samples if CALM_S / 2 < at - began < ends[0]]
    flood = [memory for at, memory in samples if ends[0] < at - began < ends[1]]
    known = ages(trial.gates)
    usual = percentile([age for at, age in known if CALM_S / 2 < at - began < ends[0]], 0.99)
    late = [at for at, age in known if at - began > ends[1] and age > 2 * usual + LAG_S]
    growth = max(flood) / percentile(calm, 0.5) - 1
    back_s = max(late, default=began + ends[1]) - began - ends[1]
    trial.row.figures |= {"memory_growth": growth, "latency_back_s": back_s, "calm_p99_s": usual}
    trial.row.figures["flood_age_s"] = max(age for at, age in known if ends[0] < at - began < ends[1])
    sound(trial, is_counted=False)
    if growth > MEMORY_GROWTH_MAX or back_s > LATENCY_BACK_MAX_S:
        msg = f"memory grew by {growth:.1%}, latency was back after {back_s:.1f} s"
        raise Broken(msg)


def given_by(trial: Trial) -> list[int]:
    """How many rows each source says it gave."""
    return [int(path.read_text()) for path in sorted(Path(trial.gates.folder).glob("given-*"))]


def sound(trial: Trial, *, is_counted: bool) -> None:
    """Have the checker count them."""
    given = given_by(trial)
    trial.row.figures["rows"] = sum(given)
    trial.row.counts = checked(trial.out, given, is_counted=is_counted)
    if not is_clean(trial.row.counts):
        msg = "the checker found faults"
        raise Broken(msg)


def sampled(trial: Trial, every_s: float, limit_s: float) -> list[tuple[float, float]]:
    """Memory of the workers together, until the job has ended."""
    found = []
    latest = time.monotonic() + limit_s
    while not trial.job.wait(every_s) and time.monotonic() < latest:
        found.append((time.time(), float(sum(held(pid).memory_bytes for pid in trial.pids()))))
    return found


# -- for long ----------------------------------------------------------------------------------------------------------


def busy(trial: Trial, wave: Wave) -> ps.Topology:
    """Rows of two sources through an operator with state, on three workers."""
    top = ps.Topology("soak")
    stream = top.source("waves", io.generator(Waves(trial.gates, wave), SCHEMA, tasks=2)).select("source", "n")
    counted = stream.key_by("source").process(partial(Counting, trial.gates), tasks=2, name="count")
    counted.sink("out", io.parquet(trial.out))
    return top


def soak(trial: Trial) -> None:
    """70 % of what the same job can do, for as long as is asked."""
    minutes = trial.minutes or QUICK_MINUTES
    trial.sink, trial.interval_s = "parquet", 10.0
    maximum = Trial(trial.spark, trial.row.line, trial.row.seed, trial.folder / "maximum")
    maximum.begin_topology(busy(maximum, Wave(SOAK_ROWS, ((MAXIMUM_S, 1e9),))))
    maximum.ended()
    most = sum(given_by(maximum)) / MAXIMUM_S
    rate = SOAK_SHARE * most
    trial.begin_topology(busy(trial, Wave(SOAK_ROWS, ((minutes * 60, rate),))))
    samples: list[tuple[Held, Held]] = []  # of this process, and of the workers
    while not trial.job.wait(SOAK_SAMPLE_S):
        samples.append((held(os.getpid()), together(trial.pids())))
    trial.ended()
    growths = {f"{who}_{name}": grown([getattr(pair[at], name) for pair in samples]) for at, who, name in WATCHED}
    trial.row.figures |= {f"{name}_growth": growth for name, growth in growths.items()}
    tenths = samples[:: max(1, len(samples) // 10)]
    trial.note(
        "MB of driver and workers: " + " ".join(f"{d.memory_bytes >> 20}+{w.memory_bytes >> 20}" for d, w in tenths)
    )
    trial.row.figures |= {"minutes": minutes, "rows_per_s": rate, "maximum_per_s": most}
    sound(trial, is_counted=True)
    if worst := {name: growth for name, growth in growths.items() if growth > SOAK_GROWTH_MAX}:
        raise Broken("grew: " + ", ".join(f"{name} by {growth:.1%}" for name, growth in worst.items()))


def grown(values: Sequence[float]) -> float:
    """From the third tenth of the time, when all is warm, to the last; the end itself is left out."""
    tenth = max(1, len(values) // 10)
    before, after = percentile(values[2 * tenth : 3 * tenth], 0.5), percentile(values[-tenth - CLOSING : -CLOSING], 0.5)
    return after / before - 1 if before else float(after > 0)


def together(pids: list[int]) -> Held:
    """What processes hold in all."""
    all_held = [held(pid) for pid in pids]
    return Held(
        sum(each.memory_bytes for each in all_held),
        sum(each.descriptors for each in all_held),
        sum(each.threads for each in all_held),
        sum(each.segments for each in all_held),
    )


TRIALS: Mapping[str, Callable[[Trial], None]] = {"overload": overload, "soak": soak}
