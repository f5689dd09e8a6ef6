"""`penstock bench fuse`: minimum-ratio cuts, fusion's plans, their speed and their distance to the exact model."""

from __future__ import annotations

from penstock_lab.bench.contract import Bench, Progress, Row
from penstock_lab.bench.fuse import plans as fuse_plans
from penstock_lab.bench.fuse import ratio_cuts


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` shrinks the whole to a few minutes."""
    return {**ratio_cuts.sections(quick, progress), **fuse_plans.sections(quick, progress)}


BENCH = Bench(
    "minimum-ratio cuts and fusion",
    main,
    {
        "ratio_cuts": "minimum-ratio cuts over the exact sparsest cut, on random VWAP-shaped (synthetic) graphs",
        "large_cuts": "minimum-ratio cuts at scale",
        "fuse_speed": "fusion: seconds and total cut",
        "fuse_random": "fusion on random VWAP-shaped (synthetic) instances: total cut",
        "fuse_exact": "fusion against the exact model on small constrained cases",
        "fuse_clash": "seconds until clashing constraints are named",
    },
)
