"""What streams say when they are asked for an operator that they do not have.

A bare AttributeError names a class of ours; users want to know what to write instead. The error is an AttributeError
as well, because `hasattr`, `copy` and notebooks ask objects for names that are not there and expect one.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from penstock.errors import NoSuchOperator

KEYED = ("aggregate", "count", "process", "reduce")  # what only rows with keys can do


def no_operator(who: str, name: str, known: Iterable[str]) -> NoSuchOperator:
    """The error for a name that nothing has, with the names that come near, or else all of them."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return NoSuchOperator(f"{who} has no operator {name!r}; {hint}")


def without_keys(operator: str, name: str) -> NoSuchOperator:
    """The error for a keyed operator on rows without keys."""
    return NoSuchOperator(f"{name} of {operator!r} needs keys; write key_by('column').{name}(...)")


def public_names(kind: type) -> list[str]:
    """The operators of a class of streams, for users."""
    inner = {"read", "regrouped", "side", "then", "event_column"}  # for other streams
    return [
        name for name in dir(kind) if not name.startswith("_") and name not in inner and callable(getattr(kind, name))
    ]


def is_field_or_private(kind: type, name: str) -> bool:
    """Names for which Python's own error is right: an object that is only half made has no fields yet."""
    return name.startswith("_") or name in getattr(kind, "__dataclass_fields__", ())
