"""Stages to operators: what is skipped, what is the same work again, and what only looks like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.imports import spark_stages
from penstock.imports.spark_stages import Activity, Stage, StageGroup, group_stages, imported_stages, tasks_of


def stage(
    number: int,
    rdd: int,
    steps: str,
    parents: tuple[int, ...] = (),
    query: str = "q0",
    tasks: int = 4,
    ran: bool = True,
) -> Stage:
    return Stage(number, "collect at a.py:1", parents, tasks, rdd, (steps,), steps, query, ran)


def test_a_skipped_stage_stands_for_the_one_that_made_its_rows() -> None:
    # An adaptive query: its scan ran as job 0; job 1 lists it as stage 1, with the same RDD, and skips it.
    stages = [stage(0, 7, "scan"), stage(1, 7, "scan", ran=False), stage(2, 9, "count", (1,), tasks=2)]
    groups, group_of = group_stages(stages)
    assert [(group.name, group.tasks, group.feeds_from) for group in groups] == [
        ("stage 0 scan", 4, ()),
        ("stage 2 count", 2, (0,)),
    ]
    assert group_of == {0: 0, 2: 1}


def test_the_same_query_again_is_the_same_operators() -> None:
    stages = [
        *(stage(0, 7, "scan"), stage(1, 9, "count", (0,))),
        *(stage(2, 17, "scan", query="q1", tasks=6), stage(3, 19, "count", (2,), query="q1")),
    ]
    groups, group_of = group_stages(stages)
    assert group_of == {0: 0, 1: 1, 2: 0, 3: 1}
    assert [group.tasks for group in groups] == [6, 4]  # as many as it ever had


def test_two_equal_scans_of_one_query_are_two_operators() -> None:
    stages = [stage(0, 7, "scan"), stage(1, 8, "scan"), stage(2, 9, "join", (0, 1))]
    again = [stage(n + 3, s.rdd + 10, s.last_step, tuple(p + 3 for p in s.parents), "q1") for n, s in enumerate(stages)]
    groups, group_of = group_stages([*stages, *again])
    assert len(groups) == 3
    assert groups[2].feeds_from == (0, 1)
    assert [group_of[n] for n in range(6)] == [0, 1, 2, 0, 1, 2]


def test_parents_that_never_ran_or_come_later_feed_nothing() -> None:
    groups, _ = group_stages(
        [stage(0, 5, "a", (1, 9)), stage(1, 6, "b"), stage(2, 7, "c", (3,)), stage(3, 8, "d", ran=False)]
    )
    assert [group.feeds_from for group in groups] == [(), (), ()]


@given(
    st.lists(
        st.builds(
            stage,
            st.integers(0, 12),
            st.integers(0, 6),
            st.sampled_from("ab"),
            st.lists(st.integers(0, 12), max_size=3).map(tuple),
            st.sampled_from(["q0", "q1"]),
            st.integers(1, 5),
            st.booleans(),
        ),
        unique_by=lambda one: one.number,
        max_size=12,
    )
)
def test_whatever_stages_are_listed_no_operator_feeds_itself(stages: list[Stage]) -> None:
    groups, group_of = group_stages(stages)
    assert set(group_of) == {one.number for one in stages if one.ran}
    assert set(group_of.values()) == set(range(len(groups)))
    for number, group in enumerate(groups):
        assert all(source < number for source in group.feeds_from)
        assert group.tasks == max(one.tasks for one in stages if group_of.get(one.number) == number)


def test_too_many_stages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_stages, "STAGES_MAX", 1)
    with pytest.raises(InvalidInput, match="has 2 stages; the limit is 1"):
        group_stages([stage(0, 1, "a"), stage(1, 2, "b")])


def test_figures_by_hand() -> None:
    # Within 10 s two tasks of `a` worked 4 s and 1 s and wrote 600 and 200 bytes; `b` is one task that read all of it.
    groups = [StageGroup("a", 2, ()), StageGroup("b", 1, (0,))]
    activity = {
        (0, 0): Activity(4.0, 0, 0, 600, 60),
        (0, 1): Activity(1.0, 0, 0, 200, 20),
        (1, 0): Activity(2.0, 800, 80, 0, 0),
    }
    found = imported_stages("app", groups, activity, seconds=10.0, tasks_max=2)
    assert {task: one.load for task, one in found.profile.tasks.items()} == {"a/0": 0.4, "a/1": 0.1, "b/0": 0.2}
    assert [(edge.source, edge.target, edge.rate, edge.tuples) for edge in found.profile.edges] == [
        ("a/0", "b/0", pytest.approx(60.0), pytest.approx(6.0)),
        ("a/1", "b/0", pytest.approx(20.0), pytest.approx(2.0)),
    ]
    assert found.graph.streams[0].grouping == "global"
    assert [operator.source for operator in found.graph.operators] == [True, False]


def test_notes_say_what_was_folded_and_what_is_too_much_for_a_core() -> None:
    groups = [StageGroup("a", 7, ())]
    assert (tasks_of(groups[0], 3), tasks_of(groups[0], 9)) == (3, 7)
    found = imported_stages("app", groups, {(0, 1): Activity(30.0)}, seconds=10.0, tasks_max=3)
    assert any("stages of more than 3 tasks have 3" in note for note in found.notes)
    assert any("'a' has a task of more than one core" in note for note in found.notes)


def test_a_log_in_which_nothing_ended_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'app' has no finished task"):
        imported_stages("app", [], {}, seconds=0.0, tasks_max=1)
