"""`measure_costs`: two processes run every case at every distance, and the costs of streams are fitted to their CPU.

A source alone is measured beside the distances, so that making a batch does not count as sending it, and one that reads
its own batches, so that reading counts for what it costs more at the other end. Cases and distances take turns, and
each has the median of its repeats, so that a moment in which the machine is busy skews none of them. No repeat but the
first begins when the time is over. CPU is counted and not time on a clock, so other work on the machine matters little.
The two nodes of a socket are one machine here: what a network card costs is not in these figures.
"""

from __future__ import annotations

import contextlib
import secrets
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.model.costs import DISTANCES, Distance, DistanceCost, EndCost, StreamCosts
from penstock.run.calibration.cases import NOTHING, READING, Case, cases, fitted
from penstock.run.calibration.process import CalibrationFailed, EndProcess

SECONDS = 13.0
REPEATS = 5
APART: tuple[Distance, ...] = ("ring", "socket")

Progress = Callable[[int, int, str], None]
Samples = Mapping[Case, Sequence[float]]  # CPU seconds of one batch, in each repeat
Ask = Callable[[Case, str], tuple[float, float]]  # CPU seconds of one batch at both ends; CalibrationFailed


@dataclass(frozen=True)
class Calibration:
    """What was measured, and what follows."""

    costs: StreamCosts
    send: Mapping[Distance, Samples]
    receive: Mapping[Distance, Samples]
    notes: tuple[str, ...] = ()


def quiet(done: int, total: int, what: str) -> None:
    """Show no progress."""


def measure_costs(progress: Progress = quiet) -> Calibration:
    """The costs of the three distances on this machine; CalibrationFailed where they cannot be measured."""
    with contextlib.ExitStack() as running:
        ends = [running.enter_context(contextlib.closing(EndProcess())) for _ in range(2)]

        def ask(case: Case, way: str) -> tuple[float, float]:
            return asked(ends, case, way)

        with contextlib.suppress(NotHere):
            ask(Case(100, 1), "ring")  # libraries are loaded, memory is touched
        return taking_turns(ask, cases(), progress, time.monotonic)


class NotHere(CalibrationFailed):
    """One distance cannot be had on this machine, and the processes are ready for the next case."""


def asked(ends: Sequence[EndProcess], case: Case, way: str) -> tuple[float, float]:
    """CPU seconds of a batch at the sending and at the receiving end."""
    taking = ends if way in APART else ends[:1]
    for end in taking:
        end.tell({"size": case.size, "rows": case.rows, "batches": case.batches, "distance": way})
    ports = [end.answer()["port"] for end in taking]
    key = secrets.token_hex(32)
    for me, end in enumerate(taking):
        end.tell({"ports": ports, "me": me, "key": key})
    answers = [end.answer() for end in taking]
    if whys := [str(answer["failure"]) for answer in answers if "failure" in answer]:
        raise NotHere(whys[0])
    cpu = [float(str(answer["cpu"])) / case.batches for answer in answers]
    return cpu[0], cpu[1] if len(cpu) > 1 else 0.0


def taking_turns(ask: Ask, chosen: Sequence[Case], progress: Progress, clock: Callable[[], float]) -> Calibration:
    """Ask for every case at every distance, again and again while there is time, and conclude."""
    turns: list[tuple[Case, str]] = [(case, way) for case in chosen for way in (*APART, READING)]
    turns += [(case, way) for case in chosen[::3] for way in (NOTHING, "call")]  # neither depends on the batch's size
    send: dict[str, dict[Case, list[float]]] = {way: {} for way in (NOTHING, READING, *DISTANCES)}
    receive: dict[str, dict[Case, list[float]]] = {way: {} for way in DISTANCES}
    no_ring, until = "", clock() + SECONDS
    for done, (case, way) in enumerate(turns * REPEATS):
        if (way == "ring" and no_ring) or (done >= len(turns) and clock() > until):
            continue
        progress(done, REPEATS * len(turns), f"{way}, {case.size:,} B in {case.rows:,} rows")
        try:
            sent, received = ask(case, way)
        except NotHere as why:
            if way != "ring":
                raise
            no_ring = str(why)
            continue
        send[way].setdefault(case, []).append(sent)
        receive.setdefault(way, {}).setdefault(case, []).append(received)
    return concluded(send, receive, no_ring)


def concluded(send: Mapping[str, Samples], receive: Mapping[str, Samples], no_ring: str = "") -> Calibration:
    """Sending is what comes on top of a source alone; a call costs every batch the same at both ends."""
    alone = statistics.median(cpu for repeats in send[NOTHING].values() for cpu in repeats)
    with_reading = {case: statistics.median(repeats) for case, repeats in send[READING].items()}

    def sent(way: Distance) -> Samples:
        return {case: [cpu - alone for cpu in repeats] for case, repeats in send[way].items()}

    def received(way: Distance) -> Samples:
        """Beyond what reading the same batch costs where it was made."""
        return {case: [cpu - with_reading[case] + alone for cpu in r] for case, r in receive[way].items()}

    half = {case: [(cpu - with_reading[case]) / 2 for cpu in repeats] for case, repeats in send["call"].items()}
    sending: dict[Distance, Samples] = {"call": half, "ring": sent("ring"), "socket": sent("socket")}
    receiving: dict[Distance, Samples] = {"call": half, "ring": received("ring"), "socket": received("socket")}
    notes: tuple[str, ...] = ()
    if no_ring:
        sending["ring"], receiving["ring"] = sending["socket"], receiving["socket"]
        notes = (f"rings cannot be measured here, so they are said to cost what sockets cost: {no_ring}",)
    called = EndCost(max(0.0, 1e6 * statistics.median(cpu for repeats in half.values() for cpu in repeats)))
    ring, socket = (DistanceCost(fitted(sending[d]), fitted(receiving[d])) for d in APART)
    origin = "; ".join(("measured by penstock calibrate", *notes))
    return Calibration(StreamCosts(DistanceCost(called, called), ring, socket, origin), sending, receiving, notes)
