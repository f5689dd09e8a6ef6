"""What goes into a machine, a worker's part of the job, and what comes out of it, one instruction at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class EdgeLayout:
    """One pair of tasks. An end that is not on this worker is None."""

    source: int | None
    target: int | None
    port: int = 0  # the target's input that the edge feeds
    window: int = 1 << 20  # bytes
    after_run: bool = False  # credit returns when the run that takes the data is over, not when it begins
    prompt: bool = False  # credit goes back soon, however little it is: the sender tells by it which replica is late
    slice_bytes_min: int = 0  # the edge carries slices of a region, each counted for at least these bytes; 0: batches


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """One task of this worker."""

    name: str
    depth: float  # distance from the sources in operators
    is_source: bool = False
    slicewise: bool = False  # a run takes one slice and joins none
    merges: bool = False  # slices reach it by number
    idle_us: int | None = None  # timed: an edge whose rows have said nothing for this time is not waited for
    timed: bool = False  # an input edge has come as far as its rows say (`Machine.observed`), not as its marks do
    selective: bool = False  # names the one output that it waits for (`Machine.wants_edge`) instead of waiting for all


@dataclass(frozen=True, slots=True)
class WorkerLayout:
    """The part of the job that one worker runs; tasks and edges are numbered within it."""

    tasks: Sequence[TaskLayout]
    edges: Sequence[EdgeLayout]
    rows_max: int = 4096
    linger_us: int = 0  # how long a small batch is held for others to join it


class SlicePayload(NamedTuple):
    """A slice of a parallel region: its number, and the payloads that there are of it."""

    sequence: int
    parts: tuple[object, ...]


@dataclass(slots=True)  # not frozen: made for every step, and freezing about doubles the cost
class Run:
    """Give a task the batches that wait for it, by input."""

    task: int
    inputs: tuple[tuple[int, tuple[object, ...]], ...]
    edge: int = field(default=-1, compare=False)  # that brought the last batch; a timed task gets those of one edge


@dataclass(slots=True)
class Poll:
    """Ask a source for more."""

    task: int


@dataclass(slots=True)
class Advance:
    """Tell a task that event time has moved."""

    task: int
    watermark_us: int


@dataclass(slots=True)
class Idle:
    """Tell a task that nothing comes in on any of its open inputs for now."""

    task: int


@dataclass(slots=True)
class Wake:
    """A time that a task asked for has come."""

    task: int


@dataclass(slots=True)
class Finish:
    """All inputs of a task have ended."""

    task: int


@dataclass(slots=True)
class Snapshot:
    """Save a task and send the marker on all its outputs, in one step; `Machine.snapshotted` when that is done."""

    task: int
    epoch: int


@dataclass(slots=True)
class Wait:
    """Nothing can run until an event comes, or until this time."""

    until_us: int | None


@dataclass(slots=True)
class Done:
    """Every task has finished."""


@dataclass(slots=True)
class Send:
    """Send what was held on an edge to another worker: batches, then the marks, then the end."""

    edge: int
    payloads: tuple[object, ...]
    size: int  # bytes, as they were counted when they were held
    watermark_us: int | None
    ended: bool
    idle: bool = False


@dataclass(slots=True)
class Grant:
    """Send credit back to the sender of an inbound edge."""

    edge: int
    size: int  # bytes


Instruction = Run | Poll | Advance | Idle | Wake | Finish | Send | Grant | Snapshot | Wait | Done
