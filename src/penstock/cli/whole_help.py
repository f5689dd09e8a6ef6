"""The list of a group's verbs with what each does, whole: Click cuts what does not fit its line, in mid-sentence."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

CHARACTERS_MAX = 1000


class WholeHelp(TyperGroup):
    """A group whose list says the first sentence of each verb, on as many lines as it takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - Typer's own copies of Click's types
        """Write the list."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, verb.get_short_help_str(CHARACTERS_MAX)) for name, verb in found if verb and not verb.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
