"""The engine's benchmark: its dataflows count right, its rows compare right, peers that are missing are named."""

from __future__ import annotations

import ast
import os
from collections import Counter
from pathlib import Path

import pytest
from worker_kit import LocalJob

import penstock as ps
from penstock.errors import InternalError
from penstock_lab.bench.engine import jobs
from penstock_lab.bench.engine import measure as engine
from penstock_lab.bench.engine import peers as engine_peers
from penstock_lab.bench.engine.measure import Case
from penstock_lab.bench.engine.peers import BYTEWAX, FIRST_TUPLE, SPARK, PeerMissing
from penstock_lab.bench.engine.run import timed_run

LINES = jobs.make_lines(count=200)


@pytest.mark.parametrize("split", [jobs.split_built_in, jobs.split_by_function, jobs.split_and_map])
def test_every_form_of_the_word_count_counts_every_word(split: jobs.Split) -> None:
    top = ps.Topology("words")
    batches = jobs.line_batches(LINES, 100)
    source = ps.io.generator(lambda task, tasks: jobs.cycled(batches, 200, task, tasks), jobs.SCHEMA, tasks=2)
    split(top.source("lines", source)).key_by("word").count(tasks=2).sink("out", ps.io.collect())
    found = {row["word"]: row["count"] for row in LocalJob(top.build(), 2).run().rows("out")}
    assert found == Counter(word for line in LINES for word in line.split())


def test_sources_give_the_rows_that_were_asked_for_and_go_round() -> None:
    batches = jobs.line_batches(LINES, 100)
    given = [batch.num_rows for task in range(2) for batch in jobs.cycled(batches, 1_000, task, 2)]
    assert sum(given) == 1_000


def test_a_peer_that_is_not_installed_is_named_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PeerMissing, match=r"bytewax is not installed.*--install-peers"):
        engine_peers.measured(BYTEWAX, "record", tmp_path / "lines.txt", 10, 1)


def test_every_peer_has_its_script() -> None:
    for peer in (BYTEWAX, SPARK, FIRST_TUPLE):
        ast.parse((engine_peers.SCRIPTS / peer.script).read_text())


def test_a_peer_that_is_missing_is_asked_once_and_the_others_go_on() -> None:
    asked: list[str] = []

    def missing() -> dict[str, float]:
        asked.append("missing")
        msg = "not there"
        raise PeerMissing(msg)

    cases = [
        Case("throughput", "ours", "penstock", lambda: {"words_per_s": 8.0, "cpu_ns_per_word": 5.0}, "grouped", 4.0),
        Case("throughput", "theirs", "bytewax", lambda: {"words_per_s": 2.0, "cpu_ns_per_word": 30.0}, "grouped"),
        Case("throughput", "theirs", "spark", missing, "grouped"),
    ]
    found, skipped = engine._measure(cases, 3, lambda message: None)
    assert asked == ["missing"]
    assert skipped == {"spark, theirs": "not there"}
    rows = engine._throughput(cases, found)
    assert [(row["engine"], row["ratio"], row["cpu_ratio"]) for row in rows] == [
        ("penstock", 4.0, 6.0),
        ("bytewax", None, None),
    ]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork")
def test_a_worker_that_dies_ends_the_measurement_at_once() -> None:
    def die() -> object:
        os._exit(3)

    dataflow = jobs.word_count(jobs.line_batches(LINES, 100), 200, jobs.split_built_in, "end")
    with pytest.raises(InternalError, match="a benchmark worker ended with status 3 and no answer"):
        timed_run(dataflow, jobs.paired(dataflow), at_end=die)
