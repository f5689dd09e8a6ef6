"""Moves as a worker carries them out: tasks come, tasks leave, edges are led elsewhere, and the others go on.

The driver says what moves at which epoch (`prepare`). A worker to which a task comes makes and opens it, and all add
the new routes of edges; nothing has changed for the streams by then, and all of it can be dropped. At the marker
everything follows from `run/machine/moves.py`. When the parts of the workers that the tasks have left are kept, those
to which they come are told to read them (`come`), beside the loop. Every worker hears of every move, because the number
of an edge's route counts the moves of its two tasks. Decision: docs/decisions/0046-moves.md.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.errors import InternalError
from penstock.model.task_id import operator_of
from penstock.run.contract import SETTING_EPOCH, Interrupted
from penstock.run.dataflow import Dataflow
from penstock.run.engine.built_tasks import BuiltTasks, Made
from penstock.run.engine.epochs import Epochs
from penstock.run.engine.meters import Meters
from penstock.run.engine.snapshots import Snapshots
from penstock.run.engine.task_runner import TaskRunner
from penstock.run.engine.worker_links import WorkerLinks
from penstock.run.engine.worker_share import JobEdge, RunSettings, WorkerShare, share_of
from penstock.run.machine.machine import Machine
from penstock.run.machine.moves import put
from penstock.run.transport.host import WorkerPlace

WORD = "move "
PREPARED, REFUSED, ENDED, DROPPED, CAME = "prepared", "refused", "ended", "dropped", "came"


@dataclass(frozen=True, slots=True)
class Move:
    """Tasks that go to other workers at one epoch."""

    number: int  # of the move, in one attempt
    epoch: int
    to: Mapping[str, int]  # task -> worker


def prepare_command(move: Move) -> str:
    """The driver's word that a move is to be prepared."""
    return _command("prepare", {"number": move.number, "epoch": move.epoch, "to": dict(move.to)})


def drop_command(number: int) -> str:
    """That nothing comes of it."""
    return _command("drop", {"number": number})


def come_command(parts: Sequence[Mapping[str, object]]) -> str:
    """Where the workers to which tasks come find what they knew."""
    return _command("come", {"parts": list(parts)})


def over_command() -> str:
    """That all workers are past it."""
    return _command("over", {})


def home_command() -> str:
    """That workers without tasks are not wanted any more."""
    return _command("home", {})


def _command(word: str, body: Mapping[str, object]) -> str:
    return f"{WORD}{word} {json.dumps(body, separators=(',', ':'))}"


def asked_move(command: str) -> tuple[str, Mapping[str, Any]] | None:
    """The word of a command about moves, and what it says, if it is such a command."""
    if not command.startswith(WORD):
        return None
    word, _, body = command.removeprefix(WORD).partition(" ")
    return word, json.loads(body)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a move changes of a worker."""

    share: WorkerShare
    machine: Machine
    links: WorkerLinks
    runner: TaskRunner
    snapshots: Snapshots
    built: BuiltTasks
    meters: Meters
    schemas: list[pa.Schema]  # by the machine's edge
    report: Callable[[], None]  # tell what has been measured until now


class Moves:
    """The moves of one worker."""

    def __init__(
        self,
        dataflow: Dataflow,
        me: int,
        places: Sequence[WorkerPlace],
        worker_of: Mapping[str, int],
        settings: RunSettings,
        task_settings: Mapping[str, object],
        epochs: Epochs,
        parts: Parts,
        tell: Callable[[Mapping[str, object]], None],
    ) -> None:
        """`tell` carries to the driver how far this worker is; it must not wait."""
        self._dataflow, self._me, self._places, self._settings = dataflow, me, places, settings
        self._worker_of, self._task_settings, self._epochs = dict(worker_of), task_settings, epochs
        self._parts, self.tell = parts, tell
        self._outputs = {operator.name: operator.outputs for operator in dataflow.operators}
        self._move: Move | None = None
        self._before: Mapping[str, int] = {}  # where the tasks that move were until then
        self._coming: dict[str, int] = {}  # tasks -> the machine's number
        self._new_edges: list[int] = []
        self._new_peers: set[int] = set()  # that are not met yet
        self._left: list[int] = []  # tasks that have gone, in an epoch that is not handed over yet
        self._has_told = self._has_begun = self._is_fetching = False
        self._is_wanted = bool(parts.share.tasks)  # also when all have moved
        parts.snapshots.saved = self._saved
        parts.snapshots.handed_over = self._handed_over

    @property
    def stays(self) -> bool:
        """Whether the worker goes on although all tasks here have finished: they have moved, or are about to."""
        return self._move is not None or (self._is_wanted and not self._parts.snapshots.tasks)

    @property
    def waits(self) -> bool:
        """Whether `look` is wanted whenever something has come in."""
        return self._is_fetching or (self._move is not None and not self._has_told)

    def obey(self, word: str, body: Mapping[str, Any]) -> None:
        """What the driver says of a move."""
        match word:
            case "prepare":
                to = {str(task): int(worker) for task, worker in body["to"].items()}
                self._prepare(Move(int(body["number"]), int(body["epoch"]), to))
            case "drop":
                self._drop()
                self.tell({"number": int(body["number"]), "phase": DROPPED, "why": ""})
            case "come":
                self._fetch(body["parts"])
            case "over":
                self._over()
            case "home":
                self._is_wanted = False
            case _:
                msg = f"worker {self._me} was told to {word!r} about a move, which it does not know; please report this"
                raise InternalError(msg)

    def look(self) -> None:
        """Go on with what waits for others: peers that are to be met, states that are being read."""
        if self._move is not None and not self._has_told:
            try:
                self._new_peers = {peer for peer in self._new_peers if not self._parts.links.has_met(peer)}
            except OSError as error:
                self._has_told = True
                self._say(REFUSED, str(error))
            if not self._new_peers and not self._has_told:
                self._has_told = True
                self._say(PREPARED)
        if self._is_fetching and (found := self._epochs.fetched()) is not None:
            self._is_fetching = False
            self._come({known.task: known for known in found})

    def _say(self, phase: str, why: str = "") -> None:
        number = 0 if self._move is None else self._move.number
        self.tell({"number": number, "phase": phase, "why": why})

    # -- before the epoch ----------------------------------------------------------------------------------------------

    def refuse(self, body: Mapping[str, Any]) -> None:
        """This worker has come to its end, and no task can come to it."""
        self.tell({"number": int(body["number"]), "phase": ENDED, "why": f"worker {self._me} has finished its work"})

    def _prepare(self, move: Move) -> None:
        self._move, self._has_told, self._has_begun = move, False, False
        self._before = {task: self._worker_of[task] for task in move.to}
        try:
            after = self._share_after(move)
            concerned = self._concerned(after, move)
            if (finished := next((task for task in concerned if self._has_finished(task)), None)) is not None:
                self._say(ENDED, f"task {finished!r} has finished")
                self._move = None
                return
            made = self._made([task for task in after.tasks if task in move.to], move)
        except Interrupted:
            raise
        except Exception as error:
            self._say(REFUSED, str(error))
            self._move = None
            return
        self._add(move, after, made)
        self.look()

    def _share_after(self, move: Move) -> WorkerShare:
        """This worker's part of the job when the move is over."""
        worker_of = {**self._worker_of, **move.to}
        moved = self._parts.share.moved.copy()
        moved.update(move.to.keys())
        return share_of(self._dataflow, worker_of, self._me, self._settings, moved)

    def _concerned(self, after: WorkerShare, move: Move) -> list[str]:
        """Tasks that are here, of which an edge is led elsewhere."""
        share = self._parts.share
        leaving = {task for task in move.to if self._before[task] == self._me}
        edges = [share.edges[e] for task in leaving for e in self._edges_of(self._number_of(task))]
        edges += [edge for edge in after.edges if edge.source in move.to or edge.target in move.to]
        found = leaving | {end for edge in edges for end in (edge.source, edge.target)}
        return sorted(task for task in found if self._worker_of[task] == self._me)

    def _edges_of(self, t: int) -> list[int]:
        return [*self._parts.machine.moves.inputs_of(t), *self._parts.machine.moves.outputs_of(t)]

    def _number_of(self, task: str) -> int:
        """The machine's number of a task that is here."""
        return self._here()[task]

    def _here(self) -> dict[str, int]:
        """The tasks that are here, and the machine's numbers of them."""
        return {self._parts.share.tasks[t]: t for t in self._parts.snapshots.tasks}

    def _has_finished(self, task: str) -> bool:
        return self._parts.machine.moves.has_finished(self._number_of(task))

    def _made(self, tasks: Sequence[str], move: Move) -> list[Made]:
        """The tasks that will come, open; where one fails none is left."""
        made: list[Made] = []
        settings = {**self._task_settings, SETTING_EPOCH: move.epoch + 1}
        try:
            for task in tasks:
                made.append(self._parts.built.make(task))
                try:
                    self._parts.built.open_made(made[-1], self._settings.rows_max, settings)
                except Interrupted:
                    raise
                except BaseException as error:
                    raise self._parts.built.made_fault(made[-1], error) from error
        except BaseException:
            for one in made:
                with contextlib.suppress(Exception, SystemExit, KeyboardInterrupt):
                    one.task.close()
            raise
        return made

    def _add(self, move: Move, after: WorkerShare, made: Sequence[Made]) -> None:
        """Add tasks that will come, and new routes of edges."""
        share, machine = self._parts.share, self._parts.machine
        self._parts.report()
        leaving = [self._number_of(task) for task in move.to if self._before[task] == self._me]
        machine.moves.prepare(move.epoch, leaving)
        layouts = dict(zip(after.tasks, after.layout.tasks, strict=True))
        for one in made:
            t = machine.comes(layouts[one.name])
            put(share.tasks, t, one.name)
            self._coming[one.name] = t
            self._parts.meters.gone.add(t)
        here = {task: t for task, t in self._here().items() if task not in move.to} | self._coming
        to: dict[int, tuple[list[int], list[int]]] = {}  # by worker: edges there, edges from there
        for i, edge in enumerate(after.edges):
            if edge.source not in move.to and edge.target not in move.to:
                continue
            former = sum(share.moved[end] for end in (edge.source, edge.target))
            old = share.local_number.get(share.numbers.again(edge.number, former))
            ends = here.get(edge.source), here.get(edge.target)
            e = machine.moves.add_edge(replace(after.layout.edges[i], source=ends[0], target=ends[1]), old)
            self._know_edge(e, edge, after.peer_of.get(i))
            if (peer := after.peer_of.get(i)) is not None:
                to.setdefault(peer, ([], []))[ends[0] is None].append(edge.number)
        share.moved.update(move.to.keys())
        self._worker_of.update(move.to)
        for one in made:
            self._parts.runner.take_in(self._coming[one.name], one)
        self._change_meters()
        for peer, (sends_to, hears_from) in to.items():
            self._parts.links.add_edges(self._places[peer], sends_to, hears_from)
            self._new_peers.add(peer)

    def _know_edge(self, e: int, edge: JobEdge, peer: int | None) -> None:
        share = self._parts.share
        if e < len(share.edges) and share.local_number.get(before := share.edges[e].number) == e:
            del share.local_number[before]
            share.former.add(before)
        put(share.edges, e, edge)
        share.former.discard(edge.number)
        share.local_number[edge.number] = e
        share.peer_of.pop(e, None)
        if peer is not None:
            share.peer_of[e] = peer
        put(self._parts.schemas, e, self._outputs[operator_of(edge.source)][edge.output])
        self._parts.runner.add_edge(e, edge.number)
        self._new_edges.append(e)

    def _change_meters(self) -> None:
        share = self._parts.share
        ends = [(edge.source, edge.target) for edge in share.edges]
        self._parts.meters.change(share.tasks, ends, self._parts.schemas, self._parts.machine.waiting())

    def _drop(self) -> None:
        """Nothing comes of it: everything is as before."""
        if (move := self._move) is None:
            self._parts.links.forget_new_peers()  # others may have called here for it
            return
        share = self._parts.share
        self._parts.machine.stays()
        for t in self._coming.values():
            self._parts.runner.put_away(t)
        for e in self._new_edges:
            share.local_number.pop(share.edges[e].number, None)
        self._leave([e for e in self._new_edges if e in share.peer_of])
        self._parts.links.forget_new_peers()
        share.moved.subtract(move.to.keys())
        self._worker_of.update(self._before)
        self._begin_anew()

    # -- at the epoch, and behind it -----------------------------------------------------------------------------------

    def begun(self) -> None:
        """An epoch has begun. If it is the move's, all are prepared: what had finished before ends its new routes."""
        if self._move is not None and not self._has_begun and self._parts.machine.epoch == self._move.epoch:
            self._has_begun = True
            self._parts.links.keep_new_peers()
            for t in self._parts.machine.moves.switching():
                if self._parts.machine.moves.has_finished(t):
                    self._parts.runner.end_new_routes(t)

    def _saved(self, t: int) -> None:
        """A task has been saved and has sent its marker: what it emits from now on takes the new routes."""
        machine = self._parts.machine
        if routes := machine.moves.switch(t):
            self._parts.runner.lead(t, dict(routes))
        if t in machine.moves.leaving:
            machine.left(t)
            self._left.append(t)
        self._leave_left()

    def _leave_here(self, t: int) -> None:
        """A task leaves that had finished before the marker: its last rows may linger, and their end."""
        self._parts.runner.send_rest(t)
        self._parts.machine.left(t)
        self._left.append(t)

    def _leave_left(self) -> None:
        """Wait for nothing along edges to other workers that have been left."""
        self._leave([e for e in self._parts.machine.moves.take_left_edges() if e in self._parts.share.peer_of])

    def _leave(self, edges: Sequence[int]) -> None:
        self._parts.links.leave_edges([self._parts.share.edges[e].number for e in edges])

    def _handed_over(self, epoch: int) -> None:
        """What has left is no more here; a task that was to leave and has finished before leaves now."""
        machine, snapshots = self._parts.machine, self._parts.snapshots
        if self._move is None or epoch != self._move.epoch:
            return
        for t in tuple(machine.moves.leaving):
            self._leave_here(t)
        self._leave_left()
        if self._left:
            self._parts.report()  # what they have done since the last report is told while they count here
        for t in self._left:
            snapshots.leave(t)
            self._parts.runner.put_away(t)
            self._parts.meters.gone.add(t)
        self._left = []

    def _fetch(self, parts: Sequence[Mapping[str, Any]]) -> None:
        if self._coming:
            self._is_fetching = True
            self._epochs.fetch(parts, self._coming.keys())
            self.look()

    def _come(self, found: Mapping[str, Any]) -> None:
        """The tasks that come go to work."""
        if self._move is None:
            return
        for task, t in self._coming.items():
            self._parts.meters.gone.discard(t)
            self._parts.snapshots.come(t, found[task], self._move.epoch)
            self._parts.runner.begin(t)
        self._coming = {}
        self._say(CAME)

    def _over(self) -> None:
        if self._move is not None:
            self._parts.machine.moves.over()
            self._leave_left()
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._move = None
        self._coming, self._new_edges, self._new_peers = {}, [], set()
