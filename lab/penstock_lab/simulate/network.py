"""Links between simulated workers: frames in memory, in order on each edge and in no other, each after a random delay.

Real links are stricter: a channel keeps the order of all edges between two workers. The engine relies on the order of
each edge alone, so that is what the simulation gives it. Nothing is lost: a lost frame is the death of a peer.
"""

from __future__ import annotations

import random
import socket
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.run.transport.links import WorkerPlace
from penstock.run.transport.protocol import ChannelStatistics
from penstock.run.transport.wire import BufferFrame, Frame, Kind, prepare

HISTORY_MAX = 400  # events that are kept for people to read

Lane = tuple[int, bool]  # an edge, and whether it is its credit, which goes the other way


class History:
    """What has happened, the last of it as text; the digest of all of it tells whether two runs were the same."""

    def __init__(self) -> None:
        self._last: deque[str] = deque(maxlen=HISTORY_MAX)
        self.events = 0
        self.digest = 0

    def note(self, now_us: int, worker: int, text: str) -> None:
        """One event."""
        line = f"{now_us:>12,} us  worker {worker}  {text}"
        self._last.append(line)
        self.events += 1
        self.digest = zlib.crc32(line.encode(), self.digest)

    def __str__(self) -> str:
        """The last events, oldest first."""
        left_out = self.events - len(self._last)
        head = [f"({left_out} earlier events are left out)"] if left_out else []
        return "\n".join([*head, *self._last])


@dataclass(frozen=True, slots=True)
class Ends:
    """Where an edge leads, as numbers of workers, and what people call it."""

    sender: int
    receiver: int
    name: str
    slice_bytes_min: int  # 0: it carries batches

    def to(self, kind: int) -> int:
        """The worker that a frame is for."""
        return self.sender if kind == Kind.CREDIT else self.receiver


class Network:
    """All frames that are on their way."""

    def __init__(
        self,
        ends: Mapping[int, Ends],
        rng: random.Random,
        delays_us: Sequence[int],
        clock: Callable[[], int],
        history: History | None = None,
    ) -> None:
        self.ends, self.history, self.clock = ends, history or History(), clock
        self._random, self._delays_us = rng, delays_us
        self._lanes: dict[int, dict[Lane, deque[tuple[int, BufferFrame]]]] = {}  # by the worker that they lead to
        self._open_slice: dict[int, int] = {}  # edge -> bytes sent since its last mark
        self._slices: dict[int, deque[int]] = {}  # edge -> what the slices count for whose marks have not arrived

    def send(self, frame: BufferFrame) -> None:
        """A frame sets out."""
        ends, now_us = self.ends[frame.edge], self.clock()
        lane = self._lanes.setdefault(ends.to(frame.kind), {}).setdefault(
            (frame.edge, frame.kind == Kind.CREDIT), deque()
        )
        due_us = now_us + self._random.choice(self._delays_us)
        lane.append((max(due_us, lane[-1][0]) if lane else due_us, frame))
        if ends.slice_bytes_min and frame.kind == Kind.DATA:
            self._open_slice[frame.edge] = self._open_slice.get(frame.edge, 0) + frame.size
        elif frame.kind == Kind.SLICE:
            counted = max(self._open_slice.pop(frame.edge, 0), ends.slice_bytes_min)
            self._slices.setdefault(frame.edge, deque()).append(counted)
        sender = ends.receiver if frame.kind == Kind.CREDIT else ends.sender
        self.history.note(now_us, sender, f"sends     {self._text(frame)}")

    def arrivals(self, worker: int) -> list[Frame]:
        """Some of the frames that may arrive at a worker now, one or more where there are any."""
        found: list[Frame] = []
        while due := list(self._due(worker)):
            lane = self._random.choice(due)
            frame = self._lanes[worker][lane].popleft()[1]
            if frame.kind == Kind.SLICE:
                self._slices[frame.edge].popleft()
            self.history.note(self.clock(), worker, f"receives  {self._text(frame)}")
            found.append(frame)
            if self._random.random() < 0.5:
                break
        return found

    def _due(self, worker: int) -> Iterator[Lane]:
        now_us = self.clock()
        return (lane for lane, frames in self._lanes.get(worker, {}).items() if frames and frames[0][0] <= now_us)

    def next_us(self, worker: int) -> int | None:
        """When the next frame arrives at a worker."""
        return min([frames[0][0] for frames in self._lanes.get(worker, {}).values() if frames], default=None)

    def in_flight(self, edge: int) -> int:
        """Bytes on their way along an edge, there as data or back as credit, as both ends count them."""
        ends = self.ends[edge]
        there = self._lanes.get(ends.receiver, {}).get((edge, False), ())
        back = self._lanes.get(ends.sender, {}).get((edge, True), ())
        credit = sum(frame.value for _, frame in back)
        if ends.slice_bytes_min:
            return credit + sum(self._slices.get(edge, ()))
        return credit + sum(frame.size for _, frame in there)

    def pass_over_ends(self, worker: int) -> None:
        """Forget ends that are still on their way to a worker."""
        for frames in self._lanes.get(worker, {}).values():
            while frames and frames[0][1].kind == Kind.END:
                frames.popleft()

    def left(self) -> list[str]:
        """Frames that have not arrived, credit left out: it may come after its sender has ended."""
        frames = [frame for lanes in self._lanes.values() for lane in lanes.values() for _, frame in lane]
        return [self._text(frame) for frame in frames if frame.kind != Kind.CREDIT]

    def _text(self, frame: BufferFrame) -> str:
        what = f"{frame.rows} rows, {frame.size} bytes" if frame.kind == Kind.DATA else str(frame.value)
        return f"{Kind(frame.kind).name:<9} {self.ends[frame.edge].name}  {what}"


class SimulatedLinks:
    """One worker's end of a network (`WorkerLinks`)."""

    def __init__(self, network: Network, me: int) -> None:
        self._network, self._me = network, me
        self._left: set[int] = set()  # edges along which nothing may be sent any more

    @property
    def woken_ns(self) -> int:
        """The scheduler waits, not the worker."""
        return 0

    def watch(self, descriptor: int) -> None:
        """There is no driver that calls."""

    def open(
        self, listener: socket.socket, workers: Sequence[WorkerPlace], key: bytes, listen: Callable[[], None]
    ) -> None:
        """All are connected."""

    def add_edges(self, place: WorkerPlace, sends_to: Collection[int], hears_from: Collection[int]) -> None:
        """The network knows where they lead."""
        self._left.difference_update(sends_to, hears_from)

    def has_met(self, peer: int) -> bool:
        """All are connected."""
        return True

    def keep_new_peers(self) -> None:
        """All are connected."""

    def forget_new_peers(self) -> None:
        """All are connected."""

    def leave_edges(self, edges: Collection[int]) -> None:
        """As strict as real links: nothing can be sent along them, either way."""
        self._left.update(edges)

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """As an image, like every transport."""
        return self.send_image(edge, prepare(batch), origin_ns)

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Written at once: what the sender does with its buffers afterwards is its own affair."""
        self._require_led(edge, Kind.DATA)
        body = bytearray(image.size)
        image.write_into(body)
        self._network.send(BufferFrame(Kind.DATA, edge, image.rows, origin_ns, image.size, pa.py_buffer(bytes(body))))
        return image.size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """A frame without a body."""
        self._require_led(edge, kind)
        self._network.send(BufferFrame(kind, edge, 0, value))

    def _require_led(self, edge: int, kind: Kind) -> None:
        if edge in self._left:
            msg = f"worker {self._me} sends {kind.name} along edge {edge}, which it has left"
            raise KeyError(msg)

    def wait(self, seconds: float) -> tuple[list[Frame], bool]:
        """What the network gives now; the scheduler waits, not the worker."""
        return self._network.arrivals(self._me), False

    def say_goodbye(self, listen: Callable[[], None]) -> None:
        """There is no peer to tell."""

    def statistics(self) -> Mapping[int, tuple[str, ChannelStatistics]]:
        """No counters."""
        return {}

    def close(self) -> None:
        """Nothing is open."""
