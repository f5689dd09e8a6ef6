"""`penstock run`: an application as a Spark job, with what it did: answer, throughput, latency, and where tasks ran."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Format, FormatOption, SeedOption
from penstock.cli.show import ShowProgress, console, number, plan_table, print_json, progress_bar
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.deploy import Job

ROWS_SHOWN = 10
LOOK_SECONDS = 0.2


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def run(
        app_name: Annotated[str, typer.Argument(metavar="APP", help="A built-in application, or file.py:name.")],
        master: Annotated[
            str, typer.Option("--master", help="local[n], local-cluster[n,c,m], spark://..., yarn or k8s://...")
        ] = "local[4]",
        scheduler: Annotated[
            str, typer.Option("--scheduler", "-s", help="A name that `penstock schedulers` lists.")
        ] = "best",
        plan: Annotated[Path | None, typer.Option("--plan", help="Place the tasks as this plan file says.")] = None,
        workers: Annotated[
            int | None, typer.Option("--workers", help="Worker processes; default: by the tasks.")
        ] = None,
        input_path: Annotated[
            str | None, typer.Option("--input", help="Parquet files instead of generated data.")
        ] = None,
        output_path: Annotated[str | None, typer.Option("--output", help="Write the result here as Parquet.")] = None,
        duration: Annotated[
            float | None, typer.Option("--duration", help="Stop (drain) after so many seconds.")
        ] = None,
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
        transport: Annotated[
            str, typer.Option("--transport", help="Between workers of one machine: auto, socket or ring.")
        ] = "auto",
        seed: SeedOption = 0,
        output: FormatOption = Format.table,
    ) -> None:
        """Run APP on Spark and show its answer and figures."""
        from penstock.apps.runnable import find_runnable
        from penstock.deploy import local_session, newest_rows, require_transport, start_topology
        from penstock.model.files import read_plan
        from penstock.optimise.place import find_scheduler

        find_scheduler(scheduler)
        require_transport(transport)
        if duration is not None and not 0 < duration < 1e9:
            msg = f"--duration is {duration:g}; it must be above 0 seconds"
            raise InvalidInput(msg)
        if output_path is not None and Path(output_path).exists():
            msg = f"--output is {output_path}, which is there already; name a folder that is not"
            raise InvalidInput(msg)
        topology = find_runnable(app_name, input_path)
        flow = topology.build()
        if duration is None and not flow.bounded:
            msg = f"topology {flow.name!r} never ends by itself; give --duration SECONDS"
            raise InvalidInput(msg)
        given = read_plan(plan) if plan is not None else None
        with progress_bar(f"running {flow.name}") as show:
            show(0, 0, f"starting Spark on {master}")
            spark = local_session(master)
            began = time.monotonic()
            options: dict[str, Any] = {"scheduler": scheduler, "plan": given, "workers": workers, "seed": seed}
            options |= {"metrics": None if metrics is None else str(metrics), "prometheus_port": prometheus}
            options["transport"] = transport
            with start_topology(topology, spark, **options) as job:
                running = time.monotonic()  # all workers have come and know their tasks
                if job.prometheus_url is not None:
                    typer.echo(f"metrics at {job.prometheus_url}", err=True)
                _follow(job, duration, show)
                ended = time.monotonic()
                frames = _by_sink(job.result)
                for sink, frame in frames.items():
                    if output_path is not None:
                        frame.write.mode("errorifexists").parquet(f"{output_path}/{sink}" if sink else output_path)
                newest = {sink: newest_rows(frame, ROWS_SHOWN) for sink, frame in frames.items()}
                rows = {sink: _read(frame, output) for sink, frame in newest.items()}
        summary = summarise(job, running - began, ended - running)
        if output is Format.json:
            print_json({**summary, "rows": rows.get("", rows or [])})
            return
        _print(job, summary, rows)


def _by_sink(result: Any) -> dict[str, Any]:  # noqa: ANN401 - what `Job.result` is
    """DataFrames by the name of their sink; a result that is the only one needs no name."""
    if result is None:
        return {}
    return dict(result) if isinstance(result, dict) else {"": result}


def _read(frame: Any, output: Format) -> list[dict[str, Any]]:  # noqa: ANN401 - Spark's types are not known here
    """A few rows by column, for people as Spark shows them and for programs as JSON has them."""
    from penstock.cli.json_values import json_rows

    return json_rows(frame.toArrow()) if output is Format.json else [row.asDict() for row in frame.collect()]


def _follow(job: Job, duration: float | None, show: ShowProgress) -> None:
    """Draw progress until the job has ended, or stop it when its time is over."""
    until = None if duration is None else time.monotonic() + duration
    while not job.wait(LOOK_SECONDS):
        show(0, 0, f"{number(sum(t['tuples_in'] for t in job.totals().values()))} tuples processed")
        if until is not None and time.monotonic() >= until:
            job.stop()
            return


def summarise(job: Job, start_seconds: float, seconds: float) -> dict[str, Any]:
    """What the job did, in figures that its metric log can prove."""
    from penstock.model.files import plan_document

    totals = job.totals()
    plan = job.plan
    sources = [task for task, counts in totals.items() if not counts["tuples_in"] and counts["tuples_out"]]
    read = sum(totals[task]["tuples_out"] for task in sources)
    nodes = {worker.index: worker.node for worker in job.places}
    return {
        "penstock": 1,
        "app": job.name,
        "start_seconds": round(start_seconds, 3),
        "seconds": round(seconds, 3),
        "tuples_read": read,
        "tuples_per_second": round(read / seconds, 1),
        "latency_ms": {name: job.latency_us(share) / 1000 for name, share in (("p50", 0.5), ("p99", 0.99))},
        "workers": len(set(job.worker_of.values())),
        "nodes": len({nodes[w] for w in job.worker_of.values()}),
        "ran": {task: {"worker": w, "node": nodes[w]} for task, w in job.worker_of.items()},
        "plan": None if plan is None else plan_document(plan),
    }


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
    latency = summary["latency_ms"]
    screen.print(
        f"{summary['app']}: {number(summary['tuples_read'])} tuples in {summary['seconds']:.1f} s "
        f"({number(summary['tuples_per_second'])}/s), from source to sink {latency['p50']:.1f} ms (p50) and "
        f"{latency['p99']:.1f} ms (p99), {summary['workers']} workers on {summary['nodes']} nodes; "
        f"Spark took {summary['start_seconds']:.1f} s to start them"
    )
    for note in (*job.notes, *(job.plan.notes if job.plan is not None else ())):
        screen.print(f"note: {note}")
