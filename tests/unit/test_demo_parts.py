"""The demonstration's figures and tables, and what it prints where there is no terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from penstock import cli
from penstock.adapt.contract import Decision
from penstock.cli.running.demo import screen
from penstock.cli.running.demo.answer import require_equal
from penstock.cli.running.demo.course import Course, Outcome, Plans
from penstock.cli.running.demo.glimpse import Glimpse
from penstock.cli.running.demo.tables import figures_table, graph_table
from penstock.cli.running.demo.verb import drawn, print_outcome
from penstock.errors import JobFailed
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan, Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import Operator, OperatorGraph, Stream

STREAMS = [("a", "b"), ("b", "c")]
PROFILE = Profile(
    {task: TaskProfile(0.1) for task in ("a/0", "a/1", "b/0", "c/0")},
    (EdgeProfile("a/0", "b/0", 1_000.0), EdgeProfile("a/1", "b/0", 3_000.0), EdgeProfile("b/0", "c/0", 500.0)),
    seconds=2.0,
    rows=400.0,
)
EVEN = {"a/0": Slot("n1", 0), "a/1": Slot("n2", 0), "b/0": Slot("n1", 0), "c/0": Slot("n2", 1)}
BETTER = {**EVEN, "a/1": Slot("n1", 0), "c/0": Slot("n1", 0)}


def seen(scheduler: str, assignment: dict[str, Slot], latency_us: tuple[int, int]) -> Glimpse:
    return Glimpse.of(scheduler, assignment, STREAMS, PROFILE, latency_us)


BEFORE, AFTER = seen("even", EVEN, (20_000, 90_000)), seen("best", BETTER, (0, 0))


def plan(scheduler: str, assignment: dict[str, Slot]) -> Plan:
    return Plan(scheduler, 0, 0.0, 1.0, 0.0, 0.0, False, 2, 0.5, assignment)


GRAPH = OperatorGraph(
    "words", (Operator("a", 2), Operator("b", 1), Operator("c", 1)), (Stream("a", "b"), Stream("b", "c"))
)
PLANS = Plans(GRAPH, Cluster.uniform([(2, 4.0)]), PROFILE, plan("even", EVEN), plan("best", BETTER))


def text(*parts: object) -> str:
    written = io.StringIO()
    console = Console(file=written, width=110)
    for part in parts:
        console.print(part)
    return written.getvalue()


def outcome() -> Outcome:
    decision = Decision(0.0, True, "2 tasks move", BETTER, {"bytes_then": 10.0})
    return Outcome(("a", "b", "c"), PLANS, BEFORE, AFTER, (decision,), 6.25, ("it went over",), 400, 7, 10.0)


def test_a_glimpse_adds_up_what_streams_carry_and_what_of_it_crosses_nodes() -> None:
    """a/1 -> b/0 (3,000) and b/0 -> c/0 (500) are between n1 and n2 under `even`, and nothing is under the other."""
    assert (BEFORE.between_nodes, AFTER.between_nodes) == (3_500.0, 0.0)
    assert BEFORE.traffic["a", "b"].whole == 4_000.0
    assert (BEFORE.nodes, BEFORE.workers) == (["n1", "n2"], 3)
    assert (AFTER.nodes, AFTER.workers) == (["n1"], 1)
    assert BEFORE.tasks_on("a", "n1") == 1
    assert BEFORE.moved_to(AFTER) == ["a/1", "c/0"]
    assert BEFORE.rows_per_second == 200.0
    assert (BEFORE.p50_ms, AFTER.p50_ms) == (20.0, None)  # no row came out


def test_the_tables_say_what_was_and_what_is() -> None:
    lines = text(graph_table(("a", "b", "c"), STREAMS, BEFORE, AFTER)).splitlines()
    assert lines[0].split() == ["tasks", "on", "n1", "n2", "sends", "to", "kB/s", "between", "nodes"]
    assert lines[1].split() == ["a", "1->2", "1->0", "b", "4.0", "3.0->0.0"]
    assert lines[2].split() == ["b", "1", "0", "c", "0.5", "0.5->0.0"]
    assert lines[3].split() == ["c", "0->1", "1->0"]
    figures = text(figures_table(BEFORE, AFTER, 10.0))
    assert "before: even" in figures
    assert "after: best" in figures
    assert figures.splitlines()[1].split()[-3:] == ["3.5", "0.0", "0.0"]
    assert figures.splitlines()[2].split()[-2:] == ["20.0", "-"]


def test_a_moment_in_which_nothing_has_moved_shows_no_change() -> None:
    assert "->" not in text(graph_table(("a", "b", "c"), STREAMS, BEFORE, None), figures_table(BEFORE, None, None))


def test_what_is_no_terminal_gets_lines_without_control_codes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with screen.screen_for(silent=False) as plain:
        plain.show("a moment")
        print_outcome(plain, outcome())
    out = capsys.readouterr().out
    assert "a moment" not in out
    assert "2 of 4 tasks moved while the job ran, 6.2 s after its start." in out
    assert "note: it went over" in out
    assert "\x1b" not in out
    assert out.isascii()


def test_a_terminal_has_the_moment_beneath_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=100, height=30)
    monkeypatch.setattr(screen, "console", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    with screen.screen_for(silent=False) as shown:
        shown.say("a line")
        shown.show("a moment")
    assert "a line" in written.getvalue()
    assert "a moment" in written.getvalue()


def test_programs_get_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    with screen.screen_for(silent=True) as silence:
        silence.say("a line")
        silence.show("a moment")
    assert capsys.readouterr().out == ""
    document = outcome().document()
    assert document["moved"] == ["a/1", "c/0"]
    assert document["foretold"] == {"between_nodes": 10.0}
    assert document["answer"] == {"trips": 400, "rows": 7, "is_spark_sqls": True}


def test_both_plans_are_drawn_unless_the_workers_are_others(tmp_path: Path) -> None:
    assert drawn(tmp_path / "move.png", PLANS) == f"picture: {tmp_path / 'move.png'}"
    assert (tmp_path / "move.png").stat().st_size > 1_000
    assert drawn(tmp_path / "none.png", None).startswith(f"no picture in {tmp_path / 'none.png'}: ")


def test_the_job_of_the_demonstration_may_move_all_tasks_and_rests_while_it_is_watched() -> None:
    course = Course()
    settings = course.adaptation()
    assert (settings.interval_s, settings.goals.what, settings.confirm) == (course.window_s, "bytes", True)
    assert settings.rest_s > 2 * course.behind_s
    assert settings.moves_max >= 45


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([(1, "a")], "1 of 2 rows are missing and 0 are not in it"),
        ([(1, "a"), (2, "b"), (2, "b")], "0 of 2 rows are missing and 1 are not in it"),
        ([(1, "a"), (2, "c")], "1 of 2 rows are missing and 1 are not in it"),
    ],
)
def test_an_answer_that_is_not_spark_sqls_fails(found: list[tuple[int, str]], said: str) -> None:
    expected = [(1, "a"), (2, "b")]
    compare: Callable[..., None] = require_equal
    compare([(2, "b"), (1, "a")], expected)
    with pytest.raises(JobFailed, match=said):
        compare(found, expected)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--master", "local[4]"], "--master is 'local[4]'; the demonstration needs executors of this machine"),
        (["--master", "yarn"], "--master is 'yarn'"),
        (["--rate", "5"], "--rate is 5; give 100 to 1,000,000 trips a second"),
        (["--rate", "nan"], "--rate is nan"),
        (["--rate", "many"], "'many' is not a number"),
        (["--scheduler", "bets"], "unknown scheduler 'bets'"),
        (["--plot", "move.txt"], "picture 'move.txt' ends in '.txt'"),
    ],
)
def test_a_mistake_is_told_before_spark_starts(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["penstock", "demo", *words])
    assert cli.run_command() == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""
