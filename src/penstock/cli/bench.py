"""`penstock bench`: measured figures with peers in the same run."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the verb."""
