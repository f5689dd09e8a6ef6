"""How many workers a running job can have, and which of them leave when it has fewer. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from penstock.deploy.driver.preflight import WORKERS_MAX, Facts
from penstock.errors import InvalidInput, NotEnoughSlots


def require_room(facts: Facts, job: str, workers: int, more: int, *, tasks: int, take_last_slot: bool) -> None:
    """Refuse more workers than there are slots or tasks for; of the slots one stays free, as at a job's start."""
    if isinstance(more, bool) or not isinstance(more, int) or not 1 <= more <= WORKERS_MAX - workers:
        msg = f"workers to add are {more!r}; job {job!r} has {workers} and can have {WORKERS_MAX}"
        raise InvalidInput(msg)
    if workers + more > tasks:
        msg = (
            f"job {job!r} has {workers} workers and {tasks} tasks, so {more} more would have nothing to do; give an "
            "operator more tasks first (job.scale, penstock scale)"
        )
        raise InvalidInput(msg)
    free = max(0, facts.slots - facts.busy)
    kept = 0 if take_last_slot else 1
    if more > free - kept:
        last = "" if take_last_slot or free < more else ", or let it take the last one (take_last_slot=True)"
        stays = "" if take_last_slot else ", of which one stays free for other queries"
        msg = (
            f"job {job!r} cannot have {more} more workers: master {facts.master!r} has {facts.slots} slots, {free} of "
            f"them free{stays}; ask for at most {max(0, free - kept)}, end other jobs{last}"
        )
        raise NotEnoughSlots(msg)


def who_leaves(worker_of: Mapping[str, int], workers: int, fewer: int, job: str) -> tuple[int, ...]:
    """The workers with the fewest tasks, so that the fewest move; of equal ones the last."""
    if isinstance(fewer, bool) or not isinstance(fewer, int) or not 1 <= fewer < workers:
        msg = f"workers to remove are {fewer!r}; job {job!r} has {workers}, and one at least stays"
        raise InvalidInput(msg)
    tasks = Counter(worker_of.values())
    return tuple(sorted(sorted(range(workers), key=lambda worker: (tasks[worker], -worker))[:fewer]))


def workers_of_node(node: str, node_of: Sequence[str], job: str) -> tuple[int, ...]:
    """The workers that leave with a node."""
    found = tuple(worker for worker, name in enumerate(node_of) if name == node)
    if not found:
        raise InvalidInput.unknown_name(kind=f"node of job {job!r}", name=node, known=sorted(set(node_of)))
    if len(found) == len(node_of):
        msg = (
            f"all workers of job {job!r} are on node {node!r}, so it cannot be drained; let workers join on another "
            "node first (job.add_workers, penstock workers), or stop the job"
        )
        raise InvalidInput(msg)
    return found


def numbered_anew(workers: int, leaving: Iterable[int]) -> dict[int, int]:
    """By present number: the number from now on, of those that stay."""
    gone = set(leaving)
    return {old: new for new, old in enumerate(worker for worker in range(workers) if worker not in gone)}
