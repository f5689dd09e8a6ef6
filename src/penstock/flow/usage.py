"""Errors for calls that do not fit a method's signature, with an example of a call that does.

Python's own TypeError counts arguments and names an internal class. Signatures stay as they are, so that editors and
type checkers know the required arguments (`test_methods_with_an_example_keep_their_signature`). Rejected: defaults of
None that are refused later, because these tools would not know.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
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
