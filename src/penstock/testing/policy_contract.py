"""What every policy of a parallel region promises: whole weights for all replicas, alike for the same samples.

TestMine = policy_contract("mine")
"""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.run.region.contract import UNITS, Decision, Sample
from penstock.run.region.policies import find_policy
from penstock.testing.promises import examples, require, require_refusal

MEMBERS_MAX = 40
SECONDS_MAX = 8


@st.composite
def stories(draw: st.DrawFn) -> list[Sample]:
    """Samples of a region whose replicas come and go, with meters that rise and are sometimes reset."""
    replicas = list(range(draw(st.integers(1, MEMBERS_MAX))))
    blocked, sent = dict.fromkeys(replicas, 0.0), dict.fromkeys(replicas, 0.0)
    samples: list[Sample] = []
    for second in range(1, draw(st.integers(2, SECONDS_MAX))):
        leader = draw(st.sampled_from(replicas))
        blocked[leader] += draw(st.floats(0, 1))
        for r in replicas:
            sent[r] += draw(st.integers(0, 1000))
        if draw(st.booleans()):
            blocked[leader] = 0.0
        meters = tuple(blocked[r] for r in replicas), tuple(sent[r] for r in replicas)
        samples.append(Sample(float(second), tuple(replicas), *meters))
        if draw(st.booleans()):
            new = max(blocked) + 1
            replicas.append(new)
            blocked[new] = sent[new] = 0.0
        if len(replicas) > 1 and draw(st.booleans()):
            replicas.remove(draw(st.sampled_from(replicas)))
    return samples


def policy_contract(policy: str, *, settings: Mapping[str, float] | None = None) -> type[object]:
    """Tests that hold the policy of that name to its contract; assign the class to a name that begins with Test."""
    return _contract(policy, settings or {})


def _decisions(name: str, given_settings: Mapping[str, float], story: list[Sample]) -> list[Decision]:
    policy = find_policy(name).build(given_settings)
    start = policy.start(story[0].replicas)
    require(sum(start) == UNITS, f"policy {name!r} starts with weights that add up to {sum(start)}, not {UNITS}")
    return [policy.decide(sample) for sample in story]


def _require_whole(name: str, sample: Sample, decision: Decision) -> None:
    who, count = f"policy {name!r} at {sample.time_s:g} s", len(sample.replicas)
    require(decision.replicas == sample.replicas, f"{who} decides for other replicas than it was asked about")
    require(decision.time_s == sample.time_s, f"{who} decides for {decision.time_s:g} s")
    lengths = len(decision.weights), len(decision.rates), len(decision.clusters)
    require(lengths == (count,) * 3, f"{who} has {lengths} weights, rates and clusters for {count} replicas")
    require(sum(decision.weights) == UNITS, f"{who} has weights that add up to {sum(decision.weights)}, not {UNITS}")
    whole = all(isinstance(weight, int) and weight >= 0 for weight in decision.weights)
    require(whole, f"{who} has weights that are no whole numbers from 0: {decision.weights}")
    require(all(0 <= rate <= 1 for rate in decision.rates), f"{who} has rates beyond 0 to 1: {decision.rates}")


def _contract(name: str, given_settings: Mapping[str, float]) -> type[object]:
    class PolicyContract:
        """The promises of one policy."""

        @examples(25)
        @given(story=stories())
        def test_every_decision_is_whole(self, story: list[Sample]) -> None:
            """And the same again for the same samples."""
            found = _decisions(name, given_settings, story)
            for sample, decision in zip(story, found, strict=True):
                _require_whole(name, sample, decision)
            again = _decisions(name, given_settings, story)
            require(again == found, f"policy {name!r} decides twice differently from the same samples")

        def test_without_blocking_nothing_moves(self) -> None:
            """Replicas that all keep up give no reason to move anything."""
            policy = find_policy(name).build(given_settings)
            before = policy.start((0, 1, 2))
            for second in range(1, 30):
                sample = Sample(float(second), (0, 1, 2), (0.0,) * 3, (100.0 * second,) * 3)
                now = policy.decide(sample).weights
                require(now == before, f"policy {name!r} moves from {before} to {now} though nothing blocks")

        def test_unknown_settings_are_refused(self) -> None:
            """By name, before anything runs."""
            require_refusal(lambda: find_policy(name).build({"no such": 1.0}), InvalidInput, "no such", name)

    return PolicyContract
