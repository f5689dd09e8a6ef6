"""What a job that is held back would do if nothing held it back. Pure.

A worker that has work all the time makes every task before it wait, so all of them show less load and traffic than they
would have, and a plan for what is shown is too small for what comes when the worker is relieved. What sources read when
no worker was full, at the last such look within the horizon, is taken for what they would read now; all loads and rates
grow by that ratio. Where no look was ever free, as in a job that reads files as fast as it can, nothing is added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.model.profile import EdgeProfile, Profile, TaskProfile

TOLD = 1.1  # times as much: less is noise
MORE_MAX = 10.0  # times as much, at most: a worker that does next to nothing says next to nothing


@dataclass(frozen=True, slots=True)
class Free:
    """What sources read when nothing held them back."""

    rows_per_s: float
    at_s: float


def free_after(before: Free | None, profile: Profile, now_s: float, horizon_s: float, *, is_full: bool) -> Free | None:
    """What is known of that after a look; `is_full`: some worker had work all the time."""
    if not is_full:
        return Free(profile.rows_per_second or 0.0, now_s)
    return before if before is not None and now_s - before.at_s < horizon_s else None


def held_back(profile: Profile, free: Free | None, *, is_full: bool) -> float:
    """The share of what it would do that the job does; 1 where nothing holds it back, as far as is known."""
    now = profile.rows_per_second or 0.0
    if free is None or not is_full or now <= 0 or free.rows_per_s < TOLD * now:
        return 1.0
    return max(1.0 / MORE_MAX, now / free.rows_per_s)


def as_free(profile: Profile, share: float) -> Profile:
    """The profile of a job that does this share of what it would do, as if it did all of it."""
    if share >= 1.0:
        return profile
    tasks = {task: _more_of_task(measured, 1.0 / share) for task, measured in profile.tasks.items()}
    edges = tuple(_more_of_edge(edge, 1.0 / share) for edge in profile.edges)
    return replace(profile, tasks=tasks, edges=edges, rows=None if profile.rows is None else profile.rows / share)


def _more_of_task(measured: TaskProfile, more: float) -> TaskProfile:
    spread = None if measured.spread is None else measured.spread * more
    return replace(measured, load=measured.load * more, spread=spread)


def _more_of_edge(edge: EdgeProfile, more: float) -> EdgeProfile:
    def grown(figure: float | None) -> float | None:
        return None if figure is None else figure * more

    return replace(
        edge,
        rate=edge.rate * more,
        tuples=grown(edge.tuples),
        batches=grown(edge.batches),
        send_cpu=grown(edge.send_cpu),
        receive_cpu=grown(edge.receive_cpu),
    )
