"""From a dataflow and a plan to what each worker runs: job-wide edge numbers, and one worker's part of them.

Every worker derives the same numbers from the same dataflow, so an edge is one integer on the wire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.run.dataflow import Dataflow
from penstock.run.instructions import EdgeLayout, TaskLayout, WorkerLayout

WINDOW_BYTES = 1 << 20  # an edge's share of the receiver's memory, while there are few edges
WINDOW_BYTES_MIN = 16 * 1024
WORKER_BYTES = 128 << 20  # what all edges into one worker may hold together


TRANSPORTS = ("auto", "socket", "ring")  # auto: rings where memory can be shared; ring: or the job fails


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a job moves data; the same on every worker."""

    rows_max: int = 4096
    linger_ms: float = 0.0  # how long a batch below rows_max waits for others on each edge; 0: it goes on at once
    window_bytes: int | None = None  # per edge; None: shared out of WORKER_BYTES
    metered: bool = True  # False: nothing is counted, for measuring what counting costs
    interval_s: float = 1.0  # between two rows of the metric log
    transport: str = "auto"  # between workers of one machine: auto, socket or ring

    def __post_init__(self) -> None:
        """Refuse a transport that nobody knows."""
        if self.transport not in TRANSPORTS:
            raise InvalidInput.unknown_name(kind="transport", name=self.transport, known=TRANSPORTS)


@dataclass(frozen=True, slots=True)
class JobEdge:
    """One pair of tasks of the job."""

    number: int
    source: str  # task ids
    target: str
    output: str
    port: int


def task_ids(dataflow: Dataflow) -> list[str]:
    """Every task of the job."""
    return [f"{operator.name}/{i}" for operator in dataflow.operators for i in range(operator.tasks)]


def job_edges(dataflow: Dataflow) -> list[JobEdge]:
    """Every pair of tasks that a stream joins, numbered alike on every worker."""
    tasks = {operator.name: operator.tasks for operator in dataflow.operators}
    pairs = [
        (f"{read.operator}/{i}", f"{operator.name}/{j}", read.output, port)
        for operator in dataflow.operators
        for port, read in enumerate(operator.inputs)
        for i in range(tasks[read.operator])
        for j in range(operator.tasks)
    ]
    return [JobEdge(number, *pair) for number, pair in enumerate(pairs)]


@dataclass(frozen=True)
class WorkerShare:
    """What one worker runs, and how its own numbers translate to the job's."""

    layout: WorkerLayout
    tasks: tuple[str, ...]
    edges: tuple[JobEdge, ...]  # position = the machine's edge number
    local_number: Mapping[int, int]  # job edge -> machine edge
    peer_of: Mapping[int, int]  # machine edge -> the other worker, where there is one


def share_of(dataflow: Dataflow, worker_of: Mapping[str, int], me: int, settings: RunSettings) -> WorkerShare:
    """The tasks that the plan gives to worker `me`, and every edge that touches one of them."""
    depths = dataflow.depths()
    tasks = tuple(task for task in task_ids(dataflow) if worker_of[task] == me)
    number = {task: t for t, task in enumerate(tasks)}
    everywhere = job_edges(dataflow)
    edges = tuple(edge for edge in everywhere if edge.source in number or edge.target in number)
    # A window is a share of its receiver's memory, so both ends must reckon it from the receiver's edges: a sender with
    # a smaller one would wait for credit that the receiver does not think worth sending yet.
    edges_into = Counter(worker_of[edge.target] for edge in everywhere)
    windows = [settings.window_bytes or _window(edges_into[worker_of[edge.target]]) for edge in edges]
    layout = WorkerLayout(
        tuple(
            TaskLayout(task, depths[operator], not dataflow.operator(operator).inputs)
            for task in tasks
            for operator in (task.rpartition("/")[0],)
        ),
        tuple(
            EdgeLayout(number.get(e.source), number.get(e.target), e.port, window)
            for e, window in zip(edges, windows, strict=True)
        ),
        settings.rows_max,
        int(settings.linger_ms * 1000),
    )
    others = {
        i: worker_of[edge.target if edge.source in number else edge.source]
        for i, edge in enumerate(edges)
        if not (edge.source in number and edge.target in number)
    }
    return WorkerShare(layout, tasks, edges, {edge.number: i for i, edge in enumerate(edges)}, others)


def _window(edges_in: int) -> int:
    return max(WINDOW_BYTES_MIN, min(WINDOW_BYTES, WORKER_BYTES // max(1, edges_in)))
