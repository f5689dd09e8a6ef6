"""When a failed attempt is followed by another: new epochs count for it, and the same error against it."""

from __future__ import annotations

import pytest

from penstock.checkpoint.policy import Again, Cause, Failures, GiveUp, Policy
from penstock.errors import InvalidInput
from penstock.run.engine.faults import TaskFault

DIED = Cause("lost", "", "worker 1 died without a word")


def bad_row(worker: int = 0, row: int = 5, name: str = "bo", task: str = "parse/0") -> Cause:
    """As workers tell it."""
    fault = TaskFault(task, worker, f"n{worker} (a)", ValueError(f"no number on row {row}, Row(name='{name}')"))
    return Cause("task", task, str(fault))


def waits(failures: Failures, cause: Cause, times: int, committed: int = 0) -> list[float]:
    found = [failures.failed(i, cause, committed) for i in range(times)]
    return [again.after_s for again in found if isinstance(again, Again)]


def test_the_first_retry_is_immediate_and_each_further_one_waits_twice_as_long() -> None:
    assert waits(Failures(Policy()), DIED, 9) == [0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]


def test_a_job_without_a_new_epoch_is_given_up_after_ten_failures() -> None:
    failures = Failures(Policy())
    waits(failures, DIED, 9, committed=4)
    end = failures.failed(12_000_000, DIED, 4)
    assert end == GiveUp(
        "10 failures in 12.0 s since epoch 4, which is the limit; the last one: worker 1 died without a word"
    )


def test_a_new_epoch_begins_the_count_anew() -> None:
    failures = Failures(Policy())
    for epoch in range(100):
        assert waits(failures, DIED, 9, epoch) == [0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]


def test_the_same_error_of_a_task_three_times_ends_the_job_with_its_name() -> None:
    failures = Failures(Policy())
    assert waits(failures, bad_row(), 2) == [0, 0.2]
    end = failures.failed(2, bad_row(), 0)
    assert isinstance(end, GiveUp)
    assert end.reason.startswith("task 'parse/0' failed 3 times with the same error: ")
    assert "Row(name='bo')" in end.reason


def test_the_same_row_is_the_same_on_another_worker_and_in_another_batch() -> None:
    failures = Failures(Policy())
    assert bad_row(0, 5) != bad_row(1, 60)
    assert isinstance(failures.failed(0, bad_row(0, 5), 0), Again)
    assert isinstance(failures.failed(0, bad_row(1, 60), 0), Again)
    assert isinstance(failures.failed(0, bad_row(2, 7), 0), GiveUp)


@pytest.mark.parametrize("other", [DIED, bad_row(name="jo"), bad_row(task="parse/1")])
def test_another_error_between_is_no_excuse(other: Cause) -> None:
    """Two rows that nothing can take, in two tasks, would else take turns for ever."""
    failures = Failures(Policy())
    for cause in (bad_row(), other, bad_row()):
        assert isinstance(failures.failed(0, cause, 0), Again)
    assert isinstance(failures.failed(0, bad_row(), 0), GiveUp)


def test_epochs_between_are_no_excuse_and_the_same_error_is_not_tried_again_at_once_twice() -> None:
    """A row that is reached late in each attempt: other tasks get on, and commit epochs meanwhile."""
    failures, second_us = Failures(Policy()), 1_000_000
    found = [failures.failed(i * 20 * second_us, bad_row(row=i), committed=2 * i) for i in range(3)]
    assert [again.after_s for again in found if isinstance(again, Again)] == [0, 0.2]
    assert isinstance(found[-1], GiveUp)


def test_an_error_that_has_not_come_for_long_while_epochs_were_committed_is_forgotten() -> None:
    failures, quiet_us = Failures(Policy(same_quiet_s=60)), 61_000_000
    for i in range(100):
        found = failures.failed(i * quiet_us, bad_row(), committed=i)
        assert isinstance(found, Again)
        assert found.after_s == 0


def test_without_an_epoch_no_time_is_long_enough() -> None:
    """The way to the row may take hours."""
    failures, hour_us = Failures(Policy()), 3_600_000_000
    found = [failures.failed(i * hour_us, bad_row(), committed=5) for i in range(3)]
    assert isinstance(found[-1], GiveUp)


def test_an_object_s_address_does_not_make_another_error() -> None:
    failures = Failures(Policy())
    found = [failures.failed(0, bad_row(name=f"<Row object at 0x7f3a{i}0>"), i) for i in range(3)]
    assert isinstance(found[-1], GiveUp)


def test_workers_that_die_are_tried_again_without_end_as_long_as_epochs_are_committed() -> None:
    failures = Failures(Policy())
    assert all(isinstance(failures.failed(i, DIED, committed=i), Again) for i in range(1_000))


def unkept(states: int, worker: int = 0) -> Cause:
    """As the driver tells what a worker's keeper complains of."""
    told = f"worker {worker} could not keep its part of an epoch in /kept: it is given {states:,} states"
    return Cause("worker", "", f"topology 'j': worker {worker} (node 'n{worker} (a)') failed: {told}")


def test_numbers_do_not_make_another_error() -> None:
    """A state that grows, of the worker or of a task; the row that fails is not one of the numbers."""
    for causes in (
        [unkept(2_132 + i, worker=i % 3) for i in range(10)],
        [
            Cause("task", "j/0", f"operator 'j' (task 0, worker {i}, node 'n') failed: {i * 997:,} rows")
            for i in (1, 2, 3)
        ],
    ):
        failures = Failures(Policy())
        *before, last = [failures.failed(i, cause, committed=i) for i, cause in enumerate(causes)]
        assert all(isinstance(decided, Again) for decided in before)
        assert isinstance(last, GiveUp)
    rows = [f"operator 'j' (task 0, worker 0, node 'n') failed: no answer on row {i}, Row(n={i})" for i in range(50)]
    failures = Failures(Policy())
    assert all(isinstance(failures.failed(i, Cause("task", "j/0", row), i), Again) for i, row in enumerate(rows))


def test_the_same_error_of_workers_ends_the_job_although_every_attempt_commits_an_epoch() -> None:
    """The epoch behind a restore is small: its state is what was kept already."""
    failures = Failures(Policy())
    found = [failures.failed(i, unkept(2_000 + i), committed=i) for i in range(10)]
    assert [again.after_s for again in found if isinstance(again, Again)] == [0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    end = found[-1]
    assert isinstance(end, GiveUp)
    assert end.reason.startswith("a worker failed 10 times with the same error: ")
    assert "2,009 states" in end.reason


def test_what_workers_complained_of_is_forgotten_as_what_tasks_did() -> None:
    failures, quiet_us = Failures(Policy(same_quiet_s=60)), 61_000_000
    assert all(isinstance(failures.failed(i * quiet_us, unkept(i), committed=i), Again) for i in range(100))


def test_the_reason_says_when_and_why_it_is_tried_again() -> None:
    failures = Failures(Policy())
    first, second = (failures.failed(0, DIED, 3) for _ in range(2))
    assert first.reason == f"tried again at once after failure 1 of at most 10 since epoch 3: {DIED.message}"
    assert second.reason == f"tried again in 0.2 s after failure 2 of at most 10 since epoch 3: {DIED.message}"


def test_a_policy_of_one_failure_tries_nothing_again() -> None:
    assert isinstance(Failures(Policy(failures_max=1)).failed(0, DIED, 0), GiveUp)
    assert isinstance(Failures(Policy(same_max=1)).failed(0, bad_row(), 0), GiveUp)


def test_no_wait_grows_out_of_bounds() -> None:
    assert Policy(failures_max=10**9).wait_s(10**6) == 10


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("failures_max", 0),
        ("same_max", True),
        ("wait_first_s", -1.0),
        ("wait_max_s", float("nan")),
        ("same_max", "3"),
        ("same_quiet_s", -1),
    ],
)
def test_a_limit_that_is_none_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=f"{name} is {value!r}; it must be a"):
        Policy(**{name: value})  # type: ignore[arg-type]
