"""Colours, marks and number formats that all pictures share.

Colours are Okabe and Ito's, which people with any colour vision can tell apart. Other signs repeat them: operators
carry a letter and, beyond eight, another shape (`test_operators_differ_in_colour_or_shape_and_in_letter`); lines differ
in mark and dash.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.errors import InvalidInput
from penstock.model.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
INK = "#222222"
FAINT = "#9AA5B1"
PAPER = "#FFFFFF"
ALARM = "#B00020"
SHAPES: tuple[Literal["circle", "square", "diamond", "hexagon"], ...] = ("circle", "square", "diamond", "hexagon")
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "hexagon": "H"}
SCALES = {"circle": 1.0, "square": 0.87, "diamond": 0.82, "hexagon": 1.08}  # so that all look equally large
DOTS_PER_INCH = 110
FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True)
class Look:
    """How one operator's tasks are drawn."""

    name: str
    code: str  # short enough for the inside of a mark
    colour: str
    shape: Literal["circle", "square", "diamond", "hexagon"]

    @property
    def text_colour(self) -> str:
        """Black or white, whichever stands out from the colour."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 110 else PAPER


def operator_looks(names: Sequence[str]) -> list[Look]:
    """One look per operator, in order: A, B, ... with eight colours, then the same colours in another shape."""
    return [
        Look(name, letters(i), COLOURS[i % len(COLOURS)], SHAPES[i // len(COLOURS) % len(SHAPES)])
        for i, name in enumerate(names)
    ]


def letters(number: int) -> str:
    """A, B, ... Z, AA, AB, ... as spreadsheets count columns."""
    text = ""
    number += 1
    while number > 0:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def quantity(value: float) -> str:
    """A number short enough for a picture: 146, 12.8 k, 3.2 M."""
    for limit, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            scale = 1e3 if unit == " k" else limit
            return f"{value / scale:.4g}{unit}" if abs(value / scale) < 1000 else f"{value / scale:.0f}{unit}"
    return f"{value:.4g}"


def counted(number: int, thing: str) -> str:
    """1 node, 2 nodes."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def shortened(text: str, length: int) -> str:
    """A name as it can be drawn: one line, cut with an ellipsis, no dollar sign that would start a formula."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return (line if len(line) <= length else line[: max(1, length - 1)] + "…").replace("$", r"\$")


def plan_title(plan: Plan) -> str:
    """Scheduler, cost, nodes used and how full the fullest is."""
    proved = " (proved optimal)" if plan.proved_optimal else ""
    nodes = counted(plan.nodes_used, "node")
    return f"{plan.scheduler}: cost {quantity(plan.cost)}{proved}, {nodes}, fullest {plan.max_utilisation:.0%}"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches on the Agg canvas: no display, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def checked_picture_path(path: Path) -> Path:
    """The path, or InvalidInput when pictures cannot have its ending; call it before long work."""
    if path.suffix.lower() not in FORMATS:
        msg = f"picture {str(path)!r} ends in {path.suffix!r}; it must end in one of {', '.join(FORMATS)}"
        raise InvalidInput(msg)
    return path


def save_figure(figure: Figure, path: Path) -> Path:
    """Write the figure in the format of the path's ending, making its folder."""
    checked_picture_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            # A name in a script that the font lacks is drawn as boxes; a warning per letter would not help.
            warnings.filterwarnings("ignore", message=".*Glyph .* missing from.*")
            figure.savefig(path, dpi=DOTS_PER_INCH, facecolor=PAPER)
    except OSError as error:
        msg = f"cannot write picture {path}: {error.strerror or error}"
        raise InvalidInput(msg) from None
    return path
