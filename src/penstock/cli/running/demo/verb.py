"""`penstock demo`: routes begins round robin, measures itself, and moves to a better plan while it runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.interrupt import STATUS_TERMINATED, terminated
from penstock.cli.options import Format, FormatOption, real, require_picture
from penstock.cli.running.demo.course import ROWS_PER_SECOND, SCHEDULER, Course, Outcome, Plans, run_course
from penstock.cli.running.demo.screen import Screen, screen_for
from penstock.cli.running.demo.tables import figures_table, graph_table
from penstock.cli.show import print_json, progress_bar
from penstock.errors import InvalidInput, JobCancelled

MASTER = "local-cluster[3,3,1024]"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of Spark's processes: they are up sooner


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def demo(
        master: Annotated[
            str, typer.Option("--master", help="local-cluster[n,c,m]: n executors of this machine with c slots each.")
        ] = MASTER,
        scheduler: Annotated[
            str,
            typer.Option("--scheduler", "-s", help="Who is asked for a better plan; `penstock schedulers` has all."),
        ] = SCHEDULER,
        rate: Annotated[
            float, typer.Option("--rate", parser=real, metavar="ROWS", help="Trips a second.")
        ] = ROWS_PER_SECOND,
        plot: Annotated[Path | None, typer.Option("--plot", help="Draw both plans to this PNG file.")] = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Watch a job get a better plan while it runs; takes about half a minute and leaves nothing behind."""
        from penstock.deploy import local_session
        from penstock.optimise.place import find_scheduler

        find_scheduler(scheduler)
        if re.fullmatch(r"local-cluster\[\d+, ?\d+, ?\d+\]", master) is None:
            msg = f"--master is {master!r}; the demonstration needs executors of this machine, such as {MASTER}"
            raise InvalidInput(msg)
        if not 100 <= rate <= 1e6:
            msg = f"--rate is {rate:g}; give 100 to 1,000,000 trips a second"
            raise InvalidInput(msg)
        require_picture(plot)
        with terminated() as was_terminated:
            try:
                with progress_bar("demo") as show:
                    show(0, 0, f"starting Spark on {master}")
                    spark = local_session(master, java_options=SHORT_LIVED)
                with screen_for(silent=output is Format.json) as screen:
                    outcome = run_course(spark, screen, Course(rows_per_second=rate, scheduler=scheduler))
            except KeyboardInterrupt:
                if not was_terminated():
                    raise
                stopped = JobCancelled("stopped")
                stopped.exit_code = STATUS_TERMINATED
                raise stopped from None
        told = "" if plot is None else drawn(plot, outcome.plans)
        if output is Format.json:
            print_json(outcome.document())
            return
        with screen_for(silent=False) as screen:
            print_outcome(screen, outcome)
            if told:
                screen.say(told)


def drawn(plot: Path, plans: Plans | None) -> str:
    """Draw both plans, where they can be compared; answers what to say of it."""
    from penstock.observe.placement_picture import draw_placements

    if plans is None:
        return f"no picture in {plot}: the job has recovered on other workers, where its first plan has no place"
    draw_placements(plans.graph, plans.cluster, [plans.before, plans.after], plot, plans.profile)
    return f"picture: {plot}"


def print_outcome(screen: Screen, outcome: Outcome) -> None:
    """Both plans side by side, and what the answer was compared with."""
    before, after = outcome.before, outcome.after
    moved, all_tasks = before.moved_to(after), len(before.assignment)
    screen.say("")
    screen.say(graph_table(outcome.operators, list(before.traffic), before, after))
    screen.say("")
    screen.say(figures_table(before, after, outcome.foretold))
    screen.say("")
    screen.say(
        f"{len(moved)} of {all_tasks} tasks moved while the job ran, {outcome.moved_after_s:.1f} s after its start."
    )
    for note in outcome.notes:
        screen.say(f"note: {note}")
    screen.say(
        f"The answer, {outcome.rows:,} rows from {outcome.trips:,} trips, is the one that Spark SQL has of the same "
        "trips: nothing was lost, and nothing came twice."
    )
