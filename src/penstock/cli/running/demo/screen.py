"""How the demonstration is shown: a table that is drawn anew on a terminal, lines elsewhere, nothing for programs.

All of them print the same lines; a terminal has the moment beneath them in addition. Nothing but plain characters goes
to what is no terminal (`test_what_is_no_terminal_gets_lines_without_control_codes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live

from penstock.cli.show import console

FRAMES_PER_SECOND = 4


class Screen(Protocol):
    """Where the demonstration goes."""

    def say(self, line: RenderableType) -> None:
        """Print something that stays."""

    def show(self, *parts: RenderableType) -> None:
        """Show the present moment, in place of the one before."""


class Lines:
    """What stays, and no moments."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen

    def say(self, line: RenderableType) -> None:
        """Print it."""
        self._screen.print(line)
        self._screen.file.flush()

    def show(self, *parts: RenderableType) -> None:
        """A moment is not for lines."""


class Silence:
    """For programs, which get one document at the end."""

    def say(self, line: RenderableType) -> None:
        """Nothing."""

    def show(self, *parts: RenderableType) -> None:
        """Nothing."""


class Terminal:
    """Lines, and the present moment beneath them."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def say(self, line: RenderableType) -> None:
        """Print it above the moment."""
        self._live.console.print(line)

    def show(self, *parts: RenderableType) -> None:
        """Draw the moment anew."""
        self._live.update(Group("", *parts))


@contextmanager
def screen_for(*, silent: bool) -> Iterator[Screen]:
    """The one that stdout can show."""
    printed = console()
    if silent:
        yield Silence()
    elif not printed.is_terminal or printed.is_dumb_terminal:
        yield Lines(printed)
    else:
        # A table that does not fit is cut; what stays at the end is printed as lines.
        with Live(console=printed, refresh_per_second=FRAMES_PER_SECOND, transient=True) as live:
            yield Terminal(live)
