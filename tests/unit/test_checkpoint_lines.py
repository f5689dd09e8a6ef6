"""Histories of a job: what it gave up where it went back does not count again, under whatever name it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from store_kit import TOPOLOGY, Memory, committed, flip

from penstock.checkpoint.contract import Branch, Manifest
from penstock.checkpoint.store import Store
from penstock.errors import InvalidInput, StaleAttempt


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """Nine epochs; savepoints A of the fifth and B of the ninth."""
    store = Store(str(tmp_path / "kept"))
    attempt = store.claim(TOPOLOGY)
    for epoch in range(1, 10):
        last = committed(store, attempt, epoch)
        if epoch in {5, 9}:
            store.savepoint("A" if epoch == 5 else "B", last)
    return store


def goes_back(store: Store, name: str) -> Manifest:
    return store.rewind(store.claim(TOPOLOGY), store.saved(name))[0]


def goes_on(store: Store, last: Manifest, epochs: int) -> Manifest:
    for epoch in range(last.epoch + 1, last.epoch + 1 + epochs):
        attempt = max(store._attempts())
        last = committed(store, attempt, epoch, line=last.line)
    return last


@pytest.mark.parametrize("epochs", [0, 3, 6])
def test_a_savepoint_of_a_history_that_was_left_is_refused(kept: Store, epochs: int) -> None:
    last = goes_on(kept, goes_back(kept, "A"), epochs)
    before = kept.epochs()
    with pytest.raises(InvalidInput, match=rf"'B', epoch 9, is of a history .* to go on from epoch {last.epoch}"):
        goes_back(kept, "B")
    assert kept.epochs() == before
    assert kept.latest() == last
    kept.savepoint("C", last)
    assert goes_back(kept, "C").epoch == last.epoch
    assert goes_back(kept, "A").epoch == 5
    if epochs:
        with pytest.raises(InvalidInput, match="'C', epoch"):
            goes_back(kept, "C")


def test_damage_that_was_passed_over_is_a_history_that_was_left(kept: Store) -> None:
    ninth = kept.manifest(9)
    flip(Path(kept.root) / ninth.parts[0].path, 40)
    again = Store(kept.root)
    attempt, last = again.claim(TOPOLOGY), again.latest()
    assert last is not None
    goes_on(again, again.begin(attempt, last), 3)
    flip(Path(kept.root) / ninth.parts[0].path, 40)  # the disk gives back what was written
    with pytest.raises(InvalidInput, match="'B', epoch 9, is of a history"):
        goes_back(again, "B")


def test_where_nothing_can_be_read_but_a_savepoint_it_can_be_used(kept: Store) -> None:
    for epoch in kept.numbers():
        flip(Path(kept.root) / "manifests" / f"{epoch:08d}.json", 40)
    assert goes_back(kept, "A").epoch == 5
    assert kept.numbers()[-1] == 5


@pytest.mark.parametrize("epochs", [0, 2])
def test_one_can_go_back_to_a_savepoint_twice(kept: Store, epochs: int) -> None:
    """What is written there the second time is not what has to go because it is of another line."""
    goes_on(kept, goes_back(kept, "A"), epochs)
    last = goes_back(kept, "A")
    assert (kept.latest(), kept.numbers()[-1]) == (last, 5)
    assert kept.verify(last) == []


def test_a_driver_that_was_taken_over_takes_no_epoch_back(kept: Store) -> None:
    stale = kept.claim(TOPOLOGY)
    saved, other = kept.saved("A"), Store(kept.root)
    committed(other, other.claim(TOPOLOGY), 10)
    with pytest.raises(StaleAttempt, match=f"attempt {stale + 1} has taken over"):
        kept.rewind(stale, saved)
    assert other.numbers()[-1] == 10


@pytest.mark.parametrize("removed", range(5))
def test_going_back_that_is_cut_short_leaves_no_way_to_what_was_half_removed(
    kept: Store, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = kept._files.remove, [removed]

    def dies(path: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(path)

    with monkeypatch.context() as dying:
        dying.setattr(kept._files, "remove", dies)
        if removed < 4:
            with pytest.raises(KeyboardInterrupt):
                goes_back(kept, "A")
        else:
            goes_back(kept, "A")
    again = Store(kept.root)
    attempt, last = again.claim(TOPOLOGY), again.latest()
    assert last is not None
    assert last.epoch == 9 - removed
    last = goes_on(again, again.begin(attempt, last), removed)
    assert last.epoch == 9
    if removed:  # the ninth epoch is another one
        with pytest.raises(InvalidInput, match="'B', epoch 9, is of a history"):
            goes_back(again, "B")
    assert all(each.leads_to(last) for each in again.epochs())


STEPS = st.lists(st.sampled_from(["commit", "commit", "commit", "save", "back", "again", "keep"]), max_size=40)


@given(STEPS, st.randoms(use_true_random=False))
def test_savepoints_are_used_if_and_only_if_the_job_has_come_from_there(steps: list[str], rng: object) -> None:
    """Against what is told of each epoch besides: the epochs before it."""
    store = Store("root", fs.PyFileSystem(Memory()))
    attempt, names = store.claim(TOPOLOGY), 0
    last: Manifest | None = None
    way: tuple[int, ...] = ()  # epochs that were committed, each by a number of its own, up to the last
    ways: dict[str, tuple[int, ...]] = {}  # of savepoints
    for number, step in enumerate(steps):
        if step == "commit":
            last = committed(store, attempt, len(way) + 1, line=() if last is None else last.line)
            way = (*way, number)
        elif step == "save" and last is not None:
            names += 1
            store.savepoint(f"s{names}", last)
            ways[f"s{names}"] = way
        elif step == "back" and ways:
            name = rng.choice(sorted(ways))  # type: ignore[attr-defined]
            attempt = store.claim(TOPOLOGY)
            if way[: len(ways[name])] == ways[name]:
                if not _is_other_branch(store.saved(name), store.latest()):
                    last, _ = store.rewind(attempt, store.saved(name))
                    way = ways[name]
            else:
                with pytest.raises(InvalidInput, match="is of a history that the job has left"):
                    store.rewind(attempt, store.saved(name))
        elif step == "again" and last is not None:
            attempt = store.claim(TOPOLOGY)
            assert store.begin(attempt, last) == last
        elif step == "keep":
            store.keep(2)
        assert store.latest() == last


def _is_other_branch(saved: Manifest, last: Manifest | None) -> bool:
    """It was kept right where the job had gone back to an epoch, and has gone back to again since: refused as well."""
    branches: tuple[Branch, ...] = () if last is None else last.line
    return branches[: len(saved.line)] != saved.line
