"""The shell around `adapt`, with a job that is none: when it looks, and what it does after a move that failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.adapt.contract import INTERVAL_S_MAX, AdaptSettings, Decision, Look, Memory, Move, Offer, Proposal
from penstock.deploy.adapting import adapter as module
from penstock.deploy.adapting.adapter import Adapter
from penstock.deploy.adapting.looks import Looks
from penstock.deploy.driver.options import JobOptions
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.metrics.metric_log import MetricLog
from penstock.deploy.metrics.recent import KEPT_SECONDS
from penstock.deploy.metrics.sums import NotMeasuredYet
from penstock.errors import InvalidInput, JobFailed
from penstock.model.plan import Slot
from penstock.run.engine.meters import TABLES

SECONDS = 10.0
Seen = Callable[[Adapter], SimpleNamespace]
HERE, THERE = {"a/0": Slot("n", 0)}, {"a/0": Slot("n", 1)}


class FakeJob(SimpleNamespace):
    """What an adapter sees of a job."""

    def __init__(self) -> None:
        super().__init__(
            id="x", name="x", status="running", attempt=1, workers=(object(),), decisions=[], plan=None, goes=0
        )


class Decider:
    """Moves at each look at which it may; remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[Memory] = []

    def __call__(self, look: Look, offer: Offer, memory: Memory, settings: AdaptSettings) -> tuple[Decision, Memory]:
        self.given.append(memory)
        if memory.rests_s(look.now_s, settings):
            return Decision(look.now_s, False, "rests", HERE, {}), memory
        moves = (Move("a/0", HERE["a/0"], THERE["a/0"]),)
        plan: Any = object()
        return Decision(look.now_s, True, "moves", THERE, {}, moves, plan), Memory(moved_at_s=look.now_s)


@pytest.fixture
def decider(monkeypatch: pytest.MonkeyPatch) -> Decider:
    found = Decider()
    monkeypatch.setattr(module, "decide", found)
    monkeypatch.setattr(module, "candidates", lambda *_: Offer())
    return found


@contextmanager
def adapting(
    job: FakeJob,
    go: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    seen: Seen | None = None,
    rest_s: float = 100.0,
) -> Iterator[Adapter]:
    def look(_: Adapter) -> SimpleNamespace:
        return SimpleNamespace(now_s=time.monotonic(), profile=None, assignment=HERE)

    monkeypatch.setattr(Adapter, "_seen", seen or look)
    settings = AdaptSettings(interval_s=0.02, rest_s=rest_s)
    found = Adapter(job, settings, go, MetricLog("x"), Looks(settings))  # type: ignore[arg-type]
    try:
        yield found
    finally:
        found.close()


def test_a_move_that_failed_is_told_as_not_taken_and_followed_by_a_rest(
    decider: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, calls = FakeJob(), []

    def go(*_: object) -> None:
        calls.append(1)
        msg = "a worker died"
        raise JobFailed(msg)

    with adapting(job, go, monkeypatch) as found:
        assert wait_until(lambda: len(job.decisions) >= 5, SECONDS)
        assert len(calls) == 1
        assert not any(decision.taken for decision in job.decisions)
        assert job.decisions[0].words.startswith("nothing moved, and the job rests for 100 s: a worker died")
        assert (job.decisions[0].moves, job.decisions[0].plan) == ((), None)
        assert found._memory.proposal is None


def test_rests_grow_with_failures_in_a_row(decider: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    job, calls = FakeJob(), []

    def go(*_: object) -> None:
        calls.append(1)
        if len(calls) in {1, 2, 3, 5}:
            raise RuntimeError

    with adapting(job, go, monkeypatch, rest_s=0.0) as found:
        found._settings = replace(found._settings, rest_s=0.1)
        assert wait_until(lambda: len(calls) >= 5 and len(job.decisions) > 8, SECONDS)
    rests = [decision.now_s for decision in job.decisions if "the job rests" in decision.words]
    assert len(rests) == 4
    assert rests[1] - rests[0] >= 0.1
    assert rests[2] - rests[1] >= 0.2
    assert any(decision.taken for decision in job.decisions)


def test_after_another_placement_a_whole_interval_passes_and_nothing_is_remembered(
    decider: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FakeJob()
    with adapting(job, lambda *_: None, monkeypatch) as found:
        assert wait_until(lambda: len(decider.given) >= 2, SECONDS)
        assert decider.given[0] == Memory()  # the first workers need no rest
        found._memory = Memory(proposal=Proposal(THERE, 1.0))
        job.attempt, job.workers = 2, (object(),)
        count = len(decider.given)
        assert wait_until(lambda: len(decider.given) >= count + 3, SECONDS)
        assert decider.given[-1].proposal is None
        assert decider.given[-1].moved_at_s is not None


def test_a_placement_that_changes_during_a_look_makes_it_void(
    decider: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, calls = FakeJob(), []

    def seen(_: Adapter) -> SimpleNamespace:
        job.workers = (object(),)
        return SimpleNamespace(now_s=time.monotonic(), profile=None, assignment=HERE)

    with adapting(job, lambda *_: calls.append(1), monkeypatch, seen, rest_s=0.0):
        assert wait_until(lambda: len(decider.given) >= 3, SECONDS)
    assert not calls
    assert not job.decisions


def test_looks_that_come_to_nothing_are_told_once_unless_it_is_too_early(
    decider: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, errors, looked = FakeJob(), [NotMeasuredYet("early"), InvalidInput("window is gone")], threading.Event()
    counted: list[int] = []

    def seen(_: Adapter) -> SimpleNamespace:
        counted.append(1)
        if len(counted) > 6:
            looked.set()
        raise errors[0] if len(counted) < 3 else errors[1]

    with adapting(job, lambda *_: None, monkeypatch, seen):
        assert looked.wait(SECONDS)
    assert [decision.words for decision in job.decisions] == ["a look came to nothing: window is gone"]


def test_an_interval_is_no_longer_than_what_is_remembered() -> None:
    assert INTERVAL_S_MAX == KEPT_SECONDS
    with pytest.raises(InvalidInput, match=r"interval_s is 601\.0; it must be at most 600 seconds"):
        AdaptSettings(interval_s=601.0)


def test_a_name_alone_searches_as_the_job_does() -> None:
    found = JobOptions(adapt="t3", seed=3, tasks_per_worker=2, theta=7.0).adaptation
    assert found is not None
    assert (found.seed, found.tasks_per_worker, found.theta) == (3, 2, 7.0)


def test_a_plan_from_a_look_at_tasks_that_have_moved_meanwhile_is_not_carried_out(
    decider: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, carried_out = FakeJob(), threading.Event()

    def moved_meanwhile(_: Adapter) -> SimpleNamespace:
        job.plan = object()  # a move beside which the others go on keeps attempt and workers
        return SimpleNamespace(now_s=time.monotonic(), profile=None, assignment=HERE)

    with adapting(job, lambda *_: carried_out.set(), monkeypatch, moved_meanwhile, rest_s=0.0):
        assert wait_until(lambda: len(decider.given) >= 3, SECONDS)
    assert not carried_out.is_set()


def test_behind_a_move_of_a_user_the_job_rests_and_what_was_proposed_is_forgotten(
    decider: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FakeJob()
    with adapting(job, lambda *_: None, monkeypatch) as found:
        assert wait_until(lambda: len(decider.given) >= 2, SECONDS)
        found._memory = Memory(proposal=Proposal(THERE, 1.0))
        job.plan, count = object(), len(decider.given)
        assert wait_until(lambda: len(decider.given) >= count + 2, SECONDS)
    assert decider.given[-1].proposal is None
    assert decider.given[-1].moved_at_s is not None


def test_a_job_that_is_changed_by_somebody_else_has_not_failed_to_move(
    decider: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        msg = "it is going over to another plan already"
        raise InvalidInput(msg)

    job = FakeJob()
    with adapting(job, refused, monkeypatch, rest_s=0.0) as found:
        assert wait_until(lambda: len(job.decisions) >= 3, SECONDS)
        assert found._failures == 0
    assert all(not decision.taken for decision in job.decisions)


def test_latency_of_a_window_forgets_what_was_before() -> None:
    log = MetricLog("x")
    for time_us, latency_us in ((1_000_000, 500_000), (400_000_000, 1_000)):
        row: dict[str, object] = {
            column.name: "out/0" if pa.types.is_string(column.type) else 0 for column in TABLES["latency"]
        }
        row |= {"time_us": time_us, "latency_us": latency_us, "batches": 100, "rows": 100}
        log.take(0, "latency", pa.RecordBatch.from_pylist([row], TABLES["latency"]))
    assert (log.latency_us(0.99), log.latency_us(0.99, 60.0)) == (500_000, 1_000)
