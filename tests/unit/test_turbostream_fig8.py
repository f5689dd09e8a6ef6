"""Figure 8: verdicts follow the numbers, what is missing is said, and all three files are written.

What measures is a stand-in that makes latencies up, so these tests are about the pages and not about the transports.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock_lab.bench.ipc import measure as ipc
from penstock_lab.bench.ipc.cases import KB, Case, Outcome
from penstock_lab.reproduce.turbostream_fig8 import (
    COLUMNS,
    NETTY,
    NETTY_EPOLL,
    NETTY_US,
    RING,
    Effort,
    Take,
    TransportFigure,
)

Latency = Callable[[str, Case], float | None]


def made_up(latency: Latency, **skipped: str) -> Take:
    """A stand-in for measuring: the latency of each transport and case, and why others are missing."""

    def take(
        transports: Sequence[str],
        cases_of: Callable[[str], Sequence[Case]],
        rounds: int,
        progress: Callable[[str], None],
    ) -> ipc.Results:
        results = ipc.Results(skipped={name.replace("_", ", "): why for name, why in skipped.items()})
        for transport in transports:
            for case in cases_of(transport):
                progress(f"{transport} {case}")
                mean = latency(transport, case)
                if mean is not None:
                    results.taken[transport, case] = [Outcome(mean, 0.9 * mean, 4 * mean, None, 0.01)] * rounds
        return results

    return take


def as_published(transport: str, case: Case) -> float:
    """Latencies that agree with everything that the paper says."""
    ring = 20 + case.size / (10 * KB)
    if case.ring_bytes and case.ring_bytes < 20 * case.size and case.rate == 3000:
        ring *= 3
    if transport == RING:
        return ring
    return NETTY_US[case.size] if case.rate == 3000 else 2 * ring


def quiet(done: int, total: int, text: str) -> None:
    assert 0 <= done <= total
    assert text


def words(take: Take, folder: Path) -> dict[str, str]:
    report = TransportFigure().run(folder, quiet, take=take, effort=Effort(rounds=2))
    return {statement.text: verdict.word for statement, verdict in report.verdicts}


def test_every_statement_holds_where_the_figures_are_the_papers(tmp_path: Path) -> None:
    found = words(made_up(as_published), tmp_path)
    assert set(found.values()) == {"holds"}
    assert len(found) == 13
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".md", ".png"]
    with (tmp_path / "turbostream-fig8.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert {(row["sweep"], row["transport"]) for row in rows} == {
        (sweep, name) for sweep in "ab" for name in (RING, NETTY, NETTY_EPOLL)
    } | {("c", RING)}
    assert all(float(row["mean_us"]) > 0 for row in rows)
    page = (tmp_path / "turbostream-fig8.md").read_text()
    assert "| 40 KB | 3,000/s | 24.0 | 192,360.0 | 100.0 % |" in page


def test_a_netty_that_does_not_queue_differs_and_one_slow_point_breaks_the_least_reduction(tmp_path: Path) -> None:
    def modern(transport: str, case: Case) -> float:
        slow = transport == RING and case.size == 160 * KB
        return 39.0 if slow else 20.0 if transport == RING else 40.0

    found = words(made_up(modern), tmp_path)
    assert found["the greatest reduction reaches 99.3 %"] == "differs"
    assert found["no point's reduction is below 45.64 %"] == "differs"
    assert found["Netty's latency is high at 3,000/s, where its send buffer queues, 40 KB"] == "differs"
    assert found["Netty takes 192.36 ms at 3,000/s, 40 KB"] == "differs"
    assert found["Netty's latency remains about two times ours from 10 to 320 KB at 100/s"] == "differs"
    assert found["the ring's latency stays low up to 3,000/s, 10 KB"] == "holds"
    assert found["a small ring has high latency, 10 KB"] == "differs"
    assert "2.5 % (160 KB at 100/s) to 50.0 % over 16 points" in (tmp_path / "turbostream-fig8.md").read_text()


@pytest.mark.parametrize("slow", [51.2, 102.4])
def test_a_ring_size_is_advised_only_if_each_of_its_rings_is_as_good_as_the_best(tmp_path: Path, slow: float) -> None:
    def one_is_slow(transport: str, case: Case) -> float:
        return as_published(transport, case) * (1.5 if case.ring_bytes == int(slow * case.size) else 1)

    found = words(made_up(one_is_slow), tmp_path)
    assert {found[f"a ring of 50 to 100 messages is large enough, {size} KB"] for size in (10, 40)} == {"differs"}


def test_without_a_jdk_the_page_says_what_is_missing(tmp_path: Path) -> None:
    def ring_only(transport: str, case: Case) -> float | None:
        return as_published(transport, case) if transport == RING else None

    found = words(made_up(ring_only, netty="no javac on PATH", netty_epoll="no javac on PATH"), tmp_path)
    page = (tmp_path / "turbostream-fig8.md").read_text()
    assert found["no point's reduction is below 45.64 %"] == "not run"
    assert found["a ring of 50 to 100 messages is large enough, 40 KB"] == "holds"
    assert "netty was not measured: no javac on PATH." in page
    assert (tmp_path / "turbostream-fig8.png").read_bytes()[:4] == b"\x89PNG"


def test_where_nothing_could_be_measured_there_is_still_a_page(tmp_path: Path) -> None:
    found = words(made_up(lambda transport, case: None, ring="no shared memory"), tmp_path)
    assert set(found.values()) == {"not run"}
    with pytest.raises(AssertionError):
        quiet(2, 1, "beyond the end")
