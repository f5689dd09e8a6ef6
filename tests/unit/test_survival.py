"""Jobs that crash and go on under a seed: rows of committed epochs are all rows, once; planted faults are found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from penstock.checkpoint import files, publication
from penstock.checkpoint.contract import Manifest, Report
from penstock.checkpoint.coordinator import Coordinator, Whole
from penstock.checkpoint.files import LocalFiles, Piece
from penstock.checkpoint.saved_parts import SavedParts
from penstock.checkpoint.shown_log import ShownLog
from penstock.checkpoint.store import Store
from penstock.deploy.attempt.epochs import DriverEpochs
from penstock.model.task_id import tasks_of_operator
from penstock.run.engine import snapshots as engine
from penstock.run.engine.snapshots import Snapshots
from penstock.run.engine.task_runner import TaskRunner
from penstock.run.machine.alignment import Alignment
from penstock.run.machine.credit import Credit
from penstock.run.machine.machine import Machine
from penstock_lab.simulate import returns, survival
from penstock_lab.simulate.survival import Survival, survive_seed
from penstock_lab.simulate.workers import SimulationFailed

SEEDS = range(200)
SEEDS_PER_TEST = 20
SEEDS_SEARCHED = 10_000  # for a planted fault


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_every_seed_ends_with_each_row_of_its_input_once(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        survive_seed(seed)


def test_tasks_that_are_no_sources_finish_in_one_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut goes through all their inputs at once, so nobody goes on with the numbers or rows of one that has."""
    committed: list[Manifest] = []
    commit = Store.commit

    def noted(store: Store, manifest: Manifest) -> None:
        commit(store, manifest)
        committed.append(manifest)

    monkeypatch.setattr(Store, "commit", noted)
    seen: Counter[str] = Counter()
    for seed in range(60):
        survival = Survival(seed)
        survival.run()
        for operator in survival.job.dataflow.operators:
            for manifest in committed:
                tasks = set(tasks_of_operator(operator.name, manifest.tasks.get(operator.name, 0)))
                finished = tasks & {task for part in manifest.parts for task in part.finished}
                how = "all" if finished == tasks else "some" if finished else "none"
                seen[f"{how} of a {'source' if operator.role == 'source' else 'reader'}"] += len(tasks) > 1
        committed.clear()
    assert seen["some of a reader"] == 0
    assert min(seen[f"{how} of a source"] for how in ("all", "some", "none")) > 0, seen
    assert min(seen[f"{how} of a reader"] for how in ("all", "none")) > 0, seen


def events_of(seeds: Sequence[int]) -> Counter[str]:
    """How often each kind of event comes, by its first word, and for crashes by what crashes."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        survival = Survival(seed)
        note = survival.history.note

        def noted(now_us: int, number: int, text: str, note: Callable[[int, int, str], None] = note) -> None:
            kind, _, what = text.partition(" ")
            seen[kind] += 1
            if kind == "crash":
                seen[" ".join(text.split()[:4])] += 1
            elif kind == "attempt" and "from epoch 0" not in what:
                seen["restored"] += 1
            note(now_us, number, text)

        survival.history.note = noted  # type: ignore[method-assign]
        survival.run()
    return seen


def test_the_seeds_have_everything_that_is_to_be_survived() -> None:
    seen = events_of(range(160))
    assert {"crash of a worker", "crash of the driver", "crash of everything", "crash the power is"} <= set(seen)
    assert {"refused", "stands"} <= set(seen)
    assert seen["begins"] > 25
    assert {"restored", "reports", "hears", "snapshot", "damage", "stalls", "asks", "rename", "link", "put"} <= set(
        seen
    )
    assert seen["attempt"] > 150
    assert seen["restored"] > 25


def test_a_seed_repeats_itself_to_the_letter() -> None:
    for seed in (4, 11, 40):
        first, second = Survival(seed), Survival(seed)
        assert first.run() == second.run()
        assert str(first.history) == str(second.history)
        assert first.history.digest == second.history.digest


def test_a_seed_repeats_itself_in_another_process() -> None:
    command = [sys.executable, "-m", "penstock_lab.simulate.survival", "11"]
    told = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert b" digest " in told[0].splitlines()[-1]


# -- planted faults ----------------------------------------------------------------------------------------------------

Patch = Callable[[Any, str, Any], None]


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
    reported = Coordinator.reported

    def gullible(coordinator: Coordinator, report: Report) -> Whole | None:
        return reported(coordinator, replace(report, attempt=coordinator._attempt))

    patch(Coordinator, "reported", gullible)


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


def ends_twice(patch: Patch) -> None:
    """A worker that has ended hands over later epochs of which it hears."""
    patch(engine, "EPOCH_NEVER", 0)


def manifest_before_parts_last(patch: Patch) -> None:
    """A part is not synced when its worker reports it."""
    write = LocalFiles.write

    def hasty(files: LocalFiles, path: str, pieces: Iterable[Piece]) -> None:
        system = write.__globals__["os"]
        system.fsync = lambda descriptor: None
        try:
            write(files, path, pieces)
        finally:
            del system.fsync

    patch(LocalFiles, "write", hasty)


def published_before_commit(patch: Patch) -> None:
    """A manifest is written behind the publication of its epoch, before old ones are removed."""
    commit, keep = Store.commit, Store.keep
    due: dict[Store, Manifest] = {}

    def late(store: Store, count: int) -> None:
        if store in due:
            commit(store, due.pop(store))
        keep(store, count)

    patch(Store, "commit", lambda store, manifest: due.__setitem__(store, manifest))  # noqa: PLW0108 - binds the store
    patch(Store, "keep", late)


def one_too_many_removed(patch: Patch) -> None:
    """One epoch less is kept than was asked for."""
    keep = Store.keep
    patch(Store, "keep", lambda store, count: keep(store, max(1, count - 1)))


def savepoints_forgotten(patch: Patch) -> None:
    """Parts that a savepoint alone names are removed."""
    patch(SavedParts, "of", lambda saved, names, there: set())


def nothing_withdrawn(patch: Patch) -> None:
    """What was shown of an epoch that is lost stays."""
    for kind in (publication.CollectPublication, publication.ParquetPublication):
        patch(kind, "_withdraw", lambda self, epoch: None)


def claim_ignored(patch: Patch) -> None:
    """An attempt commits although a later one has claimed the store."""
    patch(Store, "require_current", lambda store, attempt: None)


def resumed_behind_a_claim(patch: Patch) -> None:
    """A driver that was taken over before it has resumed takes back what the other has published."""

    @contextmanager
    def open_to_all(store: Store, attempt: int) -> Iterator[None]:
        yield

    patch(Store, "held", open_to_all)


def shown_by_anybody(epochs: DriverEpochs, manifest: Manifest) -> None:
    """An epoch is shown whoever has claimed the store."""
    for name, found in epochs._publications.items():
        with epochs._showing(name):
            found.publish(manifest)


def taken_back_and_shown(patch: Patch) -> None:
    """A driver that was taken over shows an epoch that the other has taken back."""
    patch(DriverEpochs, "_publish", shown_by_anybody)
    often = {"RETURNS_MAX": 6, "ASK_CHANCE": 0.1, "CHANGE_CHANCE": 0.0, "SHOWN_CHANCE": 0.3}
    for name, chance in often.items():
        patch(returns, name, chance)


def removed_when_gone_back_twice(patch: Patch) -> None:
    """The epoch to which a job goes back is taken for one of the line that it leaves."""
    leads_to = Manifest.leads_to
    begin = Store.begin

    def hasty(store: Store, attempt: int, manifest: Manifest) -> Manifest:
        before = store.epochs()
        found = begin(store, attempt, manifest)
        if any(each.epoch == found.epoch and not leads_to(each, manifest) for each in before):
            store._files.remove(f"manifests/{found.epoch:08d}.json")
        return found

    patch(Store, "begin", hasty)


def savepoint_by_who_asks(patch: Patch) -> None:
    """A savepoint is written by the thread of whoever has asked for it, when its turn comes."""
    savepoint = DriverEpochs.savepoint

    def late(epochs: DriverEpochs, name: str, timeout: float) -> Manifest:
        committed = savepoint(epochs, name, timeout)
        epochs.store.savepoint(name, committed)
        return committed

    patch(DriverEpochs, "_save", _told)
    patch(DriverEpochs, "savepoint", late)


def _told(epochs: DriverEpochs, asked: Any, manifest: Manifest) -> None:  # noqa: ANN401 # of a private class
    asked.saved, asked.is_done = manifest, True


def shown_behind_a_claim(patch: Patch) -> None:
    """A driver that was taken over shows files that another has shown meanwhile, or taken back."""
    add = ShownLog.add

    def careless(log: ShownLog, entries: Sequence[str]) -> None:
        log._known = log._layout().latest
        add(log, entries)

    patch(ShownLog, "add", careless)
    patch(DriverEpochs, "_publish", shown_by_anybody)


def error_ignored(patch: Patch) -> None:
    """What the disk refused to write of a part counts as written."""
    write = files._write

    def careless(target: str, pieces: Iterable[Piece]) -> None:
        with suppress(OSError):
            write(target, pieces)

    patch(files, "_write", careless)


REFUSED = {"error ignored"}  # found only where files are refused
KINDS = {"shown behind a claim": ("takeover",)}  # of crashes, where a fault needs one kind
FAULTS: dict[str, tuple[Callable[[Patch], None], int]] = {  # and where the search begins, for those that are rare
    "lost marker": (marker_lost, 0),
    "double release": (released_twice, 0),
    "stale attempt": (stale_attempt_taken, 0),
    "window off by one": (window_off_by_one, 0),
    "passes the marker": (passes_the_marker, 0),
    "commit before snapshot": (commits_before_it_is_saved, 0),
    "handed over behind the end": (ends_twice, 0),
    "manifest before parts last": (manifest_before_parts_last, 0),
    "published before commit": (published_before_commit, 0),
    "one too many removed": (one_too_many_removed, 0),
    "savepoints forgotten": (savepoints_forgotten, 0),
    "nothing withdrawn": (nothing_withdrawn, 500),
    "claim ignored": (claim_ignored, 0),
    "resumed behind a claim": (resumed_behind_a_claim, 0),
    "taken back and shown": (taken_back_and_shown, 330),
    "removed when gone back twice": (removed_when_gone_back_twice, 0),
    "savepoint by who asks": (savepoint_by_who_asks, 75),
    "shown behind a claim": (shown_behind_a_claim, 140),
    "error ignored": (error_ignored, 0),
}


def failure_of(seed: int, *, refuses: bool) -> SimulationFailed | None:
    try:
        Survival(seed, refuses=refuses).run()
    except SimulationFailed as error:
        return error
    return None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_repeats_itself(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, first = FAULTS[fault]
    plant(monkeypatch.setattr)
    monkeypatch.setattr(survival, "KINDS", KINDS.get(fault, survival.KINDS))
    seeds = range(first, SEEDS_SEARCHED)
    found = partial(failure_of, refuses=fault in REFUSED)
    failed = next(filter(None, map(found, seeds)), None)
    assert failed is not None
    assert f"survival {failed.seed}" in str(failed)
    assert str(found(failed.seed)) == str(failed)
