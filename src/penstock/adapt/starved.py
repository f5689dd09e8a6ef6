"""Which replicas of a parallel region would do more if their workers let them. Pure.

A region's splitter gives a replica that is slow fewer rows, and that is enough as long as the others can take them. It
is not where the splitter still waits: then the region does less than it is given, and a replica with less than an even
share, whose worker had work all the time, is starved by what else that worker has to do. Replicas of a worker that is
idle now and then are as fast as they can be, and one that has a worker to itself has all that there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.adapt.contract import Assignment
from penstock.model.plan import Slot

WAITS = 0.05  # of its time, for all replicas together: a splitter that waits for less gives what it is given
LESS = 0.85  # of an even share of the rows


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica that takes part in a region, after balancing."""

    tasks: tuple[str, ...]  # all operators of it
    weight: float  # of the region's rows, in any unit
    waited: float  # the share of the time for which the splitter waited for it


def starved_tasks(
    regions: Sequence[Sequence[Replica]], assignment: Assignment, full: frozenset[Slot]
) -> frozenset[str]:
    """The tasks of starved replicas."""
    on_slot = Counter(assignment.values())
    found: set[str] = set()
    for replicas in regions:
        even = sum(replica.weight for replica in replicas) / max(1, len(replicas))
        if sum(replica.waited for replica in replicas) < WAITS:
            continue
        for replica in replicas:
            here = {assignment[task] for task in replica.tasks if task in assignment}
            shares = any(on_slot[slot] > _own(replica, assignment, slot) for slot in here)
            if replica.weight < LESS * even and here & full and shares:
                found.update(replica.tasks)
    return frozenset(found)


def _own(replica: Replica, assignment: Mapping[str, Slot], slot: Slot) -> int:
    return sum(assignment.get(task) == slot for task in replica.tasks)
