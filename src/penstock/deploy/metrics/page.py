"""The page for Prometheus, where a job was asked for one: without it nobody pays for the import of an HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.deploy.metrics.sums import Sums

if TYPE_CHECKING:
    from penstock.deploy.metrics.exporter import Exporter


def served(at: tuple[str, int] | None, job: str, sums: Callable[[], Sums]) -> Exporter | None:
    """The page at this host and port; InvalidInput where the port is taken."""
    if at is None:
        return None
    from penstock.deploy.metrics.exporter import Exporter

    return Exporter(job, sums, at[1], at[0])
