"""Preflight: whether a job can start, decided before Spark is asked, from facts that `facts.py` gathered. Pure.

Spark lets tasks that do not fit wait without a word, while the tasks that run wait for them. Where the last slot is
taken, every other query waits too. So slots are counted first, and one stays free unless the caller wants it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.deploy.line.messages import Hello
from penstock.errors import InvalidInput, NotEnoughSlots, UnfitSession

SPARK_VERSION_MIN = (4, 0)
WORKER_MEMORY_MB = 192.0  # a worker's interpreter and what its inputs may hold
WORKERS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor, as the driver knows it."""

    id: str
    host: str
    cores: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What a session says about itself."""

    master: str
    spark_version: str
    slots: int  # tasks that can run at once
    busy: int  # slots that are taken at the moment
    executors: tuple[Executor, ...]
    dynamic_allocation: bool = False
    speculation: bool = False
    jobs: tuple[str, ...] = ()  # of ours, that run in this session and hold slots
    cores: int | None = (
        None  # of the one process in which all slots are (`local[8]`); None: slots are cores of executors
    )


def session_faults(facts: Facts) -> list[str]:
    """Every reason why this session cannot run jobs at all."""
    faults: list[str] = []
    version = tuple(int(part) for part in facts.spark_version.split(".")[:2] if part.isdigit())
    if version < SPARK_VERSION_MIN:
        faults.append(f"Spark is {facts.spark_version}; Penstock needs 4.0 or newer")
    if facts.dynamic_allocation:
        faults.append(
            "spark.dynamicAllocation.enabled is true, and slots that come and go cannot be counted; "
            "start the session with false"
        )
    if facts.speculation:
        faults.append("spark.speculation is true, and a worker must not run twice; start the session with false")
    return faults


def decide_workers(
    facts: Facts,
    topology: str,
    tasks: int,
    *,
    wanted: int | None = None,
    tasks_per_worker: int = 5,
    take_last_slot: bool = False,
    regions: Mapping[str, int] | None = None,
) -> tuple[int, tuple[str, ...]]:
    """How many workers to launch, and what the caller should know; raises when they do not fit.

    Without a wish it is the papers' number, a worker for every `tasks_per_worker` tasks of each executor, as far as
    slots are free and cores are there to run them, and one for each replica of the widest parallel region. A region
    with more replicas than there are slots is refused: replicas that share a worker take turns, and do not run in
    parallel.
    """
    if faults := session_faults(facts):
        raise UnfitSession(faults)
    if wanted is not None and not 1 <= wanted <= WORKERS_MAX:
        msg = f"workers is {wanted}; give 1 to {WORKERS_MAX}"
        raise InvalidInput(msg)
    available = facts.slots - facts.busy - (0 if take_last_slot else 1)
    needed = 1 if wanted is None else min(wanted, tasks)
    if needed > available:
        raise NotEnoughSlots(_too_few(facts, topology, needed, take_last_slot))
    widest = max((regions or {}).values(), default=1)
    if widest > available:
        raise NotEnoughSlots(_too_wide(facts, topology, regions or {}, available))
    workers = needed
    if wanted is None:
        usual = papers_workers(facts, tasks, tasks_per_worker)
        workers = min(available, max(widest, usual if facts.cores is None else min(usual, max(1, facts.cores))))
    notes: tuple[str, ...] = ()
    if workers < widest:
        notes = (f"a region of {topology!r} has {widest} replicas on {workers} workers: some of them take turns",)
    if facts.slots - facts.busy - workers == 0:
        notes += (f"topology {topology!r} takes the last free slot: other queries of this session wait until it ends",)
    return workers, notes


def papers_workers(facts: Facts, tasks: int, tasks_per_worker: int) -> int:
    """Workers when tasks spread over executors by their cores and each worker takes `tasks_per_worker` of them."""
    cores = sum(executor.cores for executor in facts.executors)
    if not cores:
        return max(1, math.ceil(tasks / tasks_per_worker))
    shares = [tasks * executor.cores / cores for executor in facts.executors]
    return max(
        1,
        min(
            tasks,
            sum(min(math.ceil(s / tasks_per_worker), e.cores) for s, e in zip(shares, facts.executors, strict=True)),
        ),
    )


def _too_few(facts: Facts, topology: str, needed: int, take_last_slot: bool) -> str:
    plural = "" if needed == 1 else "s"
    offers = f"master {facts.master!r} offers {facts.slots} slot{'' if facts.slots == 1 else 's'}"
    taken = f", {facts.busy} of them busy{_with_jobs(facts)}," if facts.busy else ""
    needs = f"topology {topology!r} needs {needed} worker{plural}"
    kept = 0 if take_last_slot else 1
    free = facts.slots - facts.busy
    ways = ["cancel a job or wait for its end"] if facts.jobs else []
    ways.append(f"take a master with {needed + facts.busy + kept} slots or more")
    if free > kept:
        ways.append(f"ask for at most {free - kept} worker{'' if free - kept == 1 else 's'}")
    if take_last_slot:
        return f"{needs} but {offers}{taken.rstrip(',')}; {', or '.join(ways)}"
    if free >= needed:
        ways.append("let it take the last slot: take_last_slot=True in Python, --take-last-slot of the command")
    advice = ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])}, or {ways[-1]}"
    return f"{needs} but {offers}{taken} and one stays free for other queries; {advice}"


def _too_wide(facts: Facts, topology: str, regions: Mapping[str, int], available: int) -> str:
    name, replicas = max(regions.items(), key=lambda region: region[1])
    first = "cancel a job, " if facts.jobs else ""
    return (
        f"region {name!r} of topology {topology!r} has {replicas} replicas but master {facts.master!r} has "
        f"{available} of {facts.slots} slots to give{_with_jobs(facts)}; {first}lower its replicas to "
        f"{max(1, available)} or raise the slots"
    )


def _with_jobs(facts: Facts) -> str:
    """Which of our own jobs hold slots, for a message."""
    if not facts.jobs:
        return ""
    return f" with job{'' if len(facts.jobs) == 1 else 's'} {', '.join(map(repr, facts.jobs))}"


def build_faults(hellos: Sequence[Hello], python: str, pyarrow: str, build: str) -> list[str]:
    """Where the workers that Spark started have other software than the driver; every attempt would meet the same."""
    faults: list[str] = []
    if others := {h.build or "of an unknown build": h for h in hellos if h.build != build}:
        told_there = ", ".join(f"{told} on executor {others[told].address}" for told in sorted(others))
        faults.append(f"penstock is {build} on the driver but {told_there}; install the same wheel on all machines")
    for what, here, there in (
        ("Python", python, {h.python for h in hellos}),
        ("pyarrow", pyarrow, {h.pyarrow for h in hellos}),
    ):
        if odd := sorted(there - {here}):
            faults.append(f"{what} is {here} on the driver but {', '.join(odd)} on executors; install the same on all")
    return faults


def passing_faults(hellos: Sequence[Hello]) -> list[str]:
    """What else keeps workers from running the job now; it may be otherwise a moment later."""
    faults = [f"worker {h.worker} on executor {h.address} cannot take part: {h.unfit}" for h in hellos if h.unfit]
    workers_on = Counter(hello.boot_id for hello in hellos)
    for boot_id, count in workers_on.items():
        there_mb = min(hello.memory_mb for hello in hellos if hello.boot_id == boot_id)
        if there_mb < count * WORKER_MEMORY_MB:
            host = next(hello.address for hello in hellos if hello.boot_id == boot_id)
            faults.append(
                f"the host of executor {host} has {there_mb:.0f} MB free for {count} workers, which need "
                f"{WORKER_MEMORY_MB:.0f} MB each; lower workers or free memory"
            )
    return faults
