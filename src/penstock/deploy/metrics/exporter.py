"""A page for Prometheus: the sums of a job's metric log, served from the driver while the job runs.

It shows counters, queues and the latency histogram of every task, and the traffic of every pair of tasks, as of the
latest metric interval. A scrape reads existing sums and asks no worker. The page is off unless a port is named, and
bound to loopback unless a host is named. It answers GET /metrics alone. On loopback the caller must ask for a loopback
name, so that a web page elsewhere cannot read it through a browser (DNS rebinding;
`test_only_its_own_page_for_callers_that_mean_this_machine`). Rejected: the client library's global registry, in which
two jobs of one process would mix.
"""

from __future__ import annotations

import ipaddress
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.deploy.metrics.sums import Sums
from penstock.errors import InvalidInput
from penstock.model.task_id import operator_of

LOOPBACK = "127.0.0.1"
REQUEST_SECONDS = 10.0  # a caller that sends its request more slowly is dropped
CLOSE_SECONDS = 5.0
# Upper ends in seconds; our own buckets are 9 % wide, each is counted where its upper end fits.
LADDER_S = tuple(mantissa * 10.0**power for power in range(-5, 2) for mantissa in (1.0, 2.5, 5.0))

_TASK = ("job", "task", "operator", "node", "worker")
_COUNTERS = (  # name, column, unit of the column in the metric's unit, help
    ("cpu_seconds", "cpu_us", 1e-6, "CPU time of the task's own code; sending and receiving are the edges'"),
    ("busy_seconds", "busy_us", 1e-6, "Time of day in the task's code"),
    ("tuples_in", "tuples_in", 1, "Rows taken in"),
    ("tuples_out", "tuples_out", 1, "Rows emitted"),
    ("bytes_out", "bytes_out", 1, "Bytes emitted"),
    ("runs", "runs", 1, "Calls of the task's code"),
    ("late", "late", 1, "Rows behind the watermark or without a time"),
    ("quarantined", "quarantined", 1, "Rows whose function raised and that were set aside"),
    ("blocked_seconds", "blocked_us", 1e-6, "Time without credit to emit"),
)
_EDGE_COUNTERS = (
    ("tuples", "tuples", 1, "Rows sent"),
    ("bytes", "bytes", 1, "Bytes of the rows sent, the same at every distance"),
    ("batches", "batches", 1, "Batches sent"),
    ("send_seconds", "send_us", 1e-6, "CPU time of preparing and sending"),
    ("receive_seconds", "receive_us", 1e-6, "CPU time of taking in and opening"),
    ("transport_seconds", "transport_us", 1e-6, "Time of batches from leaving to arrival"),
    ("queue_seconds", "queue_us", 1e-6, "Time of batches from arrival to being taken by the task"),
)
_WORKER_COUNTERS = (
    ("cpu_seconds", "cpu_us", 1e-6, "CPU time of the worker's thread"),
    ("loop_seconds", "loop_us", 1e-6, "CPU time of the worker that belongs to no task and no edge"),
    ("waiting_seconds", "waiting_us", 1e-6, "Time of day without anything to do"),
    ("delayed_seconds", "delayed_us", 1e-6, "Time for which the worker's thread had work and no core"),
)
_LINK_COUNTERS = (
    ("frames", "frames", 1, "Frames sent to the other worker"),
    ("bytes", "bytes", 1, "Bytes sent to the other worker"),
    ("blocked_seconds", "blocked_us", 1e-6, "Time for which the transport took nothing more"),
)
_GAUGES = (
    ("queue_batches", "Batches that wait for the task"),
    ("queue_bytes", "Bytes that wait for the task"),
    ("idle", "1 while event time goes on without the task"),
)


class JobCollector:
    """Turns the sums of one job into metrics whenever it is asked."""

    def __init__(self, job: str, sums: Callable[[], Sums]) -> None:
        self._job, self._sums = job, sums

    def collect(self) -> Iterator[Metric]:
        """Every metric of the job."""
        sums = self._sums()
        yield from self._of_tasks(sums)
        yield from self._of_edges(sums)
        yield from self._of_workers(sums)
        yield from self._of_links(sums)
        yield self._latency(sums)

    def _of_tasks(self, sums: Sums) -> Iterator[Metric]:
        labels = {
            task: (self._job, task, operator_of(task), str(newest["node"]), str(newest["worker"]))
            for task, newest in sorted(sums.newest.items())
        }
        for name, column, unit, told in _COUNTERS:
            counter = CounterMetricFamily(f"penstock_task_{name}", told, labels=_TASK)
            for task, values in labels.items():
                counter.add_metric(values, sums.tasks[task][column] * unit)
            yield counter
        for name, told in _GAUGES:
            gauge = GaugeMetricFamily(f"penstock_task_{name}", told, labels=_TASK)
            for task, values in labels.items():
                gauge.add_metric(values, float(sums.newest[task][name]))
            yield gauge

    def _of_edges(self, sums: Sums) -> Iterator[Metric]:
        for name, column, unit, told in _EDGE_COUNTERS:
            counter = CounterMetricFamily(f"penstock_edge_{name}", told, labels=("job", "source", "target"))
            for (source, target), counts in sorted(sums.edges.items()):
                counter.add_metric((self._job, source, target), getattr(counts, column) * unit)
            yield counter

    def _of_workers(self, sums: Sums) -> Iterator[Metric]:
        for name, column, unit, told in _WORKER_COUNTERS:
            counter = CounterMetricFamily(f"penstock_worker_{name}", told, labels=("job", "worker"))
            for worker, counts in sorted(sums.workers.items()):
                counter.add_metric((self._job, str(worker)), counts[column] * unit)
            yield counter

    def _of_links(self, sums: Sums) -> Iterator[Metric]:
        labels = ("job", "worker", "peer", "transport")
        for name, column, unit, told in _LINK_COUNTERS:
            counter = CounterMetricFamily(f"penstock_link_{name}", told, labels=labels)
            for (worker, peer), counts in sorted(sums.links.items()):
                values = (self._job, str(worker), str(peer), sums.transports[worker, peer])
                counter.add_metric(values, counts[column] * unit)
            yield counter

    def _latency(self, sums: Sums) -> Metric:
        told = "From source to sink, by rows, at the task that ends the way"
        family = HistogramMetricFamily("penstock_latency_seconds", told, labels=("job", "task"))
        for task, histogram in sorted(sums.latency.items()):
            total_s = sum(latency_us * count for latency_us, count in histogram.items()) / 1e6
            family.add_metric((self._job, task), cumulative(histogram), total_s)
        return family


def cumulative(histogram: Counter[int]) -> list[tuple[str, float]]:
    """Counts up to each step of the ladder, and up to infinity."""
    counts = [0] * (len(LADDER_S) + 1)
    for latency_us, count in histogram.items():
        counts[bisect_left(LADDER_S, latency_us / 1e6)] += count
    ends = [*(f"{end:g}" for end in LADDER_S), "+Inf"]
    return list(zip(ends, map(float, accumulate(counts)), strict=True))


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class names it
        """Log nothing: a scrape comes every few seconds."""


class Exporter:
    """The page of one job, from its making until `close`."""

    def __init__(self, job: str, sums: Callable[[], Sums], port: int, host: str = LOOPBACK) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(JobCollector(job, sums))
        page = make_wsgi_app(registry)
        try:
            self._server = make_server(host, port, _guarded(page, host), _Server, _Handler)
        except (OSError, OverflowError) as error:
            msg = f"metrics cannot be served at {host}:{port}: {error}; name another port, or 0 for any that is free"
            raise InvalidInput(msg) from error
        self.url = f"http://{host}:{self._server.server_port}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="penstock-exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(CLOSE_SECONDS)


def _guarded(page: Callable[..., Any], host: str) -> Callable[..., Iterable[bytes]]:
    """The page for GET /metrics where the Host header names this machine; any other request is refused."""

    def answer(environ: dict[str, Any], start_response: Callable[[str, Sequence[tuple[str, str]]], Any]) -> Any:  # noqa: ANN401
        if is_loopback(host) and not is_loopback(host_name(environ.get("HTTP_HOST", ""))):
            status = "403 Forbidden"
        elif environ["PATH_INFO"] != "/metrics":
            status = "404 Not Found"
        elif environ["REQUEST_METHOD"] != "GET":
            status = "405 Method Not Allowed"
        else:
            return page(environ, start_response)
        start_response(status, [("Content-Type", "text/plain"), ("Content-Length", "0")])
        return [b""]

    return answer


def host_name(header: str) -> str:
    """The name in a Host header, without the port."""
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    return name.strip("[]")


def is_loopback(name: str) -> bool:
    """Whether a name or address means this machine itself."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
