"""`penstock run`: an application as a Spark job, with what it did: answer, throughput, latency, and where tasks ran."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.fuse import (
    BalanceOption,
    CutOption,
    FuseOption,
    StreamCostOption,
    ThresholdOption,
    job_fuse_options,
)
from penstock.cli.interrupt import STATUS_INTERRUPTED, STATUS_TERMINATED, terminated
from penstock.cli.options import (
    AdaptIntervalOption,
    AdaptOption,
    AppName,
    CheckpointIntervalOption,
    CheckpointOption,
    ConstraintsOption,
    ControlPortOption,
    DataPortsOption,
    DurationOption,
    Format,
    FormatOption,
    FromOption,
    GoalOption,
    InputOption,
    JobTasksPerWorkerOption,
    JobThetaOption,
    MasterOption,
    ProfileOption,
    SeedOption,
    SetOption,
    SilenceOption,
    TakeLastSlotOption,
    TlsOption,
    WorkersOption,
    settings_of,
)
from penstock.cli.running.goals import adapt_settings
from penstock.cli.show import console, counted, number, plan_table, print_json, progress_bar
from penstock.errors import InvalidInput, JobCancelled, JobFailed, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.deploy import Job, JobOptions
    from penstock.model.plan import Plan

ROWS_SHOWN = 10
STAGES_SHOWN = 5
STAGES_MEAN = (
    "means over all batches into a stage, at the start and in a backlog too; latency above counts rows that reach "
    "sinks, from the batch that released them"
)


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def run(
        app_name: AppName,
        master: MasterOption = "local[4]",
        scheduler: Annotated[
            str | None,
            typer.Option("--scheduler", "-s", help="A name that `penstock schedulers` lists; default: best."),
        ] = None,
        fuse: FuseOption = None,
        balance: BalanceOption = None,
        threshold: ThresholdOption = None,
        cut: CutOption = None,
        stream_cost: StreamCostOption = None,
        plan: Annotated[Path | None, typer.Option("--plan", help="Place the tasks as this plan file says.")] = None,
        profile: ProfileOption = None,
        constraints: ConstraintsOption = None,
        theta: JobThetaOption = None,
        tasks_per_worker: JobTasksPerWorkerOption = None,
        settings: SetOption = None,
        workers: WorkersOption = None,
        take_last_slot: TakeLastSlotOption = False,
        input_path: InputOption = None,
        output_path: Annotated[str | None, typer.Option("--output", help="Write the result here as Parquet.")] = None,
        duration: DurationOption = None,
        metrics: Annotated[Path | None, typer.Option("--metrics", help="Folder for the metric log.")] = None,
        prometheus: Annotated[
            int | None,
            typer.Option(
                "--prometheus",
                metavar="PORT",
                min=0,
                max=65535,
                help="Serve metrics at localhost:PORT/metrics; 0 picks one.",
            ),
        ] = None,
        checkpoint: CheckpointOption = None,
        checkpoint_interval: CheckpointIntervalOption = 10.0,
        savepoint: FromOption = None,
        silence: SilenceOption = 10.0,
        adapt: AdaptOption = None,
        adapt_interval: AdaptIntervalOption = 60.0,
        goal: GoalOption = None,
        transport: Annotated[
            str, typer.Option("--transport", help="Between workers of one machine: auto, socket or ring.")
        ] = "auto",
        control_port: ControlPortOption = None,
        data_ports: DataPortsOption = None,
        tls: TlsOption = None,
        seed: SeedOption = 0,
        output: FormatOption = Format.table,
    ) -> None:
        """Run APP on Spark and show its answer and figures."""
        from penstock.apps.runnable import find_runnable
        from penstock.deploy import (
            JobOptions,
            follow,
            local_session,
            newest_rows,
            session_on_demand,
            start_topology,
            write_answer,
        )
        from penstock.model.files import read_constraints, read_plan, read_profile

        options = JobOptions(
            scheduler=scheduler,
            fuse=fuse,
            fuse_options=job_fuse_options(
                fuse, seed=seed, theta=theta, balance=balance, threshold=threshold, cut=cut, stream_cost=stream_cost
            ),
            settings=settings_of(settings) or None,
            plan=None if plan is None else read_plan(plan),
            profile=None if profile is None else read_profile(profile),
            constraints=() if constraints is None else read_constraints(constraints),
            workers=workers,
            tasks_per_worker=tasks_per_worker,
            theta=theta,
            take_last_slot=take_last_slot,
            seed=seed,
            metrics=metrics,
            prometheus_port=prometheus,
            transport=transport,
            checkpoint=checkpoint,
            checkpoint_interval_s=checkpoint_interval,
            from_savepoint=savepoint,
            silence_s=silence,
            adapt=adapt_settings(adapt, adapt_interval, goal, seed, theta, tasks_per_worker),
            control_port=control_port,
            data_ports=data_ports,
            tls=tls,
        )
        options.require_sound()
        if duration is not None and not 0 < duration < 1e9:
            msg = f"--duration is {duration:g}; it must be above 0 seconds"
            raise InvalidInput(msg)
        if output_path is not None:
            _require_writable(output_path)
        with session_on_demand(master):
            topology = find_runnable(app_name, input_path)
        flow = topology.build()
        if duration is None and not flow.bounded:
            msg = f"topology {flow.name!r} never ends by itself; give --duration SECONDS"
            raise InvalidInput(msg)
        options.require_fitting(options.constrained(flow))
        with _told_how_to_go_on(options), progress_bar(f"running {flow.name}") as show:
            show(0, 0, f"starting Spark on {master}")
            spark = local_session(master)
            began = time.time()
            with start_topology(topology, spark, options) as job:
                if job.prometheus_url is not None:
                    typer.echo(f"metrics at {job.prometheus_url}", err=True)
                follow(job, duration, lambda: show(0, 0, f"{number(job.rows_read)} rows read"))
                frames = _by_sink(job.results)
                if output_path is not None:
                    write_answer(frames, output_path)
                rows_out = sum(frame.count() for frame in frames.values())
                newest = {sink: newest_rows(frame, ROWS_SHOWN) for sink, frame in frames.items()}
                rows = {sink: _read(frame, output) for sink, frame in newest.items()}
        summary = summarise(job, began, rows_out)
        if output is Format.json:
            print_json({**summary, "rows": rows.get("", rows or [])})
            return
        _print(job, summary, rows)


def _require_writable(output: str) -> None:
    """InvalidInput for a folder that is there, or beneath a file: Spark would say so behind the whole job."""
    if Path(output).exists():
        msg = f"--output is {output}, which is there already; name a folder that is not"
        raise InvalidInput(msg)
    above = next((str(folder) for folder in Path(output).parents if os.path.exists(folder)), os.curdir)
    if not os.path.isdir(above):
        msg = f"--output is {output}, and {above} is no folder; name one that can be made"
        raise InvalidInput(msg)


@contextmanager
def _told_how_to_go_on(options: JobOptions) -> Iterator[None]:
    """Ctrl-C, SIGTERM, and the end of Spark's own process under a call of ours, as one line with the next step."""
    from penstock.deploy import jvm_ending_behind

    with terminated() as was_terminated:
        try:
            yield
        except BaseException as error:
            if was_terminated() and isinstance(error, Exception | KeyboardInterrupt):  # whatever came of it meanwhile
                raise _stopped(options, STATUS_TERMINATED) from None
            if isinstance(error, KeyboardInterrupt) and options.checkpoint is not None:
                raise _stopped(options, STATUS_INTERRUPTED) from None
            if isinstance(error, PenstockError) or not isinstance(error, Exception):
                raise
            ending = jvm_ending_behind(error)
            if ending is None:
                raise
            msg = f"{ending}; {_next_step(options)}"
            raise JobFailed(msg) from None


def _stopped(options: JobOptions, status: int) -> JobCancelled:
    stopped = JobCancelled(f"stopped; {_next_step(options)}")
    stopped.exit_code = status
    return stopped


def _next_step(options: JobOptions) -> str:
    from penstock.checkpoint.inspection import next_step

    order = options.checkpoint_order
    if order is not None:
        with suppress(PenstockError):  # the folder's own fault is told when it is used again
            step = next_step(order.root)
            return step if order.savepoint is None else step.replace("command", "command without --from")
    return "run the same command again"


def _by_sink(results: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """DataFrames by the name of their sink; a single result needs no name."""
    return {"": next(iter(results.values()))} if len(results) == 1 else results


def _read(frame: DataFrame, output: Format) -> list[dict[str, Any]]:
    """A few rows by column, for people as Spark shows them and for programs as JSON has them."""
    from penstock.cli.json_values import json_rows

    return json_rows(frame.toArrow()) if output is Format.json else [row.asDict() for row in frame.collect()]


def summarise(job: Job, asked_at: float, rows_out: int) -> dict[str, Any]:
    """What the job did, in figures that its metric log can prove; `asked_at` is in seconds since 1970.

    Starting ends and the run begins when the first worker opens its tasks, by its own clock.
    """
    began, ended = job.worked or (asked_at, asked_at)
    start_seconds, seconds = max(0.0, began - asked_at), max(1e-6, ended - began)
    from penstock.deploy import bytes_between_nodes, foretold_bytes, stages_of
    from penstock.model.files import plan_document

    plan = job.plan
    read = job.rows_read
    nodes = {worker.index: worker.node for worker in job.places}
    sums = job.sums()
    node_of = {task: nodes[worker] for task, worker in job.worker_of.items()}
    return {
        "penstock": 1,
        "app": job.name,
        "start_seconds": round(start_seconds, 3),
        "seconds": round(seconds, 3),
        "tuples_read": read,
        "tuples_per_second": round(read / seconds, 1),
        "rows_out": rows_out,  # in the sinks that keep rows
        "late_rows": sum(job.late_rows.values()),
        "recoveries": job.recoveries,
        "attempt": job.attempt,
        "epoch": job.epoch,
        "moves": job.moves,  # tasks, one as often as it went elsewhere
        "latency": [stage.in_ms() for stage in stages_of(sums)],  # of each operator, the slowest first
        "between_nodes": {  # bytes per second
            "predicted": foretold_bytes(plan, read / seconds),
            "predicted_by": _whose_word(plan),
            "measured": round(bytes_between_nodes(sums, node_of), 1),
        },
        "latency_ms": {name: job.latency_us(share) / 1000 for name, share in (("p50", 0.5), ("p99", 0.99))},
        "workers": len(set(job.worker_of.values())),
        "nodes": len({nodes[w] for w in job.worker_of.values()}),
        "ran": {task: {"worker": w, "node": nodes[w]} for task, w in job.worker_of.items()},
        "plan": None if plan is None else plan_document(plan),
    }


def _whose_word(plan: Plan | None) -> str | None:
    """Who says what passes between nodes: this job's profile, or the given plan of which nothing was computed here."""
    if plan is None or plan.forecast is None:
        return None
    return "profile" if plan.rows_per_second else "given plan"


def _print(job: Job, summary: dict[str, Any], rows: dict[str, list[dict[str, Any]]]) -> None:
    from penstock.cli.show import rows_table

    screen = console()
    for sink, found in rows.items():
        if found:
            cells = [[str(value) for value in row.values()] for row in found]
            screen.print(rows_table(list(found[0]), cells, sink or None))
            screen.print()
    if job.plan is not None:
        screen.print(plan_table(job.plan))
    if not job.worker_of:  # it had ended before
        screen.print(f"{summary['app']}: {number(summary['rows_out'])} rows in its sinks")
        _print_notes(job)
        return
    latency = summary["latency_ms"]
    least = "at least " if summary["recoveries"] else ""  # what dead workers had not reported is not counted
    screen.print(
        f"{summary['app']}: {least}{number(summary['tuples_read'])} rows in {summary['seconds']:.1f} s "
        f"({number(summary['tuples_per_second'])}/s) after {summary['start_seconds']:.1f} s of starting, on "
        f"{counted(summary['workers'], 'worker')} of {counted(summary['nodes'], 'node')}"
    )
    screen.print(f"latency from source to sink: p50 {latency['p50']:.1f} ms, p99 {latency['p99']:.1f} ms")
    if stages := summary["latency"][:STAGES_SHOWN]:
        columns = ("execute", "transport", "queue")
        cells = [[stage["operator"], *(f"{stage[f'{name}_ms']:.3f}" for name in columns)] for stage in stages]
        screen.print(
            rows_table(("stage", "execute ms", "transport ms", "queue ms"), cells, "the slowest stages, per batch")
        )
        screen.print(STAGES_MEAN)
    between = summary["between_nodes"]
    foretold = "" if between["predicted"] is None else f", the plan foretold {number(between['predicted'])} B/s"
    foretold += " (its own word: no --profile to compute it from)" if between["predicted_by"] == "given plan" else ""
    screen.print(f"between nodes: {number(between['measured'])} B/s{foretold}")
    if summary["recoveries"]:
        shown = f"; its sinks hold {number(summary['rows_out'])} rows" if summary["rows_out"] else ""
        screen.print(
            f"it went on after {counted(summary['recoveries'], 'failure')}, at epoch {summary['epoch']} now{shown}"
        )
    _print_notes(job)


def _print_notes(job: Job) -> None:
    for note in (*job.notes, *(job.plan.notes if job.plan is not None else ())):
        console().print(f"note: {note}")
