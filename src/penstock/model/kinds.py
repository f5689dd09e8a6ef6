"""Refusals of what users hand in that is of another kind; parameters are `object` because not every caller is typed."""

from __future__ import annotations

from types import UnionType

from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster
from penstock.model.profile import Profile


def require_kind(given: object, kind: type | UnionType, who: str, wanted: str) -> None:
    """Refuse what is no instance of a class (or of any of a union)."""
    if not isinstance(given, kind):
        msg = f"{who} got {given!r}; give {wanted}"
        raise InvalidInput(msg)


def require_cluster(given: object) -> None:
    """Refuse what is no cluster."""
    require_kind(given, Cluster, "cluster", "a penstock.Cluster, such as penstock.parse_cluster('3x3') makes")


def require_profile(given: object) -> None:
    """Refuse what is neither a profile nor None."""
    wanted = "a penstock.Profile, such as penstock.read_profile('profile.json') returns"
    require_kind(given, Profile | None, "profile", wanted)
