"""Threads of simulated processes, of which one goes on at a time: the seed decides which, and where it stops.

The driver's code is written in threads that wait for conditions and call the file system. Here each of them is a real
thread, but it goes on only while the scheduler waits for it, and gives the turn back where it waits, and before a file
operation now and then. So two drivers meet at every place where they could, and a seed repeats it. A process that is
killed raises `Killed` wherever its code stands, and whatever it tries afterwards: its `finally` changes nothing more.
Rejected: generators, for which the driver would have to be written anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from penstock.run.contract import Interrupted

UNWIND_MAX = 1_000  # turns for an actor that is to end


class Killed(Interrupted):
    """The process is no more."""


@dataclass(eq=False, slots=True)
class Process:
    """A simulated process: a driver or a worker."""

    name: str
    number: int  # in histories
    is_dead: bool = False


class Actor:
    """One thread of a process."""

    def __init__(self, process: Process, name: str, body: Callable[[], object]) -> None:
        self.process, self.name = process, name
        self.error: BaseException | None = None
        self.is_over = False
        self.until_us: int | None = None  # when it goes on in any case
        self.ready: Callable[[], object] | None = None  # or as soon as this is true
        self.stalled_to = 0  # the step of the scheduler before which it does not go on
        self._body = body
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is this one, and not one that it has started for a moment."""
        return threading.get_ident() == self._thread.ident

    def go_on(self) -> None:
        """Give it the turn until it gives it back; called by the scheduler."""
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self._back.acquire()

    def give_back(self) -> None:
        """Let others go on; called by the thread itself."""
        self._back.release()
        self._go.acquire()
        if self.process.is_dead:
            raise Killed

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.process.is_dead:
                self._body()
        except Killed:
            pass
        except BaseException as error:  # told by who looks after it
            self.error = error
        finally:
            self.is_over = True
            self._back.release()


class Actors:
    """All threads of one simulation, and the clock by which they wait."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._all: list[Actor] = []
        self.running: Actor | None = None

    def spawn(self, process: Process, name: str, body: Callable[[], object]) -> Actor:
        """A thread that begins when it is given its first turn."""
        actor = Actor(process, name, body)
        self._all.append(actor)
        return actor

    def able(self, step: int) -> list[Actor]:
        """Those that can go on now."""
        now_us = self._clock()
        return [actor for actor in self._all if actor.stalled_to <= step and self._is_able(actor, now_us)]

    @staticmethod
    def _is_able(actor: Actor, now_us: int) -> bool:
        if actor.until_us is None and actor.ready is None:
            return True
        return (actor.until_us is not None and actor.until_us <= now_us) or bool(actor.ready and actor.ready())

    def next_us(self, step: int) -> int | None:
        """When the next of those that wait goes on in any case."""
        return min((a.until_us for a in self._all if a.until_us is not None and a.stalled_to <= step), default=None)

    def stall(self, process: Process, step: int) -> None:
        """The threads of a process stand still until then."""
        for actor in self._all:
            if actor.process is process:
                actor.stalled_to = step

    def of(self, process: Process) -> list[Actor]:
        """The threads of a process."""
        return [actor for actor in self._all if actor.process is process]

    def stalled(self, step: int) -> bool:
        """Whether one stands still for now."""
        return any(actor.stalled_to > step for actor in self._all)

    def go_on(self, actor: Actor) -> None:
        """Give one of them the turn."""
        self.running = actor
        actor.go_on()
        self.running = None
        if actor.is_over:
            self._all.remove(actor)

    def pause(self) -> None:
        """Give the turn back, if the calling thread is an actor's."""
        if self.running is not None and self.running.is_here:
            self.running.give_back()

    def wait(self, ready: Callable[[], object], seconds: float | None) -> bool:
        """Give the turn back until something is true, or for so long; answers whether it is true."""
        actor = self.running
        if actor is None or not actor.is_here:
            msg = "only a simulated thread can wait"
            raise AssertionError(msg)
        until_us = None if seconds is None else self._clock() + round(seconds * 1e6)
        while not (found := bool(ready())):
            if until_us is not None and self._clock() >= until_us:
                break
            actor.until_us, actor.ready = until_us, ready
            actor.give_back()
        actor.until_us = actor.ready = None
        return found

    def bury(self, process: Process) -> None:
        """Have the threads of a dead process unwind."""
        process.is_dead = True
        for actor in [a for a in self._all if a.process is process]:
            for _ in range(UNWIND_MAX):
                if actor.is_over:
                    break
                self.running = actor
                actor.go_on()
            self._all.remove(actor)
        self.running = None


class Condition:
    """`threading.Condition` for actors: nobody else runs while one does, so there is nothing to lock."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors

    def __enter__(self) -> None:
        """Nothing to lock."""

    def __exit__(self, *_: object) -> None:
        """Likewise."""

    def notify_all(self) -> None:
        """Who waits looks for itself."""

    def wait_for(self, ready: Callable[[], object], timeout: float | None = None) -> bool:
        """Wait until something is true."""
        return self._actors.wait(ready, timeout)


class Lock:
    """`threading.Lock` for actors."""

    def __init__(self, actors: Actors) -> None:
        self._actors, self._is_held = actors, False

    def __enter__(self) -> None:
        """Wait until nobody has it."""
        self._actors.wait(lambda: not self._is_held, None)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        """Let others in."""
        self._is_held = False


class Thread:
    """`threading.Thread` for actors; it belongs to the process whose thread makes it."""

    def __init__(self, actors: Actors, target: Callable[..., object], args: tuple[object, ...], name: str) -> None:
        self._actors, self._name = actors, name
        self._body = lambda: target(*args)
        self._actor: Actor | None = None

    def start(self) -> None:
        """It may go on from now on."""
        if self._actors.running is None:
            msg = f"{self._name} is started by no simulated process"
            raise AssertionError(msg)
        self._actor = self._actors.spawn(self._actors.running.process, self._name, self._body)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        actor = self._actor
        if actor is not None:
            self._actors.wait(lambda: actor.is_over, timeout)
