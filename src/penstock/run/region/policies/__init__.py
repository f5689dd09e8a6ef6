"""The registry of policies: every way to weigh a parallel region, one file and one signature each.

Other packages add rows by entry points (`penstock.policies`); their modules must be installed where workers run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from penstock.errors import InvalidInput
from penstock.extensions import POLICIES as GROUP
from penstock.extensions import Registry
from penstock.run.region.contract import Policy


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy by name; its module has `build(settings) -> Policy` and `SETTINGS`, its settings with defaults."""

    name: str
    summary: str
    module: str

    def build(self, settings: Mapping[str, float] | None = None) -> Policy:
        """A fresh policy for one region."""
        module = importlib.import_module(self.module)
        return cast("Policy", module.build(settings or {}))


_HERE = "penstock.run.region.policies"
POLICIES: dict[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
        PolicyEntry("adaptive", "the paper's LB-adaptive: functions that decay", f"{_HERE}.adaptive"),
        PolicyEntry("static", "the paper's LB-static: functions without decay", f"{_HERE}.static"),
        PolicyEntry("knee", "ours: the send rate of a blocked connection is its capacity", f"{_HERE}.knee"),
        PolicyEntry("round-robin", "every replica in turn", f"{_HERE}.round_robin"),
        PolicyEntry("oracle", "given weights, changed at given times", f"{_HERE}.oracle"),
        PolicyEntry("reroute", "round robin that passes a full connection by (4.4)", f"{_HERE}.reroute"),
        PolicyEntry("rebalance", "Flink's adaptive rebalance: the emptiest of four", f"{_HERE}.rebalance"),
    )
}


def _accepted(name: str, package: str, given: object) -> PolicyEntry:
    """A row of another package, once it makes a policy."""
    if not isinstance(given, PolicyEntry):
        msg = f"it names a {type(given).__name__}; name a penstock.run.region.policies.PolicyEntry"
        raise InvalidInput(msg)
    if given.name != name:
        msg = f"its row is called {given.name!r}; give both the same name"
        raise InvalidInput(msg)
    require_policy(given.build(), f"build of {given.module}")
    return given


def require_policy(made: object, who: str) -> None:
    """Refuse what is no policy."""
    if not all(hasattr(made, part) for part in ("routing", "start", "decide")):
        msg = f"{who} makes {made!r}; a policy has routing, start(replicas) and decide(sample)"
        raise InvalidInput(msg)


REGISTRY: Registry[PolicyEntry] = Registry("policy", GROUP, POLICIES, _accepted)


def find_policy(name: str) -> PolicyEntry:
    """The policy of that name, or InvalidInput listing the known ones."""
    return REGISTRY.find(name)
