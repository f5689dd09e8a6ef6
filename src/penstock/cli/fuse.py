"""`penstock fuse`: which tasks share a worker and where the workers run, as one certified plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import (
    ClusterName,
    Format,
    FormatOption,
    ProfileOption,
    SeedOption,
    ThetaOption,
    TopologyName,
    real,
    require_document,
    resolve_measured,
)
from penstock.cli.show import show_plan
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.optimise.fuse.contract import FuseOptions

BalanceOption = Annotated[
    float | None,
    typer.Option(
        "--balance",
        parser=real,
        metavar="WEIGHT",
        help="Weight, from 0 to 1, of the fullest node's utilisation against the streams cut; default: 0.5.",
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--threshold", parser=real, metavar="T", help="How much more cola may cut for a better balance; default: 1."
    ),
]
CutOption = Annotated[
    str | None,
    typer.Option("--cut", help="How workers are split: leighton-rao (default of cola), refined, lp or exact."),
]
StreamCostOption = Annotated[
    float | None,
    typer.Option(
        "--stream-cost",
        parser=real,
        metavar="CPU",
        help="CPU of one unit of rate at each end of a stream between workers; what streams cost, by default.",
    ),
]


def fuse_options(
    *,
    seed: int,
    theta: float | None,
    balance: float | None,
    threshold: float | None,
    cut: str | None,
    stream_cost: float | None,
) -> FuseOptions:
    """What was asked for; what was not has the default of fusion."""
    from penstock.optimise.fuse.contract import FuseOptions

    usual = FuseOptions(seed, theta, cut=cut, stream_cost=stream_cost)
    return replace(
        usual,
        balance=usual.balance if balance is None else balance,
        threshold=usual.threshold if threshold is None else threshold,
    )


FuseOption = Annotated[
    str | None,
    typer.Option("--fuse", metavar="METHOD", help="Fuse tasks into workers: cola, cola-basic, fint, none or best."),
]


def job_fuse_options(
    method: str | None,
    *,
    seed: int,
    theta: float | None,
    balance: float | None,
    threshold: float | None,
    cut: str | None,
    stream_cost: float | None,
) -> FuseOptions | None:
    """Options of a job's fusion, or InvalidInput where there are some but no method."""
    given = {"--balance": balance, "--threshold": threshold, "--cut": cut, "--stream-cost": stream_cost}
    if method is None:
        for name, value in given.items():
            if value is not None:
                msg = f"{name} is {value} but --fuse is not given; name a method as well, such as --fuse cola"
                raise InvalidInput(msg)
        return None
    return fuse_options(seed=seed, theta=theta, balance=balance, threshold=threshold, cut=cut, stream_cost=stream_cost)


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def fuse(
        topology: TopologyName,
        cluster: ClusterName,
        method: Annotated[str, typer.Option("--method", "-m", help="best, cola, cola-basic, fint or none.")] = "best",
        balance: BalanceOption = None,
        threshold: ThresholdOption = None,
        cut: CutOption = None,
        stream_cost: StreamCostOption = None,
        profile: ProfileOption = None,
        theta: ThetaOption = None,
        seed: SeedOption = 0,
        out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the plan to this file.")] = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Fuse the tasks of TOPOLOGY into workers on CLUSTER and print the plan."""
        from penstock.model.files import parse_cluster
        from penstock.optimise.fuse.door import fuse as decide

        require_document(out)
        (graph, measured), nodes = resolve_measured(topology, profile), parse_cluster(cluster)
        options = fuse_options(
            seed=seed, theta=theta, balance=balance, threshold=threshold, cut=cut, stream_cost=stream_cost
        )
        plan = decide(graph, nodes, method, profile=measured, options=options)
        show_plan(plan, as_json=output is Format.json, out=out)
