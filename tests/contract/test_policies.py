"""What every policy promises, by the shipped contract, and what only ours are asked."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.errors import InvalidInput
from penstock.run.region.contract import Decision, Sample
from penstock.run.region.policies import POLICIES, find_policy, round_robin
from penstock.run.region.policies.round_robin import EvenWeights
from penstock.testing import PromiseBroken, policy_contract

for _name in POLICIES:
    globals()[f"Test_{_name.replace('-', '_')}"] = policy_contract(_name)


class Shifting(EvenWeights):
    """Moves a unit with every sample, and forgets to take it from somebody."""

    extra = 0

    def decide(self, sample: Sample) -> Decision:
        Shifting.extra += 1
        even = super().decide(sample)
        weights = (even.weights[0] + Shifting.extra, *even.weights[1:])
        return Decision(even.time_s, even.replicas, weights, even.rates, even.clusters)


def build_shifting(settings: Mapping[str, float]) -> Shifting:
    return Shifting()


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("test_every_decision_is_whole", r"weights that add up to \d+, not 1000"),
        ("test_without_blocking_nothing_moves", "though nothing blocks"),
        ("test_unknown_settings_are_refused", "accepts what it should refuse"),
    ],
)
def test_the_contract_can_fail(monkeypatch: pytest.MonkeyPatch, test: str, said: str) -> None:
    monkeypatch.setattr(round_robin, "build", build_shifting)
    contract = policy_contract("round-robin")()
    with pytest.raises(PromiseBroken, match=said):
        getattr(contract, test)()


@pytest.mark.parametrize("name", POLICIES)
def test_unknown_settings_are_refused_by_the_policys_name(name: str) -> None:
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
