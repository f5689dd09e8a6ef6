"""`penstock bench fuse`: fusion's cuts and plans, their speed, and how far they are from exact ones."""

from __future__ import annotations

from penstock.bench import fuse_plans, ratio_cuts
from penstock.bench.fuse_plans import Progress, Row


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` shrinks the whole to a few minutes."""
    return ratio_cuts.main(quick, progress) | fuse_plans.sections(quick, progress)
