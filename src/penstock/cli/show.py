"""What the verbs print: JSON for programs, tables that fit a terminal for people, progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.model.plan import Plan

PER_CENT = 100  # of the cost that the bound has reached
SAME = 1e-9  # relative: a cost this near its bound equals it
SHOWN_LEAST = 1e-3  # of a share of the optimum, with one decimal of a per cent
TEXT_COLUMNS = {"note", "verdict", "instance", "summary", "looks at", "package"}


class ShowProgress(Protocol):
    """How long work tells how far it is: how much of how much is done, and what is next."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Draw the bar anew."""


def print_json(document: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def console() -> Console:
    """Stdout, as wide as the terminal and wide enough for our tables when it is none; names are not read as markup."""
    width = Console().width
    wide = None if sys.stdout.isatty() else max(width, 110)
    return Console(highlight=False, markup=False, emoji=False, width=wide)


def number(value: float) -> str:
    """A figure that people can compare down a column: whole from a thousand on, else four significant digits."""
    if abs(value) >= 1e15:
        return f"{value:.3e}"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def counted(count: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def plan_table(plan: Plan, tasks_shown_max: int = 12, workers_shown_max: int = 200) -> Table:
    """A plan, one row per worker that is in use, as far as people read."""
    table = Table(title=None, box=None, pad_edge=False)
    for heading in ("node", "worker", "tasks", ""):
        table.add_column(heading, overflow="fold", justify="right" if heading in {"worker", "tasks"} else "left")
    by_slot: dict[tuple[str, int], list[str]] = {}
    for task, slot in plan.assignment.items():
        by_slot.setdefault((slot.node, slot.worker), []).append(task)
    rows = sorted(by_slot.items(), key=lambda item: (len(item[0][0]), item[0]))
    for (node, worker), tasks in rows[:workers_shown_max]:
        hidden = len(tasks) - tasks_shown_max
        shown = " ".join(tasks[:tasks_shown_max]) + (f" and {hidden} more" if hidden > 0 else "")
        table.add_row(node, str(worker), str(len(tasks)), shown)
    if len(rows) > workers_shown_max:
        table.add_row("...", "", "", f"and {len(rows) - workers_shown_max} more workers; --format json has them all")
    return table


def above_optimum(plan: Plan) -> str:
    """How far the plan can be from the optimum, seen from the optimum."""
    above = plan.cost / plan.lower_bound - 1
    if above <= SAME:
        return "cost equals its bound"
    if above < SHOWN_LEAST:
        return f"less than {SHOWN_LEAST:.1%} above the optimum"
    return f"at most {above:.1%} above the optimum"


def plan_summary(plan: Plan) -> str:
    """The plan's figures in one line."""
    if plan.proved_optimal:
        quality = "proved optimal"
    elif plan.lower_bound > 0:
        quality = f"{above_optimum(plan)} (bound {number(plan.lower_bound)})"
    else:
        quality = "no bound known"
    return (
        f"{plan.scheduler}: cost {number(plan.cost)} between nodes, {number(plan.inter_worker_cost)} between workers, "
        f"{plan.nodes_used} nodes used, fullest at {plan.max_utilisation:.0%}, {quality}, {plan.seconds:.3f} s"
    )


def show_plan(
    plan: Plan, *, as_json: bool, out: Path | None, picture: Path | None = None, part: Path | None = None
) -> None:
    """Write the plan to `out`, where that is asked for, and print it with what there is to say about it."""
    from penstock.model.files import plan_document, write_plan

    if out is not None:
        write_plan(plan, out)
    if as_json:
        print_json(plan_document(plan))
        return
    screen = console()
    screen.print(plan_table(plan))
    screen.print(plan_summary(plan))
    for note in (*plan.notes, *(f"not deployable: {fault}" for fault in plan.faults)):
        screen.print(f"note: {note}")
    for what, path in (("plan", out), ("plan", part), ("picture", picture)):
        if path is not None:
            screen.print(f"{what}: {path}")


def rows_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """A plain table whose first column is text and whose others are figures, except a last one named note."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for position, heading in enumerate(headings):
        is_text = position == 0 or heading in TEXT_COLUMNS
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def progress_bar(title: str) -> Iterator[ShowProgress]:
    """A progress bar on stderr while the block runs; silent where stderr is no terminal."""
    stderr = Console(stderr=True)
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield show


def telling(show: ShowProgress) -> Callable[[float, float], None]:
    """What a scheduler that searches tells, as a bar that is full when the bound has met the cost."""

    def told(cost: float, bound: float) -> None:
        met = PER_CENT if cost <= 0 else min(PER_CENT, int(PER_CENT * bound / cost))
        show(met, PER_CENT, f"cost {number(cost)}, {f'at least {number(bound)}' if bound > 0 else 'no bound yet'}")

    return told
