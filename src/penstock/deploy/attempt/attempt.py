"""Attempt: a job's workers under one plan, from the launch to what became of them.

A job without checkpoints has one attempt. With checkpoints a failed attempt is followed by another, which goes on from
the last committed epoch. Each has its own ticket, control server and keys, so a worker of an earlier one reaches
nobody. After a failure it has its own Spark action too; where a job only changes its plan, the processes of the one
before come over. An attempt that is given up is buried beside the next: its workers are told to end, and Spark kills
those that do not obey. Rejected: Spark's own second attempts of a task, which come in 0.35 to 1 s for one lost worker,
but not in `local[n]`, not for an executor that is gone, and beside survivors that have to be rolled back all the same.
Decisions: docs/decisions/0043-epochs.md, 0046-moves.md.
"""

from __future__ import annotations

import math
import platform
import secrets
import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.checkpoint.contract import Report
from penstock.checkpoint.coordinator import Awaited
from penstock.deploy.attempt.gangs import Gangs
from penstock.deploy.attempt.going import Going
from penstock.deploy.attempt.watch import Notes, Watchman
from penstock.deploy.driver.binding import Bound
from penstock.deploy.driver.facts import jvm_ending, lost_jvm
from penstock.deploy.driver.options import JobOrder
from penstock.deploy.driver.outcome import CRASHED_IN_SPARK, Reports, judge
from penstock.deploy.driver.preflight import build_faults, passing_faults
from penstock.deploy.driver.rendezvous import OVER_SECONDS, ControlServer, TakeBatch, wait_in_steps
from penstock.deploy.driver.stage import Action
from penstock.deploy.line.messages import Hello, encode_deployment
from penstock.deploy.line.sealed import KEY_BYTES
from penstock.deploy.results.files import ResultFolder, unkept
from penstock.deploy.worker.carried import Carried
from penstock.deploy.worker.control import SCHEME
from penstock.deploy.worker.main import WorkerCall
from penstock.deploy.worker.reachable import Probe, remove_probes, sink_probes, source_probes, unseen_faults
from penstock.errors import JobFailed, PenstockError, UnfitSession
from penstock.run.build import own_build
from penstock.run.dataflow import Dataflow, as_placed, sized
from penstock.run.engine.pace import Floors, pace_speakers
from penstock.run.engine.user_errors import with_source
from penstock.run.engine.worker import Checkpoint, Deployment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RENDEZVOUS_SECONDS = 60.0  # a warm session needs 0.2 s, a busy machine's first Python workers many
OBEY_SECONDS = 4.0  # how long workers may take to end when told to, before Spark kills them
KILL_SECONDS = 30.0
LEAVE_SECONDS = 2.0
SLOTS_SECONDS = 0.1  # how often an attempt that goes on looks whether its slots are still there
ECHO_SECONDS = 1.0  # how long a worker that peers have lost may take to say what it failed with
JVM_SECONDS = 2.0  # from the moment that a JVM's connection breaks until its end can be seen

Bind = Callable[[Dataflow, Sequence[Hello]], Bound]


def named_workers(numbers: Sequence[int]) -> str:
    """For a message: `worker 1`, or `workers 1, 3`."""
    return f"worker{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an attempt is given by its job."""

    spark: SparkSession
    order: JobOrder
    job: str
    files: ResultFolder
    take: TakeBatch
    kept: Callable[[int, Report], None]  # a worker's word that its part of an epoch is kept
    notes: Notes  # of workers that are silent or busy
    awaited: Callable[[], Awaited | None]  # the epoch that is under way


class Attempt:
    """One attempt at a job; `start`, `meet`, `publish`, then `ending` and `judged`, or `bury`."""

    def __init__(
        self,
        around: Surroundings,
        number: int,
        workers: int,
        before: Attempt | None = None,
        stays: Sequence[int] | None = None,
        joining: int = 0,
    ) -> None:
        """`before`: the attempt whose processes come over (`take_over`); None: Spark is asked for new ones.

        Those of `stays` come, and are numbered in that order, the others go home; None: all come. `joining`: as many of
        the workers as Spark is asked for beside them.
        """
        self._stays = stays
        self.number, self.workers_asked = number, workers
        self.hellos: tuple[Hello, ...] = ()  # once all are there
        self.deployment: Deployment | None = None  # likewise
        self._around, order = around, around.order
        self._burial: threading.Thread | None = None
        self._watchman: Watchman | None = None  # once they are at work
        self._came_over: Set[int] = frozenset()  # workers that were told to come here from the attempt before
        self.moves = 0  # of tasks, while the others go on
        self._was_left = False  # workers had finished, and Spark had to be told to end what was left of them
        self._ticket = secrets.token_bytes(KEY_BYTES)
        self._server = ControlServer(order.bind, self._ticket, workers, around.take, around.kept, order.network)
        self.roll = self._server.roll
        self.roll.workers = workers
        self._location = f"{SCHEME}{order.host}:{self._server.port}"
        self._probes: tuple[Probe, ...] = ()
        self._joining: Action | None = self._submitted(workers - joining, joins=True) if joining else None
        self.action: Action | Gangs
        if before is None:
            self.action = self._submitted()
        else:
            self.action = before.action if self._joining is None else Gangs.of(before.action, self._joining)

    def _submitted(self, first: int = 0, *, joins: bool = False) -> Action:
        """The Spark action that will start the workers, from the first of these on."""
        around, order = self._around, self._around.order
        loopback = order.host == "127.0.0.1"
        number, workers = self.number, self.workers_asked
        self._probes = () if loopback else (*source_probes(order.reads), *sink_probes(order.writes, around.job, number))
        call = WorkerCall(
            around.job,
            Carried(order.dataflow, goes_on=order.epochs is not None),
            workers,
            self._location,
            loopback,
            tuple(order.frames),
            around.files,
            self._probes,
            order.spooled,
            order.network,
            first,
        )
        frame = order.input()
        try:
            return Action(
                around.spark, call, frame, self._ticket, on_change=self.roll.awaken, number=number, joins=joins
            )
        except BaseException:  # Spark refuses the DataFrame
            self.close()
            raise

    def start(self) -> None:
        """Submit the action."""
        self.action.start()

    def take_over(self, before: Attempt) -> bool:
        """Have the workers of the attempt before stand still and come here; False where not all do."""
        roll = before.roll
        coming = sorted(roll.hellos) if self._stays is None else self._stays
        going = Going(self._location, self._ticket, {worker: number for number, worker in enumerate(coming)})
        roll.over_to(going)
        with roll.changed:  # Spark's word of its end still goes to the attempt before
            roll.changed.wait_for(
                lambda: roll.are_over or roll.has_parted or roll.ending or self.action.ended, OVER_SECONDS
            )
            if not roll.are_over:
                return False
            self._came_over = frozenset(going.numbers.values())
            self.action.tell(self.roll.awaken)
            return True

    def give_back(self, before: Attempt) -> None:
        """Nothing comes of it: the processes are the attempt's before, which ends or is buried."""
        self.action.tell(before.roll.awaken)
        before.roll.stay()
        self.close()

    def newcomers(self, is_off: Callable[[], bool]) -> list[Hello]:
        """Ask Spark for the workers that join, and wait for them; JobFailed where they do not come, or are unfit.

        `is_off`: nobody waits for them any more.
        """
        gang, roll, order = self._joining, self.roll, self._around.order
        if gang is None:
            return []
        gang.start()
        count = gang.workers

        def is_known() -> bool:
            return len(roll.hellos) >= count or gang.ended or roll.ending or is_off()

        def wait(step: float) -> bool:
            with roll.changed:
                return roll.changed.wait_for(is_known, step)

        wait_in_steps(wait, RENDEZVOUS_SECONDS)
        hellos = [roll.hellos[worker] for worker in sorted(roll.hellos)]
        faults = build_faults(hellos, platform.python_version(), pa.__version__, own_build())
        faults += passing_faults(hellos) + unseen_faults(self._probes, hellos)
        if len(hellos) < count:
            said = f"; Spark says: {gang.reason}" if gang.reason else "; other queries may hold the slots"
            faults = [f"{len(hellos)} of {count} workers came within {RENDEZVOUS_SECONDS:g} s{said}"]
        if is_off():
            faults = ["it has gone on from a failure, or ended, meanwhile; ask again if it runs"]
        if faults:
            msg = f"job {order.dataflow.name!r} keeps the workers that it has: {'; '.join(faults)}"
            raise JobFailed(msg)
        return hellos

    def require_newcomers(self) -> None:
        """JobFailed where one that was to join has ended since it said hello."""
        if self._joining is not None and (self.roll.ending or self._joining.ended):
            msg = f"a worker that was to join it has ended: {self._joining.reason or 'it was killed or crashed'}"
            raise JobFailed(msg)

    def dismiss(self) -> None:
        """Nothing comes of workers that were to join: they end, and give their slots back."""
        self.roll.cancel()
        if self._joining is not None and self._joining.is_submitted and not self._joining.wait(OBEY_SECONDS):
            self._joining.cancel(KILL_SECONDS)
        self.close()

    def send_home(self) -> None:
        """Nothing is left to do for the workers that come over: they are let in, and told to end."""
        self.roll.cancel()
        self.action.wait(OBEY_SECONDS)

    def meet(
        self, bind: Bind, checkpoint: Callable[[], Checkpoint | None], slots: Callable[[], int] | None = None
    ) -> Bound | None:
        """Meet the workers and decide where tasks run; None where the attempt has ended before all were there.

        Where `slots` is given, the job goes on: the attempt fails as soon as there are fewer slots than workers are
        waited for, and what may pass (memory that is short, a folder that is not seen) is no reason to end the job.
        """
        if not self._all_are_here(slots):
            return None
        roll = self.roll
        hellos = [roll.hellos[worker] for worker in sorted(roll.hellos)]
        remove_probes(self._probes)
        lasting = build_faults(hellos, platform.python_version(), pa.__version__, own_build())
        new = [hello for hello in hellos if hello.worker not in self._came_over]
        held = [replace(hello, memory_mb=math.inf) for hello in hellos if hello not in new]  # what they need they have
        passing = passing_faults([*new, *held]) + unseen_faults(self._probes, new)
        if lasting or (passing and slots is None):
            raise UnfitSession(lasting + passing)
        if passing:
            msg = f"topology {self._name!r}: attempt {self.number} could not begin: {'; '.join(passing)}"
            raise JobFailed(msg)
        dataflow = sized(self._around.order.dataflow, len(hellos))
        bound = bind(dataflow, hellos)
        deployment = replace(bound.deployment, checkpoint=checkpoint())
        self.deployment, self.hellos = deployment, tuple(hellos)
        return replace(bound, deployment=deployment)

    def _all_are_here(self, slots: Callable[[], int] | None) -> bool:
        roll, action = self.roll, self.action
        with roll.changed:
            wait_in_steps(
                lambda step: roll.changed.wait_for(lambda: action.launched or action.ended or roll.ending, step), None
            )
        limit_s = self._around.order.silence_s if self._came_over else RENDEZVOUS_SECONDS
        latest = time.monotonic() + limit_s
        while not roll.wait_for_all(lambda: action.ended, RENDEZVOUS_SECONDS if slots is None else SLOTS_SECONDS):
            if roll.ending or action.ended:
                return False
            if slots is not None and (there := slots()) < self.workers_asked and time.monotonic() < latest:
                msg = (
                    f"attempt {self.number} at topology {self._name!r} asked for {self.workers_asked} workers, and "
                    f"{max(0, there)} slots are left: an executor is gone"
                )
                raise JobFailed(msg)
            if time.monotonic() >= latest:
                if missing := sorted(self._came_over - roll.hellos.keys()):
                    stood = f"{named_workers(missing)} stood still and did not come to attempt {self.number}"
                    msg = f"topology {self._name!r}: {stood} within {limit_s:g} s"
                    raise JobFailed(msg)
                msg = (
                    f"topology {self._name!r} waited {RENDEZVOUS_SECONDS:g} s for {self.workers_asked} workers but "
                    f"{len(roll.hellos)} came; other queries may hold the slots"
                )
                raise JobFailed(msg)
        return True

    def publish(self, deployment: Deployment) -> None:
        """Let the workers begin."""
        dataflow = as_placed(sized(self._around.order.dataflow, len(self.hellos)), deployment.worker_of)
        floors = Floors(pace_speakers(dataflow, deployment.worker_of))
        self.roll.publish(encode_deployment(deployment), floors)
        around = self._around
        limit_s, notes = around.order.silence_s, around.notes
        self._watchman = Watchman(self.roll, self.hellos, deployment, limit_s, notes, around.job, around.awaited)

    def next_move(self) -> int:
        """The number of one more move of its tasks."""
        self.moves += 1
        return self.moves

    def moved(self, deployment: Deployment) -> None:
        """Tasks have moved while the others went on."""
        self.deployment = deployment
        if self._watchman is not None:
            self._watchman.moved(deployment)

    def await_work(self) -> None:
        """Until its workers have their connections and their state, or it fails or ends before that."""
        roll = self.roll

        def is_decided() -> bool:
            return roll.at_work >= roll.hellos.keys() or roll.ending or roll.has_parted or self.action.ended

        with roll.changed:
            wait_in_steps(lambda step: roll.changed.wait_for(is_decided, step), None)

    # -- its end -------------------------------------------------------------------------------------------------------

    def ending(self, are_wanted: Callable[[], bool] = lambda: False) -> None:
        """Wait until Spark is done with it, something has ended it, or its workers are wanted by another attempt.

        A worker that says goodbye has handed over everything, and nobody looks after it any more. So where all have
        said so Spark is waited for as long as a worker may be silent: one that is stopped there would hold the job up
        for ever. Those that were handed a DataFrame still wait for the batch that Spark is at, however long that takes.
        """
        roll, action = self.roll, self.action

        def is_over() -> bool:
            return action.ended or roll.ending

        with roll.changed:
            roll.changed.wait_for(lambda: is_over() or are_wanted() or (self.has_finished and not action.reads))
            if self.has_finished and not action.reads:
                roll.changed.wait_for(is_over, self._around.order.silence_s)

    def end(self) -> None:
        """Wait until Spark is done with it; what does not obey is killed."""
        if not self.action.wait(OBEY_SECONDS if self.roll.hellos else 0):
            self._was_left = self.has_finished
            self.action.cancel(KILL_SECONDS)
        self._await_survivors()

    def hear_echoes(self) -> None:
        """Wait a moment for what else is said of the same failure: a function that raised counts before a peer."""
        with self.roll.changed:
            self.roll.changed.wait_for(lambda: self.roll.is_explained, ECHO_SECONDS)

    def bury(self) -> None:
        """End what is left of an attempt that was given up, beside whatever comes next."""
        if self._burial is None:
            self.roll.cancel()
            name = f"penstock-{self._around.job}-burial"
            self._burial = threading.Thread(target=self._bury, name=name, daemon=True)
            self._burial.start()

    def leave(self) -> None:
        """Its workers have gone over to another attempt; Spark's action is that one's now."""
        self.close()

    @property
    def begun_from(self) -> int:
        """The epoch from which its workers were sent to work; 0: from the beginning."""
        kept = None if self.deployment is None else self.deployment.checkpoint
        return 0 if kept is None else kept.restore or 0

    @property
    def is_at_work(self) -> bool:
        """Whether its workers have met, and it has neither failed nor finished."""
        return bool(self.hellos) and not self.roll.ending and not self.action.ended and not self.has_finished

    @property
    def are_all_at_work(self) -> bool:
        """The same, and no worker has said goodbye, so that all could go over to another attempt."""
        return self.is_at_work and not self.roll.statuses

    @property
    def is_buried(self) -> bool:
        """Whether it has been given up: its workers must not be sent to work any more."""
        return self._burial is not None

    def await_burial(self, seconds: float) -> bool:
        """Whether nothing is left of it within `seconds`."""
        if self._burial is not None:
            self._burial.join(seconds)
        return self._burial is None or not self._burial.is_alive()

    def _bury(self) -> None:
        with self.roll.changed:
            self.roll.changed.wait_for(lambda: len(self.roll.statuses) + 1 >= len(self.roll.hellos), LEAVE_SECONDS)
        self.action.cancel(KILL_SECONDS)
        self.close()

    def _await_survivors(self) -> None:
        """Spark ends an aborted stage before its workers are gone; they are told, and given a moment to go."""
        roll = self.roll
        if self.action.error is not None:
            roll.cancel()
            with roll.changed:
                roll.changed.wait_for(lambda: len(roll.statuses) + 1 >= len(roll.hellos), LEAVE_SECONDS)

    def close(self) -> None:
        """Take no more calls and no more rows."""
        if self._watchman is not None:
            self._watchman.end()
        self._server.end()
        remove_probes(self._probes)

    @property
    def is_final(self) -> bool:
        """Whether no other attempt could do better: the driver itself failed, or Spark's own process."""
        error = self.action.error
        if self.roll.given_up is not None:
            return True
        return error is not None and jvm_ending(self._around.spark, JVM_SECONDS if lost_jvm(error) else 0.0) is not None

    @property
    def is_unfit(self) -> bool:
        """Whether Python could not begin where the workers are, for a reason that is there for every attempt."""
        said = self.action.reason
        return said is not None and not self.roll.hellos and not any(words in said for words in CRASHED_IN_SPARK)

    @property
    def has_finished(self) -> bool:
        """Whether every worker said goodbye with its work done."""
        statuses = self.roll.statuses
        return bool(self.hellos) and len(statuses) == len(self.hellos) and {*statuses.values()} == {"finished"}

    def judged(self, *, cancel_asked: bool) -> PenstockError | None:
        """What became of it, from everything that is known by now."""
        roll, error = self.roll, None if self._was_left else self.action.error
        reports = Reports(
            self._name,
            dict(roll.hellos),
            dict(roll.statuses),
            [replace(fault, trace=with_source(fault.trace)) for fault in roll.faults],
            self.deployment,
            None if self._was_left else self.action.reason,
            cancel_asked,
            self.workers_asked,
            None if roll.given_up is None else unkept(roll.given_up),
            None if error is None else jvm_ending(self._around.spark, JVM_SECONDS if lost_jvm(error) else 0.0),
        )
        return judge(reports)

    @property
    def _name(self) -> str:
        return self._around.order.dataflow.name
