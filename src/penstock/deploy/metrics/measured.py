"""What a job's users can ask of its metric log."""

from __future__ import annotations

import pyarrow as pa

from penstock.deploy.metrics.metric_log import MetricLog
from penstock.deploy.metrics.recent import Window
from penstock.deploy.metrics.sums import Sums


class Measured:
    """Something that keeps a metric log: a job."""

    _log: MetricLog

    def metrics(self, table: str = "tasks") -> pa.Table:
        """The latest rows of a table of the metric log: `tasks`, `edges`, `workers`, `decisions` and so on."""
        return self._log.latest(table)

    def sums(self) -> Sums:
        """What the metric log adds up to since the start, by task, pair of tasks, worker and connection; a copy."""
        return self._log.sums()

    def totals(self) -> dict[str, dict[str, int]]:
        """CPU microseconds, tuples and bytes of each task since the start."""
        return self._log.totals()

    def latency_us(self, fraction: float, window: Window | None = None) -> int:
        """A percentile of the end-to-end latency of rows since the start, or in a window such as "60 s"."""
        return self._log.latency_us(fraction, window)

    @property
    def worked(self) -> tuple[float, float] | None:
        """From when to when workers have measured their work, in seconds since 1970; None before their first report."""
        return self._log.sums().worked
