"""Blocking rate: the share of its time for which the splitter waits for each connection (paper, section 3).

Transports count cumulative time and may start again from zero, so the rate is the first difference over the time
between two samples, smoothed by an exponential mean. A mean over several seconds would mix what was seen at the old
weight into the new weight's point, so the balancer forgets it whenever a weight moves (`forget`).

`BlockingMeter` is the other end: what a splitter's loop calls when it has to wait and when it goes on. `ObservedTime`
is the clock of the samples: it stands still while there is nothing to send, because such time shows no rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

# Whom a wait of the splitter is charged to: the replica that the merger waits for, or, as in the paper, the connection
# that takes nothing more (docs/decisions/0042-blocking-as-published.md).
Charged = Literal["laggard", "connection"]

SMOOTHING = 0.5  # weight of the newest difference


class BlockingRate:
    """Cumulative blocking times in, smoothed rates out, for replicas that may come and go.

    >>> rate = BlockingRate(smoothing=1.0)
    >>> rate.observe(1.0, (7, 8), (0.25, 0.0))
    (0.25, 0.0)
    >>> rate.observe(3.0, (7, 8), (0.75, 0.5))
    (0.25, 0.25)
    """

    def __init__(self, smoothing: float = SMOOTHING) -> None:
        if not 0 < smoothing <= 1:
            msg = f"smoothing is {smoothing}; it must be above 0 and at most 1"
            raise ValueError(msg)
        self._smoothing = smoothing
        self._time_s = 0.0
        self._blocked_s: dict[int, float] = {}
        self._smoothed: dict[int, float] = {}

    def observe(self, time_s: float, replicas: Sequence[int], blocked_s: Sequence[float]) -> tuple[float, ...]:
        """Rates between the previous sample and this one; a replica seen for the first time starts at zero."""
        elapsed = time_s - self._time_s
        if elapsed <= 0:
            msg = f"samples must move forward in time but {time_s} s follows {self._time_s} s"
            raise ValueError(msg)
        rates = {}
        for replica, total in zip(replicas, blocked_s, strict=True):
            before = self._blocked_s.get(replica, 0.0)
            # A counter that fell has been reset by its transport: what it shows has come since.
            waited = total - before if total >= before else total
            rate = min(1.0, waited / elapsed)
            mean = self._smoothed.get(replica)
            rates[replica] = rate if mean is None else mean + self._smoothing * (rate - mean)
        self._time_s = time_s
        self._blocked_s = dict(zip(replicas, blocked_s, strict=True))
        self._smoothed = rates
        return tuple(rates.values())

    def forget(self, replica: int) -> None:
        """Start the replica's mean afresh with the next difference: its weight has moved."""
        self._smoothed.pop(replica, None)


class ConnectionWaits:
    """Blocking of connections as published, where a send can wait in two places: for credit, or for the transport.

    Data that the transport does not take fills the window soon, so both meters see one wait, from different moments
    on. In every interval the longer of the two counts; their sum would count it twice.

    >>> waits = ConnectionWaits(2)
    >>> waits.read((0.25, 0.5), (0.5, 0.0))
    (0.5, 0.5)
    >>> waits.read((1.0, 0.5), (0.75, 0.0))
    (1.25, 0.5)
    """

    def __init__(self, replicas: int) -> None:
        self._before = [(0.0, 0.0)] * replicas
        self._total_s = [0.0] * replicas

    def read(self, credit_s: Sequence[float], transport_s: Sequence[float]) -> tuple[float, ...]:
        """Cumulative seconds of each replica, from the cumulative seconds of both meters."""
        now = list(zip(credit_s, transport_s, strict=True))
        for replica, ((credit, transport), (credit_then, transport_then)) in enumerate(
            zip(now, self._before, strict=True)
        ):
            self._total_s[replica] += max(0.0, credit - credit_then, transport - transport_then)
        self._before = now
        return tuple(self._total_s)


class ObservedTime:
    """A splitter's clock that leaves out the time before it has something to send again.

    >>> clock = ObservedTime()
    >>> clock.begin(5_000_000), clock.begin(5_500_000)
    (True, False)
    >>> clock.read(6_000_000)
    1.0
    >>> clock.leave_out()
    >>> clock.begin(90_000_000), clock.read(90_500_000)
    (True, 1.5)
    """

    def __init__(self) -> None:
        self._total_us = 0
        self._since_us: int | None = None

    def begin(self, now_us: int) -> bool:
        """There is something to send; whether the clock stood still."""
        stood = self._since_us is None
        if stood:
            self._since_us = now_us
        return stood

    def leave_out(self) -> None:
        """Nothing was to be sent since the last reading: stand still until there is."""
        self._since_us = None

    def read(self, now_us: int) -> float:
        """Seconds observed so far, up to now unless the clock stands still."""
        if self._since_us is not None:
            self._total_us += max(0, now_us - self._since_us)
            self._since_us = now_us
        return self._total_us / 1e6


class BlockingMeter:
    """Cumulative time for which a splitter has waited for each replica; at most one at a time."""

    def __init__(self) -> None:
        self._total_s: dict[int, float] = {}
        self._waiting_for: int | None = None
        self._since_s = 0.0

    def wait(self, replica: int, now_s: float) -> None:
        """The splitter cannot go on before this replica has room; a second call moves the clock and nothing else."""
        self.go_on(now_s)
        self._waiting_for, self._since_s = replica, now_s

    def go_on(self, now_s: float) -> None:
        """The splitter sends again."""
        if self._waiting_for is not None:
            waited = max(0.0, now_s - self._since_s)
            self._total_s[self._waiting_for] = self._total_s.get(self._waiting_for, 0.0) + waited
            self._waiting_for = None

    def read(self, replicas: Sequence[int], now_s: float) -> tuple[float, ...]:
        """Totals up to now, a wait that still goes on included."""
        if self._waiting_for is not None:
            self.wait(self._waiting_for, now_s)
        return tuple(self._total_s.get(replica, 0.0) for replica in replicas)
