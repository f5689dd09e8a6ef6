"""`penstock torture`: real jobs broken on purpose, and RELIABILITY.md written of what came of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, print_json, progress_bar, rows_table
from penstock.errors import InvalidInput

OUT = Path("out/torture")


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def torture(
        only: Annotated[str | None, typer.Option(help="Only these lines, such as killed-steady,disk-full.")] = None,
        quick: Annotated[bool, typer.Option("--quick", help="One trial of each line: some minutes.")] = False,
        seed: Annotated[int | None, typer.Option(help="One trial again, of the line that --only names.")] = None,
        trials: Annotated[int | None, typer.Option(help="At most so many trials of each line.")] = None,
        minutes: Annotated[
            float, typer.Option(help="How long the soak takes; all is over within 60 minutes more, or 90 in all.")
        ] = 30.0,
        out: Annotated[
            Path, typer.Option(help="Folder for the rows, where a run that was interrupted goes on.")
        ] = Path("out/torture"),
        page: Annotated[Path | None, typer.Option(help="The page to write, such as RELIABILITY.md.")] = None,
        listing: Annotated[bool, typer.Option("--list", help="List the lines and do nothing.")] = False,
        output: FormatOption = Format.table,
    ) -> int:
        """Break real jobs on purpose and count what is lost, repeated and out of order."""
        from penstock_lab.torture.contract import BROKEN
        from penstock_lab.torture.lines import LINES, lacking
        from penstock_lab.torture.runner import ROOT, Ledger, Scope, require_known, require_page, run, version_of

        lines = require_known([name.strip() for name in (only or "").split(",") if name.strip()], LINES)
        if listing:
            told = [(line.name, str(line.trials), line.about, lacking(line)) for line in LINES]
            if output is Format.json:
                print_json(
                    {"rows": [dict(zip(("line", "trials", "about", "lacks"), row, strict=True)) for row in told]}
                )
            else:
                console().print(rows_table(("line", "trials", "summary", "note"), told))
            return 0
        if (trials is not None and trials < 1) or not 0 < minutes <= 24 * 60:
            msg = f"--trials is {trials} and --minutes {minutes:g}; give 1 or more trials, and up to 1440 minutes"
            raise InvalidInput(msg)
        if seed is not None and (seed < 0 or len(lines) != 1):
            msg = f"--seed {seed} needs one line, named by --only, and must not be below 0"
            raise InvalidInput(msg)
        scope = Scope(lines, trials, quick, minutes, seed)
        version = version_of(ROOT)
        if page is not None:
            require_page(page, version)
        ledger = Ledger(out, version)
        left = sum(len(ledger.lacks(line, scope)) for line in lines if not lacking(line))
        say = partial(typer.echo, err=True)
        say(f"torture: {left} trials, at most {scope.limit_minutes:g} minutes; rows are kept in {out}")
        for line in lines:
            if why := lacking(line):
                say(f"not tried: {line.name}: {why}")
        with progress_bar("torture") as show:
            is_whole = run(scope, ledger, show)
        if not is_whole:
            say(f"torture: not all trials were made in {scope.limit_minutes:g} minutes; the same command goes on")
        if page is not None:
            page.write_text(ledger.page(LINES))
        rows = ledger.of(scope)
        if output is Format.json:
            print_json({"rows": [row.document() for row in rows]})
        else:
            table = [(row.line, str(row.seed), row.verdict, row.error[:200]) for row in rows]
            console().print(rows_table(("line", "seed", "verdict", "note"), table))
        for name, count in (short := ledger.short(scope)).items():
            say(f"torture: {name}: {count}")
        return 1 if short or any(row.verdict == BROKEN for row in rows) else 0
