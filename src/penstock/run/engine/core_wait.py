"""For how long a thread has waited for a core: what tells a worker that is slowed from one that has little to do.

Linux counts it for every thread (`schedstat`: nanoseconds that it ran, nanoseconds in which it could have run and had
no core). What a control group's quota takes is among it; a user's function that sleeps is not. Elsewhere nothing is
known, and nothing is said. To read it takes some 20 us, once an interval.
Rejected: time of day less CPU time less idle time, which counts functions that sleep, and misses what is lost between
a wake-up and the core.
"""

from __future__ import annotations

from contextlib import suppress

SCHEDSTAT = "/proc/thread-self/schedstat"


def waited_ns(path: str = SCHEDSTAT) -> int | None:
    """Of the calling thread, since it began; None where nobody counts it."""
    with suppress(OSError, ValueError, IndexError), open(path, "rb", buffering=0) as file:
        return int(file.read().split()[1])
    return None
