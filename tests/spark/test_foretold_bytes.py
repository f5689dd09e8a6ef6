"""Measure, place, measure: what a plan of a profile foretells to pass between nodes is what passes there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import command_line

MASTER = "local-cluster[2,2,1024]"
WITHIN = 0.05
ROWS = 60_000


def rows_of(task: int, tasks: int) -> Iterator[tuple[int, str]]:
    return ((i % 97, f"row {i}") for i in range(task, ROWS, tasks))


def spanning() -> ps.Topology:
    top = ps.Topology("spanning")
    rows = top.source("rows", ps.io.generator(rows_of, "k bigint, text string", tasks=2))
    counts = rows.where("k > 9", name="kept", tasks=2).key_by("k").count(name="counts", tasks=2)
    counts.sink("out", ps.io.collect())
    return top


def penstock(*words: str) -> str:
    """What the program prints, in this process and in its session."""
    done = CliRunner().invoke(command_line(), list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("spark", [MASTER], indirect=True)
def test_bytes_between_nodes_are_what_the_plan_of_a_profile_foretold(spark: SparkSession, tmp_path: Path) -> None:
    log, profile, limits = tmp_path / "m", tmp_path / "p.json", tmp_path / "limits.json"
    # Readers and counters are kept apart, so that every plan has something to send from one node to the other.
    limits.write_text('{"constraints": [{"type": "separate-nodes", "operators": ["rows", "counts"]}]}')
    run = ("run", f"{__file__}:spanning", "--master", MASTER, "--workers", "3")

    def told(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(penstock(*run, *words, "--format", "json"))
        return found

    first = told("--scheduler", "even", "--metrics", str(log))
    assert first["between_nodes"]["predicted"] is None
    penstock("profile", str(log), "-o", str(profile))
    for words in (("--scheduler", "t3"), ("--fuse", "cola")):
        found = told(*words, "--profile", str(profile), "--constraints", str(limits))
        between = found["between_nodes"]
        assert between["measured"] > 0, found["plan"]
        assert between["predicted"] == pytest.approx(between["measured"], rel=WITHIN)
        assert between["predicted_by"] == "profile"
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(found["plan"]))
    printed = penstock(*run[:4], "--plan", str(plan))
    assert "between nodes: " in printed
    assert "B/s, the plan foretold " in printed
    assert "(its own word: no --profile to compute it from)" in " ".join(printed.split())
