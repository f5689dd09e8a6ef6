"""Live moves of simulated workers: random tasks go to random workers at random times, and the others go on.

The workers and the driver's decisions (`deploy/attempt/moving.py`) are the product's; the driver's shell is a page of
its own, in which words to workers and from them arrive when their turn comes. Nothing fails here, so sinks hand rows
over at once, and each has to be there once, in the order of its way. Credit is checked on every route that is in use.

    python -m penstock_lab.simulate.live_moves 17    # one seed, with its events
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from penstock.deploy.attempt.moving import BeginEpoch, LiveMove, Phase, Step, Tell
from penstock.model.task_id import operator_of
from penstock.run.columns.unwritten import in_bytes
from penstock.run.engine.epochs import Restored, TaskSnapshot
from penstock.run.engine.moves import asked_move, home_command
from penstock.run.engine.pace import pace_groups
from penstock.run.engine.worker_share import share_of, task_ids
from penstock_lab.simulate.network import Ends
from penstock_lab.simulate.random_jobs import SETTING_AT_ONCE, RandomJob, random_job
from penstock_lab.simulate.workers import Simulation

EPOCHS_MAX = 60
LENGTHS = (12, 50, 200, 400)  # rows of each source task, so that many moves come before the end


class Board:
    """What workers have handed over of epochs."""

    def __init__(self) -> None:
        self.known: dict[str, TaskSnapshot] = {}  # by task: the last
        self.told: Callable[[int, int | None], None] = lambda worker, epoch: None


class KeptInMemory:
    """One worker's epochs (`Epochs`)."""

    first = 1

    def __init__(self, worker: int, board: Board) -> None:
        self._worker, self._board = worker, board
        self._wanted: list[TaskSnapshot] | None = None

    def restored(self, operator: str) -> Restored | None:
        """Every job begins at its beginning."""

    def begin(self) -> None:
        """Nothing was read."""

    def check(self) -> None:
        """Nothing goes wrong."""

    def fetch(self, parts: Sequence[Mapping[str, Any]], tasks: Collection[str]) -> None:
        """What others handed over."""
        self._wanted = [self._board.known[task] for task in tasks]

    def fetched(self) -> Sequence[TaskSnapshot] | None:
        """At once."""
        return self._wanted

    def completed(self, epoch: int, snapshots: Sequence[TaskSnapshot]) -> None:
        """Keep it."""
        self._keep(snapshots)
        self._board.told(self._worker, epoch)

    def ended(self, snapshots: Sequence[TaskSnapshot]) -> None:
        """Keep it."""
        self._keep(snapshots)
        self._board.told(self._worker, None)

    def _keep(self, snapshots: Sequence[TaskSnapshot]) -> None:
        for one in snapshots:
            self._board.known[one.task] = TaskSnapshot(one.task, one.finished, in_bytes(one.state))


class LiveMoves(Simulation):
    """One job of one seed whose tasks move."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 - a simulation
        job = _job_without_region(rng)
        self._board = Board()
        super().__init__(seed, rng, job, lambda w: KeptInMemory(w, self._board), settings={SETTING_AT_ONCE: True})
        self.module = "live_moves"
        self._board.told = self._kept
        for w, worker in enumerate(self.workers):
            if worker.moves is not None:
                worker.moves.tell = self._teller(w)
        self._words: dict[int, deque[Callable[[], None]]] = {w: deque() for w in range(len(self.workers))}
        self._said: deque[Callable[[], Sequence[Step]]] = deque()  # on the way to the driver
        self._epoch, self._parts, self._ended = 0, set[int](), set[int]()
        self._is_under_way = False
        self._move: LiveMove | None = None
        self._after: dict[str, int] = {}
        self._moved = dict[str, int]()
        self._numbers = 0
        self._eagerness = rng.choice((0.02, 0.1, 0.4))
        paced = pace_groups(job.dataflow)
        self._movable = [task for task in task_ids(job.dataflow) if operator_of(task) not in paced]
        self.moves = self.refused = 0

    # -- the driver ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One step of a worker, a word that arrives, or something that the driver begins."""
        if self._said and self._random.random() < 0.5:
            self._do(self._said.popleft()())
        waiting = [w for w, words in self._words.items() if words]
        if waiting and (not self.able() or self._random.random() < 0.5):
            self._words[self._random.choice(waiting)].popleft()()
            return
        if not self.able() and (waiting or self._said):
            return
        if not self._is_under_way and self._epoch < EPOCHS_MAX and self._random.random() < self._eagerness:
            self._begin()
        else:
            super().step()

    def next_us(self) -> int:
        """Workers without tasks wait until they are told that nothing comes."""
        if self._said or any(self._words.values()):
            return self.now_us
        return super().next_us()

    def _begin(self) -> None:
        """An epoch, or a move."""
        if self._move is None and len(self.workers) > 1 and self._random.random() < 0.7:
            chosen = self._random.sample(self._movable, self._random.randint(1, min(3, len(self._movable))))
            to = {task: self._random.randrange(len(self.workers)) for task in chosen}
            to = {task: w for task, w in to.items() if w != self.plan[task]}
            if to:
                self._numbers += 1
                self._move = LiveMove(self._numbers, to, self.plan, len(self.workers))
                self._after = {**self.plan, **to}
                self._lead(to)
                self._do(self._move.held(self._epoch + 1))
        elif self._move is None:
            self._begin_epoch()

    def _lead(self, to: Mapping[str, int]) -> None:
        """Tell the network where the new routes lead."""
        moved = {**self._moved, **{task: self._moved.get(task, 0) + 1 for task in to}}
        for w, worker in enumerate(self.workers):
            share = share_of(self.job.dataflow, self._after, w, worker._settings, moved)
            for e in share.peer_of:
                edge = share.edges[e]
                name = f"{edge.source} -> {edge.target}"
                ends = Ends(self._after[edge.source], self._after[edge.target], name, 0)
                self._network.ends[edge.number] = ends  # type: ignore[index] # a dict

    def _do(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, BeginEpoch):
                self._begin_epoch()
            elif isinstance(step, Tell):
                self._tell(step.command)
        move = self._move
        if move is None:
            return
        if move.phase is Phase.OVER:
            self.plan, self._move = self._after, None
            for task in move.to:
                self._moved[task] = self._moved.get(task, 0) + 1
            self.moves += 1
        elif move.phase is Phase.REFUSED:
            self._move = None
            self.refused += 1
        self._send_home()

    def _tell(self, command: str) -> None:
        for w in self._words:
            self._words[w].append(lambda w=w: self._hears(w, command))  # type: ignore[misc]

    def _hears(self, w: int, command: str) -> None:
        self.history.note(self.now_us, w, f"hears     {command}")
        asked = asked_move(command)
        if asked is None:
            raise AssertionError(command)
        self.workers[w].move(*asked)
        if self.workers[w].moves.waits:  # type: ignore[union-attr] # there are epochs
            self.workers[w].moves.look()  # type: ignore[union-attr]
        if w in self._until_us:
            self._until_us[w] = 0

    def _teller(self, w: int) -> Callable[[Mapping[str, object]], None]:
        def tell(said: Mapping[str, object]) -> None:
            self.history.note(self.now_us, w, f"says      {dict(said)}")
            number, phase, why = int(str(said["number"])), str(said["phase"]), str(said["why"])
            self._said.append(lambda: () if self._move is None else self._move.said(w, number, phase, why))

        return tell

    def _begin_epoch(self) -> None:
        self._epoch += 1
        self._parts, self._is_under_way = set(), True
        epoch = self._epoch
        for w in self._words:
            self._words[w].append(lambda w=w: self.begin_epoch(w, epoch))  # type: ignore[misc]
        self._said.append(self._look_whole)

    def _kept(self, w: int, epoch: int | None) -> None:
        """A worker has handed over."""
        self.history.note(self.now_us, w, f"hands over epoch {epoch}")

        def heard() -> Sequence[Step]:
            if epoch is None:
                self._ended.add(w)
            else:
                self._parts.add(w)
            steps = [] if self._move is None else self._move.kept(w, epoch, {"worker": w})
            self._send_home()
            return [*steps, *self._look_whole()]

        self._said.append(heard)

    def _look_whole(self) -> Sequence[Step]:
        if not self._is_under_way or len(self._parts | self._ended) < len(self.workers):
            return ()
        self._is_under_way = False
        return () if self._move is None else self._move.committed(self._epoch)

    def _send_home(self) -> None:
        """Workers without tasks are not wanted any more when all others have ended."""
        if self._move is None and self._ended >= {*self.plan.values()}:
            self._tell(home_command())

    def _check_end(self) -> None:
        """Ends that come to a task which had finished before it moved come to nobody."""
        for w in range(len(self.workers)):
            self._network.pass_over_ends(w)
        super()._check_end()

    def _is_led(self, w: int, e: int) -> bool:
        machine, share = self.workers[w].machine, self.workers[w].share
        number = share.edges[e].number
        if machine.moves.is_old(e) or share.local_number.get(number) != e:
            return False
        source = machine.layout.edges[e].source
        if source is None or machine.moves.has_finished(source) or e not in machine.moves.outputs_of(source):
            return False
        there = share.peer_of.get(e)
        if there is None:
            return True
        far = self.workers[there].share.local_number.get(number)
        machine = self.workers[there].machine
        return far is not None and not machine.moves.is_old(far) and machine.layout.edges[far].target is not None


def _job_without_region(rng: random.Random) -> RandomJob:
    """Tasks of regions do not move while others go on."""
    while True:
        job = random_job(rng, LENGTHS)
        if all(operator.region is None for operator in job.dataflow.operators):
            return job


if __name__ == "__main__":
    for given in sys.argv[1:]:
        simulation = LiveMoves(int(given))
        print(simulation.run(), simulation.job.text, simulation.moves, simulation.refused)
