"""`penstock topologies`, `schedulers` and `policies`: the names that TOPOLOGY, --scheduler and `balance=` accept.

Those of other installed packages are among them, with the package's name; one that cannot be used is listed below the
table, with what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, print_json, rows_table
from penstock.extensions import OURS, Refused, Registry

Row = TypeVar("Row")


def register(app: typer.Typer) -> None:
    """Add the verbs."""

    @app.command()
    def topologies(output: FormatOption = Format.table) -> None:
        """List the built-in topologies."""
        from penstock.apps import list_topologies

        _show(("name", "summary"), list_topologies(), output)

    @app.command()
    def schedulers(output: FormatOption = Format.table) -> None:
        """List the schedulers and which limits each looks at."""
        from penstock.optimise.place import REGISTRY

        rows = [
            (row.name, row.summary, ", ".join(sorted(row.looks_at)) or "slots only", package)
            for row, package in _rows(REGISTRY)
        ]
        _show(("name", "summary", "looks at", "package"), rows, output, REGISTRY.refused())

    @app.command()
    def policies(output: FormatOption = Format.table) -> None:
        """List the policies that weigh the replicas of a parallel region."""
        from penstock.run.region.policies import REGISTRY

        rows = [(row.name, row.summary, package) for row, package in _rows(REGISTRY)]
        _show(("name", "summary", "package"), rows, output, REGISTRY.refused())


def _rows(registry: Registry[Row]) -> list[tuple[Row, str]]:
    """Our rows and then those of other packages, each with the package that it comes from."""
    ours = [(row, OURS) for row in registry.own.values()]
    return ours + [(added.row, added.package) for added in registry.added().values()]


def _show(
    headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], output: Format, refused: Sequence[Refused] | None = None
) -> None:
    if output is Format.json:
        keys = [heading.replace(" ", "_") for heading in headings]
        document: dict[str, object] = {"rows": [dict(zip(keys, row, strict=True)) for row in rows]}
        if refused is not None:
            document["refused"] = [{"name": r.name, "package": r.package, "error": r.reason} for r in refused]
        print_json(document)
        return
    if refused is not None and {row[-1] for row in rows} == {OURS}:  # a column that says nothing costs width
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    screen = console()
    screen.print(rows_table(headings, rows))
    for one in refused or ():
        screen.print(f"note: {one.reason}")
