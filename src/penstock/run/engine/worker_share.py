"""From a dataflow and a plan to what each worker runs: its tasks, its edges, and how both ends reckon with an edge.

An edge is a stream and the indexes of two tasks. Every worker derives the same number from them, so an edge is one
integer on the wire, and it does not change when another operator gets more tasks (`EdgeNumbers`). A worker lists the
edges of its own tasks; a job of 1,000 x 1,000 tasks has a million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import InvalidInput
from penstock.model.task_id import operator_of, tasks_of_operator
from penstock.run.contract import MAIN
from penstock.run.dataflow import FORWARD, Dataflow, Input, OperatorSpec, RegionPart
from penstock.run.machine.instructions import EdgeLayout, TaskLayout, WorkerLayout

WINDOW_BYTES = 1 << 20  # an edge's share of the receiver's memory, while there are few edges
WINDOW_BYTES_MIN = 16 * 1024
WORKER_BYTES = 128 << 20  # what all edges into one worker may hold together
EDGE_BITS = 32  # of an edge's number in the head of a frame
ROUTE_BITS = 3  # of these, for the route: one of a move and that of the next are told apart
# A slice counts for its bytes and at least for a minimum. Towards the merger, empty slices then count at all. From the
# splitter, a window then holds few slices, however small: a queue that takes minutes to fill tells nothing.
SLICES_AHEAD = 8  # slices that a replica may have before it: enough to be busy until the next ones come
SLICE_BYTES_MIN = 64

NEVER: Mapping[str, int] = {}  # no task has moved
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
        """Refuse an unknown transport."""
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


class StreamOf(NamedTuple):
    """A stream of the job: an input of an operator, and the operator that reads it."""

    reader: OperatorSpec
    port: int
    read: Input


def job_streams(dataflow: Dataflow) -> list[StreamOf]:
    """Every stream; its place in the list is its number, on every worker alike."""
    return [StreamOf(reader, port, read) for reader in dataflow.operators for port, read in enumerate(reader.inputs)]


class EdgeNumbers:
    """What an edge is called on the wire: one number made of its stream and the indexes of its two tasks.

    The number of streams decides how the bits are shared out, and the topology fixes it. So an edge keeps its number
    while operators get more tasks or fewer. A move of either end gives it another one, so that frames and credit of
    its former route are not taken for those of the new one; after 4 to 8 moves of its ends the numbers come again.

    >>> EdgeNumbers(3).of(stream=2, i=1, j=5) == EdgeNumbers(4).of(stream=2, i=1, j=5)
    True
    """

    def __init__(self, streams: int) -> None:
        self._task_bits = (EDGE_BITS - ROUTE_BITS - max(0, streams - 1).bit_length()) // 2
        self.tasks_max = (1 << self._task_bits) - 1
        # Numbers are below this.
        self.end = min(max(1, streams) << 2 * self._task_bits + ROUTE_BITS, (1 << EDGE_BITS) - 1)

    def of(self, stream: int, i: int, j: int, moves: int = 0) -> int:
        """The edge of a stream from its source's task i to its reader's task j, which have moved so often together."""
        edge = (stream << self._task_bits | i) << self._task_bits | j
        return edge << ROUTE_BITS | moves % (1 << ROUTE_BITS)

    def again(self, number: int, moves: int) -> int:
        """The number of the same edge when its ends had moved so often."""
        return number >> ROUTE_BITS << ROUTE_BITS | moves % (1 << ROUTE_BITS)

    def require(self, dataflow: Dataflow) -> None:
        """Refuse operators of more tasks than numbers can tell apart."""
        for operator in dataflow.operators:
            if operator.tasks > self.tasks_max:
                msg = (
                    f"operator {operator.name!r} has {operator.tasks} tasks; in a job of as many streams as "
                    f"{dataflow.name!r} has, an operator can have at most {self.tasks_max}: give it fewer"
                )
                raise InvalidInput(msg)


def task_ids(dataflow: Dataflow) -> list[str]:
    """Every task of the job."""
    return [task for operator in dataflow.operators for task in tasks_of_operator(operator.name, operator.tasks)]


@dataclass(frozen=True)
class WorkerShare:
    """What one worker runs, and how its own numbers translate to the job's; its lists change with moves of tasks."""

    layout: WorkerLayout  # at the start; the machine has the present one
    tasks: list[str]
    edges: list[JobEdge]  # position = the machine's edge number
    numbers: EdgeNumbers
    local_number: dict[int, int]  # job edge -> machine edge
    peer_of: dict[int, int]  # machine edge -> the other worker, where there is one
    moved: Counter[str]  # how often each task has moved since the workers met
    former: set[int] = field(default_factory=set)  # job edges of routes that are no more: their credit may be late


def share_of(
    dataflow: Dataflow, worker_of: Mapping[str, int], me: int, settings: RunSettings, moved: Mapping[str, int] = NEVER
) -> WorkerShare:
    """The tasks that the plan gives to worker `me`, and every edge that touches one of them."""
    depths, streams = dataflow.depths(), job_streams(dataflow)
    specs = {operator.name: operator for operator in dataflow.operators}
    tasks = [task for task in task_ids(dataflow) if worker_of[task] == me]
    number = {task: t for t, task in enumerate(tasks)}
    numbers = EdgeNumbers(len(streams))
    numbers.require(dataflow)
    edges = list(_own_edges(streams, specs, numbers, worker_of, me, moved))
    # A window is a share of its receiver's memory, so both ends must reckon it from the receiver's edges: a sender with
    # a smaller one would wait for credit that the receiver does not think worth sending yet.
    edges_into = _edges_into(streams, specs, worker_of)
    windows = [settings.window_bytes or _window(edges_into[worker_of[edge.target]]) for edge in edges]
    layout = WorkerLayout(
        tuple(_task_layout(dataflow, task, depths) for task in tasks),
        tuple(_edge_layout(specs, edge, number, window, settings) for edge, window in zip(edges, windows, strict=True)),
        settings.rows_max,
        int(settings.linger_ms * 1000),
    )
    others = {
        i: worker_of[edge.target if edge.source in number else edge.source]
        for i, edge in enumerate(edges)
        if not (edge.source in number and edge.target in number)
    }
    local_number = {edge.number: i for i, edge in enumerate(edges)}
    return WorkerShare(layout, tasks, edges, numbers, local_number, others, Counter(moved))


def _own_edges(
    streams: Sequence[StreamOf],
    specs: Mapping[str, OperatorSpec],
    numbers: EdgeNumbers,
    worker_of: Mapping[str, int],
    me: int,
    moved: Mapping[str, int],
) -> Iterator[JobEdge]:
    """The edges with an end on worker `me`, and no others: a job may have a million."""
    named = {o.name: tasks_of_operator(o.name, o.tasks) for o in specs.values()}
    mine = {name: [i for i, task in enumerate(tasks) if worker_of[task] == me] for name, tasks in named.items()}
    for stream, (reader, port, read) in enumerate(streams):
        sources, targets = set(mine[read.operator]), mine[reader.name]
        ends_here = set(targets)
        is_forward = read.grouping.kind == FORWARD
        for i in range(specs[read.operator].tasks) if targets else mine[read.operator]:
            if is_forward:
                readers: Iterable[int] = (i,) if i in sources or i in ends_here else ()
            else:
                readers = range(reader.tasks) if i in sources else targets
            for j in readers:
                ends = named[read.operator][i], named[reader.name][j]
                moves = sum(moved.get(end, 0) for end in ends) if moved else 0
                yield JobEdge(numbers.of(stream, i, j, moves), *ends, read.output, port)


def _edges_into(
    streams: Sequence[StreamOf], specs: Mapping[str, OperatorSpec], worker_of: Mapping[str, int]
) -> Counter[int]:
    """How many edges end on each worker, counted by tasks and not by edges."""
    found: Counter[int] = Counter()
    for reader, _, read in streams:
        edges_each = 1 if read.grouping.kind == FORWARD else specs[read.operator].tasks
        for task in tasks_of_operator(reader.name, reader.tasks):
            found[worker_of[task]] += edges_each
    return found


def _task_layout(dataflow: Dataflow, task: str, depths: Mapping[str, int]) -> TaskLayout:
    spec = dataflow.operator(operator_of(task))
    part = spec.region
    if part is None or part.role == "merger":
        timed = spec.event_time is not None and spec.event_time.by_input
        idle_us = _idle_us(dataflow, spec) if timed else None
        merges = part is not None
        return TaskLayout(task, depths[spec.name], not spec.inputs, timed=timed, idle_us=idle_us, merges=merges)
    if part.role == "replica":
        reads = dataflow.operator(spec.inputs[0].operator).region
        return TaskLayout(task, depths[spec.name], slicewise=part.ordered or (reads is not None and _splits(reads)))
    # A splitter goes before the replicas of its own worker: it has to keep other workers' replicas busy meanwhile, and
    # a replica beside it shows that it is slow by a full window alone.
    inside = [depths[o.name] for o in dataflow.operators if o.region is not None and o.region.region == part.region]
    replicas_end = max(inside) - part.ordered
    return TaskLayout(task, replicas_end + 0.5, selective=True)


def _idle_us(dataflow: Dataflow, spec: OperatorSpec) -> int | None:
    """How long the sources above an operator may be without rows; None: input that ends is waited for."""
    if not spec.inputs:
        return spec.idle_us
    found = [_idle_us(dataflow, dataflow.operator(read.operator)) for read in spec.inputs]
    return None if None in found else max(us for us in found if us is not None)


def _splits(part: RegionPart) -> bool:
    return part.role == "splitter"


def _edge_layout(
    specs: Mapping[str, OperatorSpec], edge: JobEdge, number: Mapping[str, int], window: int, settings: RunSettings
) -> EdgeLayout:
    ends = number.get(edge.source), number.get(edge.target)
    part = specs[operator_of(edge.source)].region
    if part is not None and _splits(part):
        window = settings.window_bytes or WINDOW_BYTES  # both ends reckon with it
        least = max(1, window // SLICES_AHEAD)
        return EdgeLayout(*ends, edge.port, window, after_run=True, prompt=True, slice_bytes_min=least)
    slices = part is not None and part.ordered and part.role == "replica" and edge.output == MAIN
    return EdgeLayout(*ends, edge.port, window, slice_bytes_min=SLICE_BYTES_MIN if slices else 0)


def _window(edges_in: int) -> int:
    return max(WINDOW_BYTES_MIN, min(WINDOW_BYTES, WORKER_BYTES // max(1, edges_in)))
