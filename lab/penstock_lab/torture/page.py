"""RELIABILITY.md: what is promised, what was tried under which seeds, what came of it, and what was not tried. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from penstock_lab.torture.contract import BROKEN, COUNTS, HELD, VOID, Line, Row, percentile

FAULTS_SHOWN_MAX = 20
ERROR_CHARACTERS = 300
RECOVERY = ("killed-steady", "killed-checkpoint", "killed-both-ends", "killed-rebalance")

PROMISES = """## What is promised

- **Effects once.** A job with `checkpoint=` shows each row's effect once, whichever process dies at whichever moment: a
  worker, two, an executor, the driver. Its sources must replay (files, `rate`, DataFrames, generators that give the
  same rows again) and its sinks commit (`parquet`, `collect`). A callback sink is told rows at least once, with task,
  epoch and sequence. Rows are worked on again after a failure; what is shown is not.
- **Moves.** A job that goes over to another plan while it runs keeps all of this, also where a worker or the driver
  dies in any phase of the move (`killed-move-...`): then it follows the plan that it had, or the new one, and each task
  is in one place.
- **Order.** Rows of one source task keep their order on each edge, so a sink task has them in order where they came by
  one way. An ordered region keeps the order of its input, also while replicas leave and join and through recoveries.
- **No half epoch.** A reader of the sink's folder (`spark.read.parquet`) sees the rows of whole epochs.
- **Damage is noticed.** Every file beneath the checkpoint folder has checksums; on object stores, files of sinks have
  the store's. A damaged epoch is named and the one before is used; where none is sound the job says so and does not
  begin anew by itself. Damaged rows (collected, of a spooled DataFrame, or of a sink that has not shown them yet) end
  the job with the file's name.
- **Limits.** Overload slows the sources. No queue is unbounded, and nothing is dropped without a word.
- **Typed errors.** What ends a job is an error that names the thing and the next step.

Not promised: exactly one call of a user's function for each row; rows of sources that give others when they are asked
again; the loss of the machine that holds the checkpoint folder.

## The trust boundary

Closures are code. Whoever can submit a topology, or write into the checkpoint folder, or runs as the same user on the
same machine, can run code as that user: Penstock does not protect a job from them. It does protect a job from processes
of others and from the network: control lines and channels open only to proofs of the attempt's own keys, and what does
not prove itself is turned away (`strangers`). Frames between workers that have proved themselves carry no checksum
beyond the transport's own: a changed frame is refused where it is malformed (`mutated-frames`), and a peer that holds
the key is believed.
"""

ELSEWHERE = """- What checkpoints cost (throughput every 10 s and every 1 s, latency in an epoch, pauses of the loop):
  `penstock bench checkpoint`, on a quiet machine.
- Producers and consumers of a ring killed 100,000 times, a million mutated segments and 1,000 killed jobs without
  checkpoints: `make soak`. Address and thread sanitisers, which would see a byte read too far: `make sanitise`.
- Loss of power, of the machine or of its disk; partitions of a network; more than one machine.
"""

HEAD = """# Reliability

Written by `make torture` (`penstock torture`), not by hand. Real jobs on real Spark sessions are broken on purpose; a
program that reads the sink's files with pyarrow alone (`lab/penstock_lab/torture/checker.py`) then counts what is lost,
repeated and out of order. Its own test plants all three (`tests/unit/test_torture_checker.py`). One trial again:
`penstock torture --only LINE --seed SEED`.
"""

TRIED = """## What was tried

A trial is *void* where the moment that it is about never came; it counts for nothing, and the next seed is tried in
its place, up to twice as many seeds as trials. Lost / repeated / out of order are sums over all trials of a line; rows
that nobody gave and wrong state count as repeated in effect. In `overload` latency is *back* when no row is older than
twice the 99th percentile of the calm time before, and 100 ms. Growth in `soak` is from the third tenth of its time on,
when all is warm, to the last; it is of the workers and of the driver's Python, and leaves Spark's JVM out.

| line | what | seeds | held | broken | void | lost / repeated / out of order | figures | target |
|---|---|---|---|---|---|---|---|---|"""

RECOVERIES = """## How long a recovery takes

From `kill -9` of a worker in a warm session. Readers see the first new row when the next epoch is committed, every
0.1 to 0.4 s here. The rate is full when rows of every source come through the last operator within 0.1 s of when they
are due, so what waited meanwhile has been worked off. Targets of that: p50 at most 1 s, p99 at most 5 s.

| | trials | p50 | p99 | slowest |
|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True)
class Run:
    """Where and when the rows were made."""

    machine: str
    commit: str
    version: str  # of the code; rows of others are left out
    day: str
    load: str  # of the machine: times depend on what else it does
    rows: Sequence[Row]

    def of(self, line: Line) -> list[Row]:
        """The rows of one line, the last one of each seed."""
        found = {row.seed: row for row in self.rows if row.line == line.name and row.version == self.version}
        return [found[seed] for seed in sorted(found)]


def page(run: Run, lines: Sequence[Line], lacking: Mapping[str, str]) -> str:
    """The whole page."""
    tried = [(line, rows) for line in lines if (rows := run.of(line))]
    parts = [
        HEAD,
        f"Machine: {run.machine}; {run.load}. Day: {run.day}. Commit: {run.commit}, code {run.version}.\n",
        PROMISES,
        TRIED,
        *(_line(line, rows) for line, rows in tried),
        "",
        *_recovery(run, lines),
        *_faults(rows for _, rows in tried),
        "## What was not tried, or not as often as promised\n",
        *_untried(run, lines, lacking),
        ELSEWHERE,
    ]
    return "\n".join(parts)


def _line(line: Line, rows: Sequence[Row]) -> str:
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in (HELD, BROKEN, VOID)}
    seeds = f"{rows[0].seed}-{rows[-1].seed}" if len(rows) > 1 else str(rows[0].seed)
    cells = [line.name, line.about, seeds, *map(str, counts.values()), _counts(rows), _figures(rows), line.target]
    return f"| {' | '.join(cells)} |"


def _counts(rows: Sequence[Row]) -> str:
    checked = [row.counts for row in rows if row.counts]
    if not checked:
        return "-"
    total = {name: sum(counts.get(name, 0) for counts in checked) for name in COUNTS}
    wrong = total["repeated"] + total["strange"] + total["miscounted"]
    of = sum(counts.get("rows", 0) for counts in checked)
    return f"{total['lost']} / {wrong} / {total['disordered']} of {of:,} rows"


STAGES: Mapping[str, str] = {
    "noticed_s": "the death is noticed",
    "claimed_s": "the next attempt has begun",
    "hello_s": "the first worker of it has come",
    "hellos_s": "all of them have come",
    "to_work_s": "workers at work again",
    "to_rows_s": "first new row at a Parquet sink",
    "to_rate_s": "rows of every source at their full rate",
}
SHOWN: Mapping[str, tuple[str, str]] = {
    "to_work_s": ("at work again", "s"),
    "to_rows_s": ("first new row", "s"),
    "to_rate_s": ("full rate", "s"),
    "to_answer_s": ("error or next epochs", "s"),
    "to_end_s": ("ended or recovered", "s"),
    "stood_s": ("a move took", "s"),
    "moves_a_minute": ("moves a minute", ""),
    "workers_gone_s": ("workers gone", "s"),
    "again_s": ("ended by the second program", "s"),
    "latency_back_s": ("latency back", "s"),
    "memory_growth": ("memory", "%"),
    "driver_memory_bytes_growth": ("memory of the driver's Python", "%"),
    "driver_descriptors_growth": ("its descriptors", "%"),
    "driver_threads_growth": ("its threads", "%"),
    "workers_memory_bytes_growth": ("memory of workers", "%"),
    "workers_descriptors_growth": ("their descriptors", "%"),
    "workers_threads_growth": ("their threads", "%"),
    "workers_segments_growth": ("their segments", "%"),
    "rows_per_s": ("rows/s", ""),
    "minutes": ("minutes", ""),
    "recoveries": ("recoveries", "sum"),
    "tried": ("tried", "sum"),
    "refused": ("refused", "sum"),
    "cut": ("cut off", "sum"),
    "unsound": ("readable but unsound", "sum"),
    "not_taken": ("not connected", "sum"),
    "false_keys": ("false keys turned away", "sum"),
    "accepted": ("accepted", "sum"),
}


def _figures(rows: Sequence[Row]) -> str:
    told = []
    for name, (what, unit) in SHOWN.items():
        values = [row.figures[name] for row in rows if name in row.figures]
        if not values:
            continue
        if unit == "sum":
            told.append(f"{what} {sum(values):,.0f}")
        elif unit == "%":
            told.append(f"{what} {max(values):+.1%}")
        elif unit == "s":
            told.append(f"{what} {median(values):.2f} s" + (f", at most {max(values):.2f}" if len(values) > 1 else ""))
        else:
            told.append(f"{what} {max(values):,.0f}")
    return "; ".join(told) or "-"


def _recovery(run: Run, lines: Sequence[Line]) -> list[str]:
    rows = [row for line in lines if line.name in RECOVERY for row in run.of(line) if row.verdict != VOID]
    found = {name: [row.figures[name] for row in rows if name in row.figures] for name in STAGES}
    if not found["to_work_s"]:
        return []
    told = [RECOVERIES]
    for name, what in STAGES.items():
        if values := found[name]:
            p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
            told.append(f"| {what} | {len(values)} | {p50:.2f} s | {p99:.2f} s | {max(values):.2f} s |")
    return [*told, ""]


def _faults(rows: Iterable[Sequence[Row]]) -> list[str]:
    wrong = [row for of_line in rows for row in of_line if row.verdict != HELD]
    if not wrong:
        return []
    told = [
        f"- {row.line}, seed {row.seed}: {row.verdict}: {' '.join(row.error.split())[:ERROR_CHARACTERS]}"
        for row in wrong[:FAULTS_SHOWN_MAX]
    ]
    more = [f"- and {len(wrong) - FAULTS_SHOWN_MAX} more"] if len(wrong) > FAULTS_SHOWN_MAX else []
    return ["## What did not hold, or was void\n", *told, *more, ""]


def _untried(run: Run, lines: Sequence[Line], lacking: Mapping[str, str]) -> list[str]:
    told = []
    for line in lines:
        count = sum(row.verdict == HELD for row in run.of(line))
        if line.name in lacking:
            told.append(f"- {line.name} ({line.about}): {lacking[line.name]}.")
        elif count < line.trials:
            told.append(f"- {line.name}: {count} held of {line.trials} trials that the full form promises.")
    return told
