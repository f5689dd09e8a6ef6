"""`best` and `exact` end with theta: one deadline goes through every step, and each leaves those after it their share.

Time is a number here: steps that are stubs let it pass, so nothing hangs on how busy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from best_kit import slotted

from penstock.errors import NoPlanFound
from penstock.model.cluster import Cluster
from penstock.model.constraints import Apart
from penstock.model.taskgraph import Ints, TaskGraph
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.fuse.contract import METHODS, Case, Fused, FuseOptions
from penstock.optimise.fuse.steps.partition import Partitioner
from penstock.optimise.objective import node_cost
from penstock.optimise.place import best, constrained, exact
from penstock.optimise.search import annealed, lasting, seatable
from penstock.optimise.seats import unseated
from penstock.testing.instances import random_cluster, random_topology

NEVER = Deadline(math.inf)


def apart(operators: int, tasks: int, seed: int = 1) -> Problem:
    """A topology whose first two operators may not share a node."""
    graph = random_topology(seed, operators=operators, tasks_per_operator=tasks)
    nodes = tuple(replace(node, worker_capacity=None) for node in random_cluster(seed, graph).nodes)
    rule = Apart("node", (graph.operators[0].name, graph.operators[1].name))
    return Problem(TaskGraph.expand(graph), Cluster(nodes), (rule,))


def slotted_problem(operators: int, tasks: int) -> Problem:
    graph, cluster = slotted(operators, tasks)
    return Problem(TaskGraph.expand(graph), cluster)


@dataclass
class Told:
    """A clock that goes on when steps say so, and what each of them was given."""

    now: float = 0.0
    steps: list[tuple[str, float]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def spend(self, step: str, seconds: float) -> None:
        self.steps.append((step, round(seconds, 9)))
        self.now += seconds

    def given(self, step: str) -> list[float]:
        return [seconds for name, seconds in self.steps if name == step]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Every step under constraints uses up all that it is given."""
    clock, find = Told(), annealed.find

    def slow_find(problem: Problem, options: Options) -> Placement:
        assert options.theta is not None
        clock.spend("find", options.theta)
        return find(problem, replace(options, theta=60.0, settings={"effort": 0.01}))

    def slow_refined(case: Case, graph: object, node: Ints, until: Deadline) -> Ints:
        clock.spend("refined", until.remaining)
        return node

    def slow_fuse(case: Case) -> Fused:
        assert case.until is not None
        clock.spend("fuse", case.until.remaining)
        msg = "nothing"
        raise NoPlanFound(msg)

    def slow_program(problem: Problem, rules: object, start: object, until: Deadline) -> tuple[list[Ints], float]:
        clock.spend("program", until.remaining)
        return [], 0.0

    monkeypatch.setattr(constrained.annealed, "find", slow_find)
    monkeypatch.setattr(constrained, "_refined", slow_refined)
    monkeypatch.setattr(constrained.fuse_best, "fuse", slow_fuse)
    monkeypatch.setattr(constrained, "by_program", slow_program)
    return clock


@pytest.mark.parametrize("theta", [0.5, 4.0, 10.0, 100.0])
@pytest.mark.parametrize("brief", [True, False])
def test_one_deadline_goes_through_all_steps(told: Told, theta: float, brief: bool) -> None:
    constrained.schedule(apart(10, 4), Options(theta=theta), brief=brief, clock=told)
    assert told.now <= theta * (1 - constrained.SEATING_SHARE) * (1 + 1e-9)
    if brief:
        assert {name for name, _ in told.steps} == {"find", "refined"}
    else:
        assert {name for name, _ in told.steps} >= {"find", "program"}
        kinds = [name for name, _ in told.steps]
        after = sum(seconds for _, seconds in told.steps[kinds.index("program") + 1 :])
        assert after >= 0.9 * constrained.ROUNDS_SHARE * theta  # rounds have their share after fusion and the program


@pytest.mark.parametrize("theta", [4.0, 10.0])
def test_fusion_is_not_begun_without_its_time(told: Told, theta: float) -> None:
    constrained.schedule(apart(20, 5), Options(theta=theta), clock=told)
    assert told.given("fuse") == []
    constrained.schedule(apart(8, 4), Options(theta=theta), clock=told)
    assert told.given("fuse") == [pytest.approx(constrained.FUSION_SHARE * theta)]


def test_best_takes_the_steps_of_exact_under_constraints(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule: Callable[..., Placement] = constrained.schedule
    monkeypatch.setattr(
        constrained, "schedule", lambda problem, options, **how: schedule(problem, options, clock=told, **how)
    )
    steps: list[list[tuple[str, float]]] = []
    for scheduler in (exact, best):
        told.now, told.steps = 0.0, []
        scheduler.schedule(apart(10, 4), Options(theta=4.0))
        steps.append(told.steps)
    assert steps[0] == steps[1]
    assert "program" in {name for name, _ in steps[0]}


@pytest.mark.parametrize(("theta", "brief"), [(1.0, True), (1.99, True), (2.0, False), (3.9, False)])
def test_jobs_under_constraints_have_all_steps_from_two_seconds_on(
    monkeypatch: pytest.MonkeyPatch, theta: float, brief: bool
) -> None:
    asked: list[bool] = []
    schedule = constrained.schedule

    def looked(problem: Problem, options: Options, *, brief: bool = False) -> Placement:
        asked.append(brief)
        return schedule(problem, options, brief=True)

    monkeypatch.setattr(constrained, "schedule", looked)
    best.schedule(apart(10, 3), Options(theta=theta, settings={"goal": "throughput"}))
    assert asked == [brief]


@pytest.mark.parametrize("method", ["cola", "cola-basic"])
def test_fusion_stops_at_a_stated_moment_without_an_answer(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    clock, find, cuts = Told(), Partitioner._found, []

    def slow(partitioner: Partitioner, vertices: Ints, pairs: Ints | None) -> object:
        clock.spend("cut", 1.0)
        cuts.append(len(vertices))
        return find(partitioner, vertices, pairs)

    monkeypatch.setattr(Partitioner, "_found", slow)
    problem = apart(10, 4)
    case = Case(problem, FuseOptions(balance=0.0, stream_cost=1e-9))
    METHODS[method].load()(case)
    assert len(cuts) >= 2
    clock.now, done = 0.0, len(cuts)
    with pytest.raises(NoPlanFound, match="time for fusion was over"):
        METHODS[method].load()(replace(case, splits={}, until=Deadline(1.0, clock)))
    assert len(cuts) - done == 1


def test_a_share_of_theta_is_kept_for_seating_where_slots_are_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    given, ends, find = [], [], annealed.find

    def looked(problem: Problem, options: Options) -> Placement:
        given.append(options.theta)
        return find(problem, replace(options, theta=60.0, settings={"effort": 0.01}))

    def seats(
        problem: Problem, options: Options, found: Placement, deadline: Deadline, seconds: float, also: object
    ) -> Placement:
        ends.append(seconds)
        return found

    monkeypatch.setattr(annealed, "find", looked)
    monkeypatch.setattr(lasting, "seatable", seats)
    problem = slotted_problem(5, 6)
    plain = Problem(problem.graph, Cluster(tuple(replace(n, slots=None) for n in problem.cluster.nodes)))
    for each in (problem, plain):
        lasting.find(each, Options(theta=10.0, settings={"rounds": 0, "prove": False}))
    assert given == [pytest.approx(7.0), 10.0]
    assert ends == [pytest.approx(3.0), 0.0]


def test_seating_ends_with_the_deadline_once_a_placement_has_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = slotted_problem(12, 6)
    crowded = annealed.find(problem, Options(theta=60.0, settings={"effort": 0.02}))
    assert unseated(problem, crowded.node, Options())
    clock, asked, find = Told(), [], annealed.find

    def slow(smaller: Problem, options: Options) -> Placement:
        asked.append(options.theta)
        clock.spend("find", 1.0)
        return find(smaller, replace(options, theta=60.0, settings={"effort": 0.01}))

    monkeypatch.setattr(annealed, "find", slow)
    for seconds in (0.0, 1.5):
        clock.now, asked[:] = 0.0, []
        found = seatable.seatable(problem, Options(), crowded, Deadline(seconds, clock), 0.8)
        assert unseated(problem, found.node, Options()) == []
        assert len(asked) == math.ceil(seconds)
        assert all(theta == pytest.approx(0.1) for theta in asked)
        assert annealed.CUT_NOTE in found.notes


def test_moving_tasks_off_crowded_nodes_costs_little() -> None:
    problem = slotted_problem(12, 6)
    crowded = annealed.find(problem, Options(theta=60.0, settings={"effort": 0.02})).node
    seeking = seatable._Seeking(problem, Options(), NEVER, 1.0)
    seeking.offer(seatable._moved_off(seeking, crowded))
    assert seeking.cost < 1.15 * node_cost(problem, crowded)
    others = seatable._Seeking(problem, Options(), NEVER, 1.0)
    others.offer([*annealed.others(problem, Options(), 1.0), *seatable._by_slots(problem)])
    assert seeking.cost < 0.9 * others.cost  # which were the answer before


def test_starts_by_metis_go_by_theta_and_edges() -> None:
    assert annealed.metis_starts(1_000, 6_000, 1.0) == annealed.METIS_STARTS
    for tasks, edges, theta in ((600, 11_700, 0.3), (2_000, 78_800, 1.0)):
        seconds = annealed.METIS_TASK_SECONDS * tasks + annealed.METIS_EDGE_SECONDS * edges
        assert 1 <= annealed.metis_starts(tasks, edges, theta) <= max(1.0, annealed.METIS_SHARE * theta / seconds)
    search = annealed.Search(problem := slotted_problem(10, 4), annealed.native(problem), NEVER, 0, 1.0, 0.0)
    assert len(annealed._own_guesses(search)) == 1 + len(annealed.node_orders(search))
    np.testing.assert_array_equal(
        annealed._own_guesses(search)[1], search.network.grow(annealed.node_orders(search)[0], 0)
    )
