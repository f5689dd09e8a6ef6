"""Errors that file systems answer with while everybody lives, and threads that stand still alone.

What is refused is not done, done half, or, by an object store whose answer got lost, done all the same. Who is refused
something may end its attempt, or the driver's run, by that error and no other; what it had done must stay right. Reads
are refused as by a store that does not answer: an EIO there counts as damage, which `survival.py` makes itself.
Chance of its own decides, so that a seed's other events are what they are without all this until the first of these.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from typing import TypeVar

from penstock.errors import JobFailed, PenstockError
from penstock_lab.simulate.actors import Actor, Process
from penstock_lab.simulate.system import AFTER, AMID, BEFORE

T = TypeVar("T")

STALL_STEPS = (20, 400, 3_000)  # of a driver while another takes over, or of one thread
REFUSALS_MAX = 6
EPOCHS_THREAD = "penstock-epochs"


class Refusals:
    """What of these one seed has."""

    def __init__(self, seed: int, *, is_on: bool) -> None:
        self._random = rng = random.Random(f"refusals of {seed}")  # noqa: S311 - a simulation
        self._left = rng.choice((0, 1, 2, REFUSALS_MAX)) if is_on else 0
        self._stalls_left = rng.choice((0, 1, 3)) if is_on else 0
        self._chance = rng.choice((0.003, 0.03))  # at each change of a file; a tenth of that when one is read
        self._raised: list[OSError] = []
        self._stood: list[Process] = []  # drivers whose thread of epochs has

    def change(self, process: Process, what: str, path: str) -> tuple[str, OSError] | None:
        """Whether this change is refused, and how."""
        if not self._is_due(process, self._chance):
            return None
        if what == "put":
            return self._random.choice((BEFORE, AFTER)), self._error(None, path)
        code = errno.EIO if what in {"sync", "remove"} else self._random.choice((errno.EIO, errno.ENOSPC))
        return (AMID if what == "write" else BEFORE), self._error(code, path)

    def read(self, process: Process, path: str, *, is_object: bool) -> OSError | None:
        """Whether this look at a file or folder is refused."""
        if not self._is_due(process, self._chance / 10):
            return None
        return self._error(None if is_object else errno.ESTALE, path)

    def is_behind(self, error: BaseException | None) -> bool:
        """Whether it was one of these that came to this."""
        while error is not None:
            if any(error is raised for raised in self._raised):
                return True
            error = error.__cause__ or error.__context__
        return False

    def excuse(self, driver: Process, error: BaseException) -> bool:
        """Whether a driver may end by this: it was refused something, or its thread of epochs stood still too long."""
        if isinstance(error, JobFailed) and driver in self._stood:
            return True
        return isinstance(error, PenstockError) and self.is_behind(error)

    def stalls(self, threads: Sequence[T]) -> tuple[T, int] | None:
        """One of these that stands still, and for how many steps."""
        if not self._stalls_left or not threads or self._random.random() >= self._chance / 10:
            return None
        self._stalls_left -= 1
        thread = self._random.choice(threads)
        if isinstance(thread, Actor) and thread.name == EPOCHS_THREAD:
            self._stood.append(thread.process)
        return thread, self._random.choice(STALL_STEPS)

    def _is_due(self, process: Process, chance: float) -> bool:
        if not self._left or process.number == 0:  # 0: who looks on from outside
            return False
        if self._random.random() >= chance:
            return False
        self._left -= 1
        return True

    def _error(self, code: int | None, path: str) -> OSError:
        error = OSError("no answer from the store") if code is None else OSError(code, os.strerror(code), path)
        self._raised.append(error)
        return error
