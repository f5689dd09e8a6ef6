"""The picture of Figure 8: latency by size and rate above, reductions with the published band and ring sizes below.

The panels have different axes (kilobytes, messages a second, messages in the ring), so the small multiples of the
placement figures do not fit; colours and marks are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.observe import looks
from penstock_lab.bench.ipc.cases import KB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from penstock_lab.reproduce.turbostream_fig8 import Sweeps

WIDTH, HEIGHT = 12.6, 7.4  # inches
# Colour, mark and dash by position, as in the other charts.
STYLES = (("#0072B2", "s", "-"), ("#D55E00", "o", "--"), ("#E69F00", "^", ":"))
BAND = "#DDE6EE"
Line = tuple[str, Sequence[float], Sequence[float | None]]


def draw_sweeps(sweeps: Sweeps, path: Path) -> Path:
    """All three groups of experiments on one sheet."""
    from penstock_lab.reproduce import turbostream_fig8 as fig

    figure = looks.new_figure(WIDTH, HEIGHT)
    grid = figure.subplots(2, 3)
    sizes = [size / KB for size in fig.SIZES]
    _latency(grid[0][0], "(a) by message size, 100/s", "message size in KB", _lines(sweeps, sweeps.by_size(), sizes))
    for axes, size in zip(grid[0][1:], fig.RATE_SIZES, strict=True):
        lines = _lines(sweeps, sweeps.by_rate(size), fig.RATES)
        _latency(axes, f"(b) by rate, {size // KB} KB", "messages a second", lines)
    _share_range(grid[0])
    _reduction(
        grid[1][0],
        "(a) reduction against Netty, 100/s",
        "message size in KB",
        [("ring against Netty", sizes, [sweeps.reduction(case) for case in sweeps.by_size()])],
    )
    by_rate = [
        (f"{size // KB} KB", fig.RATES, [sweeps.reduction(case) for case in sweeps.by_rate(size)])
        for size in fig.RATE_SIZES
    ]
    _reduction(grid[1][1], "(b) reduction against Netty, by rate", "messages a second", by_rate)
    by_ring = [
        (f"{size // KB} KB", fig.RING_MESSAGES, [sweeps.mean(fig.RING, case) for case in sweeps.by_ring(size)])
        for size in fig.RATE_SIZES
    ]
    _latency(grid[1][2], "(c) by ring size, 3,000/s", "ring size in messages", by_ring)
    grid[1][2].axvspan(50, 103, color=BAND, zorder=0)
    grid[1][2].text(71, 0.9, "the paper's\nadvice", transform=_x_data(grid[1][2]), ha="center", fontsize=7.5)
    figure.subplots_adjust(left=0.06, right=0.985, top=0.875, bottom=0.075, wspace=0.2, hspace=0.36)
    figure.text(0.012, 0.97, "The ring against Netty", fontsize=12, weight="bold", va="center")
    subtitle = f"{fig.PAPER}, Figure 8, reproduced; mean latency one way, median of {sweeps.effort.rounds} rounds"
    if not sweeps.measured(fig.NETTY):
        subtitle += "; Netty was not measured"
    figure.text(0.012, 0.938, subtitle, fontsize=9, color="#555555", va="center")
    return looks.save_figure(figure, path)


def _lines(sweeps: Sweeps, cases: Sequence[object], x: Sequence[float]) -> list[Line]:
    from penstock_lab.reproduce import turbostream_fig8 as fig

    names = {fig.RING: "ring", fig.NETTY: "Netty", fig.NETTY_EPOLL: "Netty, epoll"}
    return [(label, x, [sweeps.mean(name, case) for case in cases]) for name, label in names.items()]  # type: ignore[arg-type]


def _draw(axes: Axes, title: str, x_label: str, lines: Sequence[Line]) -> None:
    for (label, x, y), (colour, mark, dash) in zip(lines, STYLES, strict=False):
        values = [float("nan") if value is None else value for value in y]
        face = colour if mark == "o" else "none"
        axes.plot(x, values, label=label, color=colour, marker=mark, linestyle=dash, markerfacecolor=face, markersize=5)
    axes.set_xscale("log")
    axes.set_xticks(list(lines[0][1]), [f"{value:,g}" for value in lines[0][1]], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x_label, fontsize=9)
    axes.tick_params(labelsize=8, length=3)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color="#E4E8EC", linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if any(value is not None for _, _, y in lines for value in y):
        axes.legend(fontsize=8, frameon=False)


def _latency(axes: Axes, title: str, x_label: str, lines: Sequence[Line]) -> None:
    _draw(axes, title, x_label, lines)
    if any(value is not None for _, _, y in lines for value in y):  # a logarithmic axis needs a value
        axes.set_yscale("log")
    axes.set_ylabel("mean latency in us", fontsize=9)
    axes.yaxis.set_major_formatter(_plain_number)
    axes.yaxis.set_minor_formatter(_plain_minor)
    axes.tick_params(axis="y", which="minor", labelsize=7, colors="#777777")


def _plain_number(value: float, position: float) -> str:
    return f"{value:,g}"


def _plain_minor(value: float, position: float) -> str:
    first = f"{value:e}"[0]
    return f"{value:,g}" if first in "2357" else ""


def _reduction(axes: Axes, title: str, x_label: str, lines: Sequence[Line]) -> None:
    from penstock_lab.reproduce import turbostream_fig8 as fig

    _draw(axes, title, x_label, lines)
    axes.axhspan(fig.REDUCTION_LEAST, fig.REDUCTION_MOST, color=BAND, zorder=0)
    words = f"published: {fig.REDUCTION_LEAST} to {fig.REDUCTION_MOST:.2f} %"
    axes.annotate(words, (0.02, fig.REDUCTION_LEAST), xycoords=("axes fraction", "data"), fontsize=7.5, va="bottom")
    axes.set_ylabel("per cent below Netty", fontsize=9)
    least = min([value for _, _, y in lines for value in y if value is not None], default=0.0)
    axes.set_ylim(min(0.0, 1.1 * least), 102)


def _share_range(row: Sequence[Axes]) -> None:
    limits = [axes.get_ylim() for axes in row if axes.get_yscale() == "log"]
    for axes in row if limits else ():
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _x_data(axes: Axes) -> object:
    return axes.get_xaxis_transform()
