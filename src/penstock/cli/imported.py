"""`penstock import`: a topology and a profile from what another system says of itself.

A verb of its own and no option of `profile`: that one reads our metric log of a topology that is there already, this
one makes the topology as well.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Format, FormatOption, real, require_document
from penstock.cli.show import console, number, print_json, rows_table
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.imports import Imported


class System(StrEnum):
    """Which system measured."""

    spark = "spark"
    storm = "storm"
    flink = "flink"


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command(name="import")
    def imported(
        system: Annotated[System, typer.Argument(metavar="SYSTEM", help="spark, storm or flink.")],
        source: Annotated[
            str,
            typer.Argument(
                metavar="SOURCE",
                help="Spark: an event log. Storm, Flink: a file or folder of saved REST answers, or http://HOST:PORT/...",
            ),
        ],
        out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the profile to this file.")] = None,
        topology_out: Annotated[
            Path | None, typer.Option("--topology-out", help="Write the topology to this file.")
        ] = None,
        tuple_bytes: Annotated[
            float | None,
            typer.Option("--tuple-bytes", parser=real, metavar="N", help="Storm: the size of a tuple; 100 else."),
        ] = None,
        tasks_max: Annotated[
            int | None,
            typer.Option(
                "--tasks-max", metavar="N", help="Spark: most tasks of an operator; as many as ran at once else."
            ),
        ] = None,
        unknown_load: Annotated[
            float | None,
            typer.Option(
                "--unknown-load",
                parser=real,
                metavar="CPU",
                help="Storm, Flink: load of tasks nobody measured; 1 else.",
            ),
        ] = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Import a topology and its profile from Spark, Storm or Flink."""
        from penstock.model.files import profile_document, topology_document, write_profile, write_topology

        for path in (out, topology_out):
            require_document(path)
        if out is not None and topology_out is not None and out.resolve() == topology_out.resolve():
            msg = f"--out and --topology-out are both {out}, and one would be written over the other; name two files"
            raise InvalidInput(msg)
        given = {"--tuple-bytes": tuple_bytes, "--tasks-max": tasks_max, "--unknown-load": unknown_load}
        _require_fitting(system, {name for name, value in given.items() if value is not None})
        found = _read(system, source, tuple_bytes, tasks_max, unknown_load)
        if out is not None:
            write_profile(found.profile, out)
        if topology_out is not None:
            write_topology(found.graph, topology_out)
        if output is Format.json:
            print_json(
                {
                    "topology": topology_document(found.graph),
                    "profile": profile_document(found.profile),
                    "notes": list(found.notes),
                }
            )
            return
        _show(found)


_OPTIONS_OF = {
    System.spark: {"--tasks-max"},
    System.storm: {"--tuple-bytes", "--unknown-load"},
    System.flink: {"--unknown-load"},
}


def _require_fitting(system: System, given: set[str]) -> None:
    """Refuse an option that the system's figures have no use for: it would be ignored in silence."""
    if odd := sorted(given - _OPTIONS_OF[system]):
        msg = f"{odd[0]} is not for {system}; it takes {', '.join(sorted(_OPTIONS_OF[system]))}"
        raise InvalidInput(msg)


def _read(
    system: System, source: str, tuple_bytes: float | None, tasks_max: int | None, unknown_load: float | None
) -> Imported:
    from penstock.imports import import_flink, import_storm
    from penstock.imports.imported import UNKNOWN_LOAD
    from penstock.imports.storm import TUPLE_BYTES

    load = UNKNOWN_LOAD if unknown_load is None else unknown_load
    match system:
        case System.storm:
            return import_storm(
                source, tuple_bytes=TUPLE_BYTES if tuple_bytes is None else tuple_bytes, unknown_load=load
            )
        case System.flink:
            return import_flink(source, unknown_load=load)
        case System.spark:
            from penstock.deploy import import_spark, local_session
            from penstock.deploy.metrics.event_log import require_tasks_max
            from penstock.deploy.metrics.event_log_files import log_files

            require_tasks_max(tasks_max)  # as a mistyped name, told before Spark starts
            log_files(source)
            return import_spark(local_session("local[2]"), source, tasks_max=tasks_max)


def _show(found: Imported) -> None:
    """Operators with their loads, the totals, and what was assumed."""
    screen = console()
    fed = dict.fromkeys((operator.name for operator in found.graph.operators), 0.0)
    for edge in found.profile.edges:
        fed[edge.target.rpartition("/")[0]] += edge.rate
    rows = [
        (operator.name, str(operator.tasks), f"{sum(operator.loads()):.4f}", number(fed[operator.name]))
        for operator in found.graph.operators
    ]
    screen.print(rows_table(("operator", "tasks", "load", "B/s in"), rows))
    total = sum(edge.rate for edge in found.profile.edges)
    screen.print(
        f"{found.graph.task_count} tasks, {len(found.profile.tasks)} of them measured, "
        f"{len(found.profile.edges)} pairs, {number(total)} B/s between tasks"
    )
    for note in found.notes:
        screen.print(f"note: {note}")
