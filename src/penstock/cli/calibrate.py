"""`penstock calibrate`: what a stream costs on this machine as a call, through a ring and through a socket."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Format, FormatOption, require_document
from penstock.cli.show import console, print_json, progress_bar, rows_table
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.run.calibration.measure import Calibration


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def calibrate(
        out: Annotated[
            Path | None,
            typer.Option("-o", "--out", help="Write the costs to this file as well."),
        ] = None,
        forget: Annotated[
            bool,
            typer.Option("--forget", help="Measure nothing; delete what was kept, so that default costs apply again."),
        ] = False,
        output: FormatOption = Format.table,
    ) -> None:
        """Measure what streams cost in CPU on this machine, and plan with that here from now on.

        The costs are kept in the user's cache directory: costs-MACHINE.json in ~/.cache/penstock, or in
        $XDG_CACHE_HOME/penstock. To undo it, give --forget or delete the file.
        """
        from penstock.model.files import costs_document, write_costs
        from penstock.optimise.calibrated_costs import forget_costs, keep_costs
        from penstock.run.calibration.measure import measure_costs

        if forget:
            require_nothing_to_write(out)
            gone = forget_costs()
            told = "no costs were kept for this machine" if gone is None else f"deleted {gone}"
            if output is Format.json:
                print_json({"penstock": 1, "deleted": None if gone is None else str(gone)})
            else:
                console().print(f"{told}; default costs apply")
            return
        require_document(out)
        with progress_bar("calibrating") as show:
            found = measure_costs(show)
        if out is not None:
            write_costs(found.costs, out)
        where = [] if out is None else [str(out)]
        with contextlib.suppress(*([] if out is None else [InvalidInput])):  # who names a file may have no other
            where.append(str(keep_costs(found.costs)))
        if output is Format.json:
            print_json({"penstock": 1, **costs_document(found.costs)})
            return
        screen = console()
        screen.print(rows_table(("batch", *HEADINGS), measured_rows(found), MEASURED))
        screen.print()
        screen.print(rows_table(("", *HEADINGS), fitted_rows(found), "fitted"))
        for note in found.notes:
            screen.print(f"note: {note}")
        screen.print(f"costs: {', '.join(where)}")


def require_nothing_to_write(out: Path | None) -> None:
    """Refuse a file for costs where none are measured."""
    if out is not None:
        msg = f"--forget measures nothing that {out} could hold; leave out --out, or --forget"
        raise InvalidInput(msg)


MEASURED = "CPU of one batch in microseconds, measured"
HEADINGS = ("call", "ring: send", "receive", "socket: send", "receive")
PARTS = (("us for a batch", "batch_us"), ("ns for a row", "tuple_ns"), ("ns for a byte", "byte_ns"))


def measured_rows(found: Calibration) -> list[Sequence[str]]:
    """Each case with the median of its repeats; of a call, both ends together, where it was measured."""
    rows: list[Sequence[str]] = []
    for case in found.send["socket"]:
        call = found.send["call"].get(case)
        cells = [f"{case.size:,} B, {case.rows:,} rows", "-" if call is None else _microseconds(call, 2.0)]
        for distance in ("ring", "socket"):
            cells += [_microseconds(samples[distance][case]) for samples in (found.send, found.receive)]
        rows.append(cells)
    return rows


def fitted_rows(found: Calibration) -> list[Sequence[str]]:
    """The three parts of each cost."""
    costs = found.costs
    ends = (costs.ring.send, costs.ring.receive, costs.socket.send, costs.socket.receive)
    rows: list[Sequence[str]] = []
    for title, part in PARTS:
        call = getattr(costs.call.send, part) + getattr(costs.call.receive, part)
        rows.append((title, f"{call:.3g}", *(f"{getattr(end, part):.3g}" for end in ends)))
    return rows


def _microseconds(repeats: Sequence[float], ends: float = 1.0) -> str:
    return f"{max(0.0, ends * statistics.median(repeats) * 1e6):.1f}"
