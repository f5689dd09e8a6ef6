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
    "ipc_latency": "one way at 3,000 messages/s: p50 / p99 us by message size, and the receiver's CPU in per cent",
    "ipc_flat_out": "flat out, MB/s by message size",
    "ipc_arrow": "Arrow batches, written, sent, opened and a column summed: p50 / p99 us, and MB/s flat out",
    "ipc_targets": "targets",
    "ipc_skipped": "not measured",
}


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def bench(
        name: Annotated[str, typer.Argument(metavar="NAME", help="place or ipc")],
        quick: Annotated[bool, typer.Option("--quick", help="About a minute instead of half an hour.")] = False,
        install_peers: Annotated[
            bool, typer.Option("--install-peers", help="ipc: first install its peers into an environment of their own.")
        ] = False,
        output: FormatOption = Format.table,
    ) -> None:
        """Measure, with peers in the same run."""
        if name not in BENCHES:
            raise InvalidInput.unknown_name(kind="benchmark", name=name, known=BENCHES)
        with progress_bar("measuring") as show:
            if install_peers:
                _install_peers(name, lambda what: show(0, 0, what))
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


def _ipc(quick: bool, progress: Callable[[str], None]) -> dict[str, list[Row]]:
    from penstock.bench.ipc import main

    return main(quick, progress)


def _install_peers(name: str, progress: Callable[[str], None]) -> None:
    from penstock.bench.ipc_install import folder, install

    if name != "ipc":
        msg = f"--install-peers belongs to the benchmark 'ipc', not to {name!r}; the partitioners come with: make peers"
        raise InvalidInput(msg)
    progress(f"installing peers into {folder()}")
    install()


BENCHES: dict[str, Callable[[bool, Callable[[str], None]], dict[str, list[Row]]]] = {"place": _place, "ipc": _ipc}


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


def _by_size(rows: Sequence[Row]) -> list[Row]:
    """Latency, one line for each transport."""
    lines: dict[str, Row] = {}
    for row in rows:
        line = lines.setdefault(str(row["transport"]), {"transport": row["transport"]})
        line[f"{row['size_kb']} KB"] = f"{_cell(row['p50_us'], 0)} / {_cell(row['p99_us'], 0)}"
        if row["size_kb"] == 10:
            line["CPU"], line["idle"] = _per_cent(row["cpu_share"]), _per_cent(row["idle_cpu_share"])
    return list(lines.values())


def _by_producers(rows: Sequence[Row]) -> list[Row]:
    """Throughput, one line for each transport."""
    lines: dict[str, Row] = {}
    for row in rows:
        many = f", {row['producers']} producers" if row["producers"] != 1 else ""
        line = lines.setdefault(str(row["transport"]), {"transport": row["transport"]})
        line[f"{row['size_kb']} KB{many}"] = _cell(row["mb_per_s"], 0)
    return list(lines.values())


def _batches(rows: Sequence[Row]) -> list[Row]:
    """Arrow batches, one line for each transport."""
    return [
        {
            "transport": row["transport"],
            "64 KB": f"{_cell(row['p50_us_64_kb'], 0)} / {_cell(row['p99_us_64_kb'], 0)}",
            "1 MB": f"{_cell(row['p50_us_1_mb'], 0)} / {_cell(row['p99_us_1_mb'], 0)}",
            "64 KB, MB/s": _cell(row["mb_per_s"], 0),
            "unread": _cell(row["mb_per_s_unread"], 0),
        }
        for row in rows
    ]


SHAPES: dict[str, Callable[[Sequence[Row]], list[Row]]] = {
    "published": _by_layout,
    "random": _beside_peers,
    "ipc_latency": _by_size,
    "ipc_flat_out": _by_producers,
    "ipc_arrow": _batches,
}


def _table(title: str, rows: Sequence[Row]) -> object:
    headings = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name)) for name in headings] for row in rows]
    return rows_table([name.replace("_", " ") for name in headings], cells, title)


def _cell(value: object, decimals: int | None = None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if decimals is None else f"{value:,.{decimals}f}"
    return str(value)


def _per_cent(share: object) -> str:
    return f"{100 * share:.1f}" if isinstance(share, float) else "-"
