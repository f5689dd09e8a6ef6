"""Types of the native functions; each group belongs to the C++ file named above it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import Buffer

from penstock.errors import PenstockError

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int32]
_Longs = NDArray[np.int64]
_Bytes = NDArray[np.uint8]

# core/pricing.cpp
def price_sets(
    profit: _Floats,
    weight: _Floats,
    resources: _Floats,
    outward: _Floats,
    kind: _Ints,
    cut_share: _Bytes,
    cut_price: _Floats,
    limits: _Floats,
    threshold: float,
    all: bool,  # noqa: A002
    nodes_max: int,
    columns_max: int,
    seconds: float,
) -> tuple[_Ints, _Ints, _Floats, float, bool, int]: ...
def guess_sets(
    profit: _Floats,
    weight: _Floats,
    resources: _Floats,
    outward: _Floats,
    kind: _Ints,
    cut_share: _Bytes,
    cut_price: _Floats,
    limits: _Floats,
    threshold: float,
    sets_max: int,
) -> tuple[_Ints, _Ints, _Floats, float, bool, int]: ...

# core/warm_start.cpp
def starting_placements(
    start: _Longs,
    neighbour: _Ints,
    weight: _Floats,
    outward: _Floats,
    load: _Floats,
    memory: _Floats,
    capacity: _Floats,
    memory_limit: _Floats,
    bandwidth: _Floats,
    initial: _Ints,
    seed: int,
    runs: int,
    moves: int,
    seconds: float,
) -> tuple[_Ints, _Floats]: ...

# core/bind_partition.cpp

class Effort:
    """How hard the multilevel search works; see core/multilevel.hpp."""

    def __init__(
        self,
        visits: float,
        hot: float,
        warm: float,
        cold: float,
        coarse_share: float,
        cluster_share: float,
        rounds: int,
    ) -> None: ...

class Network:
    """Tasks, traffic and node limits, checked and in the core's own form."""

    def __init__(
        self,
        load: NDArray[np.float64],
        memory: NDArray[np.float64],
        source: NDArray[np.int32],
        target: NDArray[np.int32],
        rate: NDArray[np.float64],
        load_max: NDArray[np.float64],
        memory_max: NDArray[np.float64],
        bandwidth_max: NDArray[np.float64],
    ) -> None: ...
    def cost(self, node: NDArray[np.int32]) -> float: ...
    def overload(self, node: NDArray[np.int32]) -> float: ...
    def grow(self, order: NDArray[np.int32], seed: int) -> NDArray[np.int32]: ...
    def pack(self, share: float) -> NDArray[np.int32]: ...
    def repair(self, node: NDArray[np.int32], seed: int, tries: int, seconds: float) -> NDArray[np.int32]: ...
    def refine(self, node: NDArray[np.int32], passes_max: int, seconds: float) -> NDArray[np.int32]: ...
    def anneal(
        self, node: NDArray[np.int32], hot: float, cold: float, sweeps: int, seed: int, seconds: float
    ) -> NDArray[np.int32]: ...
    def anneal_in_halves(
        self, node: NDArray[np.int32], hot: float, cold: float, sweeps: int, rounds: int, seed: int, seconds: float
    ) -> NDArray[np.int32]: ...
    def multilevel(self, order: NDArray[np.int32], effort: Effort, seed: int, seconds: float) -> NDArray[np.int32]: ...
    def vcycle(self, node: NDArray[np.int32], effort: Effort, seed: int, seconds: float) -> NDArray[np.int32]: ...
    def evolve(
        self,
        starts: Sequence[NDArray[np.int32]],
        population: int,
        children: int,
        first_sweeps: int,
        coarse_sweeps: int,
        fine_sweeps: int,
        seed: int,
        seconds: float,
    ) -> NDArray[np.int32]: ...
    def trial(
        self, node: NDArray[np.int32], seed: int, changes: int
    ) -> tuple[NDArray[np.int32], float, list[float], list[float], list[float]]: ...
    def split_workers(
        self, node: NDArray[np.int32], slots: NDArray[np.int32], most: int, effort: float, seed: int
    ) -> NDArray[np.int32]: ...

# -- kernels: arguments have been checked by run/kernels.py and what it imports --------------------------------------

class Layout:
    def __init__(self, schema_capsule: object) -> None: ...
    def readable(self, column: int) -> bool: ...

def hash_rows(layout: Layout, batch: pa.RecordBatch, columns: Sequence[int]) -> bytes: ...
def partition(
    layout: Layout, batch: pa.RecordBatch, columns: Sequence[int], parts: int, schema: pa.Schema, gather: bool
) -> tuple[pa.RecordBatch | bytes, list[int]]: ...
def split_words(
    layout: Layout, batch: pa.RecordBatch, column: int, separator: str, keep: Sequence[int], schema: pa.Schema
) -> pa.RecordBatch: ...

class NativeAggregate:
    def __init__(
        self, layout: Layout, keys: Sequence[int], specifications: Sequence[tuple[int, int, int, int]]
    ) -> None: ...
    @staticmethod
    def supports(layout: Layout, keys: Sequence[int], specifications: Sequence[tuple[int, int, int, int]]) -> bool: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...
    def update(self, batch: pa.RecordBatch) -> None: ...
    def update_each(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch: ...
    def changed(self, schema: pa.Schema) -> pa.RecordBatch: ...
    def rows(self, schema: pa.Schema) -> pa.RecordBatch: ...
    def state(self, schema: pa.Schema) -> pa.RecordBatch: ...
    def put_state(self, layout: Layout, batch: pa.RecordBatch) -> bool: ...

class Row:
    """One row, like PySpark's: row['a'], row.a, row[0]; immutable. Columns come before methods of the same name."""

    def __new__(cls, **values: object) -> Row: ...
    def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401 - whatever the column holds
    def __getitem__(self, key: str | int | slice) -> Any: ...  # noqa: ANN401 - whatever the column holds
    def __contains__(self, name: object) -> bool: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def keys(self) -> tuple[str, ...]: ...
    def asDict(self) -> dict[str, Any]: ...

def builds(layout: Layout, column: int) -> bool: ...
def map_rows(
    layout: Layout,
    batch: pa.RecordBatch,
    names: tuple[str, ...],
    function: Callable[[Row], Any],
    fault: Callable[[int, BaseException, Row], None],
    flat: bool,
    out_layout: Layout,
    out_names: tuple[str, ...],
    declared: tuple[str, ...],
    checks: Sequence[Callable[[object], object] | None],
    bare_lists: bool,
    bare_dicts: bool,
    schema: pa.Schema,
) -> tuple[pa.RecordBatch, list[list[Any]]]: ...
def kept_rows(
    layout: Layout,
    batch: pa.RecordBatch,
    names: tuple[str, ...],
    function: Callable[[Row], object],
    fault: Callable[[int, BaseException, Row], None],
    gather: bool,
    schema: pa.Schema,
) -> pa.RecordBatch | bytes | None: ...
def rate_batch(
    first: int, step: int, rows: int, base_us: int, us_per_value: float, schema: pa.Schema
) -> pa.RecordBatch: ...
def epoll_wait_ns(descriptor: int, timeout_ns: int) -> list[tuple[int, int]]: ...

# -- batch images and the socket: a batch has the codec's schema, images may be any bytes ------------------------------

class ImageFault(ValueError): ...
class OutboxFull(RuntimeError): ...

class ImageCodec:
    def __init__(self, schema_capsule: object, schema: pa.Schema) -> None: ...
    @property
    def schema(self) -> pa.Schema: ...
    def prepare(self, batch: pa.RecordBatch) -> PreparedImage: ...
    def route_by_key(
        self, layout: Layout, batch: pa.RecordBatch, columns: Sequence[int], parts: int
    ) -> list[PreparedImage | None]: ...
    def route_by_target(
        self, batch: pa.RecordBatch, targets: NDArray[np.uint32], parts: int
    ) -> list[PreparedImage | None]: ...
    def open(self, owner: object) -> pa.RecordBatch: ...

class PreparedImage:
    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> int: ...
    def open(self, codec: ImageCodec) -> pa.RecordBatch: ...
    def write_into(self, target: object) -> int: ...
    def write_at(self, address: int, length: int) -> int: ...

class SocketFrame:
    @property
    def kind(self) -> int: ...
    @property
    def edge(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def value(self) -> int: ...
    @property
    def size(self) -> int: ...
    def open(self, codec: ImageCodec, /) -> pa.RecordBatch: ...
    def body(self) -> bytes: ...

class SocketChannel:
    def __init__(self, descriptor: int, edges: int, waiting_max: int) -> None: ...
    def send_image(self, edge: int, image: PreparedImage, value: int) -> None: ...
    def send_mark(self, kind: int, edge: int, value: int) -> None: ...
    def flush(self) -> bool: ...
    def wait_writable(self, seconds: float) -> bool: ...
    def receive(self) -> list[SocketFrame] | None: ...
    def clear(self) -> None: ...
    @property
    def wants_write(self) -> bool: ...
    def statistics(self) -> tuple[int, int, int, int, int]: ...

# core/bind_region.cpp
class RegionSimulation:
    def __init__(
        self,
        cost: _Floats,
        from_seconds: _Floats,
        from_row: _Floats,
        buffer: int,
        low_water: int,
        merger_rows: int,
        send_seconds: float,
        merge_seconds: float,
        jitter: float,
        charge_laggard: bool,
        seed: int,
    ) -> None: ...
    def set_turns(self, turns: _Ints, routing: int) -> None: ...
    def advance(self, until: float, rows: int) -> None: ...
    def left_by(self, time: float) -> int: ...
    def held_at(self, time: float) -> int: ...
    def clock(self) -> float: ...
    def turn(self) -> int: ...
    def last_exit(self) -> float: ...
    def sent(self) -> int: ...
    def blocked_seconds(self) -> _Floats: ...
    def sent_rows(self) -> _Floats: ...
    def note_worked_off(self, time: float) -> None: ...
    def worked_off_rows(self) -> _Floats: ...
    def took_seconds(self) -> _Floats: ...

# core/bind_ratio_cut.cpp
class CutNetwork:
    """The graph of a minimum-ratio cut; sides are one byte per vertex, empty where no cut of finite ratio was seen."""

    def __init__(
        self,
        weight: _Floats,
        source: _Ints,
        target: _Ints,
        stream_weight: _Floats,
        demand_source: _Ints,
        demand_target: _Ints,
        demand: _Floats,
    ) -> None: ...
    def flow(
        self, epsilon: float, phases_max: int, sweep_every: int, seconds: float
    ) -> tuple[_Floats, float, float, int, _Bytes, float]:
        """(lengths, throughput, its upper bound, phases, best ball, its ratio)."""
    def round(self, length: _Floats) -> tuple[_Bytes, float]:
        """(best side by balls and regions, its ratio)."""
    def trees(self, length: _Floats) -> tuple[_Longs, _Ints, _Floats, _Floats]:
        """(row starts, edges, flows, reach): each vertex's demand along its shortest-path tree."""
    def anneal(self, side: _Bytes, seed: int, runs: int, seconds: float) -> tuple[_Bytes, float]:
        """(best side that annealing reaches from this one, its ratio)."""

# core/bind_ring.cpp: shared memory between the workers of one node; see core/ring.hpp. Timeouts are seconds; None waits
# for ever and 0 tries once.

class RingFault(PenstockError):
    """A segment, head or record is not what it should be; the ring cannot be used any more."""

class RingRefused(PenstockError):
    """This process, epoch or version may not use the ring (again): replaced, forked, full of producers, other build."""

class RingGone(PenstockError, ConnectionError):
    """The other end has died or closed."""

class NoSharedMemory(PenstockError, OSError):
    """The machine has no room for a segment, or does not allow one."""

class RingSegment:
    """The memory of one inbox: an anonymous, sealed memory file and the eventfd that wakes its consumer."""

    def __init__(
        self, capacity: int, *, slots: int = 0, epoch: int = 1, producers: int = 64, wake: int = -1
    ) -> None: ...  # capacity in bytes, rounded up to a power of two; wake: an eventfd to share with another segment
    @staticmethod
    def attach(memory: int, wake: int, epoch: int | None = None) -> RingSegment: ...  # both descriptors are duplicated
    def fileno(self) -> int: ...
    def wake_fileno(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def producers(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def part_bytes_max(self) -> int: ...  # longer messages go in parts

class RingSpan:
    """Reserved space: a writable buffer until it is published or abandoned (which leaving a `with` early does)."""

    @property
    def address(self) -> int: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *fault: object) -> None: ...
    def publish(self) -> None: ...
    def abandon(self) -> None: ...

class RingProducer:
    """One thread's end that writes into another worker's inbox; `identity` is the number that its records carry."""

    def __init__(self, segment: RingSegment, identity: int, *, checksum: bool = False) -> None: ...
    def reserve(self, target: int, length: int, timeout: float | None = None) -> RingSpan | None: ...
    def send(
        self, target: int, first: Buffer, second: Buffer | None = None, timeout: float | None = None
    ) -> bool: ...  # both pieces under one head, in parts where they do not fit
    def send_pieces(self, target: int, pieces: Sequence[Buffer], timeout: float | None = None) -> bool: ...
    def send_batch(self, target: int, messages: Sequence[Buffer], timeout: float | None = None) -> bool: ...
    def send_part(
        self, target: int, piece: Buffer, whole: int, *, first: bool, last: bool, timeout: float | None = None
    ) -> bool: ...
    def send_end(self, timeout: float | None = None) -> bool: ...  # no more from this producer
    def send_moved(self, timeout: float | None = None) -> bool: ...  # no more through this ring, but through the next
    def statistics(self) -> dict[str, int]: ...  # messages, bytes, blocked_ns, waits, wakes, retries
    def check_peer(self) -> None: ...  # RingGone when the consumer has died or closed
    def notify_space(self) -> None: ...  # the consumer will write this worker's eventfd when space comes free
    def close(self) -> None: ...

class RingRecord:
    """One message, read in place through the buffer protocol; its space is free again when the last reference goes."""

    @property
    def target(self) -> int: ...
    @property
    def producer(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def is_end(self) -> bool: ...
    @property
    def is_moved(self) -> bool: ...
    @property
    def is_batch(self) -> bool: ...
    @property
    def in_place(self) -> bool: ...  # False for a message that came in parts
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def messages(self) -> list[memoryview]: ...  # of a batch

class RingConsumer:
    """The worker's inbox. `next` parks on a futex; `arm` and `fileno` serve a worker that waits for more than this."""

    def __init__(
        self,
        segment: RingSegment,
        *,
        window: int = 256,
        spin_ns: int = 10_000,
        message_max: int = 1 << 28,
        pin_ns: int = 1_000_000,
    ) -> None: ...  # held records that keep producers waiting for longer than pin_ns move out of the ring
    def next(self, timeout: float | None = None) -> RingRecord | None: ...
    def drain(self, limit: int = 64) -> list[RingRecord]: ...  # what is there, without waiting
    def fileno(self) -> int: ...  # the eventfd, readable after `arm` as soon as something has come
    def arm(self) -> bool: ...  # True: producers will write the eventfd; False: something is there already
    def disarm(self) -> None: ...  # after the wait: takes the eventfd's count and stops the writing
    def signal(self) -> None: ...  # writes the eventfd oneself: there is more to read
    def wake_for_space(self, identity: int, wake: int) -> None: ...  # whom to tell when space comes free
    def departed(self) -> list[int]: ...  # producers found dead, all of whose messages have been taken; told once
    def revoke(self, identity: int) -> None: ...  # refuse what this producer's process sends from now on
    def statistics(self) -> dict[str, int]: ...  # messages, bytes, parts, space_wakes, restarts, ...
    def close(self) -> None: ...

# core/bind_ring_frames.cpp
class RingFrame:
    """A frame that lies in a record of a ring; `is_end` says that its producer sends no more."""

    @property
    def kind(self) -> int: ...
    @property
    def edge(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def value(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def producer(self) -> int: ...
    @property
    def is_end(self) -> bool: ...
    @property
    def is_moved(self) -> bool: ...  # the producer's next frames come through the next ring
    @property
    def bytes(self) -> int: ...  # of the record
    def open(self, codec: ImageCodec, /) -> pa.RecordBatch: ...

def ring_send_image(producer: RingProducer, edge: int, image: PreparedImage, value: int) -> bool: ...  # False: no space
def ring_send_batch(
    producer: RingProducer, edge: int, codec: ImageCodec, batch: pa.RecordBatch, value: int, timeout: float | None = 0.0
) -> int: ...  # the bytes of its image; 0: no space within the timeout, or too long for one record
def ring_send_mark(producer: RingProducer, kind: int, edge: int, value: int) -> bool: ...
def ring_take_frames(consumer: RingConsumer, edges: int, limit: int) -> list[RingFrame]: ...
def ring_next_frame(consumer: RingConsumer, edges: int, timeout: float | None = None) -> RingFrame | None: ...
