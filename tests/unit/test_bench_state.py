"""The benchmark of keyed state: its dataflows count right, its rows compare right, peers that are missing are named."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from flow_kit import rows_of
from worker_kit import LocalJob

import penstock as ps
from penstock_lab.bench.engine import peers as engine_peers
from penstock_lab.bench.engine.peers import PeerMissing, measured
from penstock_lab.bench.state import jobs
from penstock_lab.bench.state import measure as state
from penstock_lab.bench.state.measure import Case

BATCHES = jobs.make_batches(5_000, 50)
ROWS = [row for batch in BATCHES for row in rows_of(batch)]


def collected(operator: type[ps.Stateful]) -> list[tuple]:
    top = ps.Topology("state")
    rows = top.source("rows", ps.io.generator(lambda task, tasks: iter(BATCHES), jobs.SCHEMA))
    rows.event_time("ts").key_by("user").process(operator).sink("out", ps.io.collect())
    return [tuple(row.values()) for row in LocalJob(top.build(), 1).run().rows("out")]


def test_the_counters_count_every_row() -> None:
    counts = Counter(user for user, _ in ROWS)
    assert dict(collected(jobs.Count)) == counts
    each = collected(jobs.CountEach)
    assert len(each) == len(ROWS)
    assert {user: max(n for who, n in each if who == user) for user in counts} == counts


def test_sessions_hold_every_row_once() -> None:
    sessions = collected(jobs.Sessions)
    assert Counter({user: 0 for user, _ in ROWS}) + Counter(user for user, n in sessions for _ in range(n)) == Counter(
        user for user, _ in ROWS
    )


def test_peers_read_the_same_rows(tmp_path: Path) -> None:
    jobs.write_rows(BATCHES, tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert [(user, int(at)) for user, at in (line.split(",") for line in lines)] == ROWS


def test_every_peer_has_its_script_and_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for peer in (state.BYTEWAX, state.SPARK):
        ast.parse((engine_peers.SCRIPTS / peer.script).read_text())
        with pytest.raises(PeerMissing, match=r"is not installed; run: penstock bench state --install-peers"):
            measured(peer, "count", tmp_path / "rows.csv", 10)


def test_our_packages_stand_behind_a_peers_own(tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3" / "site-packages").mkdir(parents=True)
    engine_peers._show_ours(tmp_path)
    (pth,) = tmp_path.rglob("*.pth")
    assert all(line.startswith("import site; site.addsitedir(") for line in pth.read_text().splitlines())


def test_ratios_are_to_the_fastest_peer_of_the_same_kind_and_a_missing_one_is_asked_once() -> None:
    asked: list[str] = []

    def missing() -> dict[str, float]:
        asked.append("missing")
        msg = "not there"
        raise PeerMissing(msg)

    cases = [
        Case("count", "alone", "penstock", lambda: {"cpu_ns_per_row": 3.0}, timed=False),
        Case("count", "job", "penstock", lambda: {"rows_per_s": 8.0, "cpu_ns_per_row": 5.0}),
        Case("count", "stateful_map", "bytewax", lambda: {"rows_per_s": 2.0, "cpu_ns_per_row": 30.0}),
        Case("count", "applyInPandasWithState", "spark", missing),
        Case("sessions", "session windows", "bytewax", lambda: {"rows_per_s": 9.0}),
    ]
    found, skipped = state._measure(cases, 3, lambda message: None)
    assert asked == ["missing"]
    assert skipped == {"spark, applyInPandasWithState, count": "not there"}
    rows = state._throughput(cases, found)
    assert [(row["engine"], row["ratio"], row["cpu_ratio"], row["aim"]) for row in rows] == [
        ("penstock", None, 10.0, 500_000),
        ("penstock", 4.0, 6.0, 500_000),
        ("bytewax", None, None, None),
        ("bytewax", None, None, None),
    ]
    assert [row["k rows/s"] for row in state._shown(rows)] == [None, "0.008", "0.002", "0.009"]
    assert state._thousands(1_234_567) == "1,235"
    assert state._by_length(10)[0]["among"] == "100 elements"
