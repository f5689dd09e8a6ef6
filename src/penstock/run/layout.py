"""From a dataflow and a plan to what each worker runs: job-wide edge numbers, and one worker's part of them.

Every worker derives the same numbers from the same dataflow, so an edge is one integer on the wire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.run.contract import MAIN
from penstock.run.dataflow import FORWARD, Dataflow, RegionPart
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
        for j in (range(operator.tasks) if read.grouping.kind != FORWARD else (i,))
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
        tuple(_task_layout(dataflow, task, depths) for task in tasks),
        tuple(
            _edge_layout(dataflow, edge, number, window, settings) for edge, window in zip(edges, windows, strict=True)
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


def _task_layout(dataflow: Dataflow, task: str, depths: Mapping[str, int]) -> TaskLayout:
    spec = dataflow.operator(task.rpartition("/")[0])
    part = spec.region
    if part is None or part.role == "merger":
        return TaskLayout(task, depths[spec.name], not spec.inputs)
    if part.role == "replica":
        reads = dataflow.operator(spec.inputs[0].operator).region
        return TaskLayout(task, depths[spec.name], slicewise=part.ordered or (reads is not None and _splits(reads)))
    # A splitter goes before the replicas of its own worker: it has to keep the others busy while those work, and only
    # a full window says that a replica beside it is slow.
    inside = [depths[o.name] for o in dataflow.operators if o.region is not None and o.region.region == part.region]
    replicas_end = max(inside) - part.ordered
    return TaskLayout(task, replicas_end + 0.5, selective=True)


def _splits(part: RegionPart) -> bool:
    return part.role == "splitter"


def _edge_layout(
    dataflow: Dataflow, edge: JobEdge, number: Mapping[str, int], window: int, settings: RunSettings
) -> EdgeLayout:
    source, target = (dataflow.operator(task.rpartition("/")[0]).region for task in (edge.source, edge.target))
    splits = source is not None and _splits(source)
    merges = target is not None and target.role == "merger"
    if splits:
        window = settings.window_bytes or WINDOW_BYTES  # both ends reckon with it
    return EdgeLayout(number.get(edge.source), number.get(edge.target), edge.port, window, splits or merges)


def carries_slices(dataflow: Dataflow, edge: JobEdge) -> bool:
    """Whether what goes along an edge is slices of a parallel region, one by one."""
    part = dataflow.operator(edge.source.rpartition("/")[0]).region
    return part is not None and edge.output == MAIN and (_splits(part) or (part.ordered and part.role == "replica"))


def _window(edges_in: int) -> int:
    return max(WINDOW_BYTES_MIN, min(WINDOW_BYTES, WORKER_BYTES // max(1, edges_in)))
