"""Traffic between nodes as a matrix: the picture of plans with too many tasks to draw one by one.

The row sends, the column receives; the diagonal, which costs nothing, is left sand-coloured. All panels share one
colour scale, and the bars beside each matrix show how full its nodes are. Of more than NODES_SHOWN_MAX nodes, those
with most traffic are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.taskgraph import Floats, TaskGraph
from penstock.observe import looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NODES_SHOWN_MAX = 40
PANEL_INCHES = 5.0


@dataclass(frozen=True, eq=False)
class Traffic:
    """The traffic of one plan between its busiest nodes, at most NODES_SHOWN_MAX, in the cluster's order."""

    names: list[str]
    rate: Floats  # [sender, receiver]
    utilisation: Floats
    nodes_used: int


def add_up(tasks: TaskGraph, cluster: Cluster, plan: Plan) -> Traffic:
    """Task traffic summed per pair of nodes in use."""
    number = {node.name: k for k, node in enumerate(cluster.nodes)}
    home = np.array([number[plan.assignment[task].node] for task in tasks.ids], dtype=np.int64)
    used, place = np.unique(home, return_inverse=True)
    load = np.bincount(place, tasks.load, minlength=len(used))
    cut = place[tasks.source] != place[tasks.target]
    sender, receiver, rate = place[tasks.source[cut]], place[tasks.target[cut]], tasks.rate[cut]
    busy = np.bincount(sender, rate, minlength=len(used)) + np.bincount(receiver, rate, minlength=len(used))
    shown = np.sort(np.argsort(-busy, kind="stable")[:NODES_SHOWN_MAX])
    row = np.full(len(used), -1)
    row[shown] = np.arange(len(shown))
    matrix = np.zeros((len(shown), len(shown)))
    inside = (row[sender] >= 0) & (row[receiver] >= 0)
    np.add.at(matrix, (row[sender[inside]], row[receiver[inside]]), rate[inside])
    nodes = [cluster.nodes[k] for k in used[shown]]
    utilisation = load[shown] / np.array([node.capacity for node in nodes])
    return Traffic([node.name for node in nodes], matrix, utilisation, len(used))


def draw_matrices(name: str, tasks: TaskGraph, cluster: Cluster, plans: Sequence[Plan]) -> Figure:
    """One matrix per plan under one heading that says why tasks are not drawn."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    traffic = [add_up(tasks, cluster, plan) for plan in plans]
    columns = min(len(plans), 1 if len(plans) == 1 else 2 if len(plans) in {2, 4} else 3)
    rows = math.ceil(len(plans) / columns)
    width, height = columns * (PANEL_INCHES + 1.0) + 1.4, rows * (PANEL_INCHES + 0.5) + 0.8
    figure = looks.new_figure(width, height)
    # A square-root scale: beside one heavy pair the others must stay visible.
    norm = PowerNorm(0.5, 0.0, max(float(t.rate.max()) for t in traffic) or 1.0)
    for i, (plan, added) in enumerate(zip(plans, traffic, strict=True)):
        left = 0.7 + (i % columns) * (PANEL_INCHES + 1.0)
        bottom = height - 1.15 - (i // columns) * (PANEL_INCHES + 0.5) - (PANEL_INCHES - 0.7)
        side = PANEL_INCHES - 0.7
        matrix = figure.add_axes((left / width, bottom / height, side / width, side / height))
        bars = figure.add_axes(((left + side + 0.12) / width, bottom / height, 0.75 / width, side / height))
        _draw_matrix(matrix, plan, added, norm)
        _draw_utilisation(bars, added)
    scale = figure.add_axes(((width - 0.95) / width, 0.6 / height, 0.16 / width, (height - 1.8) / height))
    bar = figure.colorbar(ScalarMappable(norm=norm, cmap="Blues"), cax=scale)
    bar.set_label("traffic from row to column", fontsize=9)
    bar.ax.yaxis.set_major_formatter(lambda value, _: looks.quantity(value))
    bar.ax.tick_params(labelsize=8)
    size = f"{looks.counted(tasks.task_count, 'task')} on {looks.counted(len(cluster.nodes), 'node')}"
    heading = f"{looks.shortened(name, 40)}: {size}"
    figure.text(0.25 / width, 1 - 0.22 / height, heading, fontsize=12, weight="bold", va="center")
    why = "too many to draw task by task, so this is the traffic between nodes; bars: how full each node is"
    figure.text(0.25 / width, 1 - 0.47 / height, why, fontsize=9, va="center", color="#555555")
    return figure


def _draw_matrix(axes: Axes, plan: Plan, added: Traffic, norm: object) -> None:
    count = len(added.names)
    shown = np.where(np.eye(count, dtype=bool), np.nan, added.rate)
    axes.set_facecolor("#E3DCCB")
    axes.imshow(shown, cmap="Blues", norm=norm, interpolation="nearest", aspect="auto")  # type: ignore[arg-type]
    labels = [looks.shortened(name, 7) for name in added.names]
    size = 8 if count <= 20 else 6
    axes.set_xticks(range(count), labels, rotation=90, fontsize=size)
    axes.set_yticks(range(count), labels, fontsize=size)
    axes.tick_params(length=2)
    busiest = f"\nthe {count} busiest of {added.nodes_used} nodes" if count < added.nodes_used else ""
    axes.set_title(looks.plan_title(plan) + busiest, fontsize=10, loc="left")


def _draw_utilisation(axes: Axes, added: Traffic) -> None:
    over = added.utilisation > 1 + 1e-9
    colours = [looks.ALARM if above else "#4A5A6A" for above in over]
    axes.barh(range(len(added.names)), added.utilisation, color=colours, height=0.75)
    axes.axvline(1.0, color=looks.INK, linewidth=0.8, linestyle=":")
    axes.set_ylim(len(added.names) - 0.5, -0.5)
    axes.set_xlim(0, max(1.08, float(added.utilisation.max()) * 1.05))
    axes.set_yticks([])
    axes.set_xticks([0, 1], ["0", "100 %"], fontsize=7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
