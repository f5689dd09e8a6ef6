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
    "published": "the papers' section 5 instances",
    "random": "best and peers on random unequal instances: cost over the best known",
    "exact_unequal": "exact on random unequal instances",
    "papers_at_10000": "the papers' schedulers at scale",
    "ratio_cuts": "minimum-ratio cuts over the exact sparsest cut, on random VWAP-shaped (synthetic) graphs",
    "large_cuts": "minimum-ratio cuts at scale",
    "fuse_speed": "fusion: seconds and total cut",
    "fuse_random": "fusion on random VWAP-shaped (synthetic) instances: total cut",
    "fuse_exact": "fusion against the exact model on small constrained cases",
    "fuse_clash": "seconds until clashing constraints are named",
}


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def bench(
        name: Annotated[str, typer.Argument(metavar="NAME", help="place or fuse")],
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
            shown = SHAPES.get(section, list)(rows)
            if shown:
                screen.print(_table(SECTION_TITLES.get(section, section), shown))
                screen.print()


def _place(quick: bool, progress: Callable[[str], None]) -> dict[str, list[Row]]:
    from penstock.bench.place import main

    return main(quick, progress)


def _fuse(quick: bool, progress: Callable[[str], None]) -> dict[str, list[Row]]:
    from penstock.bench.fuse import main

    return main(quick, progress)


BENCHES: dict[str, Callable[[bool, Callable[[str], None]], dict[str, list[Row]]]] = {"place": _place, "fuse": _fuse}


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


def _beside_peers(rows: Sequence[Row]) -> list[Row]:
    """The random instances, narrow enough for a terminal: what is aimed at, what was found, and the peers' medians."""
    names = {"tasks": "tasks", "theta": "theta", "instances": "n", "target": "aim", "median": "median", "max": "max"}
    names |= {"seconds_median": "s", "metis_median": "METIS", "kahip_median": "KaHIP", "mtkahypar_median": "Mt-KaHyPar"}
    names |= {"peer_below_best": "peer below"}
    shaped: list[Row] = []
    for row in rows:
        line: Row = {short: row.get(name) for name, short in names.items()}
        skipped = row.get("skipped")
        if isinstance(skipped, dict) and skipped:
            line["note"] = "; ".join(f"{peer}: {why}" for peer, why in skipped.items())
        shaped.append(line)
    return shaped


SHAPES: dict[str, Callable[[Sequence[Row]], list[Row]]] = {"published": _by_layout, "random": _beside_peers}


def _table(title: str, rows: Sequence[Row]) -> object:
    headings = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name)) for name in headings] for row in rows]
    return rows_table([name.replace("_", " ") for name in headings], cells, title)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
