"""What the notes of a plan tell the user of a job: above all, load that is more than there is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.deploy.driver.slots import Slots
from penstock.model.plan import Slot
from penstock.model.profile import Profile
from penstock.model.taskgraph import Ints, TaskGraph
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import SLACK, Problem
from penstock.optimise.search.pressure import PRESSURE_NOTE
from penstock.optimise.seats import BOTTLENECK_NOTE, SEATS_NOTE, bottleneck_note
from penstock.optimise.stretch import fullest
from penstock.optimise.workers import SLOTS_NOTE


def overload(tasks: TaskGraph, slots: Slots, assignment: Mapping[str, Slot]) -> float:
    """Load over what is there, without any stretch, of the fullest node or worker; above 1 is too much."""
    return fullest(Problem(tasks, slots.cluster()), *numbered(tasks, assignment, slots))


def job_notes(
    notes: Sequence[str],
    graph: OperatorGraph,
    slots: Slots,
    profile: Profile | None,
    assignment: Mapping[str, Slot],
    *,
    fused: bool = False,
) -> tuple[str, ...]:
    """Notes for the user who runs the plan; a scheduler's wish for more workers is left out, their number is decided.

    More load than there is for it, in all or in one place, is told of measured loads alone: declared ones say how tasks
    compare, and not what they take. Fusion fills workers by them, so it says so of one that is too full.
    Notes of a scheduler that saw stretched capacities are told for the real ones.
    """
    kept = without(notes, SLOTS_NOTE, SEATS_NOTE, BOTTLENECK_NOTE, PRESSURE_NOTE)
    tasks = TaskGraph.expand(graph, profile)
    if profile is None:
        return kept + (_declared(tasks, slots, assignment) if fused else ())
    kept += profile.notes
    if (load := float(tasks.load.sum())) > slots.offered:
        workers = len(slots.node_of)
        return (
            *kept,
            f"the profile measured a load of {load:.3g} cores, which is more than {workers} worker"
            f"{'' if workers == 1 else 's'} can take at once ({slots.offered:.3g}): the job will run slower than it "
            "was measured; more workers would help",
        )
    if (most := overload(tasks, slots, assignment)) <= 1 + SLACK:
        return without(notes, SLOTS_NOTE, SEATS_NOTE) + profile.notes
    return (
        *kept,
        *bottleneck_note(Problem(tasks, slots.cluster()), numbered(tasks, assignment, slots)[0]),
        f"by the loads that the profile measured, the fullest node or worker is given {most:.3g} times what it should "
        "carry, and the job may run slower than it was measured; more workers, or more and smaller tasks, would help",
    )


def _declared(tasks: TaskGraph, slots: Slots, assignment: Mapping[str, Slot]) -> tuple[str, ...]:
    """A note on the worker or node that declared loads fill beyond what it has."""
    if (most := overload(tasks, slots, assignment)) <= 1 + SLACK:
        return ()
    return (
        f"by declared loads the fullest node or worker is given {most:.3g} times what it should carry; declared loads "
        "only say how tasks compare, and a profile of a run says what they take (--profile)",
    )


def without(notes: Sequence[str], *beginnings: str) -> tuple[str, ...]:
    """The notes but for those that begin so."""
    return tuple(note for note in notes if not note.startswith(beginnings))


def numbered(tasks: TaskGraph, assignment: Mapping[str, Slot], slots: Slots) -> tuple[Ints, Ints]:
    """Node and worker of every task, as the arrays have them."""
    number = {name: k for k, name in enumerate(slots.counts)}
    places = [assignment[task] for task in tasks.ids]
    node = np.array([number[slot.node] for slot in places], dtype=np.int32)
    return node, np.array([slot.worker for slot in places], dtype=np.int32)
