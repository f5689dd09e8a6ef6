"""`penstock tune`: profile iterations of an application on Spark, and the plan that was the fastest."""

from __future__ import annotations

import statistics
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
            methods=tuple(name.strip() for name in methods.split(",")),
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
        _print(flow.name, tuned, out)


def iteration_rows(tuned: Tuned) -> list[dict[str, Any]]:
    """One row for each iteration, in figures; iterations with one plan have the throughput of all of its runs."""
    from penstock.deploy import foretold_bytes

    methods = {iteration.step.method for iteration in tuned.done if iteration.step.number}
    rows: list[dict[str, Any]] = []
    for position, iteration in enumerate(tuned.done):
        step, measured, same = iteration.step, iteration.measured, iteration.same_as
        notes = [iteration.note] if iteration.note else []
        if same is not None:
            by = f" by {same.method}" if same.number and len(methods) > 1 else ""
            notes.append(f"same plan as iteration {same.number}{by}")
        row: dict[str, Any] = {
            "iteration": step.number,
            "method": step.method,
            "gamma": step.gamma,
            "choice": list(tuned.choices.get(position, ())),
            "kept": iteration is tuned.kept,
            "same_plan_as": None if same is None else {"iteration": same.number, "method": same.method},
            "note": "; ".join(notes),
        }
        if measured is not None:
            foretold = foretold_bytes(measured.plan, statistics.median(measured.runs))
            row |= {
                "workers": len(set(measured.plan.assignment.values())),
                "between_nodes": {"predicted": foretold, "measured": measured.bytes_between_nodes},
                "tuples_per_second": measured.throughput,
                "spread": measured.spread,
                "runs": list(measured.runs),
                "latency_ms": {"p50": measured.latency_ms},
            }
        rows.append(row)
    return rows


def _print(name: str, tuned: Tuned, out: Path | None) -> None:
    screen, rows, noise = console(), iteration_rows(tuned), tuned.noise
    first = rows[0].get("tuples_per_second") or 0.0
    cells = []
    for row in rows:
        chosen = " ".join((*row["choice"], *(("(kept)",) if row["kept"] else ())))
        head = (str(row["iteration"]), row["method"], f"{row['gamma']:g}", chosen)
        if "workers" not in row:
            cells.append((*head, *["-"] * 7, row["note"]))
            continue
        measured, between = row["tuples_per_second"] or 0.0, row["between_nodes"]
        figures = (
            str(row["workers"]),
            *("-" if between[what] is None else number(round(between[what], 1)) for what in ("predicted", "measured")),
            number(round(measured, 1)),
            f"{measured / first:.2f}" if first else "-",
            f"{row['spread']:.0%}" if row["spread"] else "-",
            f"{row['latency_ms']['p50']:.1f}",
        )
        cells.append((*head, *figures, row["note"]))
    headings = (
        "iteration", "method", "gamma", "choice", "workers", "B/s foretold", "B/s measured", "rows/s", "x none",
        "spread", "p50 ms", "note",
    )  # fmt: skip
    screen.print(rows_table(headings, cells, f"profile iterations of {name}; B/s are bytes between nodes"))
    step = tuned.kept.step
    screen.print(f"kept: iteration {step.number} by {step.method} at gamma {step.gamma:g}")
    if noise is None:
        screen.print("note: each plan ran once, so small differences are noise; --repeats 3 tells how large it is")
    else:
        screen.print(
            f"note: runs of one plan were up to {noise:.0%} apart; a smaller difference between plans is noise"
        )
    if out is not None:
        screen.print(f"plan: {out}")
