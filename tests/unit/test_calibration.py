"""Costs of streams: planted ones are found again, real processes are measured and leave, and which costs apply.

No figure of this machine is asserted: `penstock calibrate` prints those.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import cli
from penstock.apps import find_topology
from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster
from penstock.model.costs import DEFAULT_COSTS, DISTANCES, DistanceCost, EndCost, StreamCosts
from penstock.model.files import read_costs
from penstock.model.profile import Profile
from penstock.optimise import calibrated_costs
from penstock.optimise.certificate import sound_problem
from penstock.optimise.fuse.door import fuse
from penstock.run.calibration.cases import NOTHING, READING, Case, cases, fitted, non_negative_least_squares
from penstock.run.calibration.measure import REPEATS, SECONDS, Calibration, NotHere, asked, quiet, taking_turns
from penstock.run.calibration.process import CalibrationFailed, EndProcess

PLANTED = StreamCosts(
    call=DistanceCost(EndCost(2.0), EndCost(2.0)),
    ring=DistanceCost(EndCost(10.0, 1.0, 0.1), EndCost(20.0, 0.0, 0.2)),
    socket=DistanceCost(EndCost(30.0, 2.0, 0.3), EndCost(40.0, 3.0, 0.0)),
)
ALONE = 5e-6  # what a batch takes that nobody reads
PARTS = st.floats(0.0, 100.0)


def planted(case: Case, way: str) -> tuple[float, float]:
    """What both ends take when streams cost as planted."""
    reading = 1e-6 + case.size * 1e-10
    if way in (NOTHING, READING):
        return (ALONE + reading, 0.0) if way == READING else (ALONE, 0.0)
    at = PLANTED.at(next(d for d in DISTANCES if d == way))
    send, receive = (end.cpu(1, case.rows, case.size) for end in (at.send, at.receive))
    receive += reading
    return (ALONE + send + receive, 0.0) if way == "call" else (ALONE + send, receive)


def same(found: StreamCosts, wanted: StreamCosts) -> bool:
    return dict(found.figures()) == pytest.approx(dict(wanted.figures()), rel=1e-6, abs=1e-6)


@given(st.tuples(PARTS, PARTS, PARTS))
def test_planted_parts_are_found(parts: tuple[float, float, float]) -> None:
    cost = EndCost(*parts)
    found = fitted({case: [cost.cpu(1, case.rows, case.size)] * 3 for case in cases()})
    for case in cases():
        assert found.cpu(1, case.rows, case.size) == pytest.approx(
            cost.cpu(1, case.rows, case.size), rel=1e-6, abs=1e-12
        )


@given(st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=4, max_size=8))
def test_least_squares_are_least_among_what_is_not_negative(rows: list[list[float]]) -> None:
    table = np.array(rows)
    matrix, wanted = table[:, :3], table[:, 3]
    found = np.array(non_negative_least_squares(matrix, wanted))
    assert (found >= 0).all()

    def rest(x: np.ndarray) -> float:  # type: ignore[type-arg]
        return float(((matrix @ x - wanted) ** 2).sum())

    grid = itertools.product((0.0, 0.1, 0.5, 1.0, 2.0), repeat=3)
    assert rest(found) <= min(rest(np.array(point)) for point in grid) * (1 + 1e-6) + 1e-6


def test_a_moment_of_noise_changes_nothing() -> None:
    cost = PLANTED.ring.send
    noisy = {case: [cost.cpu(1, case.rows, case.size)] * 2 for case in cases()}
    for repeats in noisy.values():
        repeats.append(1.0)
    assert fitted(noisy).cpu(1, 10, 1000) == pytest.approx(cost.cpu(1, 10, 1000))


def test_all_turns_are_taken_and_the_distances_told_apart() -> None:
    asked_for: list[tuple[Case, str]] = []

    def ask(case: Case, way: str) -> tuple[float, float]:
        asked_for.append((case, way))
        return planted(case, way)

    found = taking_turns(ask, cases(), quiet, lambda: 0.0)
    assert same(found.costs, PLANTED)
    assert found.costs.origin == "measured by penstock calibrate"
    for way in ("ring", "socket"):
        assert [turn for turn in asked_for if turn[1] == way] == [(case, way) for case in cases()] * REPEATS


def test_when_the_time_is_over_every_case_has_been_measured_once() -> None:
    clock = itertools.count(0.0, SECONDS)  # over after the first look
    count = 0

    def ask(case: Case, way: str) -> tuple[float, float]:
        nonlocal count
        count += 1
        return planted(case, way)

    found = taking_turns(ask, cases(), quiet, lambda: next(clock))
    assert count <= 3 * len(cases()) + 2 * len(cases()[::3]) + 1
    assert set(found.send["ring"]) == set(found.receive["socket"]) == set(cases())
    assert same(found.costs, PLANTED)


def test_without_shared_memory_rings_cost_what_sockets_cost_and_a_note_says_why() -> None:
    def ask(case: Case, way: str) -> tuple[float, float]:
        if way == "ring":
            msg = "no room for shared memory"
            raise NotHere(msg)
        return planted(case, way)

    found = taking_turns(ask, cases(), quiet, lambda: 0.0)
    assert found.costs.ring == found.costs.socket
    assert same(found.costs, StreamCosts(PLANTED.call, PLANTED.socket, PLANTED.socket))
    assert "no room for shared memory" in found.notes[0]
    assert found.notes[0] in found.costs.origin


def test_without_sockets_nothing_is_concluded() -> None:
    def ask(case: Case, way: str) -> tuple[float, float]:
        msg = "no sockets"
        raise NotHere(msg)

    with pytest.raises(CalibrationFailed, match="no sockets"):
        taking_turns(ask, cases(), quiet, lambda: 0.0)


def unfolded(text: str) -> str:
    """Without what a console puts between words: where it folds a line depends on how long the paths in it are."""
    return "".join(text.split())


@contextlib.contextmanager
def two_ends() -> Iterator[list[EndProcess]]:
    with contextlib.ExitStack() as running:
        yield [running.enter_context(contextlib.closing(EndProcess())) for _ in range(2)]


def test_real_workers_in_two_processes_are_measured_and_leave() -> None:
    with two_ends() as ends:
        numbers = [end.number for end in ends]
        for way in (NOTHING, READING, "call", "socket", "ring"):
            sent, received = asked(ends, Case(1_000, 10), way)
            assert sent > 0
            assert (received > 0) == (way in ("socket", "ring"))
    assert os.getpid() not in numbers
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_an_end_that_fails_is_told_and_ready_for_the_next_case() -> None:
    with two_ends() as ends:
        with pytest.raises(NotHere, match="division"):
            asked(ends[:1], Case(1_000, 0), "call")
        assert asked(ends, Case(1_000, 10), "call")[0] > 0


def test_an_end_that_is_gone_is_said_to_be() -> None:
    end = EndProcess()
    try:
        os.kill(end.number, 9)
        with pytest.raises(CalibrationFailed, match="ended before it answered"):
            end.answer()
    finally:
        end.close()


class TestWhichCostsApply:
    @pytest.fixture(autouse=True)
    def file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        file = tmp_path / "cache" / "costs.json"
        monkeypatch.setattr(calibrated_costs, "costs_file", lambda: file)
        return file

    def test_a_profile_s_own_then_calibrated_then_default(self) -> None:
        assert calibrated_costs.known_costs() is DEFAULT_COSTS
        assert calibrated_costs.known_costs(Profile()) is DEFAULT_COSTS
        calibrated_costs.keep_costs(PLANTED)
        assert calibrated_costs.known_costs(Profile()) == PLANTED
        own = StreamCosts(origin="the profile's")
        assert calibrated_costs.known_costs(Profile(costs=own)) is own

    def test_what_was_kept_is_forgotten(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        calibrated_costs.keep_costs(PLANTED)
        monkeypatch.setattr("sys.argv", ["penstock", "calibrate", "--forget", "--out", "x.json"])
        assert cli.run_command() == 2
        assert file.exists()
        monkeypatch.setattr("sys.argv", ["penstock", "calibrate", "--forget"])
        for told in (
            f"deleted {file}; default costs apply",
            "no costs were kept for this machine; default costs apply",
        ):
            assert cli.run_command() == 0
            assert unfolded(told) in unfolded(capsys.readouterr().out)
            assert not file.exists()
            assert calibrated_costs.known_costs() is DEFAULT_COSTS

    @pytest.mark.parametrize(
        "text", ["", "{", '{"penstock": 9}', '{"penstock": 1, "ring": {"send": {"batch_us": -1}}}']
    )
    def test_a_damaged_file_is_as_none(self, file: Path, text: str) -> None:
        file.parent.mkdir()
        file.write_text(text)
        assert calibrated_costs.known_costs() is DEFAULT_COSTS

    def test_where_nothing_can_be_kept(self, file: Path) -> None:
        file.parent.write_text("a file in the way")
        with pytest.raises(InvalidInput, match="-o FILE"):
            calibrated_costs.keep_costs(PLANTED)

    @pytest.fixture
    def run(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> Callable[..., tuple[int, str]]:
        def measured(_: object) -> Calibration:
            return taking_turns(planted, cases(), quiet, lambda: 0.0)

        monkeypatch.setattr("penstock.run.calibration.measure.measure_costs", measured)

        def run(*words: str) -> tuple[int, str]:
            monkeypatch.setattr("sys.argv", ["penstock", "calibrate", *words])
            status = cli.run_command()
            said = capsys.readouterr()
            return status, said.out + said.err

        return run

    def test_the_command_keeps_what_it_prints(self, run: Callable[..., tuple[int, str]], file: Path) -> None:
        status, text = run()
        assert status == 0
        assert same(read_costs(file), PLANTED)
        # 1,000 bytes in 62 rows: 10 + 0.062 + 0.1 us to send through a ring, 20 + 0.2 to receive
        line = next(line for line in text.splitlines() if line.startswith("1,000 B, 62 rows"))
        assert line.split()[-4:] == ["10.2", "20.2", "30.4", "40.2"]
        assert unfolded(str(file)) in unfolded(text)

    def test_the_command_writes_where_it_is_told(
        self, run: Callable[..., tuple[int, str]], file: Path, tmp_path: Path
    ) -> None:
        file.parent.write_text("a file in the way: the one that was named is enough")
        out = tmp_path / "costs-here.json"
        status, text = run("-o", str(out), "--format", "json")
        assert status == 0
        assert same(read_costs(out), PLANTED)
        assert json.loads(text)["socket"]["send"]["batch_us"] == pytest.approx(30.0)
        assert run("-o", str(tmp_path / "nowhere" / "x.json"))[0] == 2

    def test_a_plan_says_which_costs_it_was_made_with(self) -> None:
        graph, cluster = find_topology("routes"), Cluster.uniform([(2, 16.0), (2, 8.0)])
        assert sound_problem(graph, cluster, None).graph.costs is DEFAULT_COSTS
        calibrated_costs.keep_costs(replace(PLANTED, origin="planted here"))
        assert sound_problem(graph, cluster, None).graph.costs.origin == "planted here"
        assert "(until then: planted here)" in fuse(graph, cluster, "cola-basic").notes[-1]
