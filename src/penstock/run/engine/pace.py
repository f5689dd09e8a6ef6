"""Pace: sources of one job go through event time side by side; one that is ahead of the slowest waits. Pure.

Windows and joins keep rows until the slowest source has come as far. How much they keep must not depend on how much
faster one source is than another: the sources of a worker may have BYTES_AHEAD_MAX of rows out that are newer than what
the slowest has promised (the floor). Sources whose streams do not meet do not wait for each other; one that is idle or
has ended is not waited for. The slowest is never held (`test_the_slowest_is_never_held`), so no circle waits.

Sources on several workers tell the driver how far they are and hear how far the others were (`Control.keep_pace`).
Rejected: a bound in event time (Flink's maxAllowedWatermarkDrift): a replay goes through a day in a second, and a live
stream does not; holding back at the tasks where streams meet, which locks up where one source feeds both sides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from penstock.model.task_id import operator_of
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US
from penstock.run.dataflow import Dataflow

BYTES_AHEAD_MAX = 128 << 20  # of the sources of one worker together; as much as all edges into one may hold
EVERY_US = 20_000  # how often sources on several workers compare how far they are
SOON_US = 5_000  # and how often while one is held: what it has heard may be old, and the others may wait for it as well
AT_REST_US = 200_000  # and how seldom at most, while nothing moves


def pace_groups(dataflow: Dataflow) -> dict[str, int]:
    """Sources with event time by group: those of one group meet somewhere, each group has at least two tasks.

    Of several DataFrames none is held: their rows come to a worker through one line, in order of time already, and one
    that is held would keep from the others what comes behind it.
    """
    group: dict[str, int] = {}
    for number, operator in enumerate(dataflow.operators):
        met = {group[read.operator] for read in operator.inputs}
        group = {name: number if old in met else old for name, old in group.items()}
        group[operator.name] = number
    frames = sum(o.one_per_worker for o in dataflow.operators)
    timed = [o for o in dataflow.operators if o.role == "source" and o.event_time is not None]
    paced = [o for o in timed if not (o.one_per_worker and frames > 1)]
    tasks: dict[int, int] = {}
    for o in paced:
        tasks[group[o.name]] = tasks.get(group[o.name], 0) + o.tasks
    return {o.name: group[o.name] for o in paced if tasks[group[o.name]] > 1}


class _Runner:
    """One source task: what it has out, oldest first."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.time_us: int | None = BEFORE_TIME_US  # None: no source waits for it
        self.out: deque[tuple[int, int]] = deque()  # watermark behind a batch, bytes of the batch
        self.size = 0

    def settle(self, floor_us: int) -> None:
        """Rows up to the floor are no longer ahead."""
        while self.out and self.out[0][0] <= floor_us:
            self.size -= self.out.popleft()[1]


class Pace:
    """The sources of one worker; `group_of` names those that keep pace, `elsewhere` the groups with tasks on others."""

    def __init__(self, group_of: Mapping[int, int], elsewhere: Iterable[int] = ()) -> None:
        self._runners = {task: _Runner(group) for task, group in group_of.items()}
        self._others = dict.fromkeys(elsewhere, BEFORE_TIME_US)
        self._ahead_max = BYTES_AHEAD_MAX // max(1, len(self._runners))
        self._last: object = None  # what was said and heard last
        self._holds = self._held = False  # whether a source was held since then, and before
        self.wait_us = EVERY_US  # until others are asked again

    @property
    def speaks(self) -> bool:
        """Whether other workers have to be told."""
        return any(runner.group in self._others for runner in self._runners.values())

    @property
    def is_pressed(self) -> bool:
        """Whether a source has just come to be held: the others are to be asked at once."""
        return self._holds and not self._held

    def polled(self, task: int, size: int, time_us: int | None) -> None:
        """A source has emitted so many bytes of rows and promised this watermark; None: it is idle or has ended."""
        runner = self._runners.get(task)
        if runner is not None:
            runner.time_us = time_us
            if size and time_us is not None:
                runner.out.append((time_us, size))
                runner.size += size

    def may_run(self, task: int) -> bool:
        """Whether a source may be asked for more."""
        runner = self._runners.get(task)
        if runner is None or runner.size < self._ahead_max:
            return True
        runner.settle(self._floor(runner.group))
        if runner.size < self._ahead_max:
            return True
        self._holds = self._holds or runner.group in self._others
        return False

    def floors(self) -> dict[int, int]:
        """How far the slowest source of each group is on this worker."""
        groups = {runner.group for runner in self._runners.values()}
        return {group: self._own_floor(group) for group in groups if group in self._others}

    def heard(self, floors: Mapping[int, int]) -> None:
        """How far the slowest source of each group is on the other workers."""
        self._others.update({group: time_us for group, time_us in floors.items() if group in self._others})
        last, self._last = self._last, (self.floors(), dict(self._others))
        if self._last != last or self.is_pressed:
            self.wait_us = SOON_US if self._holds else EVERY_US
        else:
            self.wait_us = min(2 * self.wait_us, AT_REST_US)
        self._held, self._holds = self._holds, False

    def _own_floor(self, group: int) -> int:
        times = [r.time_us for r in self._runners.values() if r.group == group and r.time_us is not None]
        return min(times, default=END_OF_TIME_US)

    def _floor(self, group: int) -> int:
        return min(self._own_floor(group), self._others.get(group, END_OF_TIME_US))


class Floors:
    """The driver's part: what each worker said last, and for each what the others said."""

    def __init__(self, speakers: Mapping[int, Iterable[int]]) -> None:
        # A worker that has not spoken yet counts as at the beginning, so sources that are ahead wait for it.
        self._said = {worker: dict.fromkeys(groups, BEFORE_TIME_US) for worker, groups in speakers.items()}

    def exchange(self, worker: int, floors: Mapping[int, int]) -> dict[int, int]:
        """Note what a worker says; for each of its groups the least that the others said."""
        if worker in self._said:  # a message of a worker that has ended may come after its goodbye
            self._said[worker] = dict(floors)
        others = [said for other, said in self._said.items() if other != worker]
        return {group: min([s.get(group, END_OF_TIME_US) for s in others], default=END_OF_TIME_US) for group in floors}

    def left(self, worker: int) -> None:
        """A worker has ended, perhaps without saying how far it came: the others no longer wait for it."""
        self._said.pop(worker, None)


def pace_speakers(dataflow: Dataflow, worker_of: Mapping[str, int]) -> dict[int, set[int]]:
    """The groups whose sources are on several workers, by worker."""
    groups = pace_groups(dataflow)
    found: dict[int, set[int]] = {}
    for task, worker in worker_of.items():
        if (group := groups.get(operator_of(task))) is not None:
            found.setdefault(worker, set()).add(group)
    shared = {g for gs in found.values() for g in gs if sum(g in others for others in found.values()) > 1}
    return {worker: mine & shared for worker, mine in found.items() if mine & shared}


def pace_of(dataflow: Dataflow, tasks: Sequence[str], worker_of: Mapping[str, int], me: int) -> Pace:
    """The pace of one worker, whose tasks are numbered as given."""
    groups = pace_groups(dataflow)
    mine = {t: groups[name] for t, task in enumerate(tasks) if (name := operator_of(task)) in groups}
    return Pace(mine, pace_speakers(dataflow, worker_of).get(me, ()))
