"""`penstock compare`: every scheduler on one topology and cluster, one row each, with a picture if asked."""

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
    TasksPerWorkerOption,
    ThetaOption,
    TopologyName,
    require_picture,
    resolve_measured,
    scheduler_options,
)
from penstock.cli.show import above_optimum, console, number, print_json, progress_bar, rows_table
from penstock.errors import InvalidInput
from penstock.model.plan import Plan


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def compare(
        topology: TopologyName,
        cluster: ClusterName,
        schedulers: Annotated[
            str | None, typer.Option("--schedulers", help="Names separated by commas; default: all.")
        ] = None,
        profile: ProfileOption = None,
        theta: ThetaOption = None,
        tasks_per_worker: TasksPerWorkerOption = 5,
        seed: SeedOption = 0,
        plot: Annotated[Path | None, typer.Option("--plot", help="Draw the placements to this PNG file.")] = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Compare schedulers on TOPOLOGY and CLUSTER."""
        from penstock.model.files import parse_cluster, plan_document
        from penstock.optimise.door import compare as decide
        from penstock.optimise.place import REGISTRY

        if schedulers is None:
            names, refused = [*REGISTRY.own, *REGISTRY.added()], REGISTRY.refused()
        else:
            names, refused = list(dict.fromkeys(name.strip() for name in schedulers.split(","))), []
            for name in names:
                REGISTRY.find(name)
        (graph, measured), nodes = resolve_measured(topology, profile), parse_cluster(cluster)
        options = scheduler_options(theta, tasks_per_worker, seed, None)
        require_picture(plot)
        with progress_bar("comparing") as show:
            plans, failures = decide(graph, nodes, names, profile=measured, options=options, progress=show)
        failures |= {one.name: one.reason for one in refused if one.name not in REGISTRY.own}
        if plot is not None:
            if not plans:
                msg = f"no scheduler found a plan, so there is nothing to draw to {plot}"
                raise InvalidInput(msg)
            from penstock.observe.placement_picture import draw_placements

            draw_placements(graph, nodes, plans, plot, profile=measured)
        if output is Format.json:
            rows = [plan_document(plan, with_assignment=False) for plan in plans]
            failed = [{"scheduler": name, "error": reason} for name, reason in failures.items()]
            print_json({"rows": rows, "failed": failed})
            return
        screen = console()
        screen.print(f"{graph.name}: {graph.task_count} tasks on {len(nodes.nodes)} nodes")
        screen.print(comparison_table(plans, failures))
        if plot is not None:
            screen.print(f"picture: {plot}")


def comparison_table(plans: list[Plan], failures: dict[str, str]) -> object:
    """Cheapest first; plans that overload a node after those that hold, failures last."""
    least = min((plan.cost for plan in plans if not plan.faults), default=0.0)
    rows = []
    for plan in sorted(plans, key=lambda p: (bool(p.faults), p.cost, p.inter_worker_cost)):
        ratio = f"{plan.cost / least:.2f}" if least > 0 else ("1.00" if plan.cost == 0 else "-")
        note = "proved optimal" if plan.proved_optimal else ""
        if plan.faults:
            note = f"not deployable: {plan.faults[0]}"
        elif plan.lower_bound > 0 and not plan.proved_optimal:
            note = above_optimum(plan)
        figures = (number(plan.cost), ratio, number(plan.inter_worker_cost), str(plan.nodes_used))
        rows.append((plan.scheduler, *figures, f"{plan.max_utilisation:.0%}", f"{plan.seconds:.3f}", note))
    rows += [(name, "-", "-", "-", "-", "-", "-", reason) for name, reason in failures.items()]
    headings = ("scheduler", "cost", "x least", "between workers", "nodes", "fullest", "seconds", "note")
    return rows_table(headings, rows)
