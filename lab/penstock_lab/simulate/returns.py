"""Drivers that begin at a savepoint: one seed's share of them, and what they make void.

Savepoints are asked for besides those that any seed has. Somebody begins at one instead of going on, often while the
driver before stands still where it changes what readers see: what it does on waking belongs to a history that the job
has left. Chance of its own decides, so that a seed's other events are what they are without all this.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.checkpoint.contract import Branch, Manifest
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock_lab.simulate.attempts import Driver

RETURNS_MAX = 2
ASK_CHANCE = 0.02  # at each step of the scheduler
CHANGE_CHANCE, SHOWN_CHANCE = 0.02, 0.2  # at each change of a file by a driver, and of what readers see
START_CHANCE = 0.5  # whenever a driver is started
LEFT = "is of a history that the job has left"  # why a savepoint is refused


class Returns:
    """What of these one seed has."""

    def __init__(self, seed: int) -> None:
        self._random = rng = random.Random(f"returns of {seed}")  # noqa: S311 - a simulation
        self._left = rng.choice((0, 1, RETURNS_MAX))
        self._asks_left = 2 * self._left
        self.since = 0  # attempts before this one have committed epochs that were given up since

    def asks(self) -> str | None:
        """The name of a savepoint that a user asks for now."""
        if not self._asks_left or self._random.random() >= ASK_CHANCE:
            return None
        self._asks_left -= 1
        return f"r{self._asks_left}"

    def is_due(self, savepoints: Iterable[Manifest], *, shown: bool) -> bool:
        """Whether somebody begins at a savepoint now, while a driver changes a file."""
        chance = SHOWN_CHANCE if shown else CHANGE_CHANCE
        return bool(self._left and any(True for _ in savepoints)) and self._random.random() < chance

    def takes_over(self) -> bool:
        """Whether the driver before stands still; else it has died."""
        return self._random.random() < 0.5

    def chosen(self, savepoints: Iterable[Manifest], *, surely: bool) -> Manifest | None:
        """The savepoint at which a driver is to begin; None: it goes on."""
        known = sorted(savepoints, key=lambda manifest: str(manifest.name))
        if not known or not self._left or (not surely and self._random.random() >= START_CHANCE):
            return None
        self._left -= 1
        return self._random.choice(known)

    def goes_back(self, drivers: Iterable[Driver], branch: Branch) -> bool:
        """Whether one of these was told to begin there; what was committed behind it counts no more."""
        for driver in drivers:
            epochs, begins_at = driver.epochs, driver.begins_at
            if begins_at is not None and epochs is not None and branch == (epochs.attempt, begins_at.epoch):
                self.since = branch.attempt
                return True
        return False

    def counts(self, driver: Driver) -> bool:
        """Whether the last epoch of which a driver speaks is that of the job: before it has opened that is a wish."""
        return driver.has_opened and driver.epochs is not None and driver.epochs.attempt >= self.since


def is_refused(driver: Driver, error: BaseException) -> bool:
    """Whether the savepoint of a driver is one of a history that another has left."""
    return driver.begins_at is not None and isinstance(error, InvalidInput) and LEFT in str(error)
