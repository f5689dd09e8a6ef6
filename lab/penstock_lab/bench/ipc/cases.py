"""Cases and outcomes of the transport benchmark: sizes, rates, and the figures that they gave.

A case goes as one line of JSON to the processes that measure, Python or Java, and its raw figures come back the same
way. All arithmetic on them is here, so that every transport is judged by the same code.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal["paced", "flat", "idle"]
KB = 1024
STAMP_END = -1  # the stamp of a producer's last message in a flat-out run
WARM_SECONDS = 0.15
WARM_MESSAGES_MIN = 30
QUEUE_BYTES = 4 << 20  # what a transport may hold between its ends, where that can be set
QUEUE_MESSAGES_MIN, QUEUE_MESSAGES_MAX = 4, 64
STALL_SECONDS = 45.0  # a busy machine may stop everything for this long


@dataclass(frozen=True)
class Case:
    """One measurement. `seconds` is how long producers send after the warm-up; `rate` 0 means flat out."""

    kind: Kind
    size: int
    rate: float = 0.0
    seconds: float = 0.5
    producers: int = 1
    read: bool = True  # Arrow: the consumer sums a column of each batch
    ring_bytes: int = 0  # size of the ring; 0 leaves it to the transport

    @property
    def warm(self) -> int:
        """Messages before the measured ones."""
        return max(WARM_MESSAGES_MIN, round(self.rate * WARM_SECONDS))

    @property
    def count(self) -> int:
        """Measured messages of a paced case."""
        return max(1, round(self.rate * self.seconds))

    @property
    def queue(self) -> int:
        """Messages that may wait between the ends."""
        return max(QUEUE_MESSAGES_MIN, min(QUEUE_MESSAGES_MAX, QUEUE_BYTES // self.size))

    @property
    def limit_seconds(self) -> float:
        """When the processes count as stuck."""
        paced = (self.warm + self.count) / self.rate if self.rate else self.seconds
        return 3 * paced + STALL_SECONDS

    def to_line(self) -> str:
        """JSON, in one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_line(line: str) -> Case:
        """What `to_line` wrote."""
        return Case(**json.loads(line))


@dataclass(frozen=True)
class Outcome:
    """What one run of a case gave; microseconds, MB (10^6 bytes) a second, and share of a core."""

    mean_us: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    mb_per_second: float | None = None
    cpu_share: float | None = None
    failure: str = ""


def outcome_of(case: Case, raw: Mapping[str, object]) -> Outcome:
    """The figures of one run from what its processes counted."""
    if "failure" in raw:
        return Outcome(failure=str(raw["failure"]))
    span = max(1e-9, _number(raw["seconds"]))
    cpu = _number(raw["cpu_seconds"]) / span
    if case.kind == "idle":
        return Outcome(cpu_share=cpu)
    if case.kind == "flat":
        return Outcome(mb_per_second=_number(raw["messages"]) * case.size / span / 1e6, cpu_share=cpu)
    found = raw["latency_ns"]
    assert isinstance(found, Sequence)  # noqa: S101 - our own processes wrote it
    latency = sorted(_number(value) / 1e3 for value in found)
    return Outcome(statistics.fmean(latency), at_share(latency, 0.5), at_share(latency, 0.99), None, cpu)


def at_share(ordered: Sequence[float], share: float) -> float:
    """The value below which that share of them lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _number(value: object) -> float:
    assert isinstance(value, int | float)  # noqa: S101 - our own processes wrote it
    return float(value)


def median_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Each figure's median over the rounds; a transport that failed in every round keeps its failure."""
    good = [outcome for outcome in outcomes if not outcome.failure]
    if not good:
        return outcomes[0] if outcomes else Outcome(failure="not measured")

    def middle(name: str) -> float | None:
        values = [value for outcome in good if (value := getattr(outcome, name)) is not None]
        return statistics.median(values) if values else None

    mean, p50, p99 = middle("mean_us"), middle("p50_us"), middle("p99_us")
    return Outcome(mean, p50, p99, middle("mb_per_second"), middle("cpu_share"))
