"""Group pair partitioning: which tasks of two groups go to a node that cannot hold both (paper 000, 4.4.2).

Task pairs are visited from the heaviest down. Scenario 1: both tasks are new and both are taken if they fit together.
Scenario 2: one is new; it is taken with the new partner of the other group that it talks to most and that fits, so that
each step brings two tasks, or alone if no new partner is left. Scenario 3: none is new, nothing to do. The pairs of two
large groups are many and the tasks that fit a node few, so pairs are looked at a block at a time in arrays, and the
pairs that can still lead to something are visited one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import Floats, Longs
from penstock.optimise.steps.simplified_graph import SimplifiedGraph

BLOCK = 2048


@dataclass(frozen=True, slots=True)
class Pick:
    """Tasks taken in one step, by which rule, and the rate of the pair."""

    how: str
    tasks: tuple[int, ...]
    rate: float


def partition_pair(groups: SimplifiedGraph, pair: int, room: float) -> list[Pick]:
    """The first part of a group pair that does not fit as a whole: at least one task, if any fits."""
    cutting = _Cutting(groups, pair, room)
    pairs = groups.task_pairs(pair)
    for begin in range(0, len(pairs.rate), BLOCK):
        block = slice(begin, begin + BLOCK)
        if not cutting.visit(pairs.first[block], pairs.second[block], pairs.rate[block]):
            break
    if not cutting.picks:
        cutting.take_single(pairs.first, pairs.second, pairs.rate)
    return cutting.picks


class _Cutting:
    """Which tasks are still new, and how much room is left."""

    def __init__(self, groups: SimplifiedGraph, pair: int, room: float) -> None:
        self.groups, self.room = groups, room
        self.load = groups.load
        self.ends = groups.ends(pair)
        self.picks: list[Pick] = []
        self.new: NDArray[np.bool_] = groups.unassigned.copy()
        self.hopeless = np.zeros(len(self.new), dtype=bool)  # new tasks none of whose new partners fits beside them
        self.lightest = [float(groups.lightest[end]) for end in self.ends]

    def visit(self, first: Longs, second: Longs, rate: Floats) -> bool:
        """Take what fits from a block of pairs; False when nothing that is new can fit any more."""
        unassigned = self.groups.unassigned
        at = 0
        while at < len(rate):
            if min(self.lightest) > self.room:
                return False
            a, b = first[at:], second[at:]
            new_a, new_b = self.new[a], self.new[b]
            beside_a, beside_b = self._least_beside(1), self._least_beside(0)
            together = new_a & new_b & (self.load[a] + self.load[b] <= self.room)
            first_new = new_a & ~new_b & ~self.hopeless[a] & (self.load[a] + beside_a <= self.room)
            second_new = new_b & ~new_a & ~self.hopeless[b] & (self.load[b] + beside_b <= self.room)
            useful = together | first_new | second_new
            useful &= unassigned[a] & unassigned[b]
            for position in np.flatnonzero(useful).tolist():
                if self._visit_pair(int(a[position]), int(b[position]), float(rate[at + position])):
                    at += position + 1
                    break
            else:
                return True
        return True

    def _least_beside(self, end: int) -> float:
        """The least that a new task takes along from the group at that end: nothing when it has no new task."""
        return 0.0 if np.isinf(self.lightest[end]) else self.lightest[end]

    def _visit_pair(self, a: int, b: int, rate: float) -> bool:
        """Whether a visit to the pair took something."""
        if self.new[a] and self.new[b]:
            self._take("scenario 1", (a, b), rate)
            return True
        task, other_end = (a, 1) if self.new[a] else (b, 0)
        if np.isinf(self.lightest[other_end]):
            self._take("alone", (task,), rate)
            return True
        if self.hopeless[task]:
            return False
        partner, rates = self.groups.rates_between(task, self.ends[other_end])
        fitting = self.new[partner] & (self.load[partner] + self.load[task] <= self.room)
        if not fitting.any():
            self.hopeless[task] = True
            return False
        best = int(np.argmax(np.where(fitting, rates, -1.0)))
        mate = int(partner[best])
        self._take("scenario 2", (mate, task) if other_end == 0 else (task, mate), float(rates[best]))
        return True

    def _take(self, how: str, tasks: tuple[int, ...], rate: float) -> None:
        self.picks.append(Pick(how, tasks, rate))
        for task in tasks:
            self.new[task] = False
            self.room -= float(self.load[task])
        for end, group in enumerate(self.ends):
            rest = self.groups.tasks_of(group)
            rest = rest[self.new[rest]]
            self.lightest[end] = float(self.load[rest].min()) if len(rest) else np.inf
        if np.isinf(self.lightest).any():
            self.hopeless[:] = False  # without new partners tasks go alone

    def take_single(self, first: Longs, second: Longs, rate: Floats) -> None:
        """The first task in the order of pairs that fits by itself, because no two do; else the first of all."""
        both = np.stack([first, second], axis=1)
        live = self.groups.unassigned[first] & self.groups.unassigned[second]
        fits = live[:, None] & (self.load[both] <= self.room)
        if fits.any():
            row, column = divmod(int(np.argmax(fits)), 2)
            self._take("alone", (int(both[row, column]),), float(rate[row]))
            return
        tasks = np.concatenate([self.groups.tasks_of(end) for end in self.ends])
        fitting = tasks[self.load[tasks] <= self.room]
        if len(fitting):
            self._take("alone", (int(fitting[0]),), 0.0)
