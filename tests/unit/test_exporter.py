"""The page for Prometheus: what it says, to whom, and for how long."""

from __future__ import annotations

import http.client
import socket
from collections import Counter
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.deploy.metrics.exporter import LADDER_S, Exporter, cumulative, host_name, is_loopback
from penstock.deploy.metrics.sums import SUMMED, EdgeSums, Sums
from penstock.errors import InvalidInput

NASTY = 'a"b\\c\n<script>/0'


def some_sums() -> Sums:
    counts = dict(zip(SUMMED, (2_500_000, 3_000_000, 10, 20, 30, 4, 500_000, 1_000_000, 5, 6), strict=True))
    newest: dict[str, int | str] = {"queue_batches": 3, "queue_bytes": 300, "worker": 1, "node": "n1", "idle": False}
    edge = EdgeSums(7, 70, 2, 3_000_000, 4_000_000, 500_000, 250_000, 1_000_000, "ring")
    workers = {1: {"cpu_us": 9_000_000, "loop_us": 1_000_000, "waiting_us": 2_000_000, "delayed_us": 3_000_000}}
    return Sums({NASTY: counts}, {NASTY: newest}, {(NASTY, "b/1"): edge}, workers, {"b/1": Counter({900: 2})})


def ask(url: str, *, host: str | None = None, path: str | None = None, method: str = "GET") -> tuple[int, str]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    connection.putrequest(method, path or where.path, skip_host=host is not None)
    if host:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_every_number_has_its_labels_and_nasty_names_stay_names() -> None:
    page = Exporter("job", some_sums, 0)
    try:
        status, text = ask(page.url)
    finally:
        page.close()
    assert status == 200
    samples = {
        (s.name, *sorted(s.labels.items())): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }
    task = (("job", "job"), ("node", "n1"), ("operator", NASTY[:-2]), ("task", NASTY), ("worker", "1"))
    assert samples["penstock_task_cpu_seconds_total", *task] == 2.5
    assert samples["penstock_task_busy_seconds_total", *task] == 3
    assert samples["penstock_task_tuples_in_total", *task] == 10
    assert samples["penstock_task_blocked_seconds_total", *task] == 0.5
    assert samples["penstock_task_queue_bytes", *task] == 300
    assert samples["penstock_task_late_total", *task] == 5
    assert samples["penstock_task_quarantined_total", *task] == 6
    assert samples["penstock_task_idle", *task] == 0
    edge = (("job", "job"), ("source", NASTY), ("target", "b/1"))
    assert samples["penstock_edge_bytes_total", *edge] == 70
    assert samples["penstock_edge_batches_total", *edge] == 2
    assert samples["penstock_edge_send_seconds_total", *edge] == 3
    assert samples["penstock_edge_receive_seconds_total", *edge] == 4
    assert samples["penstock_edge_transport_seconds_total", *edge] == 0.5
    assert samples["penstock_edge_queue_seconds_total", *edge] == 0.25
    worker = (("job", "job"), ("worker", "1"))
    assert samples["penstock_worker_cpu_seconds_total", *worker] == 9
    assert samples["penstock_worker_loop_seconds_total", *worker] == 1
    assert samples["penstock_worker_waiting_seconds_total", *worker] == 2
    assert samples["penstock_worker_delayed_seconds_total", *worker] == 3
    at = (("job", "job"), ("task", "b/1"))
    assert samples["penstock_latency_seconds_count", *at] == 2
    assert samples["penstock_latency_seconds_sum", *at] == pytest.approx(0.0018)
    assert samples["penstock_latency_seconds_bucket", ("job", "job"), ("le", "0.0005"), ("task", "b/1")] == 0
    assert samples["penstock_latency_seconds_bucket", ("job", "job"), ("le", "0.001"), ("task", "b/1")] == 2


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:99"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:80"}, 403),
        ({"host": ""}, 403),
        ({"path": "/"}, 404),
        ({"path": "/metrics/../etc/passwd"}, 404),
        ({"path": "/%2e%2e/metrics"}, 404),
        ({"method": "POST"}, 405),
        ({"method": "DELETE"}, 405),
    ],
)
def test_only_its_own_page_for_callers_that_mean_this_machine(request_: dict[str, str], status: int) -> None:
    page = Exporter("job", some_sums, 0)
    try:
        assert ask(page.url, **request_)[0] == status  # type: ignore[arg-type]
    finally:
        page.close()


def test_a_closed_page_frees_its_port_and_a_taken_port_is_said() -> None:
    page = Exporter("job", some_sums, 0)
    port = urlsplit(page.url).port
    assert port is not None
    with pytest.raises(InvalidInput, match=rf"cannot be served at 127.0.0.1:{port}: .*; name another port, or 0"):
        Exporter("job", some_sums, port)
    page.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with pytest.raises(InvalidInput, match="cannot be served"):
        Exporter("job", some_sums, 70_000)


@given(st.dictionaries(st.integers(0, 10**8), st.integers(1, 1000)))
def test_the_ladder_counts_every_batch_once(histogram: dict[int, int]) -> None:
    found = cumulative(Counter(histogram))
    for (end, count), limit in zip(found, [*LADDER_S, float("inf")], strict=True):
        assert count == sum(n for latency_us, n in histogram.items() if latency_us / 1e6 <= limit), end


def test_loopback_is_told_from_names() -> None:
    assert [host_name(h) for h in ("a:80", "a", "[::1]:9", "::1", "")] == ["a", "a", "::1", ":", ""]
    assert [is_loopback(n) for n in ("127.0.0.9", "::1", "localhost", "10.0.0.1", "x")] == [True] * 3 + [False] * 2
