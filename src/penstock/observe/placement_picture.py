"""`draw_placements`: plans as a picture that a person can read, one panel per plan on the same node boxes.

    draw_placements(graph, cluster, [place(graph, cluster, "even"), place(graph, cluster, "t3")], Path("routes.png"))

A node is a box as wide as its capacity with a bar for its utilisation, a worker is a rounded box, a task is a mark with
its operator's colour and letter. Traffic between nodes, the cost of a plan, is drawn in ink by its rate; traffic inside
a node is faint. Beyond TASKS_DRAWN_MAX tasks or NODES_DRAWN_MAX nodes in use, marks would be too small to read, so the
picture becomes a node-to-node traffic matrix (`traffic_matrix`) and says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster, Node
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import OperatorGraph
from penstock.observe import boxes, looks
from penstock.observe.marks import Scene, draw_node, draw_tasks, draw_traffic, draw_worker
from penstock.observe.traffic_matrix import draw_matrices

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

TASKS_DRAWN_MAX = 200
NODES_DRAWN_MAX = 30
PLANS_MAX = 24
LEGEND_MAX = 32
INCHES_PER_TASK = (0.30, 0.25, 0.24)  # for 1, 2-4 and more panels
INCHES_PER_TASK_MAX = 0.42
PANEL_INCHES_MIN, PANEL_INCHES_MAX, FIGURE_INCHES_MIN = 5.0, 12.0, 5.6
HEADING_INCHES, TITLE_INCHES, LEGEND_LINE_INCHES = 0.4, 0.42, 0.26


def draw_placements(
    graph: OperatorGraph, cluster: Cluster, plans: Sequence[Plan], path: Path, profile: Profile | None = None
) -> Path:
    """Draw the plans of one topology on one cluster, at most PLANS_MAX, into a PNG (or SVG or PDF)."""
    looks.checked_picture_path(path)
    if not 1 <= len(plans) <= PLANS_MAX:
        msg = f"a picture shows 1 to {PLANS_MAX} plans but {len(plans)} were given; choose some with --schedulers"
        raise InvalidInput(msg)
    tasks = TaskGraph.expand(graph, profile)
    used = {slot.node for plan in plans for slot in plan.assignment.values()}
    few_nodes = len(cluster.nodes) <= NODES_DRAWN_MAX
    nodes = tuple(node for node in cluster.nodes if few_nodes or node.name in used)
    if tasks.task_count > TASKS_DRAWN_MAX or len(nodes) > NODES_DRAWN_MAX:
        figure = draw_matrices(graph.name, tasks, cluster, plans)
    else:
        figure = _draw_boxes(graph, tasks, nodes, plans, hidden=len(cluster.nodes) - len(nodes))
    return looks.save_figure(figure, path)


def panel_grid(count: int) -> tuple[int, int]:
    """Columns and rows for `count` panels."""
    columns = {1: 1, 2: 2, 3: 3, 4: 2}.get(count, 3 if count <= 12 else 4)
    return columns, math.ceil(count / columns)


def _draw_boxes(
    graph: OperatorGraph, tasks: TaskGraph, nodes: tuple[Node, ...], plans: Sequence[Plan], hidden: int
) -> Figure:
    held = [_tasks_by_slot(tasks, plan) for plan in plans]
    sheet = boxes.make_sheet(
        [node.capacity for node in nodes], [[[len(t) for t in h[node.name]] for node in nodes] for h in held]
    )
    columns, rows = panel_grid(len(plans))
    per_task = INCHES_PER_TASK[0 if len(plans) == 1 else 1 if len(plans) <= 4 else 2]
    panel_width = min(
        PANEL_INCHES_MAX, max(PANEL_INCHES_MIN, sheet.width * per_task), sheet.width * INCHES_PER_TASK_MAX
    )
    panel_height = panel_width * sheet.height / sheet.width
    scene = Scene(tasks, nodes, sheet, looks.operator_looks(tasks.operators), panel_width * 72 / sheet.width)
    width = max(FIGURE_INCHES_MIN, columns * panel_width + (columns + 1) * 0.3)
    legend = _legend_entries(scene)
    legend_columns = _legend_columns([str(entry.get_label()) for entry in legend], width)
    foot = (math.ceil(len(legend) / legend_columns) + 0.8) * LEGEND_LINE_INCHES
    height = HEADING_INCHES + rows * (panel_height + TITLE_INCHES) + foot
    figure = looks.new_figure(width, height)
    figure.text(0.3 / width, 1 - 0.25 / height, _heading(graph, nodes, hidden), fontsize=12, weight="bold", va="center")
    for i, (plan, slots) in enumerate(zip(plans, held, strict=True)):
        column, row = i % columns, i // columns
        left = 0.3 + column * (panel_width + 0.3)
        bottom = height - HEADING_INCHES - (row + 1) * (panel_height + TITLE_INCHES)
        axes = figure.add_axes((left / width, bottom / height, panel_width / width, panel_height / height))
        _draw_panel(axes, scene, plan, slots)
    figure.legend(
        handles=legend,
        loc="lower left",
        bbox_to_anchor=(0.2 / width, 0.02 / height),
        ncols=legend_columns,
        frameon=False,
        fontsize=8.5,
        handletextpad=0.5,
        columnspacing=1.4,
    )
    return figure


def _heading(graph: OperatorGraph, nodes: Sequence[Node], hidden: int) -> str:
    which = f"the {len(nodes)} nodes in use of {len(nodes) + hidden}" if hidden else looks.counted(len(nodes), "node")
    return f"{looks.shortened(graph.name, 60)}: {looks.counted(graph.task_count, 'task')} on {which}"


def _tasks_by_slot(tasks: TaskGraph, plan: Plan) -> Mapping[str, list[list[int]]]:
    """For each node, the task numbers of each of its workers, in the workers' order."""
    workers: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, task in enumerate(tasks.ids):
        node, worker = plan.assignment[task]
        workers[node][worker].append(number)
    found: dict[str, list[list[int]]] = defaultdict(list)
    for node, by_worker in workers.items():
        found[node] = [by_worker[worker] for worker in sorted(by_worker)]
    return found


def _draw_panel(axes: Axes, scene: Scene, plan: Plan, held: Mapping[str, list[list[int]]]) -> None:
    axes.set_xlim(-0.15, scene.sheet.width + 0.15)
    axes.set_ylim(-0.15, scene.sheet.height + 0.15)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title(looks.plan_title(plan), fontsize=10.5, loc="left", pad=5)
    centres = np.zeros((scene.tasks.task_count, 2))
    home = np.full(scene.tasks.task_count, -1)
    for k, (node, box) in enumerate(zip(scene.nodes, scene.sheet.nodes, strict=True)):
        workers = held.get(node.name, [])
        load = float(scene.tasks.load[[task for worker in workers for task in worker]].sum())
        draw_node(axes, scene, node, box, load if workers else None)
        for worker, numbers in zip(boxes.worker_boxes(box, [len(w) for w in workers]), workers, strict=True):
            draw_worker(axes, worker)
            centres[numbers] = boxes.task_centres(worker, len(numbers))
            home[numbers] = k
    draw_traffic(axes, scene, centres, home)
    draw_tasks(axes, scene, centres)


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """Columns of the legend: one per entry where all fit the width in inches, else what the longest entry allows."""
    inches = [0.6 + 0.075 * len(label) for label in labels]
    return len(labels) if sum(inches) < width else max(1, int(width / max(inches)))


def _legend_entries(scene: Scene) -> list[Line2D]:
    from matplotlib.lines import Line2D

    entries = [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=looks.MARKERS[look.shape],
            markersize=8,
            markerfacecolor=look.colour,
            markeredgecolor=looks.INK,
            markeredgewidth=0.6,
            label=f"{look.code}  {looks.shortened(look.name, 22)}",
        )
        for look in scene.looks[:LEGEND_MAX]
    ]
    if (more := len(scene.looks) - LEGEND_MAX) > 0:
        entries.append(Line2D([], [], linestyle="none", label=f"and {more} more operators"))
    entries.append(Line2D([], [], color=looks.INK, linewidth=1.8, label="traffic between nodes"))
    entries.append(Line2D([], [], color=looks.FAINT, linewidth=0.8, label="traffic inside a node"))
    return entries
