"""Sums of metric rows, and the profile that follows from them, whoever has added the rows up.

`Sums` adds up rows as they come, in the driver; `profile_builder` has Spark add up a folder's. Both hand the same sums
to `profile_of`, so they cannot differ in what a figure means (`test_both_builders_make_the_same_profile`).

Figures are over the time for which a task was observed (`observed.py`); those of a pair over that of the task at the
end which they are about. With `busy`, those of a task are over the intervals in which it was given rows or emitted any,
and those of a pair over the intervals in which the one sent the other rows, or rows came to the other: what a source
that comes in bursts needs while it bursts. Figures of several tasks then belong to different times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast, get_args

import pyarrow as pa

from penstock.deploy.metrics.observed import Observed, observed_us
from penstock.errors import InvalidInput
from penstock.model.costs import Distance
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.run.engine.meters import ADDED

SUMMED = ADDED["tasks"]
EDGE_SUMMED = tuple(column for column in ADDED["edges"] if column != "interval_us")
LINK_SUMMED = ("frames", "bytes", "blocked_us")
WORKER_SUMMED = ("cpu_us", "loop_us", "waiting_us", "delayed_us", "interval_us")
NEWEST = ("queue_batches", "queue_bytes", "worker", "node", "idle")


@dataclass(slots=True)
class TaskSums:
    """One task's part of a profile."""

    interval_us: float = 0  # of the intervals that are in the sums
    cpu_us: float = 0
    squares: float = 0  # of cpu_us, each over its interval_us: what the spread is made of
    busy_us: float = 0
    runs: float = 0
    tuples_in: int = 0
    tuples_out: int = 0
    fed: bool = False  # whether rows have ever come in, within the window or before it: it is no source then

    def add(self, row: Mapping[str, int]) -> None:
        """One interval."""
        self.interval_us += row["interval_us"]
        self.cpu_us += row["cpu_us"]
        self.squares += row["cpu_us"] ** 2 / max(1, row["interval_us"])
        self.busy_us += row["busy_us"] or 0
        self.runs += row["runs"]
        self.tuples_in += row["tuples_in"]
        self.tuples_out += row["tuples_out"]
        self.fed = self.fed or row["tuples_in"] > 0

    def profile(self, over_us: float) -> TaskProfile:
        """Its figures over so much time, in the rest of which it needed nothing.

        The spread weighs intervals by their length, so a short last one counts little.
        """
        time_us = max(1.0, over_us)
        load = self.cpu_us / time_us
        spread = max(0.0, self.squares / time_us - load * load) ** 0.5
        return TaskProfile(load, spread=spread, execute_us=self.busy_us / self.runs if self.runs else None)


@dataclass(slots=True)
class EdgeSums:
    """One pair's part of a profile."""

    tuples: int = 0
    bytes: int = 0
    batches: int = 0
    send_us: int = 0
    receive_us: int = 0
    transport_us: int = 0
    queue_us: int = 0
    moved_us: int = 0  # length of the intervals in which the one sent the other rows
    distance: str = ""  # where it is known
    moved_send_us: int = 0  # of `send_us`, what those intervals had
    came_us: int = 0  # length of the intervals in which rows came to the other
    came_receive_us: int = 0  # of `receive_us`, what those intervals had

    def add(self, row: Mapping[str, int]) -> None:
        """One interval, of either end."""
        for column in EDGE_SUMMED:
            setattr(self, column, getattr(self, column) + (row[column] or 0))
        if row["tuples"]:
            self.moved_us += row["interval_us"]
            self.moved_send_us += row["send_us"] or 0
        # The receiving end counts no rows, but how long they were on their way. A call has both ends in one row.
        if row["transport_us"] or row["queue_us"] or (row["tuples"] and cast("str", row["distance"]) == "call"):
            self.came_us += row["interval_us"]
            self.came_receive_us += row["receive_us"] or 0
        self.distance = cast("str", row["distance"]) or self.distance

    def busy_profile(self, source: str, target: str) -> EdgeProfile:
        """Its figures over the time in which rows moved: of each end, those of its own intervals."""
        ours = replace(self, send_us=self.moved_send_us, receive_us=self.came_receive_us)
        if not self.came_us:  # clocks of two nodes that differ hide it
            ours.receive_us, ours.came_us = self.receive_us, self.moved_us
        return ours.profile(source, target, ours.moved_us, ours.came_us)

    def profile(self, source: str, target: str, sent_us: float, received_us: float) -> EdgeProfile:
        """Its figures, as rates over the time for which its sending end was observed, and its receiving end."""
        seconds = max(1.0, sent_us) / 1e6
        known = self.distance in get_args(Distance)
        return EdgeProfile(
            source,
            target,
            self.bytes / seconds,
            self.tuples / seconds,
            self.batches / seconds if known else None,
            cast("Distance", self.distance) if known else None,
            self.send_us / 1e6 / seconds if known else None,
            self.receive_us / max(1.0, received_us) if known else None,
            (self.transport_us + self.queue_us) / self.batches if self.batches else None,
        )


def profile_of(
    tasks: Mapping[str, TaskSums],
    edges: Mapping[tuple[str, str], EdgeSums],
    observed: Mapping[str, Observed],
    *,
    busy: bool = False,
) -> Profile:
    """The profile of these sums, of tasks that were observed so; `busy`: of the time in which rows moved."""
    # A pair that sent nothing but marks has no traffic.
    moved = {pair: sums for pair, sums in sorted(edges.items()) if sums.tuples}
    if busy:
        return Profile(
            {task: sums.profile(sums.interval_us) for task, sums in sorted(tasks.items())},
            tuple(sums.busy_profile(*pair) for pair, sums in moved.items()),
        )
    times_us = observed_us(observed)
    all_us = max([1, *times_us.values()])
    targets = {target for _, target in edges}
    # Of sources: nothing goes into them, in this window or before it.
    sources = {task: sums for task, sums in tasks.items() if not sums.fed and task not in targets}
    return Profile(
        {task: sums.profile(times_us[task]) for task, sums in sorted(tasks.items())},
        tuple(sums.profile(*pair, *(times_us.get(task, all_us) for task in pair)) for pair, sums in moved.items()),
        seconds=all_us / 1e6,
        rows=float(sum(sums.tuples_out * (all_us / max(1, times_us[task])) for task, sums in sources.items())),
    )


class Balance(NamedTuple):
    """What a splitter has decided of one replica."""

    weight: int  # thousandths of the rows
    rate: float  # the share of the time for which it waited for this one


@dataclass
class Sums:
    """What a job's log adds up to so far."""

    tasks: dict[str, dict[str, int]] = field(default_factory=dict)  # task -> SUMMED
    newest: dict[str, dict[str, int | str]] = field(default_factory=dict)  # task -> NEWEST
    edges: dict[tuple[str, str], EdgeSums] = field(default_factory=dict)  # (from, to)
    workers: dict[int, dict[str, int]] = field(default_factory=dict)  # worker -> WORKER_SUMMED
    latency: dict[str, Counter[int]] = field(default_factory=dict)  # task -> rows by upper end of the bucket (us)
    balance: dict[tuple[str, int], Balance] = field(default_factory=dict)  # (region, replica) -> its last decision
    links: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)  # (worker, peer) -> LINK_SUMMED
    transports: dict[tuple[int, int], str] = field(default_factory=dict)  # (worker, peer) -> ring or socket
    began_us: int | None = None
    ended_us: int = 0
    watermarks_us: dict[str, int] = field(default_factory=dict)  # task -> event time, where it has any
    loads: dict[str, TaskSums] = field(default_factory=dict)
    busy_loads: dict[str, TaskSums] = field(default_factory=dict)  # over intervals in which the task had rows
    observed: dict[str, Observed] = field(default_factory=dict)

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Add rows of one table to the sums."""
        if (add := getattr(self, f"_add_{name}", None)) is not None:
            for row in batch.to_pylist():
                add(row)

    def _add_tasks(self, row: Mapping[str, int]) -> None:
        task = cast("str", row["task"])
        counts = self.tasks.setdefault(task, dict.fromkeys(SUMMED, 0))
        for column in SUMMED:
            counts[column] += row[column]
        self.newest[task] = {column: row[column] for column in NEWEST}
        if row["watermark_us"] is not None:
            self.watermarks_us[task] = row["watermark_us"]
        began_us = row["time_us"] - row["interval_us"]
        self.began_us = began_us if self.began_us is None else min(self.began_us, began_us)
        self.ended_us = max(self.ended_us, row["time_us"])
        self.observed.setdefault(task, Observed()).add(row)
        self.loads.setdefault(task, TaskSums()).add(row)
        busy = self.busy_loads.setdefault(task, TaskSums())
        if row["tuples_in"] or row["tuples_out"]:
            busy.add(row)

    def _add_edges(self, row: Mapping[str, int]) -> None:
        pair = cast("tuple[str, str]", (row["source"], row["target"]))
        self.edges.setdefault(pair, EdgeSums()).add(row)

    def _add_workers(self, row: Mapping[str, int]) -> None:
        counts = self.workers.setdefault(row["worker"], dict.fromkeys(WORKER_SUMMED, 0))
        for column in WORKER_SUMMED:
            counts[column] += row[column] or 0  # null: nobody counts it there

    def _add_balance(self, row: Mapping[str, int]) -> None:
        self.balance[cast("str", row["region"]), row["replica"]] = Balance(row["weight"], row["rate"])

    def _add_links(self, row: Mapping[str, int]) -> None:
        counts = self.links.setdefault((row["worker"], row["peer"]), dict.fromkeys(LINK_SUMMED, 0))
        for column in LINK_SUMMED:
            counts[column] += row[column]
        self.transports[row["worker"], row["peer"]] = cast("str", row["transport"])

    def _add_latency(self, row: Mapping[str, int]) -> None:
        self.latency.setdefault(cast("str", row["task"]), Counter())[row["latency_us"]] += row["rows"]

    @property
    def seconds(self) -> float:
        """How much time passed from the first interval to the newest."""
        return max(1, self.ended_us - (self.began_us or 0)) / 1e6

    @property
    def worked(self) -> tuple[float, float] | None:
        """From when to when the rows reach, in seconds since 1970; None where there are none."""
        return None if self.began_us is None else (self.began_us / 1e6, self.ended_us / 1e6)

    def profile(self, *, busy: bool = False) -> Profile:
        """What the job has measured; `busy`: while rows moved."""
        return profile_of(self.busy_loads if busy else self.loads, self.edges, self.observed, busy=busy)


class NotMeasuredYet(InvalidInput):
    """It is too early: a job's first interval is not over."""


def require_ended(task: str, observed: Observed, newest_us: int, window_us: int) -> None:
    """Refuse a window without an interval of a task unless that has ended: then it needs nothing, and its load is 0."""
    if not observed.is_over(newest_us):
        last_s = observed.last_interval_us / 1e6
        msg = (
            f"window is {window_us / 1e6:g} s, in which task {task!r} ended no interval: they take {last_s:g} s; ask "
            f"for at least {2 * last_s:g} s"
        )
        raise InvalidInput(msg)


def require_measured(profile: Profile, tasks: Iterable[str], name: str, interval_s: float) -> None:
    """Refuse a profile of a job in which one of its tasks is missing: it is too early."""
    missing = sorted(set(tasks) - set(profile.tasks))
    if missing or not profile.tasks:
        msg = (
            f"job {name!r} has measured nothing {f'of task {missing[0]!r} ' if missing else ''}yet; ask again after "
            f"its metric interval of {interval_s:g} s"
        )
        raise NotMeasuredYet(msg)


def sums_of(rows: Iterable[tuple[str, pa.RecordBatch]]) -> Sums:
    """The sums of some batches, each of the table that it names."""
    sums = Sums()
    for name, batch in rows:
        sums.add(name, batch)
    return sums
