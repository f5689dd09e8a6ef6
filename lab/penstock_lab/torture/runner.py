"""Runs trials in processes of their own and keeps a row of each, so that what was interrupted can be taken up again.

Rows are lines of JSON in one file. A trial whose row is there, of the same version of the code, is not run again; one
that was void is replaced by the next seed. A process that is silent for longer than its line allows is ended with
everything below it, its trial is broken, and the next trial gets another process. At the limit of the whole run the
trials under way are given up, and what has a row keeps it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.errors import InvalidInput
from penstock_lab.bench.machine import machine_line
from penstock_lab.bench.process_tree import below, parents_of
from penstock_lab.torture.contract import BROKEN, HELD, VOID, Line, Row
from penstock_lab.torture.lines import lacking
from penstock_lab.torture.page import Run, page

ROOT = Path(__file__).parents[3]  # of the repository, where there is one
ROWS_FILE = "torture.jsonl"
START_SECONDS = 90.0  # of a process, until its session is there
LINE_BYTES_MAX = 1 << 20
ERRORS_KEPT = 4_000  # characters of what a process said before it ended
END_SECONDS = 10.0
PARTS = ("src", "core", "lab/penstock_lab")  # of the repository: what is tried, and what tries it
UNKNOWN, CHANGED = "unknown", "-changed"
SEEDS_MAX = 2  # times as many as there are to be trials: seeds that were void are replaced
START_MINUTE_S = 60.0  # of a soak: its session, and the search for the maximum
LIMIT_MINUTES = 90.0  # of everything with the usual soak
SOAK_MINUTES = 30.0

Told = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Scope:
    """What is to be run."""

    lines: tuple[Line, ...]
    trials: int | None = None  # of each line; None: as the line says
    is_quick: bool = False
    minutes: float = SOAK_MINUTES  # of the soak in the full form
    seed: int | None = None  # one trial alone, again

    def promised(self, line: Line) -> int:
        """How many trials of a line are to be held."""
        if self.seed is not None:
            return 1
        usual = line.quick if self.is_quick else line.trials
        return usual if self.trials is None else min(usual, self.trials)

    def seeds(self, line: Line) -> range:
        """The seeds that a line may use: more than it needs, as trials may be void."""
        if self.seed is not None:
            return range(self.seed, self.seed + 1)
        return range(1, 1 + SEEDS_MAX * self.promised(line))

    @property
    def limit_minutes(self) -> float:
        """After how long the whole run stops."""
        return LIMIT_MINUTES + max(0.0, self.minutes - SOAK_MINUTES)

    def minutes_of(self, line: Line) -> float:
        """How long the line's trial is told to take; 0: the short form."""
        return 0.0 if self.is_quick else self.minutes if line.name == "soak" else 1.0

    def needs_s(self, line: Line) -> float:
        """What one trial of a line takes at least, where it is told how long to take."""
        return START_MINUTE_S + 60 * self.minutes if line.name == "soak" and not self.is_quick else 0.0

    def limit_s(self, line: Line) -> float:
        """After how long without a row a process is ended."""
        return line.limit_s + (60 * self.minutes if line.name == "soak" and not self.is_quick else 0.0)


class Ledger:
    """The file of rows."""

    def __init__(self, folder: Path, version: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file, self.version = folder / ROWS_FILE, version
        self.rows = list(read_rows(self._file))

    def lacks(self, line: Line, scope: Scope) -> list[int]:
        """The next seeds that have no row of this version, one for each trial that is still to be made.

        A void trial counts for none. A seed that was asked for by itself is run again.
        """
        if scope.seed is not None:
            return [scope.seed]
        known = {row.seed: row.verdict for row in self._of(line, scope)}
        left = scope.promised(line) - sum(verdict != VOID for verdict in known.values())
        return [seed for seed in scope.seeds(line) if seed not in known][: max(0, left)]

    def _of(self, line: Line, scope: Scope) -> list[Row]:
        """The rows of a line's trials, the last one of each seed."""
        mine = (row for row in self.rows if row.line == line.name and row.version == self.version)
        return list({row.seed: row for row in mine if row.seed in scope.seeds(line)}.values())

    def of(self, scope: Scope) -> list[Row]:
        """The rows of these trials, the last one of each seed."""
        return [row for line in scope.lines for row in self._of(line, scope)]

    def short(self, scope: Scope) -> dict[str, str]:
        """Lines of which fewer trials were held than promised, and how many; those that lack something are left out."""
        found = {}
        for line in scope.lines:
            held = sum(row.verdict == HELD for row in self._of(line, scope))
            if held < scope.promised(line) and not lacking(line):
                found[line.name] = f"{held} of {scope.promised(line)} trials held"
        return found

    def page(self, lines: Sequence[Line]) -> str:
        """RELIABILITY.md."""
        day = datetime.now(UTC).date().isoformat()
        lacks = {line.name: why for line in lines if (why := lacking(line))}
        load = f"{os.getloadavg()[2]:.1f} processes ran or waited in the last quarter of an hour"
        return page(Run(machine_line(), commit_of(ROOT), self.version, day, load, self.rows), lines, lacks)

    def add(self, row: Row) -> None:
        """Keep a row."""
        row.version = self.version
        self.rows.append(row)
        with self._file.open("a") as file:
            file.write(json.dumps(row.document()) + "\n")


def read_rows(file: Path) -> Iterator[Row]:
    """The rows that were kept; one that was cut off is passed over."""
    with contextlib.suppress(FileNotFoundError):
        for text in file.read_text().splitlines():
            with contextlib.suppress(ValueError):
                document = json.loads(text)
                if isinstance(document, dict):
                    yield Row.read(document)


def run(scope: Scope, ledger: Ledger, told: Told) -> bool:
    """Run what is lacking; False where the limit of the whole run was met before."""
    lines = [line for line in scope.lines if not lacking(line)]
    total, done = sum(len(ledger.lacks(line, scope)) for line in lines), 0
    ends = time.monotonic() + 60 * scope.limit_minutes
    with tempfile.TemporaryDirectory(prefix="penstock-torture-") as folder:
        for at, line in enumerate(lines):
            latest = ends - sum(scope.needs_s(later) for later in lines[at + 1 :] if ledger.lacks(later, scope))
            while seeds := ledger.lacks(line, scope):
                if time.monotonic() + scope.needs_s(line) > latest:
                    break
                for row in played(scope, line, seeds, Path(folder), latest):
                    ledger.add(row)
                    done += 1
                    total += row.verdict == VOID
                    told(done, max(done, total), f"{line.name} {row.seed}: {row.verdict} {row.error[:80]}")
                if scope.seed is not None:
                    return True
    return not any(ledger.lacks(line, scope) for line in lines)


def played(scope: Scope, line: Line, seeds: Sequence[int], folder: Path, latest: float = float("inf")) -> Iterator[Row]:
    """The rows of these trials, from as many processes side by side as the line says; none behind `latest`."""
    shares = [list(seeds[at :: line.processes]) for at in range(line.processes)]
    players = [Player(scope, line, share, folder / f"{line.name}-{at}") for at, share in enumerate(shares) if share]
    try:
        while players and time.monotonic() < latest:
            ready = select.select([player.rows for player in players], [], [], 1.0)[0]
            for player in list(players):
                yield from player.turn(is_ready=player.rows in ready)
                if player.is_over:
                    players.remove(player)
    finally:
        for player in players:
            player.end()


class Player:
    """One process and the trials that it still has before it."""

    def __init__(self, scope: Scope, line: Line, seeds: list[int], folder: Path) -> None:
        self._scope, self._line, self._left, self._folder = scope, line, seeds, folder
        self.is_over = False
        self._begin()

    def _begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        order = self._folder / "order.json"
        minutes = self._scope.minutes_of(self._line)
        told = {"line": self._line.name, "seeds": self._left, "folder": str(self._folder), "minutes": minutes}
        order.write_text(json.dumps(told))
        self._said = (self._folder / "said").open("w+", errors="replace")
        command = [sys.executable, "-m", "penstock_lab.torture.play", str(order)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._said, bufsize=0)  # noqa: S603
        out = self._process.stdout
        if out is None:
            msg = "a pipe was asked for"
            raise AssertionError(msg)
        self.rows = out
        self._latest = time.monotonic() + START_SECONDS + self._scope.limit_s(self._line)

    def turn(self, *, is_ready: bool) -> Iterator[Row]:
        """A row that has come, or what follows from silence."""
        if is_ready and (text := self.rows.readline(LINE_BYTES_MAX)):
            self._left.pop(0)
            self._latest = time.monotonic() + self._scope.limit_s(self._line)
            yield Row.read(json.loads(text))
        elif is_ready:
            yield from self._ended()
        elif time.monotonic() > self._latest:
            self.end()
            yield from self._lost(f"no end within {self._scope.limit_s(self._line):g} s")

    def _ended(self) -> Iterator[Row]:
        code, words = self._process.wait(), self._last_words()
        self.end()
        if self._left:
            yield from self._lost(f"the process ended with {code}: {words}")
        else:
            self.is_over = True

    def _lost(self, why: str) -> Iterator[Row]:
        """The trial under way is broken; the others go on in another process."""
        yield Row(self._line.name, self._left.pop(0), BROKEN, error=why)
        if self._left:
            self._begin()
        else:
            self.is_over = True

    def _last_words(self) -> str:
        self._said.seek(0)
        return self._said.read()[-ERRORS_KEPT:].strip()

    def end(self) -> None:
        """End the process and everything below it."""
        tree = below(self._process.pid, parents_of()) if self._process.poll() is None else set()
        self._process.kill()
        for pid in tree - {self._process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(END_SECONDS)
        self.rows.close()
        self._said.close()


def version_of(root: Path) -> str:
    """The code that is tried and that tries: its trees as the repository names them, and whether they differ."""
    try:
        trees = [_git(root, "rev-parse", "--short=12", f"HEAD:{part}") for part in PARTS]
        changed = _git(root, "status", "--porcelain", "--", *PARTS)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return "-".join(trees) + (CHANGED if changed else "")


def require_page(page: Path, version: str) -> None:
    """Refuse to write a page of code that no commit has: nobody could tell what was tried."""
    if version == UNKNOWN or version.endswith(CHANGED):
        why = "there is no repository here" if version == UNKNOWN else f"files of {', '.join(PARTS)} are not committed"
        msg = f"{page} would name a commit, and {why}; commit or stash them, or leave --page out"
        raise InvalidInput(msg)


def commit_of(root: Path) -> str:
    """The commit, for people."""
    try:
        return _git(root, "rev-parse", "--short=12", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=END_SECONDS)  # noqa: S603
    return done.stdout.strip()


def require_known(names: Sequence[str], known: Sequence[Line]) -> tuple[Line, ...]:
    """The lines of these names; all of them where none is named."""
    if not names:
        return tuple(known)
    for name in names:
        if name not in {line.name for line in known}:
            raise InvalidInput.unknown_name(kind="line", name=name, known=[line.name for line in known])
    return tuple(line for line in known if line.name in names)
