"""Whole jobs that crash and go on, under one seed: workers, markers, drivers, store, published rows, stale attempts.

What runs is the product's own code down to its system calls: workers and tasks, `DriverEpochs` with its thread, the
coordinator, the store, publications, the policy of failures, parts. The seed decides all that `workers.py` lets it
decide, which thread goes on and where it stops, when epochs begin and when anything arrives; where a worker, the driver
or everything dies, between any two steps or in the middle of a write, and what a loss of power leaves (`disk.py`); what
gets damaged; when a driver stands still while another takes its job over; what attempts that were given up still do.
Every attempt has another plan and other numbers of workers. What has to hold at any moment is in `readers.py`; in the
end each row is there once. Steps are limited, so every job ends.

    python -m penstock_lab.simulate.survival 17    # one seed, with its events
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from penstock.checkpoint.contract import Branch
from penstock.checkpoint.policy import Policy
from penstock.checkpoint.store import Store
from penstock.errors import CheckpointDamaged, StaleAttempt, StoreUnusable
from penstock.run.engine.worker import Checkpoint
from penstock_lab.simulate.actors import Actor, Actors, Killed, Process
from penstock_lab.simulate.attempts import Driver, Kept, SimulatedAttempt
from penstock_lab.simulate.crossings import Crossings
from penstock_lab.simulate.disk import Disk
from penstock_lab.simulate.network import History
from penstock_lab.simulate.random_jobs import OutOfOrder, RandomJob, random_job
from penstock_lab.simulate.readers import SINK, Reader
from penstock_lab.simulate.refusals import STALL_STEPS, Refusals
from penstock_lab.simulate.returns import Returns, is_refused
from penstock_lab.simulate.system import AFTER, AMID, BEFORE, BUCKET, System, replaced
from penstock_lab.simulate.workers import FAR_US, START_US, Layout, SimulationFailed

STEPS_MAX = 200_000
PAUSE_US = 5_000  # until somebody starts the job again
STALE_STEPS_MAX = 400  # of an attempt that was given up
SAVEPOINTS_MAX = 2
SLOWNESS = 0.995  # how often a worker with a slow disk does not come to its files
DRIVER_WEIGHT = 8  # its steps on the disk are fewer than the workers', and more depends on their order
KINDS = ("worker", "worker", "driver", "everything", "power", "damage", "damage", "hang", "takeover", "takeover")
DRIVERS_MAX = 60


class Survival:
    """The job of one seed, through its crashes."""

    def __init__(self, seed: int, *, refuses: bool = True) -> None:
        self.seed = seed
        self.random = rng = random.Random(seed)  # noqa: S311 - a simulation
        self.job: RandomJob = random_job(rng)
        self.history, self.now_us, self.steps = History(), START_US, 0
        self.root = rng.choice(("/store", "/store", f"{BUCKET}store"))
        self.kept, self.interval_s = rng.choice((1, 2, 3)), rng.choice((0.0002, 0.002, 0.02))
        self.policy = Policy(failures_max=rng.choice((2, 10)), wait_first_s=0.01, wait_max_s=0.1)
        self.refusals = Refusals(seed, is_on=refuses)
        self.crashes_left = rng.choice((0, 1, 2, 3, 4, 6, 8))
        self._crash_chance = rng.choice((0.0, 0.002, 0.01))  # at each step
        self._file_chance = rng.choice((0.0, 0.003, 0.02))  # at each change of a file
        self._rest_chance = rng.choice((0.0, 0.02, 0.3))
        self._file_us = rng.choice((1, 30))
        self._eager = rng.choice((0.1, 0.5, 0.9))  # how readily drivers get their turn
        self.savepoints_left = rng.randint(0, SAVEPOINTS_MAX)
        self.returns, self.crossings = Returns(seed), Crossings(seed)
        self._slow = rng.choice((None, None, 0, 1))  # a worker whose disk is
        self.disk = Disk()
        self.actors = Actors(lambda: self.now_us)
        self.system = System(self.disk, self.actors, self, lambda: self.now_us)
        facts, _ = self.job.dataflow.sinks()[SINK]
        self.reader = Reader(self.disk, "/store", facts, self.kept, self.fail, self._goes_back)
        self.drivers: list[Driver] = []
        self.attempts: list[SimulatedAttempt] = []  # the last one, and those that still do something
        self.attempts_begun = 0
        self._must = 0  # an epoch that was committed, as a driver was told
        self._trusted = 0  # drivers before this one speak of epochs that were damaged since
        self._power = False
        self._is_damaged = False
        self._failed: SimulationFailed | None = None
        self.is_over = False

    def run(self) -> int:
        """Until the job is over; SimulationFailed where anything is not as it should be. Answers the epochs."""
        with replaced(self.system):
            try:
                while not self.is_over:
                    self._turn()
                self._check_end()
            finally:
                self._end_all()
        return max(self.reader.epochs(), default=0)

    # -- one turn ------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.fail(f"no end after {STEPS_MAX} steps")
        rng = self.random
        able, working = self.actors.able(self.steps), self._working()
        if able and (rng.random() < self._eager or not working):
            self._driver_goes_on(able)
        if working:
            self._worker_goes_on(working)
        carried = self._carries()
        if not able and not working and not carried:
            self._time_goes_on()
        if self.crashes_left and rng.random() < self._crash_chance:
            self._crash()
        if self.savepoints_left and rng.random() < 0.01:
            self.savepoints_left -= self._savepoint(f"s{self.savepoints_left - 1}")
        if (name := self.returns.asks()) is not None:
            self._savepoint(name)
        self.crossings.turn(self._current)
        self._stall_one()
        if self._failed is not None:
            raise self._failed
        self._bury()
        self._look_at_drivers()

    def _driver_goes_on(self, able: list[Actor]) -> None:
        self.actors.go_on(self.random.choice(able))
        for driver in self.drivers[self._trusted :]:
            if driver.epochs is not None and self.returns.counts(driver):
                self._must = max(self._must, driver.epochs.last_epoch)

    def _working(self) -> list[SimulatedAttempt]:
        """Attempts with something to do now."""
        found = []
        for attempt in self.attempts:
            attempt.simulation.now_us = self.now_us
            if attempt.is_published and (attempt.unopened or attempt.simulation.able()):
                found.append(attempt)
        return found

    def _worker_goes_on(self, working: list[SimulatedAttempt]) -> None:
        attempt = self.random.choice(working)
        simulation = attempt.simulation
        if attempt.steps_left is not None:
            attempt.steps_left -= 1
        if attempt.unopened:
            w = attempt.unopened.pop()
            self._acts(attempt, w, simulation.workers[w].open)
            if attempt.unopened:
                return
        able = [w for w in simulation.able() if w not in attempt.unopened]
        if able:
            w = simulation.chosen(able)
            self._acts(attempt, w, lambda: simulation.step_of(w))
            self.now_us = max(self.now_us, simulation.now_us)

    def _carries(self) -> bool:
        """What is between drivers and workers moves on."""
        did = False
        for attempt in list(self.attempts):
            while attempt.untold and not attempt.unopened and self.random.random() < self.crossings.haste:
                did = True
                attempt.stands(attempt.untold.pop())
            while attempt.unheard and not attempt.unopened and self.random.random() < 0.5:
                did = True
                w, epoch = attempt.unheard.pop()
                self._acts(attempt, w, partial(attempt.simulation.begin_epoch, w, epoch))
            waiting = attempt.keeping()
            while waiting and self.random.random() < 0.3:
                did, w = True, self.random.choice(waiting)
                if w == self._slow and self.random.random() < SLOWNESS:
                    break
                self._keeps(attempt, w)
                waiting = attempt.keeping()
            while attempt.on_the_way and self.random.random() < 0.3:
                did = True
                attempt.arrives()
            did = did or bool(attempt.unheard or attempt.untold or waiting or attempt.on_the_way)
        return did

    def _stall_one(self) -> None:
        """One thread stands still, and the rest of its process goes on: of the driver, or a worker's keeper."""
        current = self._current
        threads: list[Actor | Kept] = []
        if current is not None:
            threads += self.actors.of(current.process)
            threads += [] if current.attempt is None else current.attempt.ports
        if (found := self.refusals.stalls(threads)) is not None:
            thread, steps = found
            thread.stalled_to = self.steps + steps
            self.note(0, f"stands    {thread.name if isinstance(thread, Actor) else 'a keeper'}, {steps} steps")

    def _stands(self) -> bool:
        """Whether some thread stands still for now."""
        ports = [port for attempt in self.attempts for port in attempt.ports]
        return self.actors.stalled(self.steps) or any(port.stalled_to > self.steps for port in ports)

    def _time_goes_on(self) -> None:
        times = [attempt.simulation.next_us() for attempt in self.attempts if attempt.is_published]
        times += [at.noticed_us for at in self.attempts if at.cause is not None and at.noticed_us > self.now_us]
        times += [at_us for at_us in [self.actors.next_us(self.steps)] if at_us is not None]
        next_us = min(times, default=FAR_US)
        if next_us < FAR_US:
            self.now_us = max(self.now_us, next_us)
        elif not self._stands() and self._current is not None:
            self.fail("everybody waits for ever")

    # -- what workers do -----------------------------------------------------------------------------------------------

    def _acts(self, attempt: SimulatedAttempt, w: int, act: Callable[[], object]) -> None:
        """A worker does something; what goes wrong is a fault unless its attempt was given up or taken over."""
        process = attempt.processes[w]
        try:
            with self.system.acting(process):
                act()
        except Killed:
            if self._failed is not None:  # a reader has seen what it must not, because of this worker
                raise self._failed from None
        except SimulationFailed:
            raise
        except Exception as error:
            cause = error if isinstance(error, OutOfOrder) else error.__cause__
            if isinstance(cause, OutOfOrder):
                self.fail(str(cause))
            if not process.is_dead:
                self.note(w, f"fails     {type(error).__name__}: {str(error)[:200]}")
                if self._is_current(attempt) and not self.refusals.is_behind(error):
                    self.fail(f"worker {w} of attempt {attempt.number}: {type(error).__name__}: {error}")
                attempt.lose(w)

    def _is_current(self, attempt: SimulatedAttempt) -> bool:
        claims = [int(name[:8]) for name in self.disk.names("/store/attempts") if name.endswith(".json")]
        return attempt.steps_left is None and attempt.number >= max(claims, default=0)

    def _keeps(self, attempt: SimulatedAttempt, w: int) -> None:
        self._acts(attempt, w, attempt.ports[w].keep)

    # -- what drivers do -----------------------------------------------------------------------------------------------

    @property
    def _current(self) -> Driver | None:
        """The driver that was started last, while it lives."""
        return self.drivers[-1] if self.drivers and not self.drivers[-1].main.is_over else None

    def begin(self, driver: Driver, checkpoint: Checkpoint, layout: Layout | None) -> SimulatedAttempt:
        """A driver begins an attempt."""
        attempt = SimulatedAttempt(self, driver, checkpoint, layout)
        self.attempts.append(attempt)
        self.attempts_begun += 1
        self.note(driver.process.number, f"attempt   {attempt.number} goes on from epoch {checkpoint.first - 1}")
        return attempt

    def give_up(self, attempt: SimulatedAttempt, *, stands: bool = False) -> None:
        """Its workers are told to end; some do not hear it for a while, unless all of them stand still."""
        attempt.steps_left = 0 if stands else self.random.choice((0, self.random.randint(0, STALE_STEPS_MAX)))

    def opened(self, driver: Driver) -> None:
        """A driver has found where to go on."""
        driver.has_opened, epochs = True, driver.epochs
        found = 0 if epochs is None else epochs.last_epoch
        self.note(driver.process.number, f"opens     the store at epoch {found}")
        must = max(self._must, self.reader.known)
        if found < must and driver is self.drivers[-1]:
            self._failed = self._failure(f"epoch {must} was committed, and the job goes on from {found}")
            raise Killed

    def _savepoint(self, name: str) -> bool:
        """Whether somebody could ask for one."""
        current = self._current
        return current is not None and current.asks(name, f"for savepoint {name}", partial(current.savepoint, name))

    def _look_at_drivers(self) -> None:
        for driver in self.drivers:
            if driver.main.error is not None:
                self._driver_failed(driver, driver.main.error)
                driver.main.error = None
            if driver.main.is_over and not driver.process.is_dead:
                self.note(driver.process.number, f"ends      {driver.gave_up or 'by itself'}")
                driver.process.is_dead = True
        self._bury()
        last = self.drivers[-1] if self.drivers else None
        if last is None or (last.main.is_over and not last.has_finished):
            self._start()
        elif last.has_finished and not any(d.main.is_over is False for d in self.drivers):
            self.is_over = True

    def _driver_failed(self, driver: Driver, error: BaseException) -> None:
        self.note(driver.process.number, f"fails     {type(error).__name__}: {str(error)[:200]}")
        if isinstance(error, SimulationFailed):
            raise error
        if isinstance(error, CheckpointDamaged) and self._is_damaged and not self.reader.sound():
            self.is_over = True  # nothing is left to go on from, and the user is told
            return
        is_excused = is_refused(driver, error) or self.refusals.excuse(driver.process, error)
        is_last = driver is self.drivers[-1] and not is_excused
        if is_last and not isinstance(error, StoreUnusable | StaleAttempt):
            self.fail(f"{driver.process.name}: {type(error).__name__}: {error}")

    def _start(self, *, returns: bool = False) -> None:
        if len(self.drivers) == DRIVERS_MAX:
            self.fail(f"no end with {DRIVERS_MAX} drivers")
        self.now_us += PAUSE_US
        begins_at = self.returns.chosen(self.reader.savepoints().values(), surely=returns)
        self.drivers.append(Driver(self, len(self.drivers) + 1, begins_at))
        if begins_at is not None:
            self.note(-len(self.drivers), f"begins    at savepoint {begins_at.name}, epoch {begins_at.epoch}")

    def _return(self, current: Driver) -> None:
        """Somebody begins at a savepoint, because the driver has died or stands still."""
        if self.returns.takes_over():
            self._take_over(current, returns=True)
        else:
            self.note(current.process.number, "crash     of the driver")
            current.process.is_dead = True
        self.actors.pause()

    def _goes_back(self, branch: Branch) -> bool:
        is_wanted = self.returns.goes_back(self.drivers, branch)
        self._must = branch.epoch if is_wanted else self._must
        return is_wanted

    def refused_savepoint(self, driver: Driver, error: CheckpointDamaged) -> None:
        """A user has asked for a savepoint, and is told that the folder is damaged."""
        self.note(driver.process.number, f"refuses   a savepoint: {error}")
        if not self._is_damaged:
            self._failed = self._failure(f"a savepoint of a sound folder is refused: {error}")

    # -- crashes -------------------------------------------------------------------------------------------------------

    def dies(self, process: Process, what: str, path: str) -> str | None:
        """Whether a process dies at this change of a file, and with it everything, or the power goes."""
        self.note(process.number, f"{what:<9} {path}")
        self.now_us += self._file_us
        chance = self._file_chance * (DRIVER_WEIGHT if process.number < 0 else 1)
        current, shown = self._current, self.reader.shows(path)
        is_its = current is not None and process is current.process
        if current is not None and is_its and self.returns.is_due(self.reader.savepoints().values(), shown=shown):
            self._return(current)
            return None
        if not self.crashes_left or self.random.random() >= chance:
            return None
        self.crashes_left -= 1
        if current is not None and process is current.process and self.random.random() < 0.4:
            self._take_over(current)
            self.actors.pause()
            return None
        self._power = self.random.random() < 0.4
        return self.random.choice((BEFORE, AMID, AFTER))

    def refuses(self, process: Process, what: str, path: str) -> tuple[str, OSError] | None:
        """Whether a change of a file fails, and everybody lives."""
        refused = self.refusals.change(process, what, path)
        if refused is not None:
            self.note(process.number, f"refused   {what} {path}, {refused[0]}: {refused[1]}")
            (self.reader.doubtful.add if refused[0] == AFTER else self.reader.doubtful.discard)(path)
        return refused

    def refuses_to_read(self, process: Process, path: str, *, is_object: bool) -> OSError | None:
        """Whether looking at a file fails."""
        error = self.refusals.read(process, path, is_object=is_object)
        if error is not None:
            self.note(process.number, f"refused   to read {path}: {error}")
        return error

    def changed(self, process: Process, what: str, path: str) -> None:
        """Have a look from outside; what is found must get past whatever the process would do about it."""
        try:
            self.reader.changed(what, path)
        except SimulationFailed as error:
            self._failed = error
            raise Killed from error

    def rests(self) -> bool:
        """Whether a thread gives its turn back before a file operation."""
        return self.random.random() < self._rest_chance

    def dead(self, process: Process) -> None:
        """A process is dead, and perhaps the machine."""
        process.is_dead = True
        if self._power:
            self._everything("the power is gone", power=True)
        self._power = False

    def _everything(self, why: str, *, power: bool) -> None:
        self.note(0, f"crash     {why}")
        for driver in self.drivers:
            driver.process.is_dead = True
        for attempt in self.attempts:
            attempt.steps_left = 0
            for process in attempt.processes:
                process.is_dead = True
        if power:
            self.disk.lose_power(self.random)
            self.reader.power_lost()

    def _crash(self) -> None:
        self.crashes_left -= 1
        current, rng = self._current, self.random
        last = None if current is None else current.attempt
        kind = rng.choice(KINDS)
        if kind == "worker" and last is not None and last.alive:
            w = rng.choice(last.alive)
            self.note(w, f"crash     of a worker of attempt {last.number}")
            last.processes[w].is_dead = True
        elif kind == "hang" and last is not None and last.alive:
            self.note(rng.choice(last.alive), f"crash     seems to be: a worker of attempt {last.number} is silent")
            last.fails("a worker was silent")
        elif kind == "driver" and current is not None:
            self.note(current.process.number, "crash     of the driver")
            current.process.is_dead = True
        elif kind == "takeover" and current is not None and current.epochs is not None:
            self._take_over(current)
        elif kind in {"everything", "power"}:
            self._everything("of everything", power=kind == "power")
        elif kind == "damage":
            self._everything("of everything, and a file is damaged", power=rng.random() < 0.5)
            self._damage()

    def _take_over(self, current: Driver, *, returns: bool = False) -> None:
        """The driver stands still, and somebody starts another."""
        if self.root.startswith(BUCKET):
            return  # two drivers at one moment are not told apart there
        self.note(current.process.number, "stalls")
        steps = self.steps + self.random.choice(STALL_STEPS)
        self.actors.stall(current.process, steps)
        self._start(returns=returns)

    def _damage(self) -> None:
        """A file of the last epochs is cut or overwritten."""
        if (damaged := self.reader.damage_any(self.random)) is not None:
            self.note(0, f"damage    of {damaged}")
            self._is_damaged, self._must = True, self.reader.sound()
            self._trusted = len(self.drivers)

    def _bury(self) -> None:
        for driver in self.drivers:
            if driver.process.is_dead and not driver.main.is_over:
                self.actors.bury(driver.process)
                if driver.attempt is not None and driver.attempt.steps_left is None:
                    self.give_up(driver.attempt)  # its workers end when they notice
        for attempt in list(self.attempts):
            for w, process in enumerate(attempt.processes):
                if process.is_dead:
                    attempt.lose(w)
            if attempt.steps_left is not None and (attempt.steps_left <= 0 or not attempt.alive):
                self._close(attempt)

    def _close(self, attempt: SimulatedAttempt) -> None:
        """Nothing is left of it; who has heard that it is to end tidies up."""
        self.attempts.remove(attempt)
        attempt.close()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        last = self.drivers[-1]
        if not last.has_finished:
            return
        self.reader.look()
        reader = Process("reader", 0)
        with self.system.acting(reader):
            store = Store(self.root)
            self.reader.require_savepoints(store)
            collected = {} if last.epochs is None else last.epochs.collected
            files = {name: sink.files() for name, sink in collected.items()}
        for wrong in self.job.wrong(self.reader.answers(files)):
            self.fail(wrong)

    def _end_all(self) -> None:
        for driver in self.drivers:
            self.actors.bury(driver.process)
        for attempt in list(self.attempts):
            for process in attempt.processes:
                process.is_dead = True
            self._close(attempt)

    def note(self, number: int, text: str) -> None:
        """One event."""
        self.history.note(self.now_us, number, text)

    def _failure(self, why: str) -> SimulationFailed:
        about = f"{self.job.text}; {self.root}, {self.kept} epochs kept, every {self.interval_s} s"
        return SimulationFailed(self.seed, why, about, self.history, "survival")

    def fail(self, why: str) -> NoReturn:
        """Tell what is wrong."""
        raise self._failure(why)


def survive_seed(seed: int) -> int:
    """Run the job of a seed through its crashes, with all checks; answers the epochs."""
    return Survival(seed).run()


if __name__ == "__main__":
    for given in sys.argv[1:]:
        epochs = (survival := Survival(int(given))).run()
        print(survival.job.text, survival.history, sep="\n")
        print(f"{epochs} epochs, {survival.attempts_begun} attempts, digest {survival.history.digest:08x}")
