"""Jobs in virtual time: noise moves nothing, a shift moves once, a slow worker is relieved, limits hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from adapt_kit import MB, VirtualJob, pairs_graph, shifted, three_nodes

from penstock.adapt.candidate import candidates
from penstock.adapt.contract import AdaptGoals, AdaptSettings, Candidate, Look, Memory, Offer
from penstock.adapt.scene import Scene
from penstock.model.plan import Plan, Slot
from penstock.optimise.search.pressure import Pricing

GRAPH = shifted(pairs_graph())  # round robin has each heavy pair on two nodes
EVERY_10_S = AdaptSettings(goals=AdaptGoals("bytes"), interval_s=10.0, rest_s=60.0, scheduler="ols")


@pytest.mark.parametrize("first_seed", range(0, 50, 10))
def test_noise_alone_moves_nothing(first_seed: int) -> None:
    """10 minutes each: the first plan is improved once, and then noise makes the scheduler offer others in vain."""
    for seed in range(first_seed, first_seed + 10):
        noise = 0.1 if seed % 2 else 0.2
        job = VirtualJob(GRAPH, three_nodes(), EVERY_10_S, seed=seed, noise=noise)
        job.run(600)
        assert [len(decision.moves) in {6, 7} for decision in job.taken] == [True], f"seed {seed}"
        assert job.taken[0].now_s <= 60
        assert job.bytes_between_nodes() == pytest.approx(4.8 * MB)


def luckiest(look: Look, settings: AdaptSettings) -> Offer:
    """The plan that this look's noise makes cheapest of a hundred that are truly equal: pairs dealt out anew."""
    rng = np.random.default_rng(int(look.now_s))
    scene = Scene.of(look)
    pricing = Pricing.of(scene.problem, scene.pricing.seats)
    drawn = [rng.permutation(6) for _ in range(100)]
    plans = [
        {f"source/{i}": Slot(f"n{order[i] % 3}", 0) for i in range(6)}
        | {f"count/{(i + 1) % 6}": Slot(f"n{order[i] % 3}", 0) for i in range(6)}
        for order in drawn
    ]
    best = min(plans, key=lambda plan: pricing.price(*scene.places(plan)).between_nodes)
    return Offer((Candidate(Plan("lucky", 0, 0.0, 0.0, 0.0, 0.0, False, 3, 0.0, best)),))


@pytest.mark.parametrize("seed", range(10))
def test_the_luckiest_of_many_equal_plans_is_not_taken(seed: int) -> None:
    now = luckiest(VirtualJob(GRAPH, three_nodes(), EVERY_10_S).look(), EVERY_10_S).candidates[0].plan.assignment
    job = VirtualJob(GRAPH, three_nodes(), EVERY_10_S, seed, 0.2, luckiest, assignment=dict(now))
    job.run(600)
    assert job.taken == []
    assert any("to move" in decision.words for decision in job.decisions)


@pytest.mark.parametrize("goal", ["bytes", "throughput"])
def test_a_shift_of_traffic_moves_once_and_only_what_pays(goal: str) -> None:
    for seed in range(10):
        chosen = replace(EVERY_10_S, goals=AdaptGoals(goal))
        job = VirtualJob(GRAPH, three_nodes(), chosen, seed=seed, noise=0.15)
        job.run(300)
        settled = len(job.taken)
        job.graph = shifted(job.graph, 1)  # every heavy stream goes to another count
        before = job.bytes_between_nodes()
        job.run(300)
        assert len(job.taken) == settled + 1, f"seed {seed}"
        replan = job.taken[-1]
        assert replan.now_s <= 300 + 60
        assert len(replan.moves) <= 8  # of 12: most sources stay, or most counts
        assert replan.figures["gain"] > replan.figures["cost"] + replan.figures["noise"]
        assert replan.figures["bytes_then"] < replan.figures["bytes_now"] / 5
        assert job.bytes_between_nodes() < before / 5
        for move in replan.moves:
            undone = VirtualJob(job.graph, job.cluster, chosen, assignment={**job.assignment, move.task: move.origin})
            assert undone.bytes_between_nodes() > 1.05 * job.bytes_between_nodes()


@pytest.mark.parametrize("goal", ["bytes", "throughput"])
def test_hot_pairs_come_together_and_full_workers_are_split_in_one_loop(goal: str) -> None:
    """All sources on one worker and all counts on another: each is full, every heavy stream crosses, a third idles."""
    chosen = replace(EVERY_10_S, goals=AdaptGoals(goal), scheduler="best", theta=0.3)
    apart = {f"{name}/{i}": Slot(node, 0) for name, node in (("source", "n0"), ("count", "n1")) for i in range(6)}
    job = VirtualJob(pairs_graph(load=0.15), three_nodes(), chosen, noise=0.1, assignment=apart)
    assert job.bytes_between_nodes() == pytest.approx(66 * MB)
    job.run(120)
    assert job.bytes_between_nodes() == pytest.approx(4.8 * MB)
    assert max(job.load_of(Slot(f"n{k}", 0)) for k in range(3)) <= 0.8
    assert len(job.taken) == 1


@pytest.mark.parametrize("goal", ["bytes", "throughput"])
def test_a_straggler_is_relieved_within_three_intervals(goal: str) -> None:
    chosen = replace(EVERY_10_S, goals=AdaptGoals(goal), scheduler="best", theta=0.3)
    job = VirtualJob(pairs_graph(load=0.08), three_nodes(), chosen, noise=0.15)
    job.run(60)
    workers = [Slot(f"n{k}", 0) for k in range(3)]
    slow = max(workers, key=job.load_of)
    job.memory, before = Memory(), job.load_of(slow)  # it does not rest
    job.speed = {slot: 0.2 if slot == slow else 1.05 for slot in workers}
    decisions = [job.step() for _ in range(3)]
    assert sum(decision.taken for decision in decisions) == 1
    assert "runs at 0.2 of its speed" in next(d.words for d in decisions if d.taken)
    assert job.load_of(slow) <= 0.2 * 0.8 < before
    job.run(120)
    assert job.load_of(slow) <= 0.2 * 0.8


@pytest.mark.parametrize("goal", ["bytes", "throughput"])
@pytest.mark.parametrize("others", [1.0, 0.8])  # what sound workers have of their cores
def test_a_straggler_that_holds_the_job_back_is_relieved_within_three_intervals(goal: str, others: float) -> None:
    """It shows no more load than it can do, and its speed is read off its thread's waiting: as a real job has it."""
    chosen = replace(EVERY_10_S, goals=AdaptGoals(goal), scheduler="best", theta=0.3)
    workers = [Slot(f"n{k}", 0) for k in range(3)]
    for seed in range(2):
        job = VirtualJob(pairs_graph(load=0.09), three_nodes(), chosen, seed, noise=0.1)
        job.cores = dict.fromkeys(workers, others)
        job.run(60)
        slow = max(workers, key=job.load_of)
        job.memory, before, before_it = Memory(), job.load_of(slow), len(job.taken)
        job.cores[slow] = others / 5
        assert job.held_back() < 1
        decisions = [job.step() for _ in range(3)]
        taken = [decision for decision in decisions if decision.taken]
        assert len(taken) == 1, [decision.words for decision in decisions]
        assert f"worker 0 of {slow.node!r} runs at" in taken[0].words
        assert job.load_of(slow) < before
        assert job.held_back() == 1  # the plan has room for what comes when nothing is held back any more
        job.run(120)
        assert job.held_back() == 1
        assert len(job.taken) <= before_it + 2


def test_a_straggler_among_workers_of_one_node_is_emptied() -> None:
    chosen = replace(EVERY_10_S, scheduler="t3")
    job = VirtualJob(pairs_graph(load=0.15), three_nodes(workers=2), chosen, noise=0.1)
    job.run(120)
    slow = max((Slot(f"n{k}", w) for k in range(3) for w in range(2)), key=job.load_of)
    job.speed = {slow: 0.1}
    job.run(120)
    assert job.load_of(slow) <= 0.1
    for decision in job.taken:
        assert decision.cluster is not None


def test_moves_rest_and_stay_within_their_limit() -> None:
    chosen = replace(EVERY_10_S, moves_max=3, rest_s=45.0)
    job = VirtualJob(GRAPH, three_nodes(), chosen, noise=0.1)
    job.run(600)
    moved = [len(decision.moves) for decision in job.taken]
    assert sum(moved) == 6
    assert max(moved) == 3
    for before, after in pairwise(job.taken):
        assert after.now_s - before.now_s >= 45.0 + 10.0  # rest, a proposal, and a look that confirms it
    assert job.bytes_between_nodes() == pytest.approx(4.8 * MB)


def test_the_same_seed_makes_the_same_history() -> None:
    histories = []
    for _ in range(2):
        job = VirtualJob(GRAPH, three_nodes(), EVERY_10_S, seed=3, noise=0.2, offering=candidates)
        histories.append([decision.row() for decision in job.run(120)])
    assert histories[0] == histories[1]
