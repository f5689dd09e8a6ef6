"""Sources and sinks tell what the driver asks of them; nobody makes one to look inside."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.deploy.driver.submit import files_read
from penstock.run.contract import MAIN
from penstock.run.endpoints import KEEPS_NOTHING, SinkFacts
from penstock.run.operators.sinks.plain import Collect, Parquet
from penstock.run.operators.sources.files import FilesSource


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    times = pa.array([0, 1], pa.timestamp("us", "UTC"))
    for name in ("b", "a"):
        pq.write_table(pa.table({"at": times, "n": [1, 2], "unused": ["x", "y"]}), tmp_path / f"{name}.parquet")
    return tmp_path


def all_kinds(folder: Path, out: Path) -> ps.Topology:
    top = ps.Topology("all kinds")
    rows = top.source("rows", ps.io.files(folder)).event_time("at")  # wrapped twice, and narrowed to two columns
    counts = rows.key_by("n").count(window=ps.tumbling("1 s"))
    counts.sink("kept", ps.io.collect())
    counts.sink("written", ps.io.parquet(out, mode="overwrite"))
    counts.global_().sink("own tasks", ps.io.parquet(out / "own", mode="errorifexists"))
    counts.sink("called", ps.io.callback(print))
    counts.sink("dropped", ps.io.discard(), tasks=2)
    return top


def test_the_driver_asks_descriptions_and_makes_no_task(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("the driver made a task")

    for kind in (Collect, Parquet, FilesSource):
        monkeypatch.setattr(kind, "__init__", refuse)
    out = folder / "out"
    flow = all_kinds(folder, out).build()
    assert {name: facts for name, (facts, _) in flow.sinks().items()} == {
        "kept": SinkFacts(collects=True),
        "written": SinkFacts(folder=str(out), mode="overwrite"),
        "own tasks": SinkFacts(folder=str(out / "own"), mode="error"),
        "called": SinkFacts(repeats=True),
        "dropped": KEEPS_NOTHING,
    }
    assert [name for name, (facts, _) in flow.sinks().items() if facts.kept] == ["kept", "written", "own tasks"]
    assert files_read(flow, {}) == [str(folder / "a.parquet"), str(folder / "b.parquet")]
    assert flow.operator("rows").outputs[MAIN].names == ["at", "n"]


def test_sources_without_files_say_so() -> None:
    top = ps.Topology("t")
    for name, source in (("g", ps.io.generator(lambda task, tasks: [], "n bigint")), ("r", ps.io.rate(5, rows=1))):
        top.source(name, source).sink(f"{name} out", ps.io.discard())
        assert source.facts == top.build().operator(name).source
        assert source.facts.files == ()
