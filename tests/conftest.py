"""Shared by every test: one Hypothesis profile, deterministic in CI, and no costs but the default ones."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True, scope="session")
def without_calibrated_costs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What somebody has calibrated on this machine must not decide whether a test is red."""
    nowhere = tmp_path_factory.getbasetemp() / "no-calibration" / "costs.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.optimise.calibrated_costs.costs_file", lambda: nowhere)
        yield
