"""`penstock checkpoint`: what a job keeps to go on: its epochs and savepoints, what is in them, whether they are sound.

All but `save` read alone, so they can be asked while the job runs. What they tell is read by the product's own store;
this module counts and prints. A folder without checkpoints is a mistake (exit 2), a file that is damaged is not (1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, counted, number, print_json, rows_table
from penstock.cli.whole_help import WholeHelp
from penstock.errors import CheckpointDamaged, InvalidInput

if TYPE_CHECKING:
    from penstock.checkpoint.inspection import Content, Kept, Report

TASKS_SHOWN = 30  # positions of sources; --format json has them all
FILES_SHOWN = 20
Folder = Annotated[str, typer.Argument(metavar="DIR", help="What `penstock run --checkpoint` was given.")]


def register(app: typer.Typer) -> None:
    """Add the verb with its four parts."""
    verb = typer.Typer(cls=WholeHelp, help="List, show, verify and keep what a job saves to go on.")
    app.add_typer(verb, name="checkpoint")

    @verb.callback(invoke_without_command=True)
    def _required(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            msg = "checkpoint is given nothing to do; write checkpoint list DIR, or show, verify or save"
            raise InvalidInput(msg)

    @verb.command(name="list")
    def listed(folder: Folder, output: FormatOption = Format.table) -> None:
        """List the epochs and savepoints of a job."""
        from penstock.checkpoint.inspection import list_kept, opened, whose

        store = opened(folder)
        found, topology = list_kept(store), whose(store)
        if output is Format.json:
            epochs = [_row(kept) for kept in found if kept.name is None]
            savepoints = [_row(kept) for kept in found if kept.name is not None]
            print_json({"penstock": 1, "topology": topology, "epochs": epochs, "savepoints": savepoints})
            return
        console().print(rows_table(("epoch", "written", "attempt", "workers", "tasks", "bytes", "note"), _cells(found)))
        console().print(f"{topology}: {_sentence(found)}")

    @verb.command()
    def show(
        folder: Folder,
        which: Annotated[
            str | None,
            typer.Argument(metavar="EPOCH|NAME", help="An epoch's number or a savepoint's name; default: the last."),
        ] = None,
        output: FormatOption = Format.table,
    ) -> None:
        """Show what an epoch or savepoint holds: states, positions of sources, rows of sinks."""
        from penstock.checkpoint.inspection import content_of, find, opened, whose

        store = opened(folder)
        found = content_of(store, find(store, which))
        if output is Format.json:
            print_json({"penstock": 1, "topology": whose(store), **_document(found)})
            return
        _print(found)

    @verb.command()
    def verify(folder: Folder, output: FormatOption = Format.table) -> None:
        """Read everything that is kept, name what is damaged, and say which epoch would be used."""
        from penstock.checkpoint.inspection import opened, verified, whose

        store = opened(folder)
        found = verified(store)
        if output is Format.json:
            print_json({"penstock": 1, "topology": whose(store), **found.document()})
        else:
            _print_report(found)
        if found.damaged:
            which, fault = found.damaged[0]
            others = len(found.damaged) - 1
            what = f"{which} and {others} more are" if others else f"{which} is damaged"
            raise CheckpointDamaged(store.shown, f"{what}: {fault}", _advice(found))

    @verb.command()
    def save(
        folder: Folder,
        name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, '.', '_', '-'; not digits alone.")],
        output: FormatOption = Format.table,
    ) -> None:
        """Keep the last epoch under a name, for `penstock run --checkpoint DIR --from NAME`."""
        from penstock.checkpoint.inspection import opened, save_last, whose

        store = opened(folder)
        epoch = save_last(store, name)
        if output is Format.json:
            print_json({"penstock": 1, "topology": whose(store), "name": name, "epoch": epoch})
            return
        typer.echo(f"epoch {epoch} is kept as {name!r} until its folder {store.shown}/savepoints/{name} is removed")


# -- for programs ----------------------------------------------------------------------------------------------------


def _row(kept: Kept) -> dict[str, object]:
    found = kept.manifest
    if found is None:
        return {"name": kept.name, "epoch": kept.epoch, "fault": kept.fault}
    return {
        "name": kept.name,
        "epoch": found.epoch,
        "written": kept.written,
        "attempt": found.attempt,
        "workers": len(found.parts),
        "tasks": sum(found.tasks.values()),
        "bytes": kept.size,
        "over": found.is_last,
        "fault": None,
    }


def _document(found: Content) -> dict[str, object]:
    return {
        **_row(found.kept),
        "operators": [
            {
                "name": each.name,
                "tasks": each.tasks,
                "finished": each.finished,
                "state_bytes": each.size,
                "event_time": each.event_time,
                "positions": each.positions,
            }
            for each in found.operators
        ],
        "staged": [
            {"sink": each.sink, "path": each.path, "rows": each.rows, "bytes": each.size} for each in found.staged
        ],
    }


# -- for people ------------------------------------------------------------------------------------------------------


def _cells(found: list[Kept]) -> list[tuple[str, ...]]:
    cells: list[tuple[str, ...]] = []
    for kept in found:
        manifest = kept.manifest
        title = str(kept.epoch) if kept.name is None else kept.name
        if manifest is None:
            cells.append((title, "-", "-", "-", "-", "-", f"damaged: {kept.fault}"))
            continue
        notes = [f"savepoint of epoch {manifest.epoch}"] if kept.name is not None else []
        notes += ["the job is over"] if manifest.is_last else []
        figures = (manifest.attempt, len(manifest.parts), sum(manifest.tasks.values()), kept.size)
        cells.append((title, kept.written, *map(number, figures), ", ".join(notes)))
    return cells


def _sentence(found: list[Kept]) -> str:
    epochs = [kept for kept in found if kept.name is None]
    names = [kept for kept in found if kept.name is not None]
    text = f"{counted(len(epochs), 'epoch')} and {counted(len(names), 'savepoint')}"
    if any(kept.manifest is not None and kept.manifest.is_last for kept in epochs):
        return f"{text}; the job is over, and running it again shows its answer"
    return f"{text}; running the job again goes on from the last sound epoch" if epochs else f"{text} yet"


def _print(found: Content) -> None:
    screen = console()
    cells = [
        (each.name, *map(number, (each.tasks, each.finished, each.size)), each.event_time or "-")
        for each in found.operators
    ]
    screen.print(rows_table(("operator", "tasks", "finished", "state bytes", "event time"), cells))
    positions = [(task, where) for each in found.operators for task, where in each.positions.items()]
    if positions:
        screen.print("\nwhere sources go on")
        screen.print(rows_table(("source", "note"), positions[:TASKS_SHOWN]))
        _more(len(positions) - TASKS_SHOWN, "source")
    if found.staged:
        files = [(each.sink, number(each.rows), number(each.size), each.path) for each in found.staged[:FILES_SHOWN]]
        screen.print("\nrows that this epoch has sinks show, where they were written first")
        screen.print(rows_table(("sink", "rows", "bytes", "note"), files))
        _more(len(found.staged) - FILES_SHOWN, "file")
    manifest = found.kept.manifest
    if manifest is not None:
        over = "; the job is over" if manifest.is_last else ""
        screen.print(
            f"\n{found.kept}, written {found.kept.written} by attempt {manifest.attempt} on "
            f"{counted(len(manifest.parts), 'worker')}: {number(found.kept.size)} bytes{over}"
        )


def _more(count: int, what: str) -> None:
    if count > 0:
        console().print(f"and {counted(count, f'more {what}')}; --format json has them all")


def _print_report(found: Report) -> None:
    cells = [(str(kept), "sound" if not faults else "; ".join(faults)) for kept, faults in found.kept]
    cells += [("rows", fault) for fault in found.rows]
    cells += [("beside", fault) for fault in found.words]
    cells += [] if found.job is None else [("job.json", found.job)]
    console().print(rows_table(("kept", "note"), cells))
    console().print(_advice(found))


def _advice(found: Report) -> str:
    if found.used is not None and found.stopped:
        return f"the job would not start from epoch {found.used}: {found.stopped}"
    if found.used is not None:
        once = ", once job.json is put back from a copy of the folder" if found.job is not None else ""
        if not found.rows:
            next_step = "the job is over, and running it again shows its answer"
            return f"{next_step if found.is_over else f'the job would go on from epoch {found.used}'}{once}"
        if found.is_over:
            return (
                f"the job is over; put what is named of its rows back from a copy before you ask for its answer{once}"
            )
        return (
            f"the job would go on from epoch {found.used}{once}, and end where it meets a damaged file of rows: put "
            "that back from a copy"
        )
    if found.kept:
        return "no epoch is sound, so the job would not start"
    return "the job would begin anew" if found.job is None else "put it back from a copy: the job would not start"
