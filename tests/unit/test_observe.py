"""Pictures: geometry that never overlaps, pictures of a sensible size, and titles that tell the truth."""

from __future__ import annotations

import struct
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps import find_topology
from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster, Node
from penstock.model.plan import Plan, Slot
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.observe import boxes, looks
from penstock.observe.charts import Labels, Panel, Published, Series, draw_small_multiples
from penstock.observe.placement_picture import draw_placements
from penstock.observe.traffic_matrix import NODES_SHOWN_MAX, add_up
from penstock.optimise.door import place

PIXELS_MIN, PIXELS_MAX = 400, 5000


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def ink_share(path: Path) -> float:
    """The part of the picture that is not white."""
    from matplotlib.image import imread

    pixels = imread(path)[:, :, :3]
    return float((pixels.min(axis=2) < 0.95).mean())


def even_plan(topology: str, cluster: Cluster) -> Plan:
    return place(find_topology(topology), cluster, "even", allow_overload=True)


@pytest.mark.parametrize(
    ("topology", "groups", "plans"),
    [
        ("linear:6", [(1, 8.0)], 1),
        ("trending", [(1, 6.0), (1, 4.0), (1, 10.0)], 2),
        ("routes", [(2, 16.0), (2, 8.0)], 12),
        ("star:200", [(30, 8.0)], 1),
        ("star:202", [(30, 8.0)], 3),  # beyond the task limit: a matrix
        ("linear:60", [(50, 2.0)], 1),  # beyond the node limit: a matrix
        ("linear:8", [(100, 2.0)], 1),  # only the nodes in use
    ],
)
def test_picture_is_a_png_of_sensible_size(
    topology: str, groups: list[tuple[int, float]], plans: int, tmp_path: Path
) -> None:
    cluster = Cluster.uniform(groups)
    plan = even_plan(topology, cluster)
    path = draw_placements(find_topology(topology), cluster, [plan] * plans, tmp_path / "new" / "plan.png")
    width, height = png_size(path)
    assert PIXELS_MIN <= width <= PIXELS_MAX
    assert PIXELS_MIN // 2 <= height <= PIXELS_MAX
    assert 0.02 < ink_share(path) < 0.9


def test_two_different_plans_look_different(tmp_path: Path) -> None:
    graph, cluster = find_topology("linear:8"), Cluster.uniform([(2, 8.0)])
    spread = even_plan("linear:8", cluster)
    on_one = Plan("one", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, dict.fromkeys(spread.assignment, Slot("n1", 0)))
    names = [draw_placements(graph, cluster, [plan], tmp_path / f"{plan.scheduler}.png") for plan in (spread, on_one)]
    assert names[0].read_bytes() != names[1].read_bytes()


@pytest.mark.parametrize("suffix", ["jpg", "", "txt"])
def test_picture_of_unknown_format_is_refused_before_anything_is_written(suffix: str, tmp_path: Path) -> None:
    cluster = Cluster.uniform([(1, 8.0)])
    path = tmp_path / f"picture.{suffix}"
    with pytest.raises(InvalidInput, match="must end in one of"):
        draw_placements(find_topology("linear:6"), cluster, [even_plan("linear:6", cluster)], path)
    assert not path.exists()


@pytest.mark.parametrize("tasks", [4, 300])  # boxes, and a matrix
def test_topology_without_streams_can_be_drawn(tasks: int, tmp_path: Path) -> None:
    graph, cluster = OperatorGraph("alone", (Operator("a", tasks, 0.01),)), Cluster.uniform([(2, 4.0)])
    assert ink_share(draw_placements(graph, cluster, [place(graph, cluster, "even")], tmp_path / "p.png")) > 0.01


@pytest.mark.parametrize("tasks", [2, 100])  # boxes, and a matrix
def test_any_name_can_be_drawn(tasks: int, tmp_path: Path) -> None:
    names = ["$x$_^{", "a$b", "名前", "two words", "_hidden", "n" * 200]
    graph = OperatorGraph("$\\frac{$", tuple(Operator(name, tasks) for name in names), (Stream(names[0], names[1]),))
    cluster = Cluster((Node("$node$" * 20, 1000.0), Node("ü", 1.0, slots=2)))
    plan = place(graph, cluster, "even", allow_overload=True)
    assert ink_share(draw_placements(graph, cluster, [plan], tmp_path / "names.png")) > 0.01


def test_no_plan_and_too_many_plans_are_refused(tmp_path: Path) -> None:
    cluster = Cluster.uniform([(1, 8.0)])
    plan = even_plan("linear:6", cluster)
    for plans in ([], [plan] * 25):
        with pytest.raises(InvalidInput, match=f"but {len(plans)} were given"):
            draw_placements(find_topology("linear:6"), cluster, plans, tmp_path / "p.png")


WORKERS = st.lists(st.integers(1, 12), max_size=6)
NODES = st.integers(1, 8)


@given(st.data(), NODES, st.integers(1, 3))
def test_boxes_hold_their_contents_and_never_overlap(data: st.DataObject, nodes: int, plans: int) -> None:
    capacities = data.draw(st.lists(st.floats(0.5, 500), min_size=nodes, max_size=nodes))
    contents = data.draw(st.lists(st.lists(WORKERS, min_size=nodes, max_size=nodes), min_size=plans, max_size=plans))
    sheet = boxes.make_sheet(capacities, contents)
    whole = boxes.Box(0, 0, sheet.width, sheet.height)
    assert all(whole.holds(node) for node in sheet.nodes)
    assert not any(a.overlaps(b) for a, b in combinations(sheet.nodes, 2))
    for plan in contents:
        for node, workers in zip(sheet.nodes, plan, strict=True):
            inner = boxes.worker_boxes(node, workers)
            assert all(node.holds(worker) for worker in inner)
            assert not any(a.overlaps(b) for a, b in combinations(inner, 2))
            for worker, tasks in zip(inner, workers, strict=True):
                centres = boxes.task_centres(worker, tasks)
                marks = [boxes.Box(x - 0.4, y - 0.4, 0.8, 0.8) for x, y in centres]
                assert all(worker.holds(mark) for mark in marks)
                assert not any(a.overlaps(b) for a, b in combinations(marks, 2))


def test_wider_boxes_for_larger_nodes() -> None:
    sheet = boxes.make_sheet([16.0, 8.0], [[[5, 5, 5], [5, 2]]])
    assert sheet.nodes[0].width > sheet.nodes[1].width
    assert sheet.nodes[0].height == sheet.nodes[1].height


def test_traffic_matrix_adds_up_to_the_cost() -> None:
    cluster = Cluster.uniform([(6, 60.0)])
    plan = even_plan("star:300", cluster)
    added = add_up(TaskGraph.expand(find_topology("star:300")), cluster, plan)
    assert added.rate.sum() == pytest.approx(plan.cost)
    assert np.diag(added.rate).sum() == 0
    assert added.utilisation.max() == pytest.approx(plan.max_utilisation)


def test_traffic_matrix_shows_the_busiest_nodes() -> None:
    cluster = Cluster.uniform([(60, 10.0)])
    added = add_up(TaskGraph.expand(find_topology("star:300")), cluster, even_plan("star:300", cluster))
    assert added.nodes_used == 60
    assert len(added.names) == NODES_SHOWN_MAX
    assert added.rate.shape == (NODES_SHOWN_MAX, NODES_SHOWN_MAX)


def test_operators_differ_in_colour_or_shape_and_in_letter() -> None:
    found = looks.operator_looks([f"o{i}" for i in range(32)])
    assert len({(look.colour, look.shape) for look in found}) == 32
    assert [look.code for look in found[24:28]] == ["Y", "Z", "AA", "AB"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (146, "146"), (9999, "9999"), (12_800, "12.8 k"), (3_200_000, "3.2 M"), (2.5e10, "25 G")],
)
def test_quantities_are_short(value: float, text: str) -> None:
    assert looks.quantity(value) == text


def test_title_names_scheduler_cost_nodes_and_load() -> None:
    plan = even_plan("linear:8", Cluster.uniform([(2, 8.0)]))
    title = looks.plan_title(plan)
    assert title.startswith("even: cost ")
    assert "2 nodes" in title
    assert "proved" not in title


@pytest.mark.parametrize("log_y", [True, False])
def test_chart_with_gaps_and_published_values(log_y: bool, tmp_path: Path) -> None:
    series = (Series("optimum", (10, 12, 14), (1.0, 2.0, 4.0)), Series("T3", (10, 12, 14), (1.5, None, 4.0)))
    panel = Panel("linear", series, (Published(14, 40.0, "CPLEX 40 s"),))
    labels = Labels("title", "subtitle", "tasks", "seconds", log_y, (3.0, "limit"))
    path = draw_small_multiples([[panel, panel], [panel]], tmp_path / "chart.png", labels)
    width, height = png_size(path)
    assert PIXELS_MIN <= width <= PIXELS_MAX
    assert PIXELS_MIN <= height <= PIXELS_MAX
    assert ink_share(path) > 0.01


def test_panels_of_a_row_are_drawn_to_the_highest_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[float, float]] = []
    monkeypatch.setattr(
        looks, "save_figure", lambda figure, path: limits.extend(axes.get_ylim() for axes in figure.axes) or path
    )
    flat, high = (Panel(name, (Series("a", (1, 2), (0.0, y)),)) for name, y in (("flat", 0.0), ("high", 25.0)))
    draw_small_multiples([[flat, high], [flat, flat]], tmp_path / "c.png", Labels("t", "s", "x", "y"))
    assert [top for _, top in limits] == pytest.approx([26.5, 26.5, 1.0, 1.0])
    assert all(bottom < 0 for bottom, _ in limits)
