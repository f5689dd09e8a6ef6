"""The paper's LB-static: the balancer without decay; what once blocked is avoided for ever."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.run.region.balancer import Balancer, BalancerSettings
from penstock.run.region.contract import UNITS, Policy, checked_settings

SETTINGS = {"step_max": float(UNITS), "rise_max": float(UNITS), "least": 0.0}
LIMITS = {"step_max": (1.0, float(UNITS)), "rise_max": (1.0, float(UNITS)), "least": (0.0, float(UNITS))}


def build(settings: Mapping[str, float]) -> Policy:
    """A balancer whose functions keep what they have learnt."""
    found = checked_settings("static", SETTINGS, settings, LIMITS)
    bounds = {name: int(found[name]) for name in ("step_max", "rise_max", "least")}
    return Balancer(BalancerSettings(decay=0.0, **bounds))
