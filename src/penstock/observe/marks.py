"""The marks of a placement picture: node box, utilisation bar, worker, traffic, tasks; bottom to top in that order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.model.cluster import Node
from penstock.model.taskgraph import Floats, Longs, TaskGraph
from penstock.observe import boxes, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EDGES_DRAWN_MAX = 20_000  # per panel, the strongest first
LABEL_POINTS_MIN = 3.8  # smaller text is dirt
CURVE = np.linspace(0.0, 1.0, 13)
BEND = 0.13  # of an edge's length: enough that an edge along a row does not hide behind its tasks


@dataclass(frozen=True, eq=False)
class Scene:
    """What every panel of one picture shares."""

    tasks: TaskGraph
    nodes: tuple[Node, ...]
    sheet: boxes.Sheet
    looks: list[looks.Look]
    points_per_task: float


def draw_node(axes: Axes, scene: Scene, node: Node, box: boxes.Box, load: float | None) -> None:
    """The box, its header and its bar; a load of None means that the node is not used."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    unused = load is None
    axes.add_patch(
        Rectangle(
            (box.x, box.y),
            box.width,
            box.height,
            facecolor="#FAFAFA" if unused else "#EEF2F6",
            edgecolor="#C5CCD3" if unused else "#5F6B76",
            linewidth=1.0,
            linestyle="--" if unused else "-",
            zorder=1,
        )
    )
    halo = [withStroke(linewidth=2.2, foreground="#FAFAFA" if unused else "#EEF2F6")]  # text stays clear of traffic
    size = min(10.0, max(4.5, 0.46 * scene.points_per_task))
    share = 0.0 if load is None else load / node.capacity
    over = share > 1 + 1e-9
    figures = "unused" if load is None else f"{load:.3g} / {node.capacity:g}"
    room = int(box.width * scene.points_per_task / (0.62 * size)) - len(figures) - 2
    middle = box.y + box.height - boxes.HEADER / 2
    axes.text(
        box.x + 0.25,
        middle,
        looks.shortened(node.name, room),
        fontsize=size,
        weight="bold",
        va="center",
        zorder=6,
        path_effects=halo,
    )
    axes.text(
        box.x + box.width - 0.25,
        middle,
        figures,
        fontsize=size,
        ha="right",
        va="center",
        color=looks.ALARM if over else "#8A949E" if unused else looks.INK,
        weight="bold" if over else "normal",
        path_effects=halo,
        zorder=6,
    )
    if load is not None:
        _draw_bar(axes, box, share, over)


def _draw_bar(axes: Axes, box: boxes.Box, share: float, over: bool) -> None:
    from matplotlib.patches import Rectangle

    left, bottom, length, thickness = box.x + 0.25, box.y + 0.18, box.width - 0.5, 0.22
    axes.add_patch(Rectangle((left, bottom), length, thickness, facecolor="#D5DBE1", edgecolor="none", zorder=2))
    filled = Rectangle(
        (left, bottom),
        length * min(1.0, share),
        thickness,
        facecolor=looks.ALARM if over else "#4A5A6A",
        edgecolor=looks.PAPER if over else "none",
        hatch="////" if over else None,
        linewidth=0,
        zorder=3,
    )
    axes.add_patch(filled)


def draw_worker(axes: Axes, box: boxes.Box) -> None:
    """A rounded box."""
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.35"
    axes.add_patch(
        FancyBboxPatch(
            (box.x, box.y),
            box.width,
            box.height,
            boxstyle=style,
            facecolor=looks.PAPER,
            edgecolor="#A9B4BF",
            linewidth=0.9,
            zorder=2,
        )
    )


def draw_traffic(axes: Axes, scene: Scene, centres: Floats, home: Longs) -> None:
    """Edges under the tasks: inside a node faint, between nodes in ink, wider and darker with the rate."""
    from matplotlib.collections import LineCollection

    tasks = scene.tasks
    if len(tasks.rate) == 0:
        return
    strongest = np.argsort(-tasks.rate, kind="stable")[:EDGES_DRAWN_MAX]
    source, target, rate = tasks.source[strongest], tasks.target[strongest], tasks.rate[strongest]
    share = rate / rate.max()
    cut = home[source] != home[target]
    for chosen, colour, widest, zorder in ((~cut, looks.FAINT, 0.8, 3.0), (cut, looks.INK, 1.5, 4.0)):
        count = int(chosen.sum())
        if count == 0:
            continue
        # Many lines share the ink that few would get: the whole stays readable and a dense bundle looks dense.
        darkest = min(0.7, max(0.03, math.sqrt(6.0 / count))) * (1.0 if zorder > 3 else 0.6)
        curves = _curves(centres[source[chosen]], centres[target[chosen]])
        lines = LineCollection(
            list(curves),
            colors=colour,
            linewidths=0.35 + (widest - 0.35) * share[chosen],
            alpha=list(darkest * (0.3 + 0.7 * share[chosen])),
            zorder=zorder,
        )
        axes.add_collection(lines, autolim=False)


def _curves(start: Floats, end: Floats) -> Floats:
    """Quadratic curves from start to end, all bent to the same side of their direction."""
    across = (end - start)[:, ::-1] * np.array([-1.0, 1.0])
    control = (start + end) / 2 + BEND * across
    t = CURVE[None, :, None]
    curves: Floats = (1 - t) ** 2 * start[:, None] + 2 * t * (1 - t) * control[:, None] + t**2 * end[:, None]
    return curves


def draw_tasks(axes: Axes, scene: Scene, centres: Floats) -> None:
    """A mark per task, labelled with its operator's letter and its index where that is legible."""
    size = 0.8 * scene.points_per_task
    tasks = scene.tasks
    for number, look in enumerate(scene.looks):
        first, last = int(tasks.first_task[number]), int(tasks.first_task[number + 1])
        axes.scatter(
            centres[first:last, 0],
            centres[first:last, 1],
            s=(size * looks.SCALES[look.shape]) ** 2,
            c=look.colour,
            marker=looks.MARKERS[look.shape],
            edgecolors=looks.INK,
            linewidths=0.6,
            zorder=5,
        )
        for i in range(last - first):
            label = f"{look.code}{i}"
            letter_points = min(8.5, 0.95 * size / (0.68 * max(2, len(label))))
            if letter_points >= LABEL_POINTS_MIN:
                x, y = centres[first + i]
                axes.text(
                    x,
                    y,
                    label,
                    fontsize=letter_points,
                    color=look.text_colour,
                    ha="center",
                    va="center_baseline",
                    zorder=6,
                )
