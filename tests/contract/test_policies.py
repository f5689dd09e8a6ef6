"""What every policy promises: weights that add up, for whoever is there, and the same for the same samples."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.run.region.contract import UNITS, Decision, Sample
from penstock.run.region.policies import POLICIES, find_policy

blocking = st.floats(0, 1)


@st.composite
def stories(draw: st.DrawFn) -> list[Sample]:
    """Samples of a region whose replicas come and go, with meters that rise and are sometimes reset."""
    members = draw(st.integers(1, 40))
    replicas = list(range(members))
    blocked, sent = dict.fromkeys(replicas, 0.0), dict.fromkeys(replicas, 0.0)
    samples: list[Sample] = []
    for second in range(1, draw(st.integers(2, 8))):
        leader = draw(st.sampled_from(replicas))
        blocked[leader] += draw(blocking)
        for r in replicas:
            sent[r] += draw(st.integers(0, 1000))
        if draw(st.booleans()):
            blocked[leader] = 0.0
        samples.append(
            Sample(
                float(second), tuple(replicas), tuple(blocked[r] for r in replicas), tuple(sent[r] for r in replicas)
            )
        )
        if draw(st.booleans()):
            new = max(blocked) + 1
            replicas.append(new)
            blocked[new] = sent[new] = 0.0
        if len(replicas) > 1 and draw(st.booleans()):
            replicas.remove(draw(st.sampled_from(replicas)))
    return samples


def decisions(name: str, story: list[Sample]) -> list[Decision]:
    policy = find_policy(name).build()
    start = policy.start(story[0].replicas)
    assert sum(start) == UNITS
    return [policy.decide(sample) for sample in story]


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None)
@given(story=stories())
def test_every_decision_is_whole(name: str, story: list[Sample]) -> None:
    found = decisions(name, story)
    for sample, decision in zip(story, found, strict=True):
        assert decision.replicas == sample.replicas
        assert decision.time_s == sample.time_s
        assert len(decision.weights) == len(decision.rates) == len(decision.clusters) == len(sample.replicas)
        assert sum(decision.weights) == UNITS
        assert all(isinstance(w, int) and w >= 0 for w in decision.weights)
        assert all(0 <= rate <= 1 for rate in decision.rates)
    assert decisions(name, story) == found


@pytest.mark.parametrize("name", POLICIES)
def test_without_blocking_nothing_moves(name: str) -> None:
    policy = find_policy(name).build()
    before = policy.start((0, 1, 2))
    for second in range(1, 30):
        sent = (100.0 * second,) * 3
        assert policy.decide(Sample(float(second), (0, 1, 2), (0.0,) * 3, sent)).weights == before


@pytest.mark.parametrize("name", POLICIES)
def test_unknown_settings_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"unknown setting of policy '{name}'"):
        find_policy(name).build({"speed": 1.0})


def test_unknown_policies_list_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="unknown policy 'best'; known: adaptive, static"):
        find_policy("best")


def test_steps_are_bounded_where_asked() -> None:
    policy = find_policy("adaptive").build({"step_max": 20})
    before = policy.start((0, 1))
    for second in range(1, 10):
        decision = policy.decide(Sample(float(second), (0, 1), (0.9 * second, 0.0), (1.0, 1.0)))
        assert max(abs(a - b) for a, b in zip(before, decision.weights, strict=True)) <= 20
        before = decision.weights
    assert before[0] < 500
