"""`penstock bench fuse`: minimum-ratio cuts, fusion's plans, their speed and their distance to the exact model."""

from __future__ import annotations

from penstock.bench import fuse_plans, ratio_cuts
from penstock.bench.fuse_plans import Progress, Row


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` shrinks the whole to a few minutes."""
    return {**ratio_cuts.sections(quick, progress), **fuse_plans.sections(quick, progress)}
