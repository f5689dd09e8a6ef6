"""`penstock tune`: profile iterations of an application on Spark, and the plan that was the fastest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.fuse import BalanceOption, CutOption, StreamCostOption, ThresholdOption, fuse_options
from penstock.cli.options import (
    AppName,
    DurationOption,
    Format,
    FormatOption,
    InputOption,
    MasterOption,
    SeedOption,
    TakeLastSlotOption,
    ThetaOption,
    WorkersOption,
    require_document,
)
from penstock.cli.show import console, number, print_json, progress_bar, rows_table
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.deploy import Tuned


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def tune(
        app_name: AppName,
        master: MasterOption = "local[4]",
        methods: Annotated[
            str, typer.Option("--method", "-m", help="Fusion methods separated by commas, such as cola,fint.")
        ] = "cola",
        choice: Annotated[
            str, typer.Option("--choice", help="Which iteration is kept: max, first or first-local.")
        ] = "max",
        count: Annotated[int, typer.Option("--iterations", metavar="N", help="After the run without fusion.")] = 6,
        repeats: Annotated[
            int, typer.Option("--repeats", metavar="N", help="Runs of each plan; the median counts.")
        ] = 1,
        duration: DurationOption = None,
        workers: WorkersOption = None,
        take_last_slot: TakeLastSlotOption = False,
        input_path: InputOption = None,
        balance: BalanceOption = None,
        threshold: ThresholdOption = None,
        cut: CutOption = None,
        stream_cost: StreamCostOption = None,
        theta: ThetaOption = None,
        seed: SeedOption = 0,
        out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the kept plan to this file.")] = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Fuse APP, run it, measure, fuse again with what was measured, and keep the plan with the best throughput."""
        from penstock.apps.runnable import find_runnable
        from penstock.deploy import JobOptions, Tuning, local_session, session_on_demand, tune_topology
        from penstock.model.files import plan_document, write_plan

        require_document(out)
        tuning = Tuning(
            methods=tuple(dict.fromkeys(name.strip() for name in methods.split(","))),
            iterations=count,
            repeats=repeats,
            seconds=duration,
            choice=choice,
            fuse_options=fuse_options(
                seed=seed, theta=theta, balance=balance, threshold=threshold, cut=cut, stream_cost=stream_cost
            ),
        )
        tuning.require_sound()
        options = JobOptions(workers=workers, take_last_slot=take_last_slot, seed=seed)
        options.require_sound()
        with session_on_demand(master):
            topology = find_runnable(app_name, input_path)
        flow = topology.build()
        if duration is None and not flow.bounded:
            msg = f"topology {flow.name!r} never ends by itself; give --duration SECONDS for each run"
            raise InvalidInput(msg)
        with progress_bar(f"tuning {flow.name}") as show:
            show(0, tuning.steps_max, f"starting Spark on {master}")
            tuned = tune_topology(topology, local_session(master), options, tuning, show)
        if out is not None:
            write_plan(tuned.plan, out)
        if output is Format.json:
            print_json(
                {
                    "penstock": 1,
                    "app": flow.name,
                    "choice": choice,
                    "iterations": iteration_rows(tuned),
                    "plan": plan_document(tuned.plan),
                }
            )
            return
        _print(flow.name, tuned, repeats, out)


def iteration_rows(tuned: Tuned) -> list[dict[str, Any]]:
    """One row for each iteration, in figures."""
    rows: list[dict[str, Any]] = []
    for position, iteration in enumerate(tuned.done):
        step, measured = iteration.step, iteration.measured
        row: dict[str, Any] = {
            "iteration": step.number,
            "method": step.method,
            "gamma": step.gamma,
            "choice": list(tuned.choices.get(position, ())),
            "kept": iteration is tuned.kept,
            "note": iteration.note,
        }
        if measured is not None:
            row |= {
                "workers": len(set(measured.plan.assignment.values())),
                "between_nodes": measured.plan.cost,
                "tuples_per_second": measured.throughput,
                "spread": measured.spread,
                "latency_ms": {"p50": measured.latency_ms},
            }
        rows.append(row)
    return rows


def _print(name: str, tuned: Tuned, repeats: int, out: Path | None) -> None:
    screen, rows = console(), iteration_rows(tuned)
    first = rows[0].get("tuples_per_second") or 0.0
    cells = []
    for row in rows:
        chosen = " ".join((*row["choice"], *(("(kept)",) if row["kept"] else ())))
        head = (str(row["iteration"]), row["method"], f"{row['gamma']:g}", chosen)
        if "workers" not in row:
            cells.append((*head, "-", "-", "-", "-", "-", "-", row["note"]))
            continue
        measured = row["tuples_per_second"] or 0.0
        figures = (
            str(row["workers"]),
            number(row["between_nodes"]),
            number(round(measured, 1)),
            f"{measured / first:.2f}" if first else "-",
            f"{row['spread']:.0%}" if repeats > 1 else "-",
            f"{row['latency_ms']['p50']:.1f}",
        )
        cells.append((*head, *figures, row["note"]))
    headings = (
        "iteration", "method", "gamma", "choice", "workers", "B/s between nodes, predicted", "rows/s", "x none",
        "spread", "p50 ms", "note",
    )  # fmt: skip
    screen.print(rows_table(headings, cells, f"profile iterations of {name}"))
    step = tuned.kept.step
    screen.print(f"kept: iteration {step.number} by {step.method} at gamma {step.gamma:g}")
    if repeats == 1:
        screen.print("note: each plan ran once, so small differences are noise; --repeats 3 tells how large it is")
    if out is not None:
        screen.print(f"plan: {out}")
