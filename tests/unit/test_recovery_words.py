"""What a job says of a recovery, and which failures another attempt may not meet again."""

from __future__ import annotations

import logging
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.checkpoint.policy import Cause
from penstock.deploy.attempt.recovery import REASON_CHARACTERS_MAX, Recovery, cause_of, found_note, shortly
from penstock.deploy.attempt.series import Attempts
from penstock.deploy.line.messages import Fault
from penstock.errors import (
    CheckpointDamaged,
    InternalError,
    InvalidInput,
    JobCancelled,
    JobFailed,
    StaleAttempt,
    StoreUnusable,
    UnfitSession,
)


def test_a_note_says_from_where_after_how_long_and_why() -> None:
    whole = Recovery(attempt=2, epoch=7, reason="worker 1 died", seconds=0.254, workers=3, wanted=3)
    assert whole.note == "the job went on from epoch 7 after 0.25 s (attempt 2): worker 1 died"
    assert whole.outcome == "the job went on from epoch 7 after 0.25 s (attempt 2)"
    fewer = Recovery(attempt=4, epoch=0, reason="an executor is gone", seconds=1.0, workers=2, wanted=3)
    assert fewer.note == (
        "the job went on from the beginning after 1.00 s (attempt 4), with 2 of its 3 workers until it is started "
        "again or fails once more: an executor is gone"
    )


def test_a_reason_is_one_line_without_what_spark_adds() -> None:
    error = JobFailed("topology 'words': worker 1 died. Spark says: Job aborted\nat org.apache.spark")
    assert shortly(error, "words") == "worker 1 died"
    assert shortly(JobFailed("x" * 1000), "words") == "x" * REASON_CHARACTERS_MAX + " ..."


def test_a_failing_function_is_the_cause_before_the_peers_that_it_took_along() -> None:
    faults = [Fault(0, "peer", "worker 1 has gone", lost=1), Fault(1, "task", "no number", "parse/0")]
    failed = JobFailed("operator 'parse' failed: no number", task="parse/0")
    assert cause_of(failed, faults) == Cause("task", "parse/0", "operator 'parse' failed: no number")
    assert cause_of(JobFailed("worker 1 died"), faults[:1]) == Cause("lost", "", "worker 1 died")
    silent = [*faults[:1], Fault(1, "worker", "worker 1 has been silent for 10 s", lost=1)]
    assert cause_of(JobFailed("worker 1 silent"), silent) == Cause("lost", "", "worker 1 silent")
    own = [*faults[:1], Fault(0, "worker", "worker 0 could not keep its part")]
    assert cause_of(JobFailed("worker 0 failed"), own) == Cause("worker", "", "worker 0 failed")


def test_a_store_that_fails_the_driver_may_do_better_the_next_time() -> None:
    told = "cannot use /kept for checkpoints: Input/output error; give a folder that can be written"
    assert cause_of(StoreUnusable(told), []) == Cause("store", "", told)


def test_what_another_attempt_would_meet_as_well_ends_the_job() -> None:
    for error in (
        JobCancelled("cancelled"),
        UnfitSession(["other Python"]),
        InvalidInput("no such column"),
        StaleAttempt("attempt 2 has taken over"),
        CheckpointDamaged("/kept", "it does not know attempt 1"),
        InternalError("a bug"),
    ):
        assert cause_of(error, []) is None


def test_the_log_does_not_say_twice_why_an_attempt_failed(caplog: pytest.LogCaptureFixture) -> None:
    attempts: Any = object.__new__(Attempts)
    attempts._around = SimpleNamespace(order=SimpleNamespace(dataflow=SimpleNamespace(name="words")))
    attempts.recoveries, attempts.recovered = 0, deque[Recovery]()
    went_on = Recovery(attempt=2, epoch=7, reason="worker 1 died", seconds=0.254, workers=3, wanted=3)
    with caplog.at_level(logging.WARNING, logger="penstock"):
        attempts._went_on(went_on)
    assert [record.getMessage() for record in caplog.records] == [
        "job 'words': the job went on from epoch 7 after 0.25 s (attempt 2)"
    ]
    assert attempts.recovered[0].note.endswith(": worker 1 died")  # a user who sees no log reads it here


def test_a_job_that_is_started_again_says_from_where_and_what_to_do_where_it_is_over() -> None:
    assert found_note(7, "/kept", is_over=False) == "it went on from epoch 7 in /kept"
    over = found_note(9, "/kept", is_over=True)
    assert over.startswith("nothing was left to do: the job has ended, or was stopped, and its answer is that of epoch")
    assert "(from_savepoint, --from)" in over
    assert "cancel() or Ctrl-C instead of stop() or --duration" in over


def test_in_a_process_that_ends_nothing_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: Any = object.__new__(Attempts)
    attempts._around = SimpleNamespace(order=SimpleNamespace(dataflow=SimpleNamespace(name="words")))
    monkeypatch.setattr(threading, "main_thread", lambda: SimpleNamespace(is_alive=lambda: False))
    error = JobFailed("Cannot call methods on a stopped SparkContext")
    assert not attempts._goes_on(SimpleNamespace(), error)
    assert attempts._gave_up is error
