"""Whole workers under a seeded scheduler: every seed's job ends with the right rows, and planted faults are found."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.run.engine.task_runner import TaskRunner
from penstock.run.machine.credit import Credit
from penstock.run.machine.edge_times import has_news
from penstock.run.machine.instructions import Grant, Send
from penstock.run.machine.linger import Linger
from penstock.run.machine.machine import Machine
from penstock.run.region.slices import Entry, Slices
from penstock.run.transport.wire import Kind
from penstock_lab.simulate.network import HISTORY_MAX
from penstock_lab.simulate.workers import Simulation, SimulationFailed, simulate_seed

SEEDS = range(200)
SEEDS_PER_TEST = 20


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_every_seed_ends_with_the_rows_of_its_input_in_order_and_with_all_credit(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulate_seed(seed)


def test_the_seeds_reach_every_kind_of_instruction_and_frame() -> None:
    seen: set[str] = set()
    shapes: set[str] = set()
    for seed in range(60):
        simulation = Simulation(seed)
        note = simulation._network.history.note

        def noted(now_us: int, worker: int, text: str, note: Callable[[int, int, str], None] = note) -> None:
            seen.update(text.split()[:2])
            note(now_us, worker, text)

        simulation._network.history.note = noted  # type: ignore[method-assign]
        simulation.run()
        shapes.add(simulation.job.text.split()[0].strip(","))
    assert shapes == {"chain", "diamond", "keyed", "windows", "ordered", "unordered"}
    kinds = {kind.name for kind in Kind} - {"EPOCH"}
    assert kinds <= seen
    assert {"run", "poll", "advance", "wake", "finish", "send", "grant", "wait", "done"} <= seen


def test_a_seed_repeats_itself_to_the_letter() -> None:
    for seed in (3, 6, 14, 40):
        first = Simulation(seed)
        second = Simulation(seed)
        assert first.run() == second.run()
        assert str(first._network.history) == str(second._network.history)


# -- planted faults ----------------------------------------------------------------------------------------------------


def credit_twice(patch: Callable[[type, str, Any], None]) -> None:
    take = Credit.take_grant

    def twice(credit: Credit, now_us: int) -> Grant:
        grant = take(credit, now_us)
        return Grant(grant.edge, 2 * grant.size)

    patch(Credit, "take_grant", twice)


def credit_kept(patch: Callable[[type, str, Any], None]) -> None:
    """The credit of some batches never goes back."""
    give = Credit.give_back

    def kept(credit: Credit, edge: int, size: int) -> None:
        if credit._edges[edge].source is not None or size % 3 == 0:
            give(credit, edge, size)

    patch(Credit, "give_back", kept)


def marks_overtake(patch: Callable[[type, str, Any], None]) -> None:
    """A watermark does not wait for the batches that are held before it."""

    def overtaking(runner: TaskRunner, edge: int, time_us: int) -> None:
        runner._machine.emitted_watermark(edge, time_us)
        if runner._edges[edge].target is None:
            runner._links.send_mark(Kind.WATERMARK, runner._numbers[edge], time_us)

    patch(TaskRunner, "push_watermark", overtaking)


def batches_overtake(patch: Callable[[type, str, Any], None]) -> None:
    """A batch is passed straight to a task for which others wait."""

    def passes(machine: Machine, edge: int, rows: int) -> bool:
        target = machine._direct[edge]
        return target is not None and not machine._tasks[target].blocked and not has_news(machine._tasks[target])

    patch(Machine, "passes", passes)


def slices_as_they_come(patch: Callable[[type, str, Any], None]) -> None:
    def in_turn(slices: Slices, task: int, entry: Entry) -> Sequence[Entry]:
        return (entry,)

    patch(Slices, "in_turn", in_turn)


def ends_forgotten(patch: Callable[[type, str, Any], None]) -> None:
    """The end of a stream is lost where batches are held before it."""
    patch(Linger, "end", lambda linger, edge: None)


def last_batch_forgotten(patch: Callable[[type, str, Any], None]) -> None:
    """Where several batches were held, all but one are sent."""
    send = TaskRunner.send_held

    def short(runner: TaskRunner, held: Send) -> None:
        held.payloads = held.payloads[:1]
        send(runner, held)

    patch(TaskRunner, "send_held", short)


FAULTS: dict[str, tuple[Callable[[Callable[[type, str, Any], None]], None], str]] = {
    "credit twice": (credit_twice, r"bytes outstanding, and \d+ are held"),
    "credit kept": (credit_kept, r"bytes outstanding, and \d+ are held"),
    "marks overtake": (marks_overtake, r"rows are missing, \d+ are too many"),
    "batches overtake": (batches_overtake, r"OutOfOrder: .* came behind row"),
    "slices as they come": (slices_as_they_come, r"OutOfOrder: .* came behind row"),
    "ends forgotten": (ends_forgotten, r"workers \[.*\] wait for ever"),
    "last batch forgotten": (last_batch_forgotten, r"rows are missing"),
}


def failure_of(seed: int) -> SimulationFailed | None:
    try:
        simulate_seed(seed)
    except SimulationFailed as error:
        return error
    return None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_told_with_the_events_before_it(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, said = FAULTS[fault]
    plant(monkeypatch.setattr)
    failed = next((found for seed in SEEDS if (found := failure_of(seed)) is not None), None)
    assert failed is not None
    told = str(failed)
    lines = told.splitlines()
    assert lines[0].startswith(f"seed {failed.seed}: ")
    assert re.search(said, lines[0]), lines[0]
    assert len(lines) <= HISTORY_MAX + 4
    assert all(re.match(r" *[\d,]+ us  worker \d  [a-z]+ ", line + " ") for line in lines[3:-1])
    assert str(failure_of(failed.seed)) == told  # again, to the letter
