"""Pictures of simulated regions: weights and blocking over time, sweeps over replicas, cluster heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.observe import looks
from penstock.run.region.contract import UNITS
from penstock_lab.simulate.region import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WEIGHT, BLOCKING = "#0072B2", "#D55E00"
# Colour, mark and dash of each policy, the same in every picture.
STYLES = {
    "oracle": ("#B9C4CE", "", "-", 6.0),
    "adaptive": ("#D55E00", "o", "-", 1.4),
    "static": ("#0072B2", "s", "--", 1.3),
    "knee": ("#222222", "x", ":", 1.3),
    "round-robin": ("#009E73", "^", "-.", 1.3),
}
OTHER_STYLES = (
    ("#B9C4CE", "", "-", 6.0),
    ("#009E73", "^", "-.", 1.3),
    ("#0072B2", "s", "--", 1.3),
    ("#D55E00", "o", "-", 1.4),
    ("#222222", "x", ":", 1.3),
)
OVER_TIME = ("#D55E00", "#0072B2", "#009E73")


@dataclass(frozen=True, slots=True)
class DepthRow:
    """One run: a panel for each connection."""

    label: str
    trace: Trace
    event_s: float | None = None  # drawn as a line: the load's end
    even: float | None = None  # ideal share at the end, in per cent


def draw_depth(rows: Sequence[DepthRow], path: Path, title: str) -> Path:
    """A row of panels per run: weight in per cent on the left, blocking rate on the right."""
    columns = max(row.trace.weights.shape[1] for row in rows)
    figure, grid = _sheet(len(rows), columns, 4.0, 2.35, title)
    for r, row in enumerate(rows):
        for c in range(columns):
            axes = grid[r][c]
            if c >= row.trace.weights.shape[1]:
                axes.set_visible(False)
                continue
            _depth_panel(axes, row, c, last=c + 1 == columns)
            axes.set_title(f"{row.label}: connection {c + 1}", fontsize=9, loc="left")
            if c == 0:
                axes.set_ylabel("weight, per cent", fontsize=8, color=WEIGHT)
            if r + 1 == len(rows):
                axes.set_xlabel("seconds", fontsize=8)
    return looks.save_figure(figure, path)


def _depth_panel(axes: Axes, row: DepthRow, connection: int, *, last: bool) -> None:
    trace = row.trace
    axes.plot(trace.time_s, trace.weights[:, connection] * 100 / UNITS, color=WEIGHT, linewidth=1.1, zorder=3)
    axes.set_ylim(-3, 103)
    right = axes.twinx()
    right.plot(trace.time_s, trace.rates[:, connection], color=BLOCKING, linewidth=0.7, alpha=0.75, zorder=2)
    right.set_ylim(-0.03, 1.03)
    right.tick_params(labelsize=7, length=2, colors=BLOCKING)
    if last:
        right.set_ylabel("blocking rate", fontsize=8, color=BLOCKING)
    else:
        right.set_yticklabels([])
    if row.event_s is not None:
        axes.axvline(row.event_s, color=looks.ALARM, linestyle="--", linewidth=0.8)
    if row.even is not None:
        axes.axhline(row.even, color=looks.FAINT, linestyle=":", linewidth=0.8)
    _tidy(axes)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a sweep."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SweepPanel:
    """One chart of a sweep over replicas."""

    title: str
    y: str
    curves: tuple[Curve, ...]
    log: bool = False
    x: str = "replicas"
    top: float | None = None  # where panels side by side must have one scale


def draw_sweeps(panels: Sequence[SweepPanel], path: Path, title: str) -> Path:
    """Panels side by side with one legend."""
    figure, grid = _sheet(1, len(panels), 4.2, 3.3, title, bottom=0.85)
    for axes, panel in zip(grid[0], panels, strict=True):
        for number, curve in enumerate(panel.curves):
            colour, mark, dash, width = STYLES.get(curve.label, OTHER_STYLES[number % len(OTHER_STYLES)])
            if panel.x == "seconds":  # a point for every second: marks would hide the line
                colour, mark, dash, width = OVER_TIME[number % len(OVER_TIME)], "", "-", 1.2
            axes.plot(
                curve.x, curve.y, label=curve.label, color=colour, marker=mark, markersize=5, linestyle=dash,
                linewidth=width, markerfacecolor="none" if mark in {"s", "^"} else colour, zorder=2 + number,
            )  # fmt: skip
        axes.set_title(panel.title, fontsize=9, loc="left")
        axes.set_xlabel(panel.x, fontsize=8)
        axes.set_ylabel(panel.y, fontsize=8)
        if panel.x == "replicas":
            axes.set_xscale("log", base=2)
            ticks = sorted({x for curve in panel.curves for x in curve.x})
            axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
            axes.minorticks_off()
        if panel.log:
            _plain_log(axes, [y for curve in panel.curves for y in curve.y])
        else:
            axes.set_ylim(bottom=0, top=panel.top)
        _tidy(axes)
    handles = {n: h for axes in grid[0] for h, n in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(
        list(handles.values()), list(handles), loc="lower left", bbox_to_anchor=(0.03, 0), ncols=8, frameon=False,
        fontsize=8,
    )  # fmt: skip
    return looks.save_figure(figure, path)


def draw_classes(runs: Sequence[tuple[str, Trace]], classes: Sequence[int], names: Sequence[str], path: Path) -> Path:
    """A row per run: every channel's weight over time by class, and the heat map of clusters."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # Sixty shades: with twenty, clusters of different classes would share one and look mixed.
    shades = [shade for name in ("tab20", "tab20b", "tab20c") for shade in colormaps[name].colors]  # type: ignore[attr-defined]
    figure, grid = _sheet(len(runs), 2, 5.2, 3.6, "64 replicas in three classes, simulated", bottom=0.55)
    colours = ("#D55E00", "#0072B2", "#009E73")
    for r, (label, trace) in enumerate(runs):
        left, right = grid[r]
        for j, kind in enumerate(classes):
            first = classes.index(kind) == j
            weights = trace.weights[:, j] * 100 / UNITS
            left.plot(trace.time_s, weights, color=colours[kind], linewidth=0.5, label=names[kind] if first else None)
        left.set_ylim(-0.2, 8)
        left.set_title(f"{label}: weight of each channel, per cent", fontsize=9, loc="left")
        left.legend(fontsize=7, frameon=False, loc="upper right")
        _tidy(left)
        right.imshow(
            trace.clusters % len(shades), aspect="auto", cmap=ListedColormap(shades), interpolation="nearest",
            vmin=0, vmax=len(shades) - 1,
            extent=(0.5, len(classes) + 0.5, float(trace.time_s[-1]), 0.0),
        )  # fmt: skip
        for j in range(1, len(classes)):
            if classes[j] != classes[j - 1]:
                right.axvline(j + 0.5, color=looks.INK, linewidth=0.9)
        right.set_title(f"{label}: clusters (same colour, same cluster)", fontsize=9, loc="left")
        right.set_ylabel("seconds", fontsize=8)
        right.tick_params(labelsize=7, length=2)
        if r + 1 == len(runs):
            left.set_xlabel("seconds", fontsize=8)
            right.set_xlabel("channel; lines separate the classes", fontsize=8)
    return looks.save_figure(figure, path)


def _sheet(
    rows: int, columns: int, width: float, height: float, title: str, bottom: float = 0.5
) -> tuple[Figure, list[list[Axes]]]:
    wide, high = columns * width + 0.9, rows * height + 0.55 + bottom
    figure = looks.new_figure(wide, high)
    grid = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(
        left=0.65 / wide, right=1 - 0.65 / wide, top=1 - 0.75 / high, bottom=bottom / high,
        wspace=0.9 / width if columns > 1 and rows == 1 else 0.22, hspace=0.36,
    )  # fmt: skip
    figure.text(0.2 / wide, 1 - 0.25 / high, title, fontsize=12, weight="bold", va="center")
    return figure, [list(np.atleast_1d(row)) for row in grid]


def _plain_log(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis whose marks are plain numbers; ratios of 1.1 and of 12 must both be readable."""
    axes.set_yscale("log")
    low, high = 0.95 * min(values), 1.08 * max(values)
    axes.set_ylim(low, high)
    crowded = high > 4
    marks = [m for m in (1, 1.1, 1.2, 1.35, 1.5, 1.75, 2, 2.5, 3, 4, 5, 7, 10, 15, 20) if low <= m <= high]
    kept = [m for m in marks if not crowded or m not in {1.1, 1.35, 1.75, 2.5}]
    axes.set_yticks(kept, [f"{m:g}" for m in kept])
    axes.minorticks_off()


def _tidy(axes: Axes) -> None:
    axes.set_axisbelow(True)
    axes.grid(visible=True, color="#E4E8EC", linewidth=0.6)
    axes.tick_params(labelsize=7, length=2)
    axes.spines["top"].set_visible(False)
