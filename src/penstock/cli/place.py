"""`penstock place`: one scheduler, one certified plan, of one topology or of several that share the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import (
    ClusterName,
    Format,
    FormatOption,
    ProfilesOption,
    SeedOption,
    SetOption,
    TasksPerWorkerOption,
    ThetaOption,
    TopologyNames,
    require_document,
    require_folder,
    require_picture,
    resolve_measured,
    scheduler_options,
)
from penstock.cli.show import (
    console,
    counted,
    number,
    plan_summary,
    plan_table,
    print_json,
    progress_bar,
    show_plan,
    telling,
)
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.model.plan import Plan
    from penstock.optimise.joint import Joint


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def place(
        topologies: TopologyNames,
        cluster: ClusterName,
        scheduler: Annotated[
            str, typer.Option("--scheduler", "-s", help="A name that `penstock schedulers` lists.")
        ] = "best",
        profile: ProfilesOption = None,
        theta: ThetaOption = None,
        tasks_per_worker: TasksPerWorkerOption = 5,
        seed: SeedOption = 0,
        settings: SetOption = None,
        allow_overload: Annotated[
            bool, typer.Option("--allow-overload", help="Print even a plan that overloads a node.")
        ] = False,
        out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the plan to this file.")] = None,
        split: Annotated[
            Path | None,
            typer.Option("--split", metavar="DIR", help="Write each topology's part to DIR/NAME.json."),
        ] = None,
        plot: Annotated[Path | None, typer.Option("--plot", help="Draw the placement to this PNG file.")] = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Place the tasks of each TOPOLOGY on CLUSTER and print the plan."""
        from penstock.model.files import parse_cluster
        from penstock.optimise.door import place as decide
        from penstock.optimise.joint import place_together

        if not topologies:
            msg = (
                f"Missing argument 'CLUSTER': place takes TOPOLOGY, or several, and then CLUSTER, not {cluster!r} alone"
            )
            raise InvalidInput(msg)
        measured_by = _one_for_each(profile or [], topologies)
        found = [resolve_measured(name, path) for name, path in zip(topologies, measured_by, strict=True)]
        nodes = parse_cluster(cluster)
        options = scheduler_options(theta, tasks_per_worker, seed, settings)
        require_picture(plot)
        require_document(out)
        require_folder(split)
        if len(found) == 1:
            graph, measured = found[0]
            with progress_bar(f"placing {graph.name}") as show:
                options = replace(options, progress=telling(show))
                plan = decide(graph, nodes, scheduler, profile=measured, options=options, allow_overload=allow_overload)
            if plot is not None:
                from penstock.observe.placement_picture import draw_placements

                draw_placements(graph, nodes, [plan], plot, profile=measured)
            part = _write_parts({graph.name: plan}, split)  # of one topology the plan is its own part
            show_plan(plan, as_json=output is Format.json, out=out, picture=plot, part=part.get(graph.name))
            return
        if plot is not None:
            msg = f"--plot draws the plan of one topology and there are {len(found)}; leave it out"
            raise InvalidInput(msg)
        profiles = [one for _, one in found if one is not None]
        with progress_bar(f"placing {counted(len(found), 'graph')}") as show:
            joint = place_together(
                [graph for graph, _ in found],
                nodes,
                scheduler,
                profiles=profiles,
                options=replace(options, progress=telling(show)),
                allow_overload=allow_overload,
            )
        _show(joint, as_json=output is Format.json, out=out, split=split)


def _one_for_each(profiles: list[Path], topologies: list[str]) -> list[Path | None]:
    """Profiles in the order of topologies; rates that were measured and rates that were declared do not compare."""
    if not profiles:
        return [None] * len(topologies)
    if len(profiles) != len(topologies):
        msg = (
            f"--profile is given {counted(len(profiles), 'time')} for "
            f"{len(topologies)} topolog{'y' if len(topologies) == 1 else 'ies'}; give one for each, in their order"
        )
        raise InvalidInput(msg)
    return [*profiles]


def _show(joint: Joint, *, as_json: bool, out: Path | None, split: Path | None) -> None:
    """Write the joint plan and its parts where that is asked for, and print what each topology got."""
    from penstock.model.files import plan_document, write_plan

    if out is not None:
        write_plan(joint.plan, out)
    files = _write_parts(joint.parts, split)
    if as_json:
        parts = {name: plan_document(part) for name, part in joint.parts.items()}
        print_json({**plan_document(joint.plan), "parts": parts})
        return
    screen = console()
    for name, part in joint.parts.items():
        screen.print(f"{name}: cost {number(part.cost)} between nodes, on {counted(part.nodes_used, 'node')}")
        screen.print(plan_table(part))
        screen.print()
    screen.print(f"together: {plan_summary(joint.plan)}")
    for note in (*joint.plan.notes, *(f"not deployable: {fault}" for fault in joint.plan.faults)):
        screen.print(f"note: {note}")
    written = {} if out is None else {"plan": out}
    for what, path in (written | {f"plan of {name}": path for name, path in files.items()}).items():
        screen.print(f"{what}: {path}")


def _write_parts(parts: Mapping[str, Plan], folder: Path | None) -> dict[str, Path]:
    """Write each topology's plan to a file of its name, where that is asked for, and say which."""
    if folder is None:
        return {}
    from penstock.model.files import write_plan
    from penstock.optimise.joint import distinct

    stems = distinct([_as_file(name) for name in parts])
    files = {name: folder / f"{stem}.json" for name, stem in zip(parts, stems, strict=True)}
    folder.mkdir(exist_ok=True)
    for name, path in files.items():
        write_plan(parts[name], path)
    return files


def _as_file(name: str) -> str:
    """A topology's name as one of a file: `diamond:30` and the like have a colon, which some systems refuse."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
