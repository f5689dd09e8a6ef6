"""The integer program against brute force, and the refinement's running sums against fresh ones."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from fuse_kit import random_case

from penstock.errors import UserError
from penstock.model.taskgraph import Longs
from penstock.optimise.contract import Deadline
from penstock.optimise.fuse.contract import Case, FuseOptions
from penstock.optimise.fuse.door import prepared
from penstock.optimise.fuse.steps.assign import NEAR, schedule_workers
from penstock.optimise.fuse.steps.feasibility import find_clash
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph
from penstock.optimise.fuse.steps.refine import _Board, refined, scored
from penstock.optimise.fuse.steps.workers import keeps_rules

NEVER = Deadline(math.inf)


def sound_case(seed: int, **options: float) -> Case | None:
    graph, cluster = random_case(seed)
    try:
        case = prepared(graph, cluster, options=FuseOptions(**options))  # type: ignore[arg-type]
    except UserError:
        return None
    return None if find_clash(case.problem) is not None else case


def least_utilisation(graph: FuseGraph, part: Longs) -> float:
    """Over all nodes for all workers, by trying; infinite when none keeps the rules."""
    best = math.inf
    sizes = graph.sizes(part)
    for host in itertools.product(range(len(graph.capacity)), repeat=len(sizes)):
        if keeps_rules(graph, part, np.array(host, dtype=np.int32)):
            used = np.bincount(host, sizes, minlength=len(graph.capacity)) / graph.capacity
            best = min(best, float(used.max()))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_the_program_finds_the_least_utilisation(seed: int) -> None:
    case = sound_case(seed)
    if case is None:
        return
    graph = case.graph
    part = np.arange(graph.count, dtype=np.int64)  # what the rules part is parted
    truth = least_utilisation(graph, part)
    found = schedule_workers(graph, part, NEVER)
    if found is None:
        assert truth == math.inf
        return
    assert keeps_rules(graph, part, found.host)
    assert truth - 1e-9 <= found.utilisation
    if truth <= 1.0:  # beyond, any schedule that keeps the rules is good enough
        assert found.utilisation <= truth * (1 + NEAR) + 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_moves_keep_the_sums_true_and_the_rules_kept(seed: int) -> None:
    case = sound_case(seed)
    if case is None:
        return
    graph = case.graph
    schedule = schedule_workers(graph, np.arange(graph.count, dtype=np.int64), NEVER)
    if schedule is None:
        return
    board = _Board(graph, scored(case, graph, np.arange(graph.count, dtype=np.int64), schedule.host))
    random = np.random.default_rng(seed)
    for _ in range(8):
        allowed = np.argwhere(board.admitted(np.zeros(graph.count, dtype=bool)))
        if not len(allowed):
            return
        v, w = random.choice(allowed).tolist()
        utilisation, communication = board.outcomes()
        board.move(v, w)
        state = board.state(case)
        used = np.bincount(state.host, graph.sizes(state.part), minlength=len(graph.capacity)) / graph.capacity
        assert board.utilisation == pytest.approx(float(used.max()))
        assert utilisation[v, w] == pytest.approx(float(used.max()))
        assert board.communication == pytest.approx(graph.communication(state.part), abs=1e-12)
        assert communication[v, w] == pytest.approx(graph.communication(state.part), abs=1e-12)
        assert keeps_rules(graph, state.part, state.host)


@pytest.mark.parametrize("balance", [0.0, 0.6])
@pytest.mark.parametrize("seed", range(20))
def test_refinement_never_makes_worse_and_keeps_every_limit(seed: int, balance: float) -> None:
    case = sound_case(seed, balance=balance)
    if case is None:
        return
    graph = case.graph
    schedule = schedule_workers(graph, np.arange(graph.count, dtype=np.int64), NEVER)
    if schedule is None or not schedule.is_feasible:
        return
    start = scored(case, graph, np.arange(graph.count, dtype=np.int64), schedule.host)
    end = refined(case, graph, start, NEVER)
    assert end.score <= start.score
    assert end.score[1] <= 1 + 1e-9
    assert keeps_rules(graph, end.part, end.host)
