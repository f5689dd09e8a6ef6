"""The demonstration's tables: the graph with where its tasks are and what its streams carry, and before beside after.

They are plain text in ASCII, as wide as an old terminal: whatever shows them, nothing is lost. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from penstock.cli.running.demo.glimpse import Glimpse, Stream

NOTHING = "-"
KILO = 1e3


def graph_table(operators: Sequence[str], streams: Sequence[Stream], before: Glimpse, now: Glimpse | None) -> Table:
    """One row for each operator and each stream that leaves it; cells have what was, and what is where that differs."""
    table = Table(box=None, pad_edge=False)
    table.add_column("tasks on", overflow="fold")
    nodes = sorted({*before.nodes, *(now.nodes if now else ())}, key=lambda name: (len(name), name))
    for node in nodes:
        table.add_column(node, justify="right", overflow="fold")
    table.add_column("sends to", overflow="fold")
    table.add_column("kB/s", justify="right")
    table.add_column("between nodes", justify="right")
    for operator in operators:
        cells = [_changed(before.tasks_on(operator, node), (now or before).tasks_on(operator, node)) for node in nodes]
        leaving: Sequence[Stream | None] = [stream for stream in streams if stream[0] == operator] or [None]
        for number, stream in enumerate(leaving):
            table.add_row(*((operator, *cells) if number == 0 else [""] * (1 + len(nodes))), *_of(stream, before, now))
    return table


def figures_table(before: Glimpse, after: Glimpse | None, foretold: float | None, last: str = "after") -> Table:
    """What the job does under one plan and then under the other, and what the decision foretold (bytes per second)."""
    table = Table(box=None, pad_edge=False)
    seen = [before] if after is None else [before, after]
    headings = [f"now: {before.scheduler}"]
    if after is not None:
        headings = [f"before: {before.scheduler}", f"{last}: {after.scheduler}", "foretold"]
    table.add_column("", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right")
    lines: list[tuple[str, Callable[[Glimpse], str]]] = [
        ("between nodes, kB/s", lambda one: _kilo(one.between_nodes)),
        ("latency, median, ms", lambda one: _ms(one.p50_ms)),
        ("latency of 99 in 100 rows, ms", lambda one: _ms(one.p99_ms)),
        ("trips/s", lambda one: f"{one.rows_per_second:,.0f}"),
        ("worker processes with tasks", lambda one: str(one.workers)),
    ]
    for number, (name, cell) in enumerate(lines):
        told = [_kilo(foretold)] if number == 0 and after is not None and foretold is not None else []
        table.add_row(name, *map(cell, seen), *told)
    return table


def _of(stream: Stream | None, before: Glimpse, now: Glimpse | None) -> tuple[str, str, str]:
    """The cells of a stream."""
    if stream is None:
        return "", "", ""
    then = None if now is None else now.traffic[stream]
    seen = then or before.traffic[stream]
    between = before.traffic[stream].between_nodes
    change = _kilo(between) if then is None else f"{_kilo(between)}->{_kilo(then.between_nodes)}"
    return stream[1], _kilo(seen.whole), change


def _changed(was: int, is_now: int) -> str:
    return str(was) if is_now == was else f"{was}->{is_now}"


def _kilo(rate: float) -> str:
    return f"{rate / KILO:,.1f}"


def _ms(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}"
