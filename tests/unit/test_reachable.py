"""Folders that executors must see, decided without any."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.deploy.line.messages import Hello
from penstock.deploy.worker.reachable import remove_probes, sink_probes, source_probes, unseen, unseen_faults
from penstock.errors import InvalidInput
from penstock.run.operators.sinks.plain import Parquet

HELLO = Hello(0, 2, "10.0.0.3:77", "10.0.0.3", 1, 2, 3, "boot", "ipc", "3.11", "26", 1000.0)


def test_a_worker_says_what_it_does_not_see(tmp_path: Path) -> None:
    probes = [
        *source_probes([("rows", str(tmp_path / "missing"))]),
        *sink_probes([("out", str(tmp_path / "o"))], "j1", 1),
    ]
    assert unseen(probes) == (0,)
    faults = unseen_faults(probes, [HELLO, replace(HELLO, worker=1, unseen=unseen(probes))])
    assert len(faults) == 1
    assert "source 'rows' reads" in faults[0]
    assert "1 of 2 workers" in faults[0]
    assert "a path that every node reaches" in faults[0]


def test_what_was_put_there_to_be_seen_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    probes = [*source_probes([("rows", str(tmp_path / "data"))]), *sink_probes([("out", str(tmp_path))], "j1", 1)]
    assert unseen(probes) == ()
    remove_probes(probes)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert unseen(probes) == (1,)


def test_what_an_attempt_leaves_behind_hides_nothing_from_the_next(tmp_path: Path) -> None:
    first, second = (sink_probes([("out", str(tmp_path))], "j1", attempt) for attempt in (1, 2))
    remove_probes(first)  # what is left of an attempt goes beside the next
    assert unseen(second) == ()


def test_a_folder_that_the_driver_cannot_make_is_taken_at_its_word(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert sink_probes([("out", str(tmp_path / "file" / "out"))], "j1", 1) == []


def test_relative_paths_mean_the_folder_in_which_the_topology_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.csv").write_text("n\n1\n")
    monkeypatch.chdir(tmp_path)
    source, sink = ps.io.files("given", format="csv"), ps.io.parquet("out")
    monkeypatch.chdir(os.sep)
    made = sink.make(source.schema)
    assert isinstance(made, Parquet)
    assert made.path == sink.facts.folder == str(tmp_path / "out")
    assert source.facts.files == (str(tmp_path / "given" / "a.csv"),)


def test_a_streaming_frame_is_refused_with_another_way() -> None:
    class Streaming:
        isStreaming = True  # as PySpark has it

    with pytest.raises(InvalidInput, match=r"streaming DataFrame.*foreachBatch.*ps\.io\.files"):
        ps.io.dataframe(Streaming(), "n bigint")
