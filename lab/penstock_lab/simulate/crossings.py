"""Jobs that go over to another plan while they run: one seed's share of that, moves and rescales.

A user asks at any step. The job commits an epoch, all its workers stand still, and the next attempt follows the plan
that was wished: tasks elsewhere, in other numbers, on as many workers or on others. Crashes come at any moment of it.
Chance of its own decides, as in `returns.py`, so that a seed without crossings is what it is without all this.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock_lab.simulate.random_jobs import RandomJob
from penstock_lab.simulate.workers import WORKERS_MAX, Layout

if TYPE_CHECKING:
    from penstock_lab.simulate.attempts import Driver

CROSSINGS = (0, 1, 3, 8)  # how many a seed may have
ASK_CHANCES = (0.002, 0.01, 0.05)  # at each step of the scheduler
DEATHS = (0, 1, 2)  # while some workers have heard that they are to stand still, and others have not
DEATH_CHANCE = 0.1  # at each step of the scheduler
SPREAD_CHANCE = 0.3  # of other numbers of workers


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants the job to follow; made definite by what is there when its workers stand still."""

    seed: int
    rescales: bool

    def layout(self, job: RandomJob, workers: int) -> Layout:
        """The plan for these workers, or for more or fewer."""
        rng = random.Random(self.seed)  # noqa: S311 - a simulation
        to = rng.randint(1, WORKERS_MAX) if rng.random() < SPREAD_CHANCE else workers
        return Layout.drawn(job.rescaled(rng) if self.rescales else job, to, rng)


class Crossings:
    """What of these one seed has."""

    def __init__(self, seed: int) -> None:
        self._random = rng = random.Random(f"crossings of {seed}")  # noqa: S311 - a simulation
        self._left = rng.choice(CROSSINGS)
        self._deaths = rng.choice(DEATHS)
        self._ask_chance = rng.choice(ASK_CHANCES)
        self.haste = rng.choice((0.5, 0.05))  # with which workers hear that they are to stand still
        self._rescales = rng.choice((0.0, 0.5, 1.0))  # how often one is a rescale too

    def turn(self, driver: Driver | None) -> None:
        """A user may ask the driver that lives for another plan; somebody may die while workers come to stand still."""
        attempt = None if driver is None else driver.attempt
        if driver is not None and attempt is not None and attempt.untold and self._deaths:
            if self._random.random() < DEATH_CHANCE:
                self._deaths -= 1
                self._random.choice([driver.process, *(attempt.processes[w] for w in attempt.alive)]).is_dead = True
        elif driver is not None and not driver.is_asked and self._left and self._random.random() < self._ask_chance:
            wish = Wish(self._random.randrange(1 << 30), self._random.random() < self._rescales)
            self._left -= driver.asks("mover", "for another plan", partial(driver.go_over, wish))

    def begun(self, job: RandomJob) -> RandomJob:
        """The job as a driver is given it: perhaps with other numbers of tasks than the one before."""
        is_other = self._left and self._random.random() < self._rescales / 2
        return job.rescaled(self._random) if is_other else job
