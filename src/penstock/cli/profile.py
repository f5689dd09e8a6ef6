"""`penstock profile`: the metric log of a run, added up by Spark SQL to the profile that the next plan is made from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Format, FormatOption, JobOption, TopologyOption, require_document, tell, topology_name
from penstock.cli.show import console, number, print_json, rows_table


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def profile(
        folder: Annotated[Path, typer.Argument(metavar="METRICS_DIR", help="What `penstock run --metrics` wrote.")],
        out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the profile to this file.")] = None,
        last: Annotated[
            str | None,
            typer.Option("--last", metavar="DURATION", help="The last so much of the run, such as '60 s', not all."),
        ] = None,
        busy: Annotated[
            bool, typer.Option("--busy", help="Figures over the intervals in which each task or pair moved rows.")
        ] = False,
        job: JobOption = None,
        topology: TopologyOption = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Turn a job's metric log into a profile."""
        from penstock.deploy import build_profile, local_session, logged_job
        from penstock.model.files import profile_document, write_profile

        require_document(out)
        window = None if last is None else _seconds(last)
        chosen, note = logged_job(folder, job, topology_name(topology))
        tell([note] if note else [])
        measured = build_profile(local_session("local[2]"), folder, chosen.id, window=window, busy=busy)
        tell(measured.notes)
        if out is not None:
            write_profile(measured, out)
        if output is Format.json:
            print_json(profile_document(measured))
            return
        rows = [
            (task, f"{found.load:.4f}", _shown(found.spread, ".4f"), _shown(found.execute_us, ",.0f"))
            for task, found in measured.tasks.items()
        ]
        console().print(rows_table(("task", "load", "spread", "execute us"), rows))
        total = sum(edge.rate for edge in measured.edges)
        streams = sum((edge.send_cpu or 0) + (edge.receive_cpu or 0) for edge in measured.edges)
        over = "the time in which each moved rows" if measured.seconds is None else f"{measured.seconds:.1f} s"
        console().print(
            f"{len(measured.tasks)} tasks, {len(measured.edges)} pairs, {number(total)} B/s between tasks, "
            f"load {streams:.4f} for sending and receiving, over {over}"
        )


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _seconds(last: str) -> float:
    """--last as seconds: a bare number is seconds already."""
    from penstock.deploy import window_us

    bare = re.fullmatch(r"[0-9]+(\.[0-9]+)?", last) is not None
    return window_us(float(last) if bare else last, "--last") / 1e6
