"""`penstock reproduce`: published figures and tables, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, print_json, progress_bar, rows_table


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def reproduce(
        items: Annotated[list[str] | None, typer.Argument(metavar="[ITEM]...", help="Default: all of them.")] = None,
        out: Annotated[Path, typer.Option("--out", help="Folder for the CSV, PNG and Markdown files.")] = Path("out"),
        listing: Annotated[bool, typer.Option("--list", help="List the items and do nothing.")] = False,
        output: FormatOption = Format.table,
    ) -> None:
        """Reproduce published figures, and write a table, a picture and a page with verdicts for each."""
        from penstock.reproduce import ITEMS, TABLES
        from penstock.reproduce import reproduce as run

        if listing:
            known = [(item.name, item.title) for item in ITEMS.values()]
            known += [(item.name, item.title) for item in TABLES.values()]
            if output is Format.json:
                print_json({"rows": [{"item": name, "title": title} for name, title in known]})
            else:
                console().print(rows_table(("item", "summary"), known))
            return
        with progress_bar("reproducing") as show:
            reports = run(items or (), out, show)
        counts = [(report, report.count("holds"), report.count("differs")) for report in reports]
        if output is Format.json:
            keys = ("item", "page", "holds", "differs")
            print_json({"rows": [dict(zip(keys, (r.item, str(r.page), h, d), strict=True)) for r, h, d in counts]})
            return
        rows = [(r.item, str(h), str(d), str(r.page)) for r, h, d in counts]
        console().print(rows_table(("item", "holds", "differs", "note"), rows))
