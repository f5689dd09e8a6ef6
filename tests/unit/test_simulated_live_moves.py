"""Whole workers whose tasks move while the others go on, under a seeded scheduler; planted faults are found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock.run.engine.moves import Moves as WorkerMoves
from penstock.run.engine.task_runner import TaskRunner
from penstock.run.engine.worker_share import EdgeNumbers, RunSettings
from penstock.run.machine.alignment import Alignment
from penstock.run.machine.edge_times import EdgeTimes
from penstock.run.machine.moves import Moves
from penstock_lab.simulate import live_moves
from penstock_lab.simulate import workers as simulated
from penstock_lab.simulate.live_moves import LiveMoves
from penstock_lab.simulate.workers import SimulationFailed

SEEDS = range(200)
SEEDS_PER_TEST = 20

Patch = Callable[[type, str, Any], None]


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_every_seed_ends_with_the_rows_of_its_input_in_order_and_with_all_credit(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        LiveMoves(seed).run()


def test_the_seeds_move_sources_sinks_and_all_tasks_of_a_worker_and_refuse_what_has_ended() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        simulation = LiveMoves(seed)
        note = simulation.history.note

        def noted(now_us: int, worker: int, text: str, note: Callable[[int, int, str], None] = note) -> None:
            seen.update(word for word in ("'came'", "'ended'", "source/", "out/") if "prepare" in text and word in text)
            seen.update(word for word in ("'came'", "'ended'", "'dropped'", "move home") if word in text)
            note(now_us, worker, text)

        simulation.history.note = noted  # type: ignore[method-assign]
        simulation.run()
        seen.update({"moves": simulation.moves})
    assert {"'came'", "'ended'", "'dropped'", "move home", "source/", "out/"} <= seen.keys()
    assert seen["moves"] >= 100


SOME_THAT_LINGER = (*range(248, 256), 354)


def lingering(patch: Patch) -> None:
    """Short jobs whose batches wait for others, so that tasks finish just before a marker, with rows in hand."""
    patch(live_moves, "LENGTHS", (1, 4, 12, 30))
    settings = {"linger_ms": 5.0, "rows_max": 64}
    patch(simulated, "RunSettings", lambda **given: RunSettings(**{**given, **settings}))


def test_what_lingers_of_a_task_that_finishes_before_the_marker_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lingering(monkeypatch.setattr)
    for seed in SOME_THAT_LINGER:
        LiveMoves(seed).run()

    def behind(moves: WorkerMoves, t: int) -> None:
        moves._parts.machine.left(t)
        moves._left.append(t)

    monkeypatch.setattr(WorkerMoves, "_leave_here", behind)
    failed = [str(found).splitlines()[0] for seed in SOME_THAT_LINGER if (found := failure_of(seed)) is not None]
    assert any("which it has left" in line for line in failed), failed


# -- planted faults ----------------------------------------------------------------------------------------------------


def routes_without_versions(patch: Patch) -> None:
    """Old and new routes have one number."""
    of = EdgeNumbers.of
    patch(EdgeNumbers, "of", lambda numbers, stream, i, j, moves=0: of(numbers, stream, i, j, 0))


def new_routes_do_not_wait(patch: Patch) -> None:
    """What comes along a new route is let in before the old one has brought all."""

    def hold(alignment: Alignment, edge: int) -> None:
        alignment.aside_bytes[edge] = 0

    patch(Alignment, "hold", hold)


def senders_switch_late(patch: Patch) -> None:
    """A sender goes on along the old route behind the marker."""
    patch(TaskRunner, "lead", lambda runner, t, routes: None)


def times_begin_anew(patch: Patch) -> None:
    """Event time of a new route does not wait for what its old one has brought."""
    pass_on = EdgeTimes.pass_on

    def ahead(times: EdgeTimes, old: int | None, new: int) -> None:
        pass_on(times, old, new)
        if old is not None:
            times._marks[new] = 1 << 60

    patch(EdgeTimes, "pass_on", ahead)


def drops_are_forgotten(patch: Patch) -> None:
    """A move of which nothing comes happens all the same."""
    patch(Moves, "drop", lambda moves: 0)


def ends_are_not_told(patch: Patch) -> None:
    """A sender that finishes before the marker ends its old route alone."""
    patch(Moves, "still_to_switch", lambda moves, t: [])


FAULTS: dict[str, tuple[Callable[[Patch], None], str]] = {
    "routes without versions": (routes_without_versions, r"."),
    "new routes do not wait": (new_routes_do_not_wait, r"."),
    "senders switch late": (senders_switch_late, r"."),
    "times begin anew": (times_begin_anew, r"rows are missing"),
    "drops are forgotten": (drops_are_forgotten, r"."),
    "ends are not told": (ends_are_not_told, r"wait for ever"),
}


def failure_of(seed: int) -> SimulationFailed | None:
    try:
        LiveMoves(seed).run()
    except SimulationFailed as error:
        return error
    return None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, said = FAULTS[fault]
    plant(monkeypatch.setattr)
    failed = next((found for seed in SEEDS if (found := failure_of(seed)) is not None), None)
    assert failed is not None
    assert re.search(said, str(failed).splitlines()[0]), str(failed).splitlines()[0]
