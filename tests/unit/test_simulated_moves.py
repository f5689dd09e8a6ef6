"""Jobs that go over to other plans and task counts under a seed and through crashes; planted faults are found.

The seeds that hold are those of `test_survival.py`; here is that they have all that is to be gone through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from penstock.checkpoint.contract import Manifest
from penstock.deploy.attempt.epochs import DriverEpochs
from penstock.run.contract import Owns, TaskContext
from penstock.run.engine.task_runner import TaskRunner
from penstock.run.operators.sources.generated import PositionedSource
from penstock_lab.simulate import crossings
from penstock_lab.simulate.attempts import Driver, SimulatedAttempt
from penstock_lab.simulate.survival import Survival
from penstock_lab.simulate.workers import Layout, SimulationFailed

SEEDS_LOOKED_AT = range(120)
SEEDS_SEARCHED = 10_000
Patch = Callable[[Any, str, Any], None]


def crossings_of(seeds: Sequence[int], patch: Patch) -> Counter[str]:
    """What these seeds' jobs went through, told by what their drivers and workers did."""
    seen: Counter[str] = Counter()
    gone_over, stands, bury = Driver._gone_over, SimulatedAttempt.stands, Survival._bury

    def noted(driver: Driver, epochs: DriverEpochs, attempt: SimulatedAttempt) -> Layout | None:
        before = driver.job
        found = gone_over(driver, epochs, attempt)
        if found is not None:
            seen["crossing"] += 1
            seen["rescale"] += found.job.dataflow != before.dataflow
            seen["other workers"] += found.workers != len(attempt.processes)
            seen["in new processes"] += not attempt.are_over
            seen["of a job that had gone back"] += attempt.number > 1
        return found

    def standing(attempt: SimulatedAttempt, w: int) -> None:
        stands(attempt, w)
        seen["standing"] += 1

    dead: set[int] = set()

    def burying(survival: Survival) -> None:
        for attempt in survival.attempts:
            for process in (attempt.driver.process, *attempt.processes):
                if process.is_dead and attempt.untold and id(process) not in dead:
                    seen[f"{process.name.split()[0]} dies while some stand"] += 1
                    dead.add(id(process))
        bury(survival)

    for where, name, with_notes in (
        (Driver, "_gone_over", noted),
        (SimulatedAttempt, "stands", standing),
        (Survival, "_bury", burying),
    ):
        patch(where, name, with_notes)
    for seed in seeds:
        Survival(seed).run()
    return seen


def test_the_seeds_have_moves_and_rescales_and_deaths_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = crossings_of(SEEDS_LOOKED_AT, monkeypatch.setattr)
    assert seen["crossing"] > 40
    assert seen["rescale"] > 15
    assert seen["other workers"] > 5
    assert seen["in new processes"] > 2
    assert seen["driver dies while some stand"] > 1
    assert seen["worker dies while some stand"] > 3


# -- planted faults ----------------------------------------------------------------------------------------------------


def unread_dropped(patch: Patch) -> None:
    """Sources go on where they stood, and not where the epoch has them: what was on its way by then is dropped."""
    sources: list[PositionedSource] = []
    stood: dict[str, dict[str, bytes]] = {}
    run, opened, stands, put = Survival.run, PositionedSource.open, SimulatedAttempt.stands, PositionedSource.put_state

    def anew(survival: Survival) -> int:
        sources.clear()
        stood.clear()
        return run(survival)

    def noted(source: PositionedSource, context: TaskContext) -> None:
        opened(source, context)
        sources.append(source)

    def standing(attempt: SimulatedAttempt, w: int) -> None:
        stands(attempt, w)
        stood.update({source.context.id: source.take_state() for source in sources})

    def put_back(source: PositionedSource, state: Mapping[str, bytes]) -> None:
        put(source, stood.pop(source.context.id, state))

    patch(Survival, "run", anew)
    patch(PositionedSource, "open", noted)
    patch(SimulatedAttempt, "stands", standing)
    patch(PositionedSource, "put_state", put_back)


def counts_before_it_commits(patch: Patch) -> None:
    """An epoch counts for whoever waits for it before its manifest is written, which may come to nothing."""
    commit = DriverEpochs._commit

    def hasty(epochs: DriverEpochs, manifest: Manifest, committed: Callable[[], None]) -> None:
        before, epochs.committed = epochs.committed, manifest
        for asked in epochs._asked:
            asked.is_begun, asked.saved, asked.is_done = True, manifest, True
        epochs.committed = before if not epochs._asked else manifest
        commit(epochs, manifest, committed)

    patch(DriverEpochs, "_commit", hasty)


def keys_of_others_kept(patch: Patch) -> None:
    """A task of an operator that was rescaled keeps the keys of all that there were."""
    put_back = TaskRunner.put_back

    def greedy(runner: TaskRunner, t: int, states: Sequence[Mapping[str, bytes]], owns: Owns | None) -> None:
        def all_are_ours(rows: Any, keys: Sequence[str]) -> Any:  # noqa: ANN401 # of any batch
            mine = owns(rows, keys) if owns is not None else None
            return mine if mine is None else mine | True

        put_back(runner, t, states, None if owns is None else all_are_ours)

    patch(TaskRunner, "put_back", greedy)


def goes_over_without_standing(patch: Patch) -> None:
    """The next attempt begins under the number of the one before, whose workers still write."""
    gone_over = Driver._gone_over

    def hasty(driver: Driver, epochs: DriverEpochs, attempt: SimulatedAttempt) -> Layout | None:
        wish = driver.wish
        if wish is None or attempt.is_ending:
            return gone_over(driver, epochs, attempt)
        driver.wish, driver.is_asked = None, False
        driver._world.give_up(attempt)
        return wish.layout(driver.job, len(attempt.processes))

    patch(Driver, "_gone_over", hasty)


FAULTS = {
    "unread dropped": unread_dropped,
    "counts before it commits": counts_before_it_commits,
    "keys of others kept": keys_of_others_kept,
    "goes over without standing": goes_over_without_standing,
}


def failure_of(seed: int) -> SimulationFailed | None:
    try:
        Survival(seed).run()
    except SimulationFailed as error:
        return error
    return None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_moves_is_found_and_repeats_itself(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossings, "CROSSINGS", (3, 8))
    FAULTS[fault](monkeypatch.setattr)
    failed = next(filter(None, map(failure_of, range(SEEDS_SEARCHED))), None)
    assert failed is not None
    assert f"survival {failed.seed}" in str(failed)
    assert str(failure_of(failed.seed)) == str(failed)
