"""The coordinator of epochs: reports in, epochs to begin and manifests to write out; one epoch at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.contract import ENDED, Part, Report
from penstock.checkpoint.coordinator import Awaited, Coordinator, Whole
from penstock.errors import InternalError
from penstock.run.contract import Staged

INTERVAL_US = 1_000


def part(worker: int, *files: str) -> Part:
    return Part(worker, f"part-{worker}", 1, "", (f"a/{worker}",), staged=tuple(Staged("out", f, 1, 1) for f in files))


def report(worker: int, epoch: int | None, *files: str, attempt: int = 3) -> Report:
    return Report(attempt, epoch, part(worker, *files))


def coordinator(workers: int = 2, committed: int = 6) -> Coordinator:
    return Coordinator(3, workers, committed, INTERVAL_US, 0)


def shown(whole: Whole | None) -> list[str]:
    assert whole is not None
    return [staged.path for each in whole.parts for staged in each.staged]


def test_an_epoch_begins_after_the_interval_and_is_whole_when_every_worker_has_reported() -> None:
    c = coordinator()
    assert c.wakes_at() == 1_000
    assert c.begins(999) is None
    assert c.begins(1_000) == 7
    assert c.reported(report(1, 7)) is None
    assert c.reported(report(0, 7, "x")) == Whole(7, (part(0, "x"), part(1)), False)
    assert (c.epoch_under_way, c.wakes_at()) == (7, None)
    assert c.committed(7, 1_500) is None
    assert (c.epoch_under_way, c.wakes_at()) == (None, 2_000)  # from the beginning of the one before
    assert (c.begins(1_999), c.begins(2_000)) == (None, 8)


def test_it_is_known_for_whom_an_epoch_waits_and_since_when() -> None:
    c = coordinator(workers=3)
    assert c.awaited() is None
    c.begins(1_000)
    assert c.awaited() == Awaited(7, 1_000, (0, 1, 2))
    c.reported(report(1, 7))
    c.reported(report(0, ENDED))
    assert c.awaited() == Awaited(7, 1_000, (2,))
    c.reported(report(2, 7))
    assert c.awaited() == Awaited(7, 1_000, ())  # for its manifest
    c.committed(7, 1_500)
    assert c.awaited() is None


def test_nothing_begins_while_an_epoch_is_under_way_or_its_manifest_is_written() -> None:
    c = coordinator(workers=1)
    c.begins(1_000)
    assert (c.wakes_at(), c.begins(9_000)) == (None, None)
    assert c.reported(report(0, 7)) is not None
    c.ask()
    assert (c.wakes_at(), c.begins(9_000)) == (None, None)
    c.committed(7, 9_500)  # longer than the interval: the next follows at once
    assert c.wakes_at() == 9_500
    assert c.begins(9_500) == 8


def test_asking_brings_the_next_epoch_forward_once() -> None:
    c = coordinator(workers=1)
    c.ask()
    assert c.wakes_at() == 0
    assert c.begins(10) == 7
    c.reported(report(0, 7))
    c.committed(7, 20)
    assert c.wakes_at() == 1_010


def test_who_asks_while_an_epoch_is_under_way_gets_the_one_after_it() -> None:
    c = coordinator(workers=1)
    c.begins(1_000)
    c.ask()
    c.reported(report(0, 7))
    c.committed(7, 1_100)
    assert c.begins(1_100) == 8


def test_what_is_stale_is_counted_and_changes_nothing() -> None:
    c = coordinator()
    assert c.reported(report(0, 7)) is None  # not begun
    c.begins(1_000)
    for stale in (report(0, 7, attempt=2), report(0, 6), report(0, 8), report(0, ENDED, attempt=2)):
        assert c.reported(stale) is None
    assert c.reported(report(1, 7)) is None
    assert c.reported(report(1, 7, "again")) is None
    assert c.stale == 6
    assert shown(c.reported(report(0, 7, "x"))) == ["x"]
    assert c.reported(report(0, 7, "again")) is None  # while the manifest is written
    assert c.stale == 7


def test_the_part_of_an_ended_worker_counts_for_every_later_epoch() -> None:
    c = coordinator()
    assert c.reported(report(1, ENDED)) is None
    for epoch in (7, 8):
        assert c.begins(epoch * 10_000) == epoch
        assert c.reported(report(0, epoch)) == Whole(epoch, (part(0), part(1)), False)
        c.committed(epoch, epoch * 10_000)


def test_an_end_makes_the_epoch_whole_that_waited_for_that_worker() -> None:
    c = coordinator()
    c.begins(1_000)
    c.reported(report(0, 7))
    assert c.reported(report(1, ENDED)) == Whole(7, (part(0), part(1)), False)


def test_what_an_ended_worker_staged_goes_with_one_epoch() -> None:
    c = coordinator(workers=3)
    c.reported(report(1, ENDED, "end"))
    c.begins(1_000)
    c.reported(report(0, 7))
    assert shown(c.reported(report(2, 7))) == ["end"]
    assert c.reported(report(1, ENDED, "end")) is None  # told twice
    c.committed(7, 1_000)
    assert c.begins(2_000) == 8
    c.reported(report(0, 8))
    assert shown(c.reported(report(2, ENDED, "late"))) == ["late"]


def test_a_part_of_the_epoch_comes_before_the_end_of_its_worker() -> None:
    c = coordinator()
    c.begins(1_000)
    c.reported(report(0, 7, "marker"))
    c.reported(report(0, ENDED, "end"))
    assert shown(c.reported(report(1, 7))) == ["marker"]
    c.committed(7, 1_000)
    c.begins(2_000)
    assert shown(c.reported(report(1, 8))) == ["end"]


@pytest.mark.parametrize("is_under_way", [False, True])
def test_the_last_epoch_commits_when_all_have_ended(is_under_way: bool) -> None:
    c = coordinator()
    if is_under_way:
        c.begins(1_000)
    assert c.reported(report(0, ENDED, "x")) is None
    whole = c.reported(report(1, ENDED, "y"))
    assert whole == Whole(7, (part(0, "x"), part(1, "y")), True)
    assert c.committed(7, 2_000) is None
    assert c.is_over
    assert (c.wakes_at(), c.begins(99_000), c.epoch_under_way) == (None, None, None)


def test_an_epoch_of_markers_is_not_the_last_one_even_if_all_have_ended() -> None:
    """A task may have staged a file on each side of the marker, and an epoch has one name for both."""
    c = coordinator()
    c.begins(1_000)
    c.reported(report(0, 7, "marker"))
    c.reported(report(0, ENDED, "end"))
    whole = c.reported(report(1, ENDED, "other"))
    assert whole is not None
    assert (whole.epoch, whole.is_last, shown(whole)) == (7, False, ["marker", "other"])
    last = c.committed(7, 1_100)
    assert last is not None
    assert (last.epoch, last.is_last, shown(last)) == (8, True, ["end"])
    assert c.committed(8, 1_200) is None
    assert c.is_over


def test_ends_that_come_while_a_manifest_is_written_make_the_last_epoch_when_it_is_there() -> None:
    c = coordinator()
    c.begins(1_000)
    c.reported(report(0, 7, "a"))
    c.reported(report(1, 7, "b"))
    assert c.reported(report(0, ENDED, "c")) is None
    assert c.reported(report(1, ENDED)) is None
    whole = c.committed(7, 1_500)
    assert whole is not None
    assert (whole.epoch, whole.is_last, shown(whole)) == (8, True, ["c"])
    assert c.epoch_under_way == 8
    assert c.committed(8, 1_600) is None
    assert c.is_over


def test_what_cannot_be_is_our_own_fault() -> None:
    c = coordinator()
    with pytest.raises(InternalError, match="worker 2 reports a part; attempt 3 has 2 workers"):
        c.reported(report(2, 7))
    with pytest.raises(InternalError, match="epoch 7 was committed, and None is the one to be written"):
        c.committed(7, 0)
    c.begins(1_000)
    c.reported(report(0, 7))
    c.reported(report(1, 7))
    with pytest.raises(InternalError, match="epoch 8 was committed, and 7 is"):
        c.committed(8, 0)


@given(st.integers(1, 4), st.randoms(use_true_random=False))
def test_whatever_the_order_every_file_is_shown_once_and_the_job_is_over(workers: int, rng: object) -> None:
    """Workers that stage a file at each marker that they hear of and one at their end, in any order of all events."""
    choose = rng.choice  # type: ignore[attr-defined]
    c = Coordinator(1, workers, 0, 10, 0)
    heard, ended, staged, files = dict.fromkeys(range(workers), 0), set[int](), list[str](), list[str]()
    writing: Whole | None = None
    epochs: list[int] = []
    for now_us in range(1_000):
        if c.is_over:
            break
        events = ["time", *(["written"] if writing else []), *(w for w in range(workers) if w not in ended)]
        event = choose(events if now_us < 300 else events[1:] or events)
        whole = None
        if event == "time":
            c.begins(now_us)
        elif event == "written":
            assert writing is not None
            epochs.append(writing.epoch)
            files += shown(writing)
            by = [name.partition("-")[0] for name in shown(writing)]
            assert len(set(by)) == len(by), "an epoch has two files of one worker"
            whole, writing = c.committed(writing.epoch, now_us), None
        else:
            under_way = c.epoch_under_way
            hears = under_way is not None and under_way > heard[event] and (writing is None) and choose((True, False))
            name = f"{event}-{under_way if hears else 'end'}-{now_us}"
            staged.append(name)
            if hears:
                assert under_way is not None
                heard[event] = under_way
            else:
                ended.add(event)
            whole = c.reported(report(event, under_way if hears else ENDED, name, attempt=1))
        assert whole is None or writing is None
        writing = whole or writing
    assert c.is_over
    assert sorted(files) == sorted(staged)
    assert epochs == list(range(1, len(epochs) + 1))
    assert c.stale == 0


def test_while_it_is_held_an_epoch_begins_for_each_that_is_let() -> None:
    c = coordinator()
    c.begins(1_000)
    c.hold()
    assert c.held_at is None  # one is under way
    for worker in range(2):
        c.reported(report(worker, 7))
    c.committed(7, 1_500)
    assert (c.held_at, c.wakes_at()) == (8, None)
    c.ask()
    assert c.begins(9_000) is None
    c.let_one()
    assert c.begins(1_500) == 8
    assert c.held_at is None
    for worker in range(2):
        c.reported(report(worker, 8))
    c.committed(8, 1_600)
    assert (c.held_at, c.begins(9_000)) == (9, None)
    c.release()
    assert (c.held_at, c.begins(9_000)) == (None, 9)


def test_it_is_known_who_has_not_ended() -> None:
    c = coordinator(workers=3)
    c.reported(report(1, ENDED))
    assert c.unended == {0, 2}
