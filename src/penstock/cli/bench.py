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
    "simulated_half_10x_slower": "simulated: half of the replicas 10x slower, execution time over the oracle's",
    "simulated_half_100x_slower_for_an_eighth": "simulated: half 100x slower for an eighth, over the oracle's",
    "simulated_three_replicas_one_100x_slower": "simulated: three replicas, one 100x slower; worst of the seeds",
    "simulated_equal_replicas": "simulated: equal replicas, farthest from even after 60 s",
    "simulated_64_replicas_in_three_classes": "simulated: 64 replicas in three classes, 400 s",
    "simulated_rerouting": "simulated: two replicas, one 100x slower, rows over round robin's (paper: 1.0 and 1.2)",
    "simulated_bounded_merger": "simulated: share of the capacity with a bounded merger, by who is charged",
    "simulated_replicas_join_and_leave": "simulated: replicas join and leave, share of what fits",
}


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def bench(
        name: Annotated[str, typer.Argument(metavar="NAME", help="place or balance")],
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


def _balance(quick: bool, progress: Callable[[str], None]) -> dict[str, list[Row]]:
    from penstock.bench.balance import main

    return main(quick, progress)


BENCHES: dict[str, Callable[[bool, Callable[[str], None]], dict[str, list[Row]]]] = {
    "place": _place,
    "balance": _balance,
}


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
