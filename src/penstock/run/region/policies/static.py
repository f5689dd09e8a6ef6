"""The paper's LB-static: the balancer without decay; what once blocked is avoided for ever."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.run.region.balancer import Balancer, BalancerSettings
from penstock.run.region.contract import UNITS, Policy, checked_settings

SETTINGS = {"step_max": float(UNITS)}
LIMITS = {"step_max": (1.0, float(UNITS))}


def build(settings: Mapping[str, float]) -> Policy:
    """A balancer whose functions keep what they have learnt."""
    found = checked_settings("static", SETTINGS, settings, LIMITS)
    return Balancer(BalancerSettings(decay=0.0, step_max=int(found["step_max"])))
