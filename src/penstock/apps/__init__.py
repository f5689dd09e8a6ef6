"""The papers' layouts and applications: every topology that has a name instead of a file.

>>> find_topology("linear:10").task_count, find_topology("routes").task_count
(10, 45)
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.apps.applications import APPLICATIONS
from penstock.apps.layouts import LAYOUTS
from penstock.apps.vwap import vwap
from penstock.errors import InvalidInput
from penstock.model.topology import OperatorGraph

SIZED = {**LAYOUTS, "vwap": vwap}  # built-ins that are named with a size, `name:N`


class TopologyRow(NamedTuple):
    """One line of the list of built-in topologies."""

    name: str
    summary: str


def list_topologies() -> list[TopologyRow]:
    """Every built-in topology: those with a size as `name:N`, then applications."""
    layouts = [TopologyRow(f"{name}:N", _first_line(build.__doc__)) for name, build in SIZED.items()]
    return layouts + [TopologyRow(name, application.summary) for name, application in APPLICATIONS.items()]


def find_topology(name: str) -> OperatorGraph:
    """The built-in topology of that name; InvalidInput names the value and what would have worked."""
    layout, colon, size = name.partition(":")
    if colon and layout in SIZED:
        # int() also takes '１０', '1_0' and ' 10'; a shorthand that looks unlike what is printed back is refused.
        if not (size.isascii() and size.isdigit() and len(size) <= 9):
            msg = f"{name!r} is not a topology; N must be a whole number of tasks, for example {layout}:30"
            raise InvalidInput(msg)
        return SIZED[layout](int(size))
    if name in APPLICATIONS:
        return APPLICATIONS[name].build()
    raise InvalidInput.unknown_name(kind="topology", name=name, known=[row.name for row in list_topologies()])


def _first_line(text: str | None) -> str:
    line = (text or "").strip().splitlines()[0].rstrip(".")
    return line[:1].lower() + line[1:]
