"""A parallel region over time, from the metric log of a job: like figures 8 and 12 of the balancing paper.

It shows every replica's weight, and the share of time that the splitter waited for it. Up to `PANELS_MAX` replicas have
a panel each, with the weight on the left and the blocking rate on the right. More replicas share two maps, replicas
down and time across, in which classes of replicas show as bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput
from penstock.observe import looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
WEIGHT, BLOCKING = "#0072B2", "#D55E00"
PANELS_MAX = 16
COLUMNS = 4


@dataclass(frozen=True, slots=True)
class RegionHistory:
    """One region's decisions: times, and a row of weights and rates for each."""

    region: str
    time_s: Floats
    weights: Floats  # per cent, [time, replica]
    rates: Floats  # share of the time, [time, replica]


def region_histories(rows: Sequence[dict[str, object]]) -> list[RegionHistory]:
    """Rows of the log's `balance` table, by region."""
    if not rows:
        msg = "the metric log has no decisions of a parallel region; log a topology that has stream.parallel(n)"
        raise InvalidInput(msg)
    found = []
    for region in dict.fromkeys(str(row["region"]) for row in rows):
        mine = [row for row in rows if row["region"] == region]
        times = sorted({int(str(row["time_us"])) for row in mine})
        replicas = sorted({int(str(row["replica"])) for row in mine})
        weights = np.full((len(times), len(replicas)), np.nan)
        rates = np.full_like(weights, np.nan)
        at = {time: i for i, time in enumerate(times)}
        place = {replica: i for i, replica in enumerate(replicas)}
        for row in mine:
            cell = at[int(str(row["time_us"]))], place[int(str(row["replica"]))]
            weights[cell] = float(str(row["weight"])) / 10
            rates[cell] = float(str(row["rate"]))
        found.append(RegionHistory(region, (np.array(times) - times[0]) / 1e6, weights, rates))
    return found


def draw_region(history: RegionHistory, path: Path) -> Path:
    """One picture of one region."""
    replicas = history.weights.shape[1]
    return _maps(history, path) if replicas > PANELS_MAX else _panels(history, path, replicas)


def _title(history: RegionHistory) -> str:
    return f"Parallel region {history.region!r}: weights, and how long the splitter waited for each replica"


def _panels(history: RegionHistory, path: Path, replicas: int) -> Path:
    columns = min(COLUMNS, replicas)
    rows = -(-replicas // columns)
    wide, high = columns * 3.4 + 1.2, rows * 2.2 + 1.1
    figure = looks.new_figure(wide, high)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    figure.subplots_adjust(
        left=0.6 / wide, right=1 - 0.6 / wide, top=1 - 0.8 / high, bottom=0.45 / high, wspace=0.28, hspace=0.35
    )
    top = max(5.0, 1.08 * float(np.nanmax(history.weights)))
    for replica, axes in enumerate(grid.flat):
        if replica >= replicas:
            axes.set_visible(False)
            continue
        _panel(axes, history, replica, top, last=replica % columns == columns - 1 or replica == replicas - 1)
        if replica % columns == 0:
            axes.set_ylabel("weight, per cent", fontsize=8, color=WEIGHT)
        if replica + columns >= replicas:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("seconds", fontsize=8)
    figure.text(0.2 / wide, 1 - 0.25 / high, _title(history), fontsize=12, weight="bold", va="center")
    return looks.save_figure(figure, path)


def _panel(axes: Axes, history: RegionHistory, replica: int, top: float, *, last: bool) -> None:
    right = axes.twinx()
    right.fill_between(
        history.time_s, history.rates[:, replica], step="pre", color=BLOCKING, alpha=0.35, linewidth=0, zorder=1
    )
    right.set_ylim(0, 1.08)
    right.tick_params(labelsize=7, length=2, colors=BLOCKING, labelright=last)
    if last:
        right.set_ylabel("blocking rate", fontsize=8, color=BLOCKING)
    axes.plot(history.time_s, history.weights[:, replica], color=WEIGHT, linewidth=1.4, drawstyle="steps-post")
    axes.set_ylim(0, top)
    axes.set_zorder(right.get_zorder() + 1)  # the line before the area
    axes.patch.set_visible(False)
    axes.axhline(100 / history.weights.shape[1], color=looks.FAINT, linestyle=":", linewidth=0.8)
    axes.tick_params(labelsize=7, length=2)
    axes.set_title(f"replica {replica}", fontsize=9, loc="left")


def _maps(history: RegionHistory, path: Path) -> Path:
    wide, high = 11.0, 5.2
    figure = looks.new_figure(wide, high)
    grid = figure.subplots(1, 2, squeeze=False)
    figure.subplots_adjust(left=0.06, right=0.98, top=1 - 0.9 / high, bottom=0.5 / high, wspace=0.12)
    extent = (0.0, float(history.time_s[-1]) or 1.0, history.weights.shape[1] - 0.5, -0.5)
    for axes, values, what, colours in (
        (grid[0][0], history.weights, "weight, per cent", "Blues"),
        (grid[0][1], history.rates, "blocking rate", "Oranges"),
    ):
        image = axes.imshow(values.T, aspect="auto", cmap=colours, interpolation="nearest", extent=extent, vmin=0)
        figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02).ax.tick_params(labelsize=7)
        axes.set_title(what, fontsize=9, loc="left")
        axes.set_xlabel("seconds", fontsize=8)
        axes.set_ylabel("replica", fontsize=8)
        axes.tick_params(labelsize=7, length=2)
    figure.text(0.2 / wide, 1 - 0.25 / high, _title(history), fontsize=12, weight="bold", va="center")
    return looks.save_figure(figure, path)
