"""`penstock reproduce`: published figures and tables, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, print_json, progress_bar, rows_table
from penstock.errors import InvalidInput


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def reproduce(
        items: Annotated[
            list[str] | None, typer.Argument(metavar="[ITEM]...", help="Names that --list shows; with --out: all.")
        ] = None,
        out: Annotated[
            Path | None, typer.Option("--out", help="Folder for the CSV, PNG and Markdown files; without it: out.")
        ] = None,
        everything: Annotated[bool, typer.Option("--all", help="All items.")] = False,
        listing: Annotated[bool, typer.Option("--list", help="List the items and do nothing.")] = False,
        output: FormatOption = Format.table,
    ) -> int:
        """Reproduce published figures, and write a table, a picture and a page with verdicts for each."""
        from penstock_lab.reproduce import ABOUT_SECONDS, ITEMS, find_item
        from penstock_lab.reproduce import reproduce as run

        asked = bool(items) or everything or out is not None
        if listing or not asked:
            _list(output)
            if not listing:
                how_long = duration(sum(ABOUT_SECONDS.values()))
                typer.echo(f"penstock: reproduce needs items; name some of these, or --all ({how_long})", err=True)
            return 0 if listing else 2
        if items and everything:
            msg = f"--all beside {', '.join(items)}; leave one of them out"
            raise InvalidInput(msg)
        names = list(ITEMS) if not items else [find_item(name).name for name in items]
        folder = Path("out") if out is None else out
        if len(names) > 1:
            how_long = duration(sum(ABOUT_SECONDS[name] for name in names))
            typer.echo(f"reproducing {len(names)} items into {folder}, {how_long}: {', '.join(names)}", err=True)
        with progress_bar("reproducing") as show:
            reports = run(names, folder, show)
        counts = [(report, report.count("holds"), report.count("differs")) for report in reports]
        if output is Format.json:
            keys = ("item", "page", "holds", "differs")
            print_json({"rows": [dict(zip(keys, (r.item, str(r.page), h, d), strict=True)) for r, h, d in counts]})
            return 0
        rows = [(r.item, str(h), str(d), str(r.page)) for r, h, d in counts]
        console().print(rows_table(("item", "holds", "differs", "note"), rows))
        return 0


def _list(output: Format) -> None:
    from penstock_lab.reproduce import ABOUT_SECONDS, ITEMS

    if output is Format.json:
        rows = [
            {"item": item.name, "title": item.title, "seconds": ABOUT_SECONDS[item.name]} for item in ITEMS.values()
        ]
        print_json({"rows": rows})
    else:
        known = [(item.name, duration(ABOUT_SECONDS[item.name]), item.title) for item in ITEMS.values()]
        console().print(rows_table(("item", "takes", "summary"), known))


def duration(seconds: int) -> str:
    """A rough time in words."""
    return f"about {seconds} s" if seconds < 90 else f"about {round(seconds / 60)} min"
