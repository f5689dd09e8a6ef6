"""`penstock profile`: the metric log of a run, added up by Spark SQL to the profile that the next plan is made from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Format, FormatOption, JobOption, TopologyOption, require_document, topology_name
from penstock.cli.show import console, number, print_json, rows_table


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def profile(
        folder: Annotated[Path, typer.Argument(metavar="METRICS_DIR", help="What `penstock run --metrics` wrote.")],
        out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the profile to this file.")] = None,
        job: JobOption = None,
        topology: TopologyOption = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Turn a job's metric log into a profile."""
        from penstock.deploy import build_profile, local_session, logged_job
        from penstock.model.files import profile_document, write_profile

        require_document(out)
        chosen, note = logged_job(folder, job, topology_name(topology))
        if note:
            typer.echo(f"note: {note}", err=True)
        measured = build_profile(local_session("local[2]"), folder, chosen.id)
        if out is not None:
            write_profile(measured, out)
        if output is Format.json:
            print_json(profile_document(measured))
            return
        rows = [(task, f"{found.load:.4f}") for task, found in measured.tasks.items()]
        console().print(rows_table(("task", "load"), rows))
        total = sum(edge.rate for edge in measured.edges)
        console().print(f"{len(measured.tasks)} tasks, {len(measured.edges)} pairs, {number(total)} B/s between tasks")
