"""Of the moves that lead to a plan, those that pay: the fewest whose plan is as good as the best that they can make.

What a set of moves is worth is the price of the plan that it leads to, with what it costs to get there spread over
the horizon. Among the sets whose plan keeps every limit and every constraint, those within the tolerance of the best
are equal, and the one of the fewest tasks is taken; none at all is one of them. Tasks of one block move together.
Up to EXACT_UNITS_MAX movable units all sets are looked at (`test_no_smaller_set_of_moves_is_as_good`). Beyond that, the
unit that is missed least is left out as long as that is within the tolerance, then pairs, which a swap of two full
workers needs: what is left is a set of which no unit and, of few, no pair can be left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.adapt.price import Pricer
from penstock.adapt.scene import Places
from penstock.model.taskgraph import Longs

EXACT_UNITS_MAX = 7  # 128 sets
PAIRS_UNITS_MAX = 40  # beyond it pairs are left alone
LOOKS_MAX = 20_000  # at sets, after which what was found is good enough


@dataclass(eq=False)
class _Sets:
    """What sets of units are worth; each is looked at once."""

    pricer: Pricer
    target: Places
    units: list[Longs]
    known: dict[frozenset[int], float] = field(default_factory=dict)
    best: float = np.inf

    def places(self, chosen: frozenset[int]) -> Places:
        node, worker = (array.copy() for array in self.pricer.scene.present)
        for unit in chosen:
            tasks = self.units[unit]
            node[tasks], worker[tasks] = self.target[0][tasks], self.target[1][tasks]
        return node, worker

    def value(self, chosen: frozenset[int]) -> float:
        """Less is better; infinite for plans that break a limit or a rule."""
        if chosen not in self.known:
            places = self.places(chosen)
            if not chosen:
                self.known[chosen] = self.pricer.price(places).total
            else:
                self.known[chosen] = self._value(places) if self.pricer.scene.holds(places) else np.inf
            self.best = min(self.best, self.known[chosen])
        return self.known[chosen]

    def _value(self, places: Places) -> float:
        return self.pricer.careful(places) + self.pricer.moving(places) / self.pricer.settings.horizon_s

    @property
    def limit(self) -> float:
        """What a set may be worth and be as good as the best."""
        return self.best * (1.0 + self.pricer.settings.tolerance)

    def tasks(self, chosen: frozenset[int]) -> int:
        return sum(len(self.units[unit]) for unit in chosen)


def fewest_moves(pricer: Pricer, target: Places) -> tuple[Places, int]:
    """The plan that these moves lead to, perhaps the present one, and how many sets of moves were looked at."""
    units = _units(pricer, target)
    sets = _Sets(pricer, target, units)
    sets.value(frozenset())
    chosen = _of_all(sets) if len(units) <= EXACT_UNITS_MAX else _left(sets)
    return sets.places(chosen), len(sets.known)


def _units(pricer: Pricer, target: Places) -> list[Longs]:
    """The tasks that move, those together that must share a worker, or a node that they leave."""
    moved, rules = pricer.scene.moved(target), pricer.scene.rules
    if rules is None or not len(moved):
        return [np.array([t], dtype=np.int64) for t in moved.tolist()]
    leaves = np.zeros(len(rules.site), dtype=bool)
    leaves[moved] = (target[0] != pricer.scene.present[0])[moved]
    label = np.where(np.isin(rules.site, rules.site[leaves]), -1 - rules.site, rules.block)[moved]
    return [moved[label == each].astype(np.int64) for each in np.unique(label)]


def _of_all(sets: _Sets) -> frozenset[int]:
    """The fewest tasks of all sets that are as good as the best."""
    every = range(len(sets.units))
    subsets = [frozenset(s) for size in range(len(sets.units) + 1) for s in itertools.combinations(every, size)]
    allowed = [s for s in subsets if sets.tasks(s) <= sets.pricer.settings.moves_max]
    for subset in allowed:
        sets.value(subset)
    good = [s for s in allowed if sets.value(s) <= sets.limit]
    return min(good, key=lambda s: (sets.tasks(s), sets.value(s), sorted(s)))


def _left(sets: _Sets) -> frozenset[int]:
    """What is left when what is missed least has been left out, again and again."""
    chosen = frozenset(range(len(sets.units)))
    sets.value(chosen)
    while len(sets.known) < LOOKS_MAX:
        smaller = _smaller(sets, chosen)
        if smaller is None:
            break
        chosen = smaller
    return chosen if sets.tasks(chosen) <= sets.pricer.settings.moves_max else frozenset()


def _smaller(sets: _Sets, chosen: frozenset[int]) -> frozenset[int] | None:
    """The set without some of its units, where it is as good, or where it has too many."""
    too_many = sets.tasks(chosen) > sets.pricer.settings.moves_max
    for size in (1, 2):
        ranked = sorted(_without(sets, chosen, size), key=lambda found: found[0])
        if size == 1 and len(chosen) > PAIRS_UNITS_MAX:
            return _in_turn(sets, chosen, [smaller for _, smaller in ranked])
        if ranked and np.isfinite(ranked[0][0]) and (too_many or ranked[0][0] <= sets.limit):
            return ranked[0][1]
    return None


def _without(sets: _Sets, chosen: frozenset[int], size: int) -> Iterator[tuple[float, frozenset[int]]]:
    for out in itertools.combinations(sorted(chosen), size):
        if len(sets.known) < LOOKS_MAX:
            yield sets.value(chosen - set(out)), chosen - set(out)


def _in_turn(sets: _Sets, chosen: frozenset[int], ranked: Sequence[frozenset[int]]) -> frozenset[int] | None:
    """Of many units, all that can be left out one after the other, those missed least first; None without any."""
    left = chosen
    for smaller in ranked:
        less = left & smaller
        too_many = sets.tasks(left) > sets.pricer.settings.moves_max
        value = sets.value(less)
        if np.isfinite(value) and (too_many or value <= sets.limit):
            left = less
    return left if left != chosen else None
