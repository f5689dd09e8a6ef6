"""`best` as long as it is given: rounds until it has stalled, a proof, a bound, and what it says of the clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.cli.show import telling
from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster
from penstock.model.taskgraph import Ints, TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.objective import is_feasible, node_cost
from penstock.optimise.place import find_scheduler
from penstock.optimise.place.best import schedule
from penstock.optimise.search import annealed, lasting
from penstock.testing.instances import random_cluster, random_topology
from penstock_lab.bench.best.applications import TASKS_MAX, TASKS_MIN, application
from penstock_lab.bench.best.measure import counts
from penstock_lab.bench.contract import Row
from penstock_lab.bench.place.instances import random_problem

LONG = 3_600.0  # the clock ends nothing


def weak(problem: Problem, options: Options) -> Placement:
    """A first answer that leaves something to find: every task on a node drawn by chance, as far as that fits."""
    search = annealed.Search(problem, annealed.native(problem), Deadline.after(LONG), options.seed, 1.0)
    return annealed.finished(search, [annealed.own_starts(search)[-1]], options)


def test_rounds_go_on_after_the_first_answer_and_stop_when_they_bring_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(120, 3)
    monkeypatch.setattr(annealed, "find", weak)
    options = Options(theta=LONG, settings={"effort": 0.02, "rounds": 3, "prove": False})
    first, last = weak(problem, options), schedule(problem, options)
    assert node_cost(problem, last.node) < 0.9 * node_cost(problem, first.node)
    assert is_feasible(problem, last.node)
    assert last.worker is not None
    assert any(note.startswith("stalled: the last 3 of ") for note in last.notes)
    assert any("chance below 63% (95% confidence)" in note for note in last.notes)  # 1 - 0.05 ** (1 / 3)


def test_a_better_round_begins_the_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(60, 0)
    first = weak(problem, Options())
    better = annealed.find(problem, Options(theta=LONG, settings={"effort": 0.02})).node
    made: list[int] = []

    def second_is_better(standing: lasting.Standing, effort: float, deadline: Deadline) -> list[Ints]:
        made.append(standing.rounds)
        return [better if standing.rounds == 1 else first.node]

    monkeypatch.setattr(annealed, "find", lambda problem, options: first)
    monkeypatch.setattr(lasting, "_round", second_is_better)
    answer = lasting.find(problem, Options(theta=LONG, settings={"rounds": 4, "prove": False}))
    assert made == list(range(6))  # the second brought something, and four after it nothing
    np.testing.assert_array_equal(answer.node, better)
    assert answer.notes[0].startswith("stalled: the last 4 of 6 rounds")


@pytest.mark.parametrize("seed", range(3))
def test_never_dearer_than_exact(seed: int) -> None:
    graph = random_topology(seed, operators=6, tasks_per_operator=4)
    problem = Problem(TaskGraph.expand(graph), random_cluster(seed, graph))
    options = Options(theta=LONG)
    exact, best = (find_scheduler(name).load()(problem, options) for name in ("exact", "best"))
    assert exact.proved_optimal
    assert best.proved_optimal
    assert node_cost(problem, best.node) == pytest.approx(node_cost(problem, exact.node), rel=1e-9)
    assert best.lower_bound == pytest.approx(exact.lower_bound, rel=1e-6)


def test_the_proof_brings_the_optimum_where_the_search_missed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(24, 1)
    monkeypatch.setattr(annealed, "find", weak)
    answer = lasting.find(problem, Options(theta=LONG, settings={"rounds": 0}))
    assert node_cost(problem, answer.node) < node_cost(problem, weak(problem, Options()).node)
    assert answer.proved_optimal
    assert answer.worker is not None


def test_a_search_that_the_clock_cuts_says_so() -> None:
    problem = random_problem(200, 0)
    cut = schedule(problem, Options(theta=0.05))
    assert any("the clock cut the search short" in note for note in cut.notes)
    assert any("larger --theta" in note for note in cut.notes)
    assert is_feasible(problem, cut.node)


def test_a_first_answer_that_the_clock_cuts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = (Operator("a", 4, load=1.0), Operator("b", 4, load=1.0))
    graph = OperatorGraph("alike", operators, (Stream("a", "b", "forward", 1.0),))
    problem = Problem(TaskGraph.expand(graph), Cluster.uniform([(2, 4.0)]))
    assert annealed.CUT_NOTE not in schedule(problem, Options(theta=LONG)).notes
    monkeypatch.setattr(annealed, "QUICK_PROOF_SHARE", 0.0)  # as on a machine that stood still for that long
    cut = schedule(problem, Options(theta=LONG))
    assert cut.proved_optimal  # and yet another plan of the same cost may be the answer
    assert cut.notes.count(annealed.CUT_NOTE) == 1


def test_the_proof_brings_a_bound_that_is_true() -> None:
    for seed in range(3):
        problem = random_problem(30, seed)
        quick = schedule(problem, Options(theta=LONG, settings={"rounds": 0, "prove": False}))
        proved = schedule(problem, Options(theta=LONG, settings={"rounds": 0}))
        assert quick.lower_bound <= proved.lower_bound * (1 + 1e-9)
        assert 0 < proved.lower_bound <= node_cost(problem, proved.node)


def test_whoever_asks_is_told_of_costs_that_fall_and_bounds_that_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, told = random_problem(24, 1), []
    monkeypatch.setattr(annealed, "find", weak)
    options = Options(theta=LONG, settings={"effort": 0.02, "rounds": 2})
    answer = lasting.find(problem, replace(options, progress=lambda cost, bound: told.append((cost, bound))))
    assert len(told) >= 3
    costs, bounds = zip(*told, strict=True)
    assert list(costs) == sorted(costs, reverse=True)
    assert list(bounds) == sorted(bounds)
    assert costs[-1] == pytest.approx(node_cost(problem, answer.node))
    assert bounds[-1] == answer.lower_bound


@pytest.mark.parametrize("settings", [{"rounds": -1}, {"rounds": True}, {"rounds": "many"}, {"prove": 1}])
def test_settings_that_are_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(settings))):
        schedule(random_problem(30, 0), Options(settings=settings))


@pytest.mark.parametrize(
    ("costs", "expected"),
    [([(True, 1.0), (True, 1.001), (False, 0.98)], (3, 2, 1, 1 / 3, 1, 1)), ([], (0, 0, 0, 0.0, 0, 0))],
)
def test_the_bench_counts(costs: list[tuple[bool, float]], expected: tuple[float, ...]) -> None:
    rows: list[Row] = [{"exact_proved": p, "best_proved": False, "best_over_exact": ratio} for p, ratio in costs]
    found = counts(rows)
    names = ("graphs", "exact_proved", "best_equals_proved", "share_of_all")
    names += ("best_dearer_than_exact", "best_cheaper_than_exact")
    assert tuple(found[name] for name in names) == expected


def test_applications_have_the_stated_shape() -> None:
    for seed in range(100, 120):
        problem = application(seed)
        graph = problem.graph
        assert TASKS_MIN <= graph.task_count <= TASKS_MAX
        assert graph.rate.tolist() == application(seed).graph.rate.tolist()
        assert (graph.rate == graph.rate.round()).all()
        assert len(set(graph.operator_of.tolist())) >= 4
        assert len(set(graph.load.tolist())) > 4
        assert problem.shortfalls() == []
        assert problem.cluster.capacity / graph.load.sum() >= 1.2


def test_a_terminal_sees_how_far_the_bound_is_from_the_cost() -> None:
    shown: list[tuple[int, int, str]] = []
    told = telling(lambda done, total, what: shown.append((done, total, what)))
    told(2_000.0, 0.0)
    told(1_600.0, 1_200.0)
    told(0.0, 0.0)
    assert shown[:2] == [(0, 100, "cost 2,000, no bound yet"), (75, 100, "cost 1,600, at least 1,200")]
    assert shown[2][0] == 100
