"""The native placement core against plain recomputation: costs, limits, determinism, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _core
from penstock.model.taskgraph import Floats, Ints

EFFORT = _core.Effort(visits=2_000.0, hot=2.0, warm=2.0, cold=0.1, coarse_share=0.5, cluster_share=0.3, rounds=2)


class Instance:
    """Random tasks, edges and nodes, with oracles in numpy that share nothing with the core."""

    def __init__(self, seed: int, tasks: int, nodes: int, memory: bool, bandwidth: bool, room: float) -> None:
        random = np.random.default_rng(seed)
        edges = int(random.integers(0, 4 * tasks))
        self.load = random.lognormal(0, 0.7, tasks)
        self.memory = random.lognormal(0, 0.7, tasks)
        self.source = random.integers(0, tasks, edges).astype(np.int32)
        self.target = random.integers(0, tasks, edges).astype(np.int32)
        self.rate = random.lognormal(0, 1, edges)
        share = random.uniform(0.5, 1.5, nodes)
        share *= room / share.sum()
        self.load_max = np.maximum(self.load.sum() * share, 0.1)
        self.memory_max = self.memory.sum() * share * 1.3 if memory else np.full(nodes, np.inf)
        self.bandwidth_max = np.full(nodes, 0.6 * self.rate.sum() + 0.1) if bandwidth else np.full(nodes, np.inf)
        self.network = _core.Network(
            self.load,
            self.memory,
            self.source,
            self.target,
            self.rate,
            self.load_max,
            self.memory_max,
            self.bandwidth_max,
        )

    def cost(self, node: Ints) -> float:
        """Rates between different nodes."""
        return float(self.rate[node[self.source] != node[self.target]].sum())

    def excesses(self, node: Ints) -> Floats:
        """Relative excess of every node in load, memory, sent and received, one after the other."""
        nodes = len(self.load_max)
        crossing = node[self.source] != node[self.target]
        amounts = (
            (np.bincount(node, self.load, nodes), self.load_max),
            (np.bincount(node, self.memory, nodes), self.memory_max),
            (np.bincount(node[self.source[crossing]], self.rate[crossing], nodes), self.bandwidth_max),
            (np.bincount(node[self.target[crossing]], self.rate[crossing], nodes), self.bandwidth_max),
        )
        return np.concatenate([np.maximum(0.0, amount / limit - 1.0) for amount, limit in amounts])


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Small instances with every mixture of limits, from loose to impossible."""
    return Instance(
        seed=draw(st.integers(0, 10_000)),
        tasks=draw(st.integers(1, 40)),
        nodes=draw(st.integers(1, 8)),
        memory=draw(st.booleans()),
        bandwidth=draw(st.booleans()),
        room=draw(st.sampled_from([0.9, 1.1, 1.5, 3.0])),
    )


def any_placement(instance: Instance, seed: int) -> Ints:
    random = np.random.default_rng(seed)
    return random.integers(0, len(instance.load_max), len(instance.load)).astype(np.int32)


@given(instances(), st.integers(0, 1_000))
def test_cost_and_overload_are_those_of_plain_sums(instance: Instance, seed: int) -> None:
    node = any_placement(instance, seed)
    assert instance.network.cost(node) == pytest.approx(instance.cost(node), rel=1e-5, abs=1e-6)
    assert instance.network.overload(node) == pytest.approx(instance.excesses(node).sum(), rel=1e-6, abs=1e-9)


@given(instances(), st.integers(0, 1_000))
def test_random_moves_and_swaps_keep_the_books(instance: Instance, seed: int) -> None:
    node = any_placement(instance, seed)
    after, cost, load, sent, received = instance.network.trial(node, seed, 60)
    crossing = after[instance.source] != after[instance.target]
    nodes = len(instance.load_max)
    assert cost == pytest.approx(instance.cost(after), rel=1e-4, abs=1e-4)
    np.testing.assert_allclose(load, np.bincount(after, instance.load, nodes), rtol=1e-9, atol=1e-9)
    if np.isfinite(instance.bandwidth_max).any():
        out = np.bincount(after[instance.source[crossing]], instance.rate[crossing], nodes)
        into = np.bincount(after[instance.target[crossing]], instance.rate[crossing], nodes)
        np.testing.assert_allclose(sent, out, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(received, into, rtol=1e-9, atol=1e-9)


@given(instances(), st.integers(0, 1_000))
def test_no_search_leaves_a_feasible_region_or_raises_the_cost(instance: Instance, seed: int) -> None:
    network = instance.network
    start = network.repair(any_placement(instance, seed), seed, 20_000, 5.0)
    before = instance.excesses(start)
    found = {
        "anneal": network.anneal(start, 4.0, 0.1, 20, seed, 5.0),
        "halves": network.anneal_in_halves(start, 4.0, 0.1, 20, 3, seed, 5.0),
        "refine": network.refine(start, 5, 5.0),
    }
    if before.sum() == 0:
        found["evolve"] = network.evolve([start], 4, 6, 5, 10, 5, seed, 5.0)
    for name, node in found.items():
        assert (instance.excesses(node) <= before + 1e-9).all(), name
        if before.sum() == 0:
            assert instance.excesses(node).sum() <= 1e-9, name
            assert instance.cost(node) <= instance.cost(start) * (1 + 1e-5) + 1e-5, name


@given(instances(), st.integers(0, 1_000))
def test_repair_never_adds_overload_and_everyone_stays_placed(instance: Instance, seed: int) -> None:
    order = np.arange(len(instance.load_max), dtype=np.int32)
    for node in (
        instance.network.repair(any_placement(instance, seed), seed, 5_000, 5.0),
        instance.network.grow(order, seed),
        instance.network.pack(0.5),
        instance.network.multilevel(order, EFFORT, seed, 5.0),
    ):
        assert node.shape == instance.load.shape
        assert node.min() >= 0
        assert node.max() < len(instance.load_max)


def test_repair_finds_a_perfect_packing() -> None:
    """Four nodes of 10 and tasks that fill them exactly: 6+4, 7+3, 5+5, 8+2; all start on one node."""
    load = np.array([6.0, 4, 7, 3, 5, 5, 8, 2])
    none = np.empty(0, np.int32)
    full, free = np.full(4, 10.0 + 1e-8), np.full(4, np.inf)
    network = _core.Network(load, np.zeros(8), none, none, np.empty(0), full, free, free)
    node = network.repair(np.zeros(8, np.int32), 1, 100_000, 5.0)
    assert sorted(np.bincount(node, load, 4)) == pytest.approx([10.0] * 4)


def test_same_seed_same_answer_and_another_seed_another() -> None:
    instance = Instance(seed=5, tasks=400, nodes=30, memory=False, bandwidth=False, room=1.3)
    order = np.arange(30, dtype=np.int32)
    runs = [instance.network.multilevel(order, EFFORT, seed, 60.0) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()
    crossed = [instance.network.evolve(runs[:1], 4, 8, 10, 20, 10, 3, 60.0) for _ in range(2)]
    np.testing.assert_array_equal(crossed[0], crossed[1])


@given(instances(), st.integers(1, 7), st.integers(0, 100))
def test_split_workers_keeps_its_limits(instance: Instance, most: int, seed: int) -> None:
    node = any_placement(instance, seed)
    slots = np.random.default_rng(seed).integers(1, 5, len(instance.load_max)).astype(np.int32)
    worker = instance.network.split_workers(node, slots, most, 1.0, seed)
    for k in range(len(slots)):
        mine = worker[node == k]
        if len(mine) == 0:
            continue
        allowed = min(-(-len(mine) // most), int(slots[k]))
        sizes = np.bincount(mine)
        assert sizes.min() > 0, "numbers have gaps"
        assert len(sizes) <= allowed
        assert sizes.max() <= max(most, -(-len(mine) // allowed))


def test_malformed_arrays_are_refused() -> None:
    one, none, free = np.ones(1), np.empty(0, np.int32), np.full(1, np.inf)

    def build(**changed: object) -> _core.Network:
        fields: dict[str, object] = {
            "load": one, "memory": one, "source": none, "target": none, "rate": np.empty(0),
            "load_max": one, "memory_max": free, "bandwidth_max": free,
        }  # fmt: skip
        return _core.Network(**{**fields, **changed})  # type: ignore[arg-type]

    network = build()
    with pytest.raises(ValueError, match="source holds 1; it must be from 0 to 0"):
        build(source=np.ones(1, np.int32), target=np.zeros(1, np.int32), rate=one)
    with pytest.raises(ValueError, match="rate has 1 entries; it must have 0"):
        build(rate=one)
    with pytest.raises(ValueError, match="load holds nan"):
        build(load=np.array([np.nan]))
    with pytest.raises(ValueError, match="load holds -1"):
        build(load=-one)
    with pytest.raises(ValueError, match="node holds 3"):
        network.cost(np.full(1, 3, np.int32))
    with pytest.raises(ValueError, match="node has 2 entries"):
        network.cost(np.zeros(2, np.int32))
    with pytest.raises(ValueError, match="temperatures"):
        network.anneal(np.zeros(1, np.int32), 0.1, 1.0, 5, 0, 1.0)
    with pytest.raises(ValueError, match="at least one start"):
        network.evolve([], 4, 4, 4, 4, 4, 0, 1.0)
    with pytest.raises(ValueError, match="at least one task"):
        network.split_workers(np.zeros(1, np.int32), np.ones(1, np.int32), 0, 1.0, 0)
