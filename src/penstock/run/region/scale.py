"""Which region a user means, and whether it can have the number of replicas that is asked for. Pure."""

from __future__ import annotations

from penstock.errors import InvalidInput
from penstock.run.dataflow import Dataflow


def region_of(dataflow: Dataflow, name: str) -> str | None:
    """The region of that name, or of which the operator of that name is a part."""
    parts = {operator.name: operator.region.region for operator in dataflow.operators if operator.region is not None}
    return name if name in dataflow.regions() else parts.get(name)


def region_to_scale(dataflow: Dataflow, name: str, replicas: int) -> str:
    """The region of that name, or of which the operator of that name is a part; InvalidInput where it cannot be."""
    most = dataflow.regions()
    region = region_of(dataflow, name)
    if region is None:
        if any(operator.name == name for operator in dataflow.operators):
            msg = f"operator {name!r} is in no parallel region, so it cannot be scaled; regions: {_listed(most)}"
            raise InvalidInput(msg)
        raise InvalidInput.unknown_name(kind="parallel region", name=name, known=most or ("none",))
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 1 <= replicas <= most[region]:
        msg = (
            f"region {region!r} was asked for {replicas!r} replicas; it can have 1 to {most[region]}; "
            f"for more start it with parallel(n, at_most=m)"
        )
        raise InvalidInput(msg)
    return region


def _listed(most: dict[str, int]) -> str:
    return ", ".join(map(repr, most)) or "none"
