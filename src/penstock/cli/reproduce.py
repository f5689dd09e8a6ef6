"""`penstock reproduce`: published figures and tables, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, print_json, progress_bar


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def reproduce(
        items: Annotated[list[str] | None, typer.Argument(metavar="[ITEM]...", help="Default: all of them.")] = None,
        out: Annotated[Path, typer.Option("--out", help="Folder for the CSV, PNG and Markdown files.")] = Path("out"),
        output: FormatOption = Format.table,
    ) -> None:
        """Reproduce published figures and write a page for each."""
        from penstock.reproduce import ITEMS
        from penstock.reproduce import reproduce as run

        with progress_bar("reproducing") as show:
            reports = run(items or list(ITEMS), out, show)
        raise SystemExit(str((console, print_json, Format, output, reports)))
