"""Which workers can share memory: a machine's identity, as data that travels with a worker's place.

Equal boot identities are the same kernel, whatever the hosts are called. Inside one kernel, containers may still keep
processes apart: a segment's liveness needs the same process numbers, and its address the same network namespace.
"""

from __future__ import annotations

import contextlib
import platform
from dataclasses import dataclass
from pathlib import Path

NAMESPACES = ("ipc", "pid", "net")


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Where a worker runs and listens; workers of the same `machine` can share memory, those without one cannot."""

    index: int
    node: str
    host: str
    port: int
    machine: str = ""


def boot_id() -> str:
    """Equal for all processes of one machine, whatever they call it."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return platform.node()


def namespace(kind: str) -> str:
    """Equal for all processes of one machine in this namespace, such as "pid"; empty where that cannot be told."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/self/ns/{kind}").readlink())
    return ""


def namespaces() -> str:
    """Equal for all processes of one machine that can share memory; empty where that cannot be told."""
    try:
        return " ".join(str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in NAMESPACES)
    except OSError:
        return ""


def identity(boot: str, spaces: str) -> str:
    """What is equal for two workers exactly when they can share memory; empty when they must not try."""
    return f"{boot} {spaces}" if boot and spaces else ""


def own_identity() -> str:
    """This process's."""
    return identity(boot_id(), namespaces())
