"""Why a worker whose number is taken already has no place in a job. Pure."""

from __future__ import annotations

from penstock.deploy.line.messages import Hello


def came_back(earlier: Hello, late: Hello) -> str:
    """Spark has started its task anew."""
    return (
        f"{earlier.process} died at work and Spark started it again as process {late.pid}; what it had handed over "
        "cannot be taken back, so the job ends"
    )


def one_too_many(earlier: Hello, late: Hello) -> str:
    """Another process has said the same number."""
    if late.process == earlier.process:
        return f"worker {late.worker} ({late.process}) said hello twice"
    return (
        f"{late.process} says that it is worker {late.worker}, but {earlier.process} has said so before: one of them "
        "is no worker of this job; look for a stranger on the network, and set spark.authenticate"
    )
