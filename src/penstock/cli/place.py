"""`penstock place`: one scheduler, one certified plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import (
    ClusterName,
    Format,
    FormatOption,
    ProfileOption,
    SeedOption,
    SetOption,
    TasksPerWorkerOption,
    ThetaOption,
    TopologyName,
    require_document,
    require_picture,
    resolve_topology,
    scheduler_options,
)
from penstock.cli.show import show_plan


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def place(
        topology: TopologyName,
        cluster: ClusterName,
        scheduler: Annotated[
            str, typer.Option("--scheduler", "-s", help="A name that `penstock schedulers` lists.")
        ] = "best",
        profile: ProfileOption = None,
        theta: ThetaOption = None,
        tasks_per_worker: TasksPerWorkerOption = 5,
        seed: SeedOption = 0,
        settings: SetOption = None,
        allow_overload: Annotated[
            bool, typer.Option("--allow-overload", help="Print even a plan that overloads a node.")
        ] = False,
        out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the plan to this file.")] = None,
        plot: Annotated[Path | None, typer.Option("--plot", help="Draw the placement to this PNG file.")] = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Place the tasks of TOPOLOGY on CLUSTER and print the plan."""
        from penstock.model.files import parse_cluster, read_profile
        from penstock.optimise.door import place as decide

        graph, nodes = resolve_topology(topology), parse_cluster(cluster)
        measured = read_profile(profile, graph) if profile is not None else None
        options = scheduler_options(theta, tasks_per_worker, seed, settings)
        require_picture(plot)
        require_document(out)
        plan = decide(graph, nodes, scheduler, profile=measured, options=options, allow_overload=allow_overload)
        if plot is not None:
            from penstock.observe.placement_picture import draw_placements

            draw_placements(graph, nodes, [plan], plot, profile=measured)
        show_plan(plan, as_json=output is Format.json, out=out, picture=plot)
