"""Jobs that crash and go on under a seed: rows of committed epochs are all rows, once; planted faults are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.run.engine.snapshots import Snapshots
from penstock.run.engine.task_runner import TaskRunner
from penstock.run.machine.alignment import Alignment
from penstock.run.machine.credit import Credit
from penstock.run.machine.machine import Machine
from penstock_lab.simulate.survival import Driver, Handed, Survival, survive_seed
from penstock_lab.simulate.workers import SimulationFailed

SEEDS = range(200)
SEEDS_PER_TEST = 20
SEEDS_SEARCHED = 10_000  # for a planted fault


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_every_seed_ends_with_each_row_of_its_input_once(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        survive_seed(seed)


def test_the_seeds_crash_and_go_on_from_epochs_and_with_stale_parts_on_their_way() -> None:
    attempts = epochs = 0
    seen: set[str] = set()
    for seed in range(60):
        survival = Survival(seed)
        note = survival.history.note

        def noted(now_us: int, worker: int, text: str, note: Callable[[int, int, str], None] = note) -> None:
            seen.add(text.split(maxsplit=1)[0])
            if text.startswith("attempt") and not text.endswith(" 0") and " 1 goes" not in text:
                seen.add("restored")
            note(now_us, worker, text)

        survival.history.note = noted  # type: ignore[method-assign]
        epochs += survival.run()
        attempts += survival.driver.attempt
    assert attempts > 70
    assert epochs > 120
    assert {"crash", "restored", "committed", "handed", "hears", "snapshot"} <= seen


def test_a_seed_repeats_itself_to_the_letter() -> None:
    for seed in (4, 11, 40):
        first, second = Survival(seed), Survival(seed)
        assert first.run() == second.run()
        assert str(first.history) == str(second.history)
        assert first.history.digest == second.history.digest


# -- planted faults ----------------------------------------------------------------------------------------------------

Patch = Callable[[type, str, Any], None]


def marker_lost(patch: Patch) -> None:
    """A task that has been saved forgets one of its markers, where it has several."""
    passing = TaskRunner.pass_marker

    def forgetful(runner: TaskRunner, t: int, epoch: int) -> None:
        outbound = runner._outbound[t]
        runner._outbound[t] = outbound[:-1] if len(outbound) > 1 else outbound
        passing(runner, t, epoch)
        runner._outbound[t] = outbound

    patch(TaskRunner, "pass_marker", forgetful)


def released_twice(patch: Patch) -> None:
    """What waited behind a marker is let in twice."""
    saved = Alignment.saved

    def twice(alignment: Alignment, t: int) -> list[Callable[[], None]]:
        came = saved(alignment, t)
        return came + came[:1]

    patch(Alignment, "saved", twice)


def stale_attempt_taken(patch: Patch) -> None:
    """What an attempt that was given up has handed over counts for the one under way."""
    takes = Driver.takes

    def gullible(driver: Driver, handed: Handed, workers: int) -> bool:
        return takes(driver, Handed(driver.attempt, handed.worker, handed.epoch, handed.snapshots), workers)

    patch(Driver, "takes", gullible)


def window_off_by_one(patch: Patch) -> None:
    """The credit of one batch in three is short of a byte, so windows shrink."""
    give = Credit.give_back

    def short(credit: Credit, edge: int, size: int) -> None:
        give(credit, edge, size - (size % 3 == 1))

    patch(Credit, "give_back", short)


def passes_the_marker(patch: Patch) -> None:
    """A batch goes straight to its task although the edge waits behind a marker."""

    def passes(machine: Machine, edge: int, rows: int) -> bool:
        target = machine._straight[edge]
        return target is not None and not machine._tasks[target].inbox and not machine._tasks[target].blocked

    patch(Machine, "passes", passes)


def commits_before_it_is_saved(patch: Patch) -> None:
    """The marker goes on before the task's state is taken, so a task that is called meanwhile is saved too late."""

    def hasty(snapshots: Snapshots) -> None:
        epoch = snapshots._machine.epoch
        if epoch > snapshots._handed_over and snapshots._saved and snapshots._machine.epoch_under_way:
            snapshots._handed_over = epoch
            done, snapshots._saved = dict(snapshots._saved), {}
            found = [done[t] for t in done]
            snapshots._epochs.completed(epoch, found)

    patch(Snapshots, "hand_over", hasty)


FAULTS: dict[str, Callable[[Patch], None]] = {
    "lost marker": marker_lost,
    "double release": released_twice,
    "stale attempt": stale_attempt_taken,
    "window off by one": window_off_by_one,
    "passes the marker": passes_the_marker,
    "commit before snapshot": commits_before_it_is_saved,
}


def failure_of(seed: int) -> SimulationFailed | None:
    try:
        survive_seed(seed)
    except SimulationFailed as error:
        return error
    return None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_repeats_itself(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch.setattr)
    failed = next((found for seed in range(SEEDS_SEARCHED) if (found := failure_of(seed)) is not None), None)
    assert failed is not None
    assert f"survival {failed.seed}" in str(failed)
    assert str(failure_of(failed.seed)) == str(failed)
