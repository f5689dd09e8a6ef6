"""The desk: a port of the driver where processes that hold the job's card are answered.

It speaks the sealed line that workers speak (`deploy/line`), so a stranger is turned away before a word of it is read.
It listens on loopback whatever the cluster's address is: who asks is on this machine, and no other has to reach it.
A caller asks one thing at a time and waits for the answer. What a call does is the Job's own method; here it becomes
plain values. Errors of ours are told to the caller in their own words.
Decision: docs/decisions/0046-moves.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.deploy.desk.cards import Card, new_key, put
from penstock.deploy.line.door import Door
from penstock.deploy.line.messages import decode, encode
from penstock.deploy.line.sealed import WORDS, Claim, Line, is_proved
from penstock.errors import InvalidInput, PenstockError
from penstock.run.transport.socket import listen

if TYPE_CHECKING:
    from penstock.deploy.attempt.crossing import Crossing
    from penstock.deploy.driver.job import Job

log = logging.getLogger(__name__)
CALL_BYTES_MAX = 1 << 20
CALL_SECONDS = 30.0  # that a caller may say nothing, or not hear the answer
CALLERS_MAX = 16  # at once
CLOSE_SECONDS = 2.0
HOST = "127.0.0.1"
LANE = "talk"
NAMES_MAX = 100_000
WHOLE_MAX = 2**53
STOPPING = threading.Lock()


class Desk:
    """Answers for one job until it is closed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._key = new_key()
        listener = listen(HOST)
        address, port = listener.getsockname()[:2]
        self._door = Door(listener, self._key_of, self._serve, CALLERS_MAX)
        try:
            self._card = put(Card(job.id, job.name, address, port, self._key, began_s=job.started_at))
        except BaseException:
            self._door.close(CLOSE_SECONDS)
            raise

    def close(self) -> None:
        """Take the card away and answer nobody any more."""
        try:
            self._card.unlink(missing_ok=True)
        except OSError as error:  # whoever looks next removes it, and the job has ended as it has
            log.warning("the card of job %r cannot be removed: %s", self._job.name, error)
        self._door.close(CLOSE_SECONDS)

    def _key_of(self, claim: Claim) -> bytes | None:
        key = bytes.fromhex(self._key)
        return key if claim.lane == LANE and is_proved(claim, key) else None

    def _serve(self, claim: Claim, line: Line) -> None:
        line.connection.settimeout(CALL_SECONDS)  # so that idle callers do not keep others out
        while True:
            _, body = line.receive({WORDS: CALL_BYTES_MAX})
            line.send(WORDS, encode(self._answer(bytes(body))))

    def _answer(self, body: bytes) -> dict[str, object]:
        try:
            call = decode(body, CALL_BYTES_MAX)
            name = str(call.pop("call"))
            if name not in CALLS:
                raise InvalidInput.unknown_name(kind="call", name=name, known=tuple(CALLS))
            return {"answer": CALLS[name](self._job, call)}
        except PenstockError as error:
            return {"refused": str(error), "exit_code": error.exit_code}
        except (ValueError, TypeError, KeyError) as error:
            return {"refused": f"a malformed call: {error}", "exit_code": 2}
        except Exception as error:  # a mistake of ours: the caller hears of it, and the line lives
            log.exception("job %r could not answer a call; please report this", self._job.name)
            return {"refused": f"the job could not answer ({error!r:.300}); please report this", "exit_code": 1}


def opened(job: Job) -> list[Desk]:
    """The desk of a job; one that has nowhere to put its card runs without, and says so."""
    try:
        return [Desk(job)]
    except Exception as error:  # also without a home folder: no job ends for that
        log.warning("job %r cannot be asked by `penstock show`: %s", job.name, error)
        return []


# -- what can be asked ----------------------------------------------------------------------------------------------


def _shown(job: Job, _: Mapping[str, Any]) -> dict[str, object]:
    """All that `penstock show` prints."""
    plan = job.plan
    return {
        "id": job.id,
        "name": job.name,
        "status": job.status,
        "seconds": round(time.time() - job.started_at, 3),
        "rows_read": job.rows_read,
        "epoch": job.epoch,
        "attempt": job.attempt,
        "recoveries": job.recoveries,
        "scheduler": None if plan is None else plan.scheduler,
        "latency_ms": {f"p{round(100 * part)}": job.latency_us(part) / 1000 for part in (0.5, 0.99)},
        "workers": [
            {"worker": number, "node": place.node, "pid": hello.pid, "tasks": _tasks_of(job, number)}
            for number, (place, hello) in enumerate(zip(job.places, job.workers, strict=False))
        ],
        "notes": list(job.notes),
    }


def _tasks_of(job: Job, worker: int) -> list[str]:
    return [task for task, runs_on in job.worker_of.items() if runs_on == worker]


def _moved(job: Job, call: Mapping[str, Any]) -> dict[str, object]:
    """Tasks or operators on another worker."""
    tasks = [str(name) for name in _listed(call["tasks"])]
    crossing = job.move(tasks, _whole(call["worker"]))
    return _told(crossing)


def _replanned(job: Job, call: Mapping[str, Any]) -> dict[str, object]:
    """A new plan from what was measured, followed where that is asked for."""
    scheduler, window = call.get("scheduler"), call.get("window")
    found = job.replan(
        None if scheduler is None else str(scheduler),
        window=None if window is None else str(window),
        apply=bool(call.get("apply")),
    )
    return {
        "scheduler": found.plan.scheduler,
        "between_nodes": {"now": found.current.cost, "then": found.plan.cost},
        "moves": {task: _slot(found.plan.assignment[task]) for task in found.moves},
        "applied": found.crossing is not None,
        "note": "" if found.crossing is None else found.crossing.note,
    }


def _scaled(job: Job, call: Mapping[str, Any]) -> dict[str, object]:
    """Another number of tasks of an operator, or of replicas of a region."""
    name, count = str(call["name"]), _whole(call["count"])
    crossing = job.scale(name, count)
    return {"name": name, "count": count, "is_region": crossing is None, **_told(crossing)}


def _resized(job: Job, call: Mapping[str, Any]) -> dict[str, object]:
    """Another number of workers, in all."""
    wanted, held = _whole(call["workers"]), len(job.workers)
    if wanted == held:
        msg = f"job {job.name!r} has {held} workers already"
        raise InvalidInput(msg)
    if wanted > held:
        crossing = job.add_workers(wanted - held, take_last_slot=bool(call.get("take_last_slot")))
    else:
        crossing = job.remove_workers(held - wanted)
    return {"workers": crossing.workers[1], **_told(crossing)}


def _drained(job: Job, call: Mapping[str, Any]) -> dict[str, object]:
    """No workers on a node any more."""
    crossing = job.drain(str(call["node"]))
    return {"node": str(call["node"]), "workers": crossing.workers[1], **_told(crossing)}


def _told(crossing: Crossing | None) -> dict[str, object]:
    """What came of going over to another plan."""
    if crossing is None:
        return {}
    return {"note": crossing.note, "moved": list(crossing.moved), "seconds": crossing.seconds, "epoch": crossing.epoch}


def _stopped(job: Job, call: Mapping[str, Any]) -> dict[str, object]:
    """Sources end and everything flows out; or the job ends at once, and goes on from its last epoch when run again."""
    end: Callable[[], object] = job.cancel if call.get("now") else job.stop
    name = f"penstock-{job.id}-{'cancel' if call.get('now') else 'stop'}"
    with STOPPING:
        if all(thread.name != name for thread in threading.enumerate()):  # else it is under way
            threading.Thread(target=_quietly, args=(job.name, end), name=name, daemon=True).start()
    return {"status": "cancelled" if call.get("now") else "stopping"}


def _quietly(name: str, end: Callable[[], object]) -> None:
    """What the job fails with at its end is told where it runs."""
    try:
        end()
    except PenstockError as error:
        log.info("job %r ended with: %s", name, error)


def _slot(slot: tuple[str, int]) -> dict[str, object]:
    return {"node": slot[0], "worker": slot[1]}


def _listed(value: object) -> list[object]:
    if not isinstance(value, list) or not 1 <= len(value) <= NAMES_MAX:
        msg = f"tasks are {value!r:.100}; give a list of 1 to {NAMES_MAX} names"
        raise InvalidInput(msg)
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= WHOLE_MAX or value % 1:
        msg = f"a whole number is wanted, and {value!r:.100} is given"
        raise InvalidInput(msg)
    return int(value)


CALLS: Mapping[str, Callable[[Job, Mapping[str, Any]], dict[str, object]]] = {
    "show": _shown,
    "move": _moved,
    "replan": _replanned,
    "scale": _scaled,
    "workers": _resized,
    "drain": _drained,
    "stop": _stopped,
}
