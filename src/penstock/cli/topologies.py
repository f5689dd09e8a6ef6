"""`penstock topologies` and `penstock schedulers`: the names that TOPOLOGY and --scheduler accept."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, print_json, rows_table


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
        from penstock.optimise.place import SCHEDULERS

        rows = [(s.name, s.summary, ", ".join(sorted(s.looks_at)) or "slots only") for s in SCHEDULERS.values()]
        _show(("name", "summary", "looks at"), rows, output)


def _show(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], output: Format) -> None:
    if output is Format.json:
        keys = [heading.replace(" ", "_") for heading in headings]
        print_json({"rows": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        console().print(rows_table(headings, rows))
