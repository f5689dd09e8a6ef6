"""Checks of what users hand to the builder; parameters are `object` because not every caller is type checked.

Calls that do not fit a method's signature are told with an example of one that does: Python's own TypeError counts
arguments and names an internal class. Signatures stay as they are, so that editors and type checkers know the required
arguments (`test_methods_with_an_example_keep_their_signature`). Rejected: defaults of None that are refused later,
because these tools would not know.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from penstock.errors import InvalidInput

P = ParamSpec("P")
R = TypeVar("R")


def usage(example: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a method refuse arguments that it does not take with InvalidInput and this example."""

    def with_example(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                msg = f"{method.__name__}: {error}; write for example {example}"
                raise InvalidInput(msg) from None
            return method(*args, **kwargs)

        return call

    return with_example


def require_callable(function: object, who: str, wanted: str = "a function") -> None:
    """Refuse what cannot be called."""
    if not callable(function):
        msg = f"{who} got {function!r}; give {wanted}"
        raise InvalidInput(msg)


def require_count(given: object, least: int, most: int, who: str) -> None:
    """Refuse what is no whole number in a range."""
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        msg = f"{who} is {given!r}; give a whole number from {least} to {most}"
        raise InvalidInput(msg)


def require_number(given: object, least: float, most: float, who: str) -> None:
    """Refuse what is no number in a range; NaN is in none."""
    if not isinstance(given, int | float) or isinstance(given, bool) or not least <= given <= most:
        msg = f"{who} is {given!r}; give a number from {least:g} to {most:g}"
        raise InvalidInput(msg)


def require_choice(given: object, known: Sequence[str], who: str) -> None:
    """Refuse a value that is none of the known words."""
    if given not in known:
        msg = f"{who} is {given!r}; it is {' or '.join(map(repr, known))}"
        raise InvalidInput(msg)


def choose_emit(emit: str | None, bounded: bool, who: str, known: Sequence[str]) -> str:
    """When results come out: as the user says, else at the end of input that ends."""
    if emit is None:
        return "end" if bounded or "changes" not in known else "changes"
    require_choice(emit, known, f"emit of {who}")
    return emit
