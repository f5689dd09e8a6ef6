"""Messages between driver and workers: JSON for words and Arrow for rows, neither of which can carry code.

How both ends prove themselves and sign messages is in `sealed`; which message may come when is in `rendezvous`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import inf
from typing import Any

import pyarrow as pa

from penstock.checkpoint.contract import Part, Report
from penstock.checkpoint.manifests import MANIFEST_BYTES_MAX
from penstock.errors import InvalidInput
from penstock.run.contract import Staged
from penstock.run.engine.worker import Checkpoint, Deployment
from penstock.run.engine.worker_share import RunSettings
from penstock.run.transport.links import WorkerPlace

TEXT_BYTES_MAX = 64 << 20  # of one JSON message; a deployment of a million tasks is the largest
REPORT_BYTES_MAX = 1 << 20  # of one JSON message from a worker, apart from
KEPT_BYTES_MAX = MANIFEST_BYTES_MAX  # the word that its part of an epoch is kept: a longer one fits no manifest
BATCH_BYTES_MAX = 256 << 20  # of one message with rows from a worker
# Spark hands a job's ticket to its tasks in the tasks' descriptions, which go from the driver to an executor. A closure
# would not do: it lies in a block that every process that can talk to Spark may fetch. In event logs Spark blacks out
# properties with "secret" in their names, those that its configuration has as well (`Action`).
TICKET_PROPERTY = "penstock.secret"
OVER = "over"  # the command to go over to the next attempt, and the status of a worker that does
ROWS_NAME_BYTES_MAX = 4096
CORES_MAX = 65_536.0
WORK_MS_MAX = 60_000.0
TAGS_MAX = 64  # of one worker
WORDS_CHARACTERS_MAX = 500  # of what a hello tells for people
AMOUNTS = (("cores", CORES_MAX), ("host_cores", CORES_MAX), ("work_ms", WORK_MS_MAX), ("memory_mb", inf))
_NAME_LENGTH = struct.Struct("<H")


@dataclass(frozen=True, slots=True)
class Hello:
    """Where a worker has landed, in its own words."""

    worker: int
    workers: int  # in all, as this worker was told
    address: str  # of the executor: its host and process; equal strings are the same executor
    host: str  # where this worker listens for the others
    port: int
    pid: int
    ppid: int
    boot_id: str  # equal on the same machine
    ipc: str  # equal also in namespaces: processes with equal strings can share memory
    python: str
    pyarrow: str
    memory_mb: float  # available on the machine
    attempt: int = 0  # Spark's number of the task's attempt: greater for each that it starts
    unseen: Sequence[int] = ()  # numbers of the files (`reachable`) that this worker should see and does not
    cores: float = CORES_MAX  # that the executor's processes may use
    work_ms: float = 0.0  # CPU time of the test of speed (`power`); 0: not told
    tags: Sequence[str] = ()  # of the executor (`node_tags`)
    host_cores: float = 0.0  # of the machine, where `cores` may be a container's; 0: not told
    build: str = ""  # of Penstock (`build`); empty: one that did not tell
    unfit: str = ""  # why it cannot take part

    def __post_init__(self) -> None:
        """ValueError for amounts that no machine has: plans would be made of them."""
        object.__setattr__(self, "unseen", tuple(self.unseen))  # JSON has made lists of them
        object.__setattr__(self, "tags", tuple(map(str, self.tags[:TAGS_MAX])))
        for name in ("build", "unfit"):  # shown in a message
            object.__setattr__(self, name, str(getattr(self, name))[:WORDS_CHARACTERS_MAX])
        for name, most in AMOUNTS:
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 <= value <= most or (name == "cores" and value == 0):
                least = "above 0" if name == "cores" else "0 (not known) or more"
                msg = f"{name} is {value!r}; it must be a number, {least}, and at most {most:g}"
                raise ValueError(msg)

    @classmethod
    def told(cls, values: Mapping[str, Any]) -> Hello:
        """From a message; what another build says beyond this one's words is left out, so that its build is heard."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    @property
    def process(self) -> str:
        """The worker's process, for a message."""
        return f"process {self.pid} of executor {self.address}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a worker gave up."""

    worker: int
    kind: str  # task: a user's function raised; peer: another worker vanished; input: Spark failed; worker: the rest
    message: str
    task: str = ""
    node: str = ""
    trace: str = ""
    lost: int | None = None  # the worker that vanished, where the kind is peer
    damaged: tuple[str, str] | None = None  # a file of a source that is not as it was written, and what is wrong
    refused: str = ""  # why a task cannot go on from what was kept, or its state not be kept, in any attempt


def encode(value: Mapping[str, object]) -> bytes:
    """A JSON message."""
    return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes | bytearray, size_max: int = TEXT_BYTES_MAX) -> dict[str, Any]:
    """A JSON object; ValueError when the message is too large or no JSON object."""
    if len(data) > size_max:
        msg = f"message of {len(data)} bytes; the limit is {size_max}"
        raise ValueError(msg)
    value = json.loads(data)
    if not isinstance(value, dict):
        msg = f"message is {type(value).__name__}; it must be an object"
        raise TypeError(msg)
    return value


def encode_deployment(deployment: Deployment) -> dict[str, object]:
    """A deployment as plain values."""
    return {
        "job": deployment.job,
        "workers": [asdict(place) for place in deployment.workers],
        "worker_of": dict(deployment.worker_of),
        "settings": asdict(deployment.settings),
        "checkpoint": None if deployment.checkpoint is None else asdict(deployment.checkpoint),
    }


def decode_deployment(value: Mapping[str, Any]) -> Deployment:
    """What `encode_deployment` made."""
    return Deployment(
        value["job"],
        tuple(WorkerPlace(**place) for place in value["workers"]),
        value["worker_of"],
        RunSettings(**value["settings"]),
        None if (checkpoint := value.get("checkpoint")) is None else Checkpoint(**checkpoint),
    )


def encode_report(report: Report) -> bytes:
    """A worker's word that its part of an epoch is kept, as a whole call; InvalidInput where the driver refuses it."""
    data = encode({**asdict(report), "call": "kept"})
    if len(data) > KEPT_BYTES_MAX and report.sizes:  # nothing depends on these
        return encode_report(replace(report, sizes=()))
    if len(data) > KEPT_BYTES_MAX:
        part, epoch = report.part, "its end" if report.epoch is None else f"epoch {report.epoch}"
        msg = (
            f"the names of {len(part.tasks):,} tasks and {len(part.staged):,} files of sinks, which worker "
            f"{part.worker} reports of {epoch}, have {len(data):,} bytes; the limit is {KEPT_BYTES_MAX:,}; use "
            "more workers, shorten names, or let sinks write fewer files"
        )
        raise InvalidInput(msg)
    return data


def decode_report(value: Mapping[str, Any]) -> Report:
    """What `encode_report` made; ValueError, TypeError or KeyError for anything else."""
    part = value["part"]
    staged = tuple(Staged(str(sink), str(path), int(rows), int(size)) for sink, path, rows, size in part["staged"])
    epoch = value["epoch"]
    return Report(
        int(value["attempt"]),
        None if epoch is None else int(epoch),
        Part(
            int(part["worker"]),
            str(part["path"]),
            int(part["size"]),
            str(part["checksum"]),
            tuple(map(str, part["tasks"])),
            tuple(map(str, part["finished"])),
            staged,
        ),
        tuple(map(int, value["sizes"])),
    )


def encode_rows(name: str, batch: pa.RecordBatch) -> tuple[bytes, memoryview]:
    """Rows for a sink or a table of the metric log, as the parts of one message: the name, then an Arrow stream."""
    words = name.encode()
    if len(words) > ROWS_NAME_BYTES_MAX:
        msg = f"name {name[:40]!r}... has {len(words)} bytes; the limit is {ROWS_NAME_BYTES_MAX}"
        raise ValueError(msg)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    head = _NAME_LENGTH.pack(len(words)) + words
    return head.ljust(_stream_at(len(words)), b"\0"), memoryview(sink.getvalue())


def decode_rows(data: bytearray) -> tuple[str, list[pa.RecordBatch]]:
    """What `encode_rows` made, without a copy; ValueError for anything else."""
    try:
        (length,) = _NAME_LENGTH.unpack_from(data)
        name = data[_NAME_LENGTH.size : _NAME_LENGTH.size + length].decode()
        with pa.ipc.open_stream(pa.py_buffer(data).slice(_stream_at(length))) as stream:
            return name, list(stream)
    except (struct.error, OSError, pa.ArrowException) as error:
        msg = f"a message holds no readable rows: {error}"
        raise ValueError(msg) from error


def _stream_at(name_bytes: int) -> int:
    """Where the rows begin: aligned, because columns that are not are slow to read and some kernels copy them."""
    return -(-(_NAME_LENGTH.size + name_bytes) // 16) * 16
