"""The geometry of a placement picture: node boxes hold worker boxes, which hold tasks; none overlap.

It is pure geometry in units of one task, so that a test can prove that nothing overlaps
(`test_boxes_hold_their_contents_and_never_overlap`). Nodes share one height, and their widths grow with capacity. Every
plan of a picture uses the same boxes, so that the eye compares the tasks alone.
Rejected: areas by capacity in both directions, which leaves no common baseline for the utilisation bars, and a force
layout, which moves the nodes from panel to panel.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

TASK = 1.0  # pitch of tasks; a mark takes 0.8 of it
PAD = 0.2  # between a worker's border and its tasks, and between workers
HEADER = 0.95  # the node's name and figures
FOOTER = 0.6  # the utilisation bar
MARGIN = 0.3
GAP = 1.1  # between nodes: room for traffic to be seen
WIDTH_MIN = 4.2  # the header's text needs this much
ASPECT = 1.5  # width over height that a panel aims at
ROWS_MAX = 8
WIDTH_STEPS_MAX = 40
CAPACITY_WIDTH_MAX = 40.0  # no node is drawn wider than this for its capacity alone


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; y grows upwards and (x, y) is the lower left corner."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Box) -> bool:
        """Whether they share more than a border."""
        apart = (
            self.x + self.width <= other.x
            or other.x + other.width <= self.x
            or self.y + self.height <= other.y
            or other.y + other.height <= self.y
        )
        return not apart

    def holds(self, other: Box) -> bool:
        """Whether the other lies inside."""
        slack = 1e-9
        return (
            self.x <= other.x + slack
            and self.y <= other.y + slack
            and other.x + other.width <= self.x + self.width + slack
            and other.y + other.height <= self.y + self.height + slack
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """The node boxes that all panels share, and the size of the whole."""

    nodes: tuple[Box, ...]
    width: float
    height: float
    inner_height: float


def worker_shape(tasks: int, height_max: float) -> tuple[int, int]:
    """Columns and rows of a worker's tasks: near square, but no taller than allowed."""
    rows_max = max(1, math.floor(height_max - 2 * PAD + 1e-9))
    columns = max(math.ceil(math.sqrt(tasks)), math.ceil(tasks / rows_max))
    return columns, math.ceil(tasks / columns)


def flow(tasks_per_worker: Sequence[int], width: float, height: float) -> list[Box] | None:
    """Workers set like words on lines from the top left; None when they do not fit."""
    boxes: list[Box] = []
    x, top, line = 0.0, 0.0, 0.0
    for tasks in tasks_per_worker:
        columns, rows = worker_shape(tasks, height)
        w, h = columns * TASK + 2 * PAD, rows * TASK + 2 * PAD
        if x > 0 and x + w > width + 1e-9:
            x, top, line = 0.0, top + line + PAD, 0.0
        if w > width + 1e-9 or top + h > height + 1e-9:
            return None
        boxes.append(Box(x, height - top - h, w, h))
        x, line = x + w + PAD, max(line, h)
    return boxes


def width_needed(tasks_per_worker: Sequence[int], height: float) -> float:
    """About the least width in which the workers flow into the height; 0 for no workers."""
    if not tasks_per_worker:
        return 0.0
    shapes = [worker_shape(tasks, height) for tasks in tasks_per_worker]
    widest = max(columns for columns, _ in shapes) * TASK + 2 * PAD
    in_one_line = sum(columns * TASK + 3 * PAD for columns, _ in shapes)
    step = max(TASK / 2, (in_one_line - widest) / WIDTH_STEPS_MAX)
    for number in range(WIDTH_STEPS_MAX):
        if flow(tasks_per_worker, widest + step * number, height) is not None:
            return widest + step * number
    return in_one_line


def make_sheet(capacities: Sequence[float], contents: Sequence[Sequence[Sequence[int]]]) -> Sheet:
    """Node boxes for every plan at once: `contents[plan][node]` lists the tasks of each worker there.

    Tries inner heights and numbers of rows and keeps the sheet that shows a task largest in a panel of ASPECT.
    """
    most = max((sum(per_node) for plan in contents for per_node in plan), default=0)
    sheets: list[Sheet] = []
    for lines in range(1, math.ceil(math.sqrt(most)) + 4):
        inner = lines * TASK + (lines + 1) * PAD
        widths = _node_widths(capacities, contents, inner)
        sheets += [_packed(widths, rows, inner) for rows in range(1, min(ROWS_MAX, len(widths)) + 1)]
    return max(sheets, key=lambda sheet: min(ASPECT / sheet.width, 1 / sheet.height))


def _node_widths(capacities: Sequence[float], contents: Sequence[Sequence[Sequence[int]]], inner: float) -> list[float]:
    # Plans often fill a node alike; each way of filling it is tried once.
    fillings = [{tuple(plan[k]) for plan in contents} for k in range(len(capacities))]
    need = [max(width_needed(filling, inner) for filling in found) for found in fillings]
    per_capacity = [width / capacity for width, capacity in zip(need, capacities, strict=True) if width > 0]
    # The fullest node sets the scale, unless it is an outlier that would blow up all the others.
    scale = min(max(per_capacity), 1.6 * statistics.median(per_capacity)) if per_capacity else 1.0
    scale = min(scale, CAPACITY_WIDTH_MAX / max(capacities))
    return [
        max(wanted + 2 * MARGIN, scale * capacity + 2 * MARGIN, WIDTH_MIN)
        for wanted, capacity in zip(need, capacities, strict=True)
    ]


def _packed(widths: Sequence[float], rows: int, inner: float) -> Sheet:
    """Nodes in reading order on `rows` rows of about equal length."""
    limit = max(*widths, (sum(widths) + GAP * (len(widths) - rows)) / rows)
    lines: list[list[int]] = [[]]
    x = 0.0
    for k, width in enumerate(widths):
        # A node stays on the line when most of it is within the limit: rows then come out about equal.
        if lines[-1] and x + width / 2 > limit:
            lines.append([])
            x = 0.0
        lines[-1].append(k)
        x += width + GAP
    height = HEADER + inner + FOOTER
    total = len(lines) * height + (len(lines) - 1) * GAP
    boxes: list[Box] = [Box(0, 0, 0, 0)] * len(widths)
    for row, members in enumerate(lines):
        x = 0.0
        for k in members:
            boxes[k] = Box(x, total - (row + 1) * height - row * GAP, widths[k], height)
            x += widths[k] + GAP
    return Sheet(tuple(boxes), max(box.x + box.width for box in boxes), total, inner)


def worker_boxes(node: Box, tasks_per_worker: Sequence[int]) -> list[Box]:
    """The workers inside a node's box."""
    inner = node.height - HEADER - FOOTER
    boxes = flow(tasks_per_worker, node.width - 2 * MARGIN, inner)
    if boxes is None:
        # In a wider box lines break elsewhere and may be taller in all; the width found by search fits.
        boxes = flow(tasks_per_worker, width_needed(tasks_per_worker, inner), inner) or []
    return [Box(node.x + MARGIN + b.x, node.y + FOOTER + b.y, b.width, b.height) for b in boxes]


def task_centres(worker: Box, tasks: int) -> list[tuple[float, float]]:
    """Row by row from the top left."""
    columns = round((worker.width - 2 * PAD) / TASK)
    top = worker.y + worker.height - PAD
    return [(worker.x + PAD + (i % columns + 0.5) * TASK, top - (i // columns + 0.5) * TASK) for i in range(tasks)]
