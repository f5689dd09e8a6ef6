"""Profile iterations without Spark: what is asked for, what is chosen, when to stop; runs are simulated."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from fuse_kit import graph_of
from hypothesis import given
from hypothesis import strategies as st

from penstock import cli
from penstock.cli.tune import iteration_rows
from penstock.deploy.tuning.runs import OneRun, Tuning, median_run, told
from penstock.errors import InvalidInput, NoPlanFound
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan, Slot
from penstock.model.profile import Profile, TaskProfile
from penstock.optimise.fuse.contract import METHODS, FuseOptions
from penstock.optimise.fuse.door import fuse
from penstock.optimise.fuse.steps.profile_iterations import (
    GAMMAS,
    Iteration,
    Measured,
    Step,
    chosen,
    first_run,
    gammas_of,
    has_peaked,
    iterations,
    planned,
)
from penstock.optimise.fuse.steps.same_plans import shape_of

GRAPH = graph_of(dict.fromkeys("ab", 0.1), {("a", "b"): 0.01})
PLAN = fuse(GRAPH, Cluster.uniform([(1, 1.0)]), "none")
NODE = next(iter(PLAN.assignment.values())).node


def plan_on(a: int, b: int) -> Plan:
    """The plan with its two tasks in these workers."""
    return replace(PLAN, assignment={"a/0": Slot(NODE, a), "b/0": Slot(NODE, b)})


def measured(throughput: float, number: int = 0, plan: Plan = PLAN) -> Measured:
    return Measured(plan, Profile({"a/0": TaskProfile(float(number))}), throughput, 0.0, 1.0, (throughput,), 0.0)


def another_plan(n: int, method: str) -> Plan:
    """A plan that no other number and method has: by its node."""
    return replace(PLAN, assignment={"a/0": Slot(f"{method}{n}", 0), "b/0": Slot(NODE, 0)})


def row_of(*throughputs: float, method: str = "cola") -> list[Iteration]:
    """A run without fusion and the iterations after it, each of a plan of its own."""
    return [
        Iteration(
            Step(n, method if n else "none", 1.0, None), measured(throughput, plan=another_plan(n, method if n else ""))
        )
        for n, throughput in enumerate(throughputs)
    ]


def test_gamma_is_cola_s_alone() -> None:
    assert gammas_of("cola") == gammas_of("cola-basic") == GAMMAS
    assert gammas_of("fint") == gammas_of("best") == (1.0,) * 6
    assert gammas_of("cola", 2) == (0.5, 0.6)
    assert gammas_of("cola", 8) == (*GAMMAS, 1.0, 1.0)
    with pytest.raises(InvalidInput, match=r"iterations is 0; it must be from 1 to 50"):
        gammas_of("cola", 0)


@pytest.mark.parametrize(
    ("throughputs", "first", "local", "best"),
    [
        # Rows of Table 2 of the paper, as far as its figures say: NONE, then iterations with those maxima.
        ((99.4, 284, 286, 280, 303, 290, 300), 1, 2, 4),
        ((189, 286, 280, 293, 290, 285, 280), 1, 1, 3),
        ((10, 20, 30, 40), 1, 3, 3),
        ((10, 9, 8, 7), 1, 1, 0),
        ((10, 20, 20, 30), 1, 1, 3),
    ],
)
def test_the_three_choices(throughputs: tuple[float, ...], first: int, local: int, best: int) -> None:
    done = row_of(*throughputs)
    assert chosen(done, "first").step.number == first
    assert chosen(done, "first-local").step.number == local
    assert chosen(done, "max").step.number == best
    with pytest.raises(InvalidInput, match="known: max, first, first-local"):
        chosen(done, "last")


@given(st.lists(st.integers(1, 5), min_size=2, max_size=9))
def test_it_can_be_seen_while_it_runs_that_the_first_local_maximum_is_known(throughputs: list[int]) -> None:
    done = row_of(*map(float, throughputs))
    seen = next((n for n in range(1, len(done) + 1) if has_peaked(done[:n])), None)
    if seen is not None:
        assert chosen(done[:seen], "first-local") is chosen(done, "first-local")
    else:
        assert all(b > a for a, b in itertools.pairwise(throughputs[1:]))


def test_each_iteration_fuses_with_what_the_one_before_measured() -> None:
    asked: list[Step] = []

    def run(step: Step) -> Measured:
        asked.append(step)
        if step.number == 2:
            msg = "does not fit"
            raise NoPlanFound(msg)
        return measured(10.0, step.number)

    first = first_run(run)
    done = [first, *iterations(first, run, "cola", gammas_of("cola", 4))]
    assert [(step.method, step.gamma) for step in asked] == [
        ("none", 1.0), ("cola", 0.5), ("cola", 0.6), ("cola", 0.7), ("cola", 0.8),
    ]  # fmt: skip
    known = [None if step.profile is None else step.profile.tasks["a/0"].load for step in asked]
    assert known == [None, 0.0, 1.0, 1.0, 3.0]  # the second measured nothing
    assert (done[2].measured, done[2].note) == (None, "does not fit")


def test_where_no_fusion_cannot_run_the_best_fusion_is_first() -> None:
    def run(step: Step) -> Measured:
        if step.method == "none":
            msg = "streams cost too much"
            raise NoPlanFound(msg)
        return measured(1.0)

    first = first_run(run)
    assert first.step.method == "best"
    assert first.note == "begun with 'best': streams cost too much"


def test_the_median_run_and_how_far_runs_are_apart() -> None:
    runs = [OneRun(PLAN, Profile({"a/0": TaskProfile(t)}), t, t) for t in (90.0, 130.0, 100.0)]
    found = median_run(runs)
    assert (found.throughput, found.latency_ms, found.profile.tasks["a/0"].load) == (100.0, 100.0, 100.0)
    assert found.spread == pytest.approx(0.4)
    assert median_run(runs[:1]).spread == 0.0


def test_of_several_methods_the_fastest_choice_is_kept() -> None:
    first = row_of(10.0)[0]
    cola = [first, *row_of(0.0, 30.0, 20.0, 40.0)[1:]]
    fint = [first, *row_of(0.0, 35.0, 15.0, 16.0, method="fint")[1:]]
    tuned = told({"cola": cola, "fint": fint}, "max")
    assert len(tuned.done) == 7
    assert (tuned.kept.step.method, tuned.kept.step.number) == ("cola", 3)
    assert tuned.choices == {1: ("1st", "1st-local"), 3: ("max",), 4: ("1st", "1st-local", "max")}
    assert told({"cola": cola, "fint": fint}, "first").kept.step.method == "fint"
    assert isinstance(tuned.plan, Plan)


def test_runs_of_one_plan_count_together_and_the_luckiest_is_not_crowned() -> None:
    plans = (plan_on(0, 1), plan_on(1, 0), plan_on(0, 0), plan_on(0, 1))  # the second is the first by other numbers
    seen = (100.0, 300.0, 150.0, 110.0)
    done = [
        Iteration(Step(n, "cola" if n else "none", 1.0, None), measured(t, plan=plan))
        for n, (plan, t) in enumerate(zip(plans, seen, strict=True))
    ]
    tuned = told({"cola": done}, "max")
    assert tuned.kept.step.number == 2  # 150 a second, where the median of 100, 300 and 110 is 110
    rows = iteration_rows(tuned)
    assert [row["tuples_per_second"] for row in rows] == [110.0, 110.0, 150.0, 110.0]
    assert [row["runs"] for row in rows] == [[100.0], [300.0], [150.0], [110.0]]
    assert [row["note"] for row in rows] == ["", "same plan as iteration 0", "", "same plan as iteration 0"]
    assert tuned.noise == pytest.approx(200 / 110)
    assert told({"cola": row_of(1.0, 2.0)}, "max").noise is None


def test_plans_are_the_same_up_to_the_numbers_of_workers_on_a_node() -> None:
    assert shape_of(plan_on(0, 1)) == shape_of(plan_on(3, 2)) != shape_of(plan_on(0, 0))
    other_node = replace(PLAN, assignment={"a/0": Slot("elsewhere", 0), "b/0": Slot(NODE, 1)})
    assert shape_of(other_node) != shape_of(plan_on(0, 1))


@pytest.mark.parametrize(
    ("tuning", "words"),
    [
        (Tuning(methods=("magic",)), "known: best, cola"),
        (Tuning(methods=("cola", "cola")), "'cola' is named twice"),
        (Tuning(choice="last"), "known: max, first, first-local"),
        (Tuning(repeats=0), "repeats is 0; it must be from 1 to 100"),
        (Tuning(iterations=51), "iterations is 51; it must be from 1 to 50"),
        (Tuning(seconds=0.0), "it must be above 0 seconds"),
        (
            Tuning(("cola-basic", "fint"), fuse_options=FuseOptions(threshold=3.0)),
            "methods 'cola-basic', 'fint' do not",
        ),
    ],
)
def test_what_tuning_cannot_do_is_refused_before_anything_runs(tuning: Tuning, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        tuning.require_sound()


def test_tuning_of_several_methods_takes_what_one_of_them_reads_and_runs_the_first_without_it() -> None:
    options = FuseOptions(balance=0.0, threshold=3.0)
    Tuning(("cola", "fint"), fuse_options=options).require_sound()
    asked = planned(GRAPH, Cluster.uniform([(1, 1.0)]), lambda _: Profile({"a/0": TaskProfile(0.1)}), options)
    first = first_run(asked)
    assert [i.note for i in (first, *iterations(first, asked, "cola", (1.0,)))] == ["", ""]


READ = {
    "none": {"theta", "seed", "gamma", "stream_cost"},
    "cola-basic": {"theta", "seed", "gamma", "stream_cost", "cut", "epsilon"},
}
GIVEN = {
    "seed": 1, "theta": 1.0, "balance": 0.9, "objective": max, "threshold": 3.0, "cut": "exact", "epsilon": 0.2,
    "gamma": 0.9, "stream_cost": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("method", METHODS)
def test_an_option_that_the_method_does_not_read_is_refused_in_one_line(method: str, name: str) -> None:
    options = FuseOptions(**{name: GIVEN[name]})  # type: ignore[arg-type]
    if name in READ.get("none" if method == "fint" else method, set(GIVEN)):
        assert fuse(GRAPH, Cluster.uniform([(1, 1.0)]), method, options=options).assignment
        return
    with pytest.raises(
        InvalidInput, match=rf"^{name} is .*, which fusion method '{method}' does not read: it reads seed"
    ):
        fuse(GRAPH, Cluster.uniform([(1, 1.0)]), method, options=options)


def test_the_command_line_refuses_before_spark_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, words in (
        (("tune", "routes", "--method", "magic"), "known: best, cola"),
        (("tune", "routes", "--method", "cola, cola"), "'cola' is named twice"),
        (("tune", "routes", "--choice", "last"), "known: max, first"),
        (("tune", "nothing"), "neither built in"),
        (("run", "routes", "--balance", "0.2"), "--fuse is not given"),
        (("run", "routes", "--fuse", "cola", "--scheduler", "t3"), "leave scheduler out, or leave fuse out"),
        (("run", "routes", "--fuse", "magic"), "known: best, cola"),
        (
            ("run", "routes", "--fuse", "fint", "--balance", "0.9"),
            "balance is 0.9, which fusion method 'fint' does not",
        ),
        (("run", "routes", "--fuse", "none", "--cut", "exact"), "cut is 'exact', which fusion method 'none' does not"),
        (("tune", "routes", "--method", "fint", "--threshold", "3"), "threshold is 3.0, which fusion method 'fint'"),
    ):
        monkeypatch.setattr("sys.argv", ["penstock", *arguments])
        assert cli.run_command() == 2
        assert words in " ".join(capsys.readouterr().err.split())
