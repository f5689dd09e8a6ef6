"""What driver and workers say to each other: JSON records, and the proof that opens every call.

Nothing here can carry code: JSON for words, Arrow for rows, never pickle. Every call shows a proof of the job's key
(256 bits, which travelled in Spark's closure) over its worker, lane, method and a number that grows with each call of
that lane: the key itself never crosses the wire, and a recorded call cannot be played back. Rejected: a bearer token,
which is the key in plain sight; TLS, which needs certificates on every executor and can still be put underneath.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.run.layout import RunSettings
from penstock.run.links import WorkerPlace
from penstock.run.worker import Deployment

KEY_BYTES = 32
TEXT_BYTES_MAX = 64 << 20  # of one JSON message; a deployment of a million tasks is the largest
REPORT_BYTES_MAX = 1 << 20  # of one JSON message from a worker
BATCH_BYTES_MAX = 256 << 20  # of one Arrow batch from a worker
HEADER = "x-penstock-proof"


@dataclass(frozen=True, slots=True)
class Hello:
    """Where a worker has landed, in its own words."""

    worker: int
    workers: int  # barrier tasks in all, as Spark says
    address: str  # of the executor, as Spark says; equal strings are the same executor
    host: str  # where this worker listens for the others
    port: int
    pid: int
    ppid: int
    boot_id: str  # equal on the same machine
    ipc: str  # and equal in the same namespaces: what can share memory
    python: str
    pyarrow: str
    memory_mb: float  # available on the machine


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a worker gave up."""

    worker: int
    kind: str  # task: a user's function raised; peer: another worker vanished; worker: anything else
    message: str
    task: str = ""
    node: str = ""
    trace: str = ""
    lost: int | None = None  # the worker that vanished, where the kind is peer


def proof(key: bytes, worker: int, lane: str, method: str, number: int) -> str:
    """The header that shows the key without telling it."""
    words = f"{worker}.{lane}.{method}.{number}"
    return f"{worker}.{lane}.{number}.{hmac.new(key, words.encode(), hashlib.sha256).hexdigest()}"


class Doorkeeper:
    """Checks proofs; each number of a lane is good once.

    Calls of one lane may overtake each other on the way, so numbers a little below the highest are still good if they
    have not been shown yet: the sliding window of IPsec's anti-replay service (RFC 4303, section 3.4.3).
    """

    LANES = ("talk", "poll", "data")
    WINDOW = 64

    def __init__(self, key: bytes, workers_max: int) -> None:
        self._key, self._workers_max = key, workers_max
        self._shown: dict[tuple[int, str], set[int]] = {}  # the numbers of each lane's window

    def admits(self, header: str, method: str) -> int | None:
        """The worker that calls, or None when the proof does not hold."""
        try:
            worker_text, lane, number_text, _ = header.split(".")
            worker, number = int(worker_text), int(number_text)
        except ValueError:
            return None
        if lane not in self.LANES or not 0 <= worker < self._workers_max:
            return None
        expected = proof(self._key, worker, lane, method, number)
        if not hmac.compare_digest(expected.encode(), header.encode()):
            return None
        shown = self._shown.setdefault((worker, lane), {0})
        floor = max(shown) - self.WINDOW
        if number in shown or number <= floor:
            return None
        shown.add(number)
        self._shown[worker, lane] = {n for n in shown if n > max(shown) - self.WINDOW}
        return worker


def encode(value: Mapping[str, object]) -> bytes:
    """A JSON message."""
    return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes, size_max: int = TEXT_BYTES_MAX) -> dict[str, Any]:
    """A JSON object; ValueError when it is too large or anything else."""
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
    }


def decode_deployment(value: Mapping[str, Any]) -> Deployment:
    """What `encode_deployment` made."""
    return Deployment(
        value["job"],
        tuple(WorkerPlace(**place) for place in value["workers"]),
        value["worker_of"],
        RunSettings(**value["settings"]),
    )
