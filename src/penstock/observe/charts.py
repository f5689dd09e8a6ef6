"""Line charts as small multiples: one style for every chart, one axis range for every panel, published values beside.

    panel = Panel("linear, 10 nodes of 4", (Series("optimum", (10, 12), (8.0, 12.0)),))
    draw_small_multiples([[panel]], Path("cost.png"), Labels("Cost", "T3 against the optimum", "tasks", "cost"))

Lines often coincide (a heuristic reaches the optimum), so each series can be seen through the others: the first is a
broad pale band, the rest are thin lines with marks of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.observe import looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PUBLISHED = "published"
PANEL_WIDTH, PANEL_HEIGHT = 4.1, 3.0  # inches


@dataclass(frozen=True, slots=True)
class Series:
    """One line; None is a gap."""

    label: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """A value that a paper prints, drawn as a star with its text."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of the sheet."""

    title: str
    series: tuple[Series, ...]
    published: tuple[Published, ...] = ()
    y: str = ""  # the axis's label where it is not the sheet's


@dataclass(frozen=True, slots=True)
class Labels:
    """What stands around the panels."""

    title: str
    subtitle: str
    x: str
    y: str
    log_y: bool = False
    level: tuple[float, str] | None = None  # a horizontal line, e.g. a time limit


TICKS_MAX = 8  # whole numbers on the x axis are marked one by one up to this many
# Colour, mark, mark size, dash and width by position: the band first, then lines that differ in all of these.
_STYLES = (
    ("#B9C4CE", "", 0.0, "-", 6.0),
    ("#D55E00", "o", 5.5, "-", 1.3),
    ("#0072B2", "s", 4.5, "--", 1.2),
    ("#222222", "x", 4.5, ":", 1.0),
    ("#009E73", "^", 5.0, "-.", 1.2),
    ("#CC79A7", "D", 4.0, "--", 1.2),
)


def draw_small_multiples(
    rows: Sequence[Sequence[Panel]], path: Path, labels: Labels, share_y: Literal["row", "col", "all"] = "row"
) -> Path:
    """Draw the panels as a grid with one x axis into one picture; `share_y` says which panels have one y axis."""
    columns = max(len(row) for row in rows)
    width, height = columns * PANEL_WIDTH + 0.5, len(rows) * PANEL_HEIGHT + 1.25
    figure = looks.new_figure(width, height)
    grid = figure.subplots(len(rows), columns, squeeze=False, sharex=True, sharey=share_y)
    for r, row in enumerate(rows):
        for c in range(columns):
            axes = grid[r][c]
            if c >= len(row):
                axes.set_visible(False)
                continue
            _draw_panel(axes, row[c], labels)
            if c == 0:
                axes.set_ylabel(row[c].y or labels.y, fontsize=9)
            if r == len(rows) - 1:
                axes.set_xlabel(labels.x, fontsize=9)
    if not labels.log_y:  # after all panels are drawn: a shared axis stops growing with its data once a limit is set
        for axes in grid.flat:
            # y1 of an axis without data is minus infinity; its ymax would be plus infinity.
            peak = max(other.dataLim.y1 for other in axes.get_shared_y_axes().get_siblings(axes))
            top = 1.06 * peak if peak > 0 else 1.0
            axes.set_ylim(-0.025 * top, top)  # a little below 0, so that marks on the axis stay whole
    figure.subplots_adjust(
        left=0.75 / width,
        right=1 - 0.2 / width,
        top=1 - 0.85 / height,
        bottom=0.85 / height,
        wspace=0.14 if share_y == "col" else 0.07,
        hspace=0.22,
    )
    figure.text(0.2 / width, 1 - 0.22 / height, labels.title, fontsize=12, weight="bold", va="center")
    figure.text(0.2 / width, 1 - 0.46 / height, labels.subtitle, fontsize=9, color="#555555", va="center")
    entries = {
        name: handle for axes in grid.flat for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    names = sorted(entries, key=lambda name: name == PUBLISHED)  # the star last, whichever panel has one
    figure.legend(
        [entries[name] for name in names],
        names,
        loc="lower left",
        bbox_to_anchor=(0.6 / width, 0),
        ncols=8,
        frameon=False,
        fontsize=9,
    )
    return looks.save_figure(figure, path)


def _draw_panel(axes: Axes, panel: Panel, labels: Labels) -> None:
    axes.set_title(panel.title, fontsize=10, loc="left")
    for number, series in enumerate(panel.series):
        colour, mark, size, dash, line = _STYLES[number % len(_STYLES)]
        axes.plot(
            series.x,
            [float("nan") if value is None else value for value in series.y],
            label=series.label,
            color=colour,
            marker=mark,
            markersize=size,
            markerfacecolor="none" if mark in {"s", "D", "^"} else colour,
            linestyle=dash,
            linewidth=line,
            solid_capstyle="round",
            zorder=2 + number,
        )
    counted = sorted({x for series in panel.series for x in series.x})
    if len(counted) <= TICKS_MAX and all(isinstance(x, int) for x in counted):
        axes.set_xticks(counted)  # no marks at four and a half hosts
    if labels.log_y:
        axes.set_yscale("log")
    if labels.level is not None:
        axes.axhline(labels.level[0], color=looks.ALARM, linewidth=0.9, linestyle="--", zorder=1.5)
        axes.annotate(
            labels.level[1],
            (0.01, labels.level[0]),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=7.5,
            color=looks.ALARM,
        )
    _draw_published(axes, panel.published)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color="#E4E8EC", linewidth=0.7)
    axes.tick_params(labelsize=8, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_published(axes: Axes, values: Sequence[Published]) -> None:
    for number, value in enumerate(values):
        axes.plot(
            [value.x],
            [value.y],
            linestyle="none",
            marker="*",
            markersize=11,
            markerfacecolor="#F0E442",
            markeredgecolor=looks.INK,
            markeredgewidth=0.8,
            label=PUBLISHED if number == 0 else None,
            zorder=12,
        )
        axes.annotate(
            value.text,
            (value.x, value.y),
            xytext=(-8, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=7.5,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": looks.PAPER, "edgecolor": "none", "alpha": 0.85},
            zorder=13,
        )
