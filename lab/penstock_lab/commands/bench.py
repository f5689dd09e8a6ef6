"""`penstock bench`: measured figures with peers in the same run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, print_json, progress_bar, rows_table
from penstock.errors import InvalidInput
from penstock_lab.bench.contract import Bench, Progress, Row, Scope, cell

# Each is a folder of penstock_lab.bench whose `measure` has a `BENCH`, loaded on demand: peers and solvers load slowly.
BENCHES = (
    "place",
    "best",
    "engine",
    "ipc",
    "balance",
    "fuse",
    "frames",
    "state",
    "queries",
    "costs",
    "meters",
    "checkpoint",
    "adapt",
)


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def bench(
        name: Annotated[str, typer.Argument(metavar="NAME", help=", ".join(BENCHES))],
        quick: Annotated[bool, typer.Option("--quick", help="About a minute instead of up to half an hour.")] = False,
        install_peers: Annotated[
            bool, typer.Option("--install-peers", help="First install the peers into an environment of their own.")
        ] = False,
        events: Annotated[int | None, typer.Option(help="Number of events (queries).")] = None,
        queries: Annotated[str | None, typer.Option(help="Only these, such as q1,q5 (queries).")] = None,
        workers: Annotated[int | None, typer.Option(help="Number of worker processes (queries).")] = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Measure, with peers in the same run."""
        found = find(name)
        scope = Scope(events, tuple(filter(None, (queries or "").replace(" ", "").split(","))), workers)
        measure = measure_of(name, found, scope)
        with progress_bar("measuring") as show:

            def progress(what: str) -> None:
                show(0, 0, what)

            if install_peers:
                if found.install_peers is None:
                    msg = f"the benchmark {name!r} installs no peers of its own; leave --install-peers out"
                    raise InvalidInput(msg)
                found.install_peers(progress)
            sections = measure(quick, progress)
        if output is Format.json:
            print_json(sections)
        else:
            _show(found, sections)


def measure_of(name: str, bench: Bench, scope: Scope) -> Callable[[bool, Progress], dict[str, list[Row]]]:
    """The benchmark's function, with the scope bound where it takes one; else a scope is refused."""
    if bench.measure_scope is not None:
        return partial(_scoped, bench.measure_scope, scope)
    if given := scope.given():
        msg = f"the benchmark {name!r} has no {given[0]}; leave it out"
        raise InvalidInput(msg)
    return bench.measure


def _scoped(
    measure: Callable[[bool, Progress, Scope], dict[str, list[Row]]], scope: Scope, quick: bool, progress: Progress
) -> dict[str, list[Row]]:
    return measure(quick, progress, scope)


def find(name: str) -> Bench:
    """The benchmark of this name."""
    if name not in BENCHES:
        raise InvalidInput.unknown_name(kind="benchmark", name=name, known=BENCHES)
    found: Bench = import_module(f"penstock_lab.bench.{name}.measure").BENCH
    return found


def _show(bench: Bench, sections: dict[str, list[Row]]) -> None:
    screen = console()
    for section, rows in sections.items():
        shape = bench.shapes.get(section)
        shown = shape(rows) if shape else rows
        if shown:
            screen.print(_table(bench.titles.get(section, section), shown))
            screen.print()


def _table(title: str, rows: Sequence[Row]) -> object:
    headings = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[cell(row.get(name)) for name in headings] for row in rows]
    return rows_table([name.replace("_", " ") for name in headings], cells, title)
