"""`penstock check`: whether a topology is sound, can run on a cluster, and a plan for it holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from penstock.cli.options import Format, FormatOption, ProfileOption, TopologyName, resolve_measured
from penstock.cli.show import number, print_json
from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster
from penstock.model.profile import Profile
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import Problem


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def check(
        topology: TopologyName,
        cluster: Annotated[str | None, typer.Argument(metavar="[CLUSTER]", help="A file or a shorthand.")] = None,
        plan: Annotated[Path | None, typer.Option("--plan", help="Certify this plan on the cluster.")] = None,
        profile: ProfileOption = None,
        output: FormatOption = Format.table,
    ) -> int:
        """Validate a topology, a cluster and a plan, naming every fault."""
        facts, faults, advice = examine(topology, cluster, plan, profile)
        if output is Format.json:
            print_json({**facts, "faults": faults, "advice": advice, "sound": not faults})
        else:
            for fault in faults:
                typer.echo(f"penstock: {fault}", err=True)
            if not faults:
                typer.echo(
                    "sound: " + ", ".join(f"{name.replace('_', ' ')} {_show(value)}" for name, value in facts.items())
                )
                for line in advice:
                    typer.echo(f"advice: {line}")
        return 2 if faults else 0


def examine(
    topology: str, cluster_name: str | None, plan: Path | None, profile_path: Path | None
) -> tuple[dict[str, object], list[str], list[str]]:
    """What there is, everything that is wrong with it, and what could be better."""
    from penstock.model.files import parse_cluster

    facts: dict[str, object] = {}
    faults: list[str] = []
    advice: list[str] = []
    graph: OperatorGraph | None = None
    cluster: Cluster | None = None
    profile: Profile | None = None
    if plan is not None and cluster_name is None:
        msg = "--plan needs a CLUSTER to be certified on"
        raise InvalidInput(msg)
    try:
        graph, profile = resolve_measured(topology, profile_path)
        facts |= {"topology": graph.name, "operators": len(graph.operators), "tasks": graph.task_count}
        facts |= {"streams": len(graph.streams), "constraints": len(graph.constraints)}
    except InvalidInput as error:
        faults += error.faults
    try:
        if cluster_name is not None:
            cluster = parse_cluster(cluster_name)
            facts |= {"nodes": len(cluster.nodes), "capacity": cluster.capacity}
    except InvalidInput as error:
        faults += error.faults
    if graph is not None and cluster is not None and not faults:
        faults += _together(graph, cluster, plan, profile, facts)
        advice += _advice(graph, cluster, profile)
    return facts, faults, advice


def _together(
    graph: OperatorGraph, cluster: Cluster, plan: Path | None, profile: Profile | None, facts: dict[str, object]
) -> list[str]:
    from penstock.model.check import check_plan
    from penstock.model.files import read_plan
    from penstock.model.taskgraph import TaskGraph
    from penstock.optimise.seats import seat_shortfalls

    problem = Problem(TaskGraph.expand(graph, profile), cluster, graph.constraints)
    facts["load"] = float(problem.graph.load.sum())
    faults = problem.node_name_faults() + problem.shortfalls() + seat_shortfalls(problem)
    if graph.constraints and not faults:
        faults += _clash(problem)
    if plan is not None:
        try:
            given = read_plan(plan)
            faults += check_plan(graph, cluster, given, profile)
            if not faults and given.constraints:  # a job holds a plan to the constraints that it records
                faults += check_plan(replace(graph, constraints=given.constraints), cluster, given, profile)
            facts["plan"] = f"{plan} (whether its lower bound is true cannot be checked)"
        except InvalidInput as error:
            faults += error.faults
    return faults


def _advice(graph: OperatorGraph, cluster: Cluster, profile: Profile | None) -> list[str]:
    """Tasks that are more than any worker of the cluster can do, which hold all others up."""
    from penstock.model.taskgraph import TaskGraph
    from penstock.optimise.seats import BOTTLENECK_NOTE, bottleneck_note

    problem = Problem(TaskGraph.expand(graph, profile), cluster)
    roomiest = np.full(problem.task_count, int(np.argmax(problem.worker_capacity)), dtype=np.int32)
    return [note.removeprefix(BOTTLENECK_NOTE) for note in bottleneck_note(problem, roomiest)]


def _clash(problem: Problem) -> list[str]:
    """Constraints that cannot be met together, whatever streams cost."""
    from penstock.errors import Infeasible
    from penstock.optimise.fuse.steps.feasibility import require_no_clash

    try:
        require_no_clash(problem, stream_cost=0.0)
    except Infeasible as clash:
        return [str(clash)]
    return []


def _show(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
