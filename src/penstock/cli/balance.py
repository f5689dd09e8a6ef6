"""`penstock balance`: how a job's parallel regions were weighed over time, as a picture from its metric log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import JobOption, TopologyOption, require_picture, topology_name


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def balance(
        folder: Annotated[Path, typer.Argument(metavar="METRICS_DIR", help="What `penstock run --metrics` wrote.")],
        out: Annotated[Path, typer.Option("-o", "--out", help="The picture; several regions get numbered ones.")],
        job: JobOption = None,
        topology: TopologyOption = None,
    ) -> None:
        """Draw weights and blocking rates of parallel regions over time."""
        from penstock.deploy import read_job_table
        from penstock.observe.balance_picture import draw_region, region_histories

        require_picture(out)
        rows, note = read_job_table(folder, "balance", job, topology_name(topology))
        histories = region_histories(rows)
        if note:
            typer.echo(f"note: {note}", err=True)
        for number, history in enumerate(histories, start=1):
            path = out if len(histories) == 1 else out.with_stem(f"{out.stem}-{number}")
            draw_region(history, path)
            replicas = history.weights.shape[1]
            decisions = len(history.time_s)
            typer.echo(f"{path}: region {history.region}, {replicas} replicas, {decisions} decisions")
