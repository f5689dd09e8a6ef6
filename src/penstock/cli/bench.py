"""`penstock bench`: measured figures with peers in the same run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, print_json, progress_bar, rows_table
from penstock.errors import InvalidInput

Row = dict[str, object]
SECTION_TITLES = {
    "published": "the papers' 72 instances: exact proves, best equals, longest seconds",
    "random": "best on random unequal instances: cost over the best known; peers repaired and refined, same seconds",
    "exact_unequal": "exact on random unequal instances",
    "papers_at_10000": "the papers' schedulers at scale",
}


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def bench(
        name: Annotated[str, typer.Argument(metavar="NAME", help="place")],
        quick: Annotated[bool, typer.Option("--quick", help="About a minute instead of half an hour.")] = False,
        output: FormatOption = Format.table,
    ) -> None:
        """Measure, with peers in the same run."""
        if name not in BENCHES:
            raise InvalidInput.unknown_name(kind="benchmark", name=name, known=BENCHES)
        with progress_bar("measuring") as show:
            sections = BENCHES[name](quick, lambda what: show(0, 0, what))
        if output is Format.json:
            print_json(sections)
            return
        screen = console()
        for section, rows in sections.items():
            shown = _by_layout(rows) if section == "published" else rows
            if shown:
                screen.print(_table(SECTION_TITLES.get(section, section), shown))
                screen.print()


def _place(quick: bool, progress: Callable[[str], None]) -> dict[str, list[Row]]:
    from penstock.bench.place import main

    return main(quick, progress)


BENCHES: dict[str, Callable[[bool, Callable[[str], None]], dict[str, list[Row]]]] = {"place": _place}


def _by_layout(rows: Sequence[Row]) -> list[Row]:
    """The 72 rows added up to one per layout and cluster."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((str(row["instance"]).partition(":")[0], str(row["cluster"])), []).append(row)
    return [
        {
            "instance": f"{layout}, {cluster}",
            "instances": len(group),
            "exact proved": sum(1 for row in group if row["proved"]),
            "exact longest s": max(float(str(row["exact_seconds"])) for row in group),
            "best optimal": sum(1 for row in group if row["best_optimal"]),
            "best longest s": max(float(str(row["best_seconds"])) for row in group),
        }
        for (layout, cluster), group in groups.items()
    ]


def _table(title: str, rows: Sequence[Row]) -> object:
    headings = [name for name in rows[0] if not isinstance(rows[0][name], dict)]
    notes = [name for name in rows[0] if isinstance(rows[0][name], dict)]
    cells = [[_cell(row.get(name)) for name in headings] for row in rows]
    for row, line in zip(rows, cells, strict=True):
        said = [f"{key}: {value}" for name in notes for key, value in dict(row[name]).items()]  # type: ignore[call-overload]
        line.append("; ".join(said))
    if not any(line[-1] for line in cells):
        return rows_table([name.replace("_", " ") for name in headings], [line[:-1] for line in cells], title)
    return rows_table([*(name.replace("_", " ") for name in headings), "note"], cells, title)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
