"""`penstock import`: what it writes is what `penstock place` takes, and a mistake is one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import cli

IMPORTED = Path(__file__).parents[1] / "imported"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def invoke(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, arguments)])
        status = cli.run_command()
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return invoke


@pytest.mark.parametrize(("system", "tasks"), [("storm", 9), ("flink", 21)])
def test_what_is_imported_can_be_placed(run: Run, tmp_path: Path, system: str, tasks: int) -> None:
    profile, topology, plan = (tmp_path / name for name in ("profile.json", "topology.json", "plan.json"))
    status, out, _ = run("import", system, IMPORTED / system, "-o", profile, "--topology-out", topology)
    assert status == 0
    assert f"{tasks} tasks" in out
    assert "note: " in out
    status, out, _ = run(
        *("place", topology, "3x4", "--profile", profile, "--scheduler", "t3", "-o", plan, "--format", "json")
    )
    assert status == 0
    placed: Any = json.loads(out)
    assert placed["faults"] == []
    assert len(placed["assignment"]) == tasks
    status, _, _ = run("check", topology, "3x4", "--profile", profile, "--plan", plan)
    assert status == 0


def test_one_document_for_programs(run: Run) -> None:
    status, out, _ = run("import", "storm", IMPORTED / "storm", "--tuple-bytes", "8", "--format", "json")
    assert status == 0
    document: Any = json.loads(out)
    assert sorted(document) == ["notes", "profile", "topology"]
    assert document["topology"]["name"] == "words"
    assert sum(edge["rate"] for edge in document["profile"]["edges"]) == pytest.approx(6110 * 8)
    assert any("8 bytes" in note for note in document["notes"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("storm", "nowhere"), "cannot read nowhere"),
        (("spark", "nowhere"), "there is no event log nowhere"),
        (("spark", "nowhere", "--tasks-max", "0"), "tasks_max is 0; it must be 1 to 4096"),
        (("flink", "ftp://127.0.0.1/"), "is not an address that can be asked"),
        (("flink", IMPORTED / "storm"), "give one answer of /jobs/ID"),
        (("storm", IMPORTED / "flink"), "give one answer of /api/v1/topology/ID"),
        (("flink", IMPORTED / "flink", "--tuple-bytes", "9"), "--tuple-bytes is not for flink"),
        (("spark", "nowhere", "--unknown-load", "1"), "--unknown-load is not for spark; it takes --tasks-max"),
        (("storm", IMPORTED / "storm", "--tuple-bytes", "-1"), "tuple_bytes is -1"),
        (("storm", IMPORTED / "storm", "-o", "no/such/folder.json"), "there is no folder no/such"),
        (("storm", IMPORTED / "storm", "--topology-out", "picture.png"), "is a picture's"),
        (("storm", IMPORTED / "storm", "-o", "one.json", "--topology-out", "./one.json"), "are both one.json"),
        (("kafka", "x"), "'kafka' is not one of 'spark', 'storm', 'flink'"),
    ],
)
def test_mistakes_are_one_line(run: Run, arguments: tuple[str | Path, ...], said: str) -> None:
    status, out, err = run("import", *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
