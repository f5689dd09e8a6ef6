"""What a contract says when it is not kept: an AssertionError with a sentence, whatever runs the tests."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, settings

from penstock.errors import PenstockError


class PromiseBroken(AssertionError):
    """A scheduler or a policy did what its contract forbids."""


def examples(most: int) -> settings:
    """A number of examples, however long one takes: a search has a time limit of its own."""
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def require(kept: bool, broken: str) -> None:
    """Raise PromiseBroken unless a promise is kept."""
    if not kept:
        raise PromiseBroken(broken)


def require_refusal(call: Callable[[], object], error: type[PenstockError], said: str, who: str) -> None:
    """Raise PromiseBroken unless a call is refused with this error and these words in it."""
    try:
        call()
    except error as refusal:
        require(said in str(refusal), f"{who} refuses with {str(refusal)!r}; it should say {said!r}")
    else:
        msg = f"{who} accepts what it should refuse with {error.__name__}: {said}"
        raise PromiseBroken(msg)
