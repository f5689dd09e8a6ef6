"""Snapshots of one worker: each task's state at a marker, handed over when all tasks are past it, and put back.

The engine keeps a part of its own for each task ("engine"): where event time stands on its input edges, by port and
sending task, and what its outputs have been told last. After a restore outputs are told that again, so that edges which
are new know where time stands. A task that finishes before the marker leaves the files of its sinks, which go with one
epoch (`test_what_a_finished_task_staged_goes_with_one_epoch`), and a source also what it had read: under other task
counts its splits belong to others. Tasks of other operators have inputs in common, so that all of them finish before a
marker or none, and nobody goes on for one that has (`test_tasks_that_are_no_sources_finish_in_one_epoch`).

What is slow about a state is left to the keeper, or where only the loop can do it, done in slices between batches: an
epoch is handed over when the last slice is written.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.errors import InvalidInput
from penstock.model.task_id import TaskId, operator_of
from penstock.run.columns.unwritten import Sliced, State, in_bytes
from penstock.run.contract import BEFORE_TIME_US, Staging
from penstock.run.dataflow import Dataflow, OperatorSpec
from penstock.run.engine.epochs import Epochs, Restored, TaskSnapshot
from penstock.run.engine.faults import StateRefused, TaskFault
from penstock.run.engine.routing import owner
from penstock.run.engine.task_runner import TaskRunner
from penstock.run.engine.worker_share import WorkerShare
from penstock.run.machine.edge_times import TaskTimes
from penstock.run.machine.machine import Machine

ENGINE = "engine"  # the engine's own part of a task's state
EPOCH_NEVER = 1 << 62
NOTHING_TOLD = (BEFORE_TIME_US, False)
OF_THE_STATE = (InvalidInput, ValueError, TypeError, KeyError)  # Arrow's are among them: what reading bytes may raise
Input: TypeAlias = tuple[int, str]  # port, sending task: what an edge into a task is called in a checkpoint


class _Continued(NamedTuple):
    """How a task continues."""

    finished: bool
    state: Mapping[str, bytes]  # of a task that has finished
    out: tuple[int, bool]  # the last watermark of its outputs, and whether they are idle


class Snapshots:
    """What one worker saves, and what it continues from."""

    def __init__(
        self, epochs: Epochs, dataflow: Dataflow, share: WorkerShare, machine: Machine, runner: TaskRunner
    ) -> None:
        self._epochs, self._dataflow, self._share = epochs, dataflow, share
        self._machine, self._runner = machine, runner
        self._handed_over = epochs.first - 1  # the last epoch that was
        self._since = dict.fromkeys(range(len(share.tasks)), 0)  # tasks -> the first epoch that has them here
        self.saved: Callable[[int], None] = lambda t: None  # told of a task that has been saved, in the same step
        self.handed_over: Callable[[int], None] = lambda epoch: None  # told of the epoch
        self._saved: dict[int, TaskSnapshot] = {}  # at the marker of the epoch under way
        self._finished: dict[int, Mapping[str, bytes]] = {}  # tasks that have, and what they knew
        self._left_over: dict[int, tuple[Staging, ...]] = {}  # files of finished tasks that are not handed over yet
        self._unwritten: deque[tuple[int, Sliced]] = deque()  # states of tasks that the loop is writing
        self._slice_at_us = 0  # not before then: batches have half of the time
        self.writes = False  # whether there is anything to write

    # -- saving --------------------------------------------------------------------------------------------------------

    def take(self, t: int, epoch: int) -> None:
        """Save a task and send the marker on its outputs, in one step."""
        state: dict[str, State] = {**self._runner.state_of(t), ENGINE: self._engine(t)}
        self._saved[t] = TaskSnapshot(self._share.tasks[t], False, state, self._runner.staged(t, epoch))
        self._runner.pass_marker(t, epoch)
        self._machine.snapshotted(t)
        self.saved(t)
        self._unwritten.extend((t, each) for each in state.values() if isinstance(each, Sliced))
        self.writes = bool(self._unwritten)
        self.hand_over()

    def write(self, clock: Callable[[], int], *, at_rest: bool = False) -> None:
        """Write a slice of what is left, if it is time again; at rest there is nothing else to do."""
        began_us = clock()
        if self._unwritten and (at_rest or began_us >= self._slice_at_us):
            if not self._runner.write_slice(*self._unwritten[0]):
                self._unwritten.popleft()
            ended_us = clock()
            self._slice_at_us = 2 * ended_us - began_us
            self.writes = bool(self._unwritten)
            self.hand_over()

    def finished(self, t: int) -> None:
        """A task has finished: before the marker of the epoch under way, or behind it."""
        begun = self._machine.epoch
        lacks_marker = begun > self._handed_over and t not in self._saved and self._since[t] <= begun
        self._left_over[t] = self._runner.staged(t, begun if lacks_marker else max(begun + 1, self._epochs.first))
        self._finished[t] = in_bytes(self._runner.state_of(t)) if self._machine.layout.tasks[t].is_source else {}
        self.hand_over()

    def hand_over(self) -> None:
        """Hand the epoch over that has begun, if no task is left to be saved in it."""
        epoch = self._machine.epoch
        if epoch > self._handed_over and not self._machine.epoch_under_way and not self._unwritten:
            self._handed_over = epoch
            tasks = [t for t, since in self._since.items() if since <= epoch]
            found = [self._saved[t] if t in self._saved else self._of_finished(t) for t in tasks]
            self._saved.clear()
            self._epochs.completed(epoch, found)
            self.handed_over(epoch)

    def check(self) -> None:
        """Raise what went wrong with what was handed over."""
        self._epochs.check()

    def ended(self) -> None:
        """All tasks have finished: what is left counts for every later epoch, of which the worker may still hear."""
        while self._unwritten:
            self.write(lambda: 0, at_rest=True)
        self._handed_over = EPOCH_NEVER
        self._epochs.ended([self._of_finished(t) for t in self._since])

    def _of_finished(self, t: int) -> TaskSnapshot:
        return TaskSnapshot(self._share.tasks[t], True, self._finished[t], self._left_over.pop(t, ()))

    def _engine(self, t: int) -> bytes:
        times, edges = self._machine.times_of(t), self._share.edges
        told_us, is_idle = self._runner.outputs[t].told()
        known = {
            "watermark": times.watermark_us,
            "told": times.told_us,
            "told_idle": times.told_idle,
            "marks": [[edges[e].port, edges[e].source, mark_us] for e, mark_us in times.marks.items()],
            "idle": [[edges[e].port, edges[e].source] for e in times.idle],
            "out": [told_us, is_idle],
        }
        return json.dumps(known).encode()

    # -- moves ---------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Collection[int]:
        """The tasks that are at work here, or have finished here."""
        return self._since.keys()

    def come(self, t: int, known: TaskSnapshot, epoch: int) -> None:
        """A task goes on here from what it knew in another worker at the marker of this epoch."""
        state = in_bytes(known.state)
        self._since[t] = epoch + 1
        if known.finished:
            self._machine.came(t, finished=True)
            self._finished[t] = state
            self._runner.end_again(t)
            return
        try:
            engine = json.loads(state[ENGINE])
            self._runner.put_back(t, [_of_user(state)], None)
            inputs = {
                (self._share.edges[e].port, self._share.edges[e].source): e for e in self._machine.moves.inputs_of(t)
            }
            self._machine.continue_from(t, _times(engine, inputs))
        except (TaskFault, *OF_THE_STATE) as error:
            self._require_ours(t, error)
            raise
        self._machine.came(t)
        self._runner.tell_again(t, *engine["out"])

    def leave(self, t: int) -> None:
        """A task is another worker's; the last epoch that has it here has been handed over."""
        del self._since[t]
        self._finished.pop(t, None)

    # -- putting back --------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Put every task back; tasks are open, and nothing has run yet."""
        found = {operator: self._epochs.restored(operator) for operator in {*map(operator_of, self._share.tasks)}}
        inputs = self._inputs()
        known = [self._continued(t, found[operator_of(task)], inputs[t]) for t, task in enumerate(self._share.tasks)]
        self._epochs.begin()
        for t, engine in enumerate(known):
            if engine is None:
                continue
            if engine.finished:
                self._runner.end_again(t)
                self._finished[t] = engine.state
            else:
                self._runner.tell_again(t, *engine.out)

    def _inputs(self) -> list[dict[Input, int]]:
        """The edges into each task, whatever place their streams have among those of the job."""
        found: list[dict[Input, int]] = [{} for _ in self._share.tasks]
        for e, layout in enumerate(self._machine.layout.edges):
            if layout.target is not None:
                found[layout.target][self._share.edges[e].port, self._share.edges[e].source] = e
        return found

    def _continued(self, t: int, restored: Restored | None, inputs: Mapping[Input, int]) -> _Continued | None:
        """As `_put_back`; what the state itself is at fault of says so, for it would be the same in another attempt."""
        try:
            return self._put_back(t, restored, inputs)
        except (TaskFault, *OF_THE_STATE) as error:
            self._require_ours(t, error)
            raise

    def _require_ours(self, t: int, error: Exception) -> None:
        """StateRefused where the state itself is at fault."""
        cause = error.__cause__ if isinstance(error, TaskFault) else error
        if isinstance(cause, OF_THE_STATE):
            raise StateRefused(operator_of(self._share.tasks[t]), cause) from error

    def _put_back(self, t: int, restored: Restored | None, inputs: Mapping[Input, int]) -> _Continued | None:
        """What is to be told of one task, once all are back; None: it begins."""
        if restored is None:
            return None
        task, number = self._share.tasks[t], TaskId(self._share.tasks[t]).number
        spec = self._dataflow.operator(operator_of(task))
        if len(restored.states) == spec.tasks:
            own = restored.states[number]
            if restored.finished[number]:
                return _Continued(True, own, NOTHING_TOLD)
            engine = json.loads(bytes(own[ENGINE]))
            self._runner.put_back(t, [_of_user(own)], None)
            self._machine.continue_from(t, self._times(spec, engine, inputs))
            return _Continued(False, {}, engine["out"])
        states = list(restored.states)
        going_on = [state for state, finished in zip(states, restored.finished, strict=True) if not finished]
        if not going_on:
            return _Continued(True, {}, NOTHING_TOLD)
        users = [_of_user(state) for state in states]
        _require_whole_keys(spec, users)
        self._runner.put_back(t, users, owner(number, spec.tasks))
        engines = [json.loads(bytes(state[ENGINE])) for state in going_on]
        watermark_us, told_us = (min(engine[name] for engine in engines) for name in ("watermark", "told"))
        self._machine.continue_from(t, TaskTimes(watermark_us, told_us, {}))
        # Readers wait for it until its inputs, or a source itself, say anew that they are idle.
        return _Continued(False, {}, (min(engine["out"][0] for engine in engines), False))

    def _times(self, spec: OperatorSpec, engine: Mapping[str, Any], inputs: Mapping[Input, int]) -> TaskTimes:
        """By edge, where those who send are as many as they were; else they say anew how far time has come."""
        are_same = [self._is_as_before(read.operator) for read in spec.inputs]
        return _times(engine, {key: e for key, e in inputs.items() if are_same[key[0]]})

    def _is_as_before(self, operator: str) -> bool:
        restored = self._epochs.restored(operator)
        return restored is None or len(restored.states) == self._dataflow.operator(operator).tasks


def _times(engine: Mapping[str, Any], inputs: Mapping[Input, int]) -> TaskTimes:
    """What was known of these edges."""
    marks = {inputs[port, source]: us for port, source, us in engine["marks"] if (port, source) in inputs}
    idle = [inputs[port, source] for port, source in engine["idle"] if (port, source) in inputs]
    return TaskTimes(engine["watermark"], engine["told"], marks, idle, engine["told_idle"])


def _of_user(state: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in state.items() if name != ENGINE}


def _require_whole_keys(spec: OperatorSpec, states: Sequence[Mapping[str, bytes]]) -> None:
    """State is shared out by key, so a key must not be in two tasks."""
    if any(read.grouping.kind == "partial-key" for read in spec.inputs) and any(states):
        msg = (
            f"operator {spec.name!r} has {spec.tasks} tasks and the state of {len(states)}, in which each key of "
            f"partial_key() is in two tasks; restore it with {len(states)} tasks"
        )
        raise InvalidInput(msg)
