"""Published figures, ours beside theirs. A figure is a declaration; `measure`, `item` and `page` do the work.

reproduce(["t3-fig5", "t3-fig6"], Path("out"), progress)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.apps.layouts import PUBLISHED_SIZES
from penstock.errors import InvalidInput
from penstock_lab.reproduce import balance_depth, balance_sweeps, ischeduler_figures, t3_figures, turbostream_fig8
from penstock_lab.reproduce.balance_item import FULL, BalanceItem, Scale
from penstock_lab.reproduce.cola_table1 import TableItem
from penstock_lab.reproduce.item import Item, Report, door
from penstock_lab.reproduce.measure import REPEATS, Measurements, Place, Progress
from penstock_lab.reproduce.page import write_index
from penstock_lab.reproduce.turbostream_fig8 import TransportFigure

__all__ = ["ABOUT_SECONDS", "ITEMS", "Item", "Progress", "Report", "find_item", "reproduce"]

Reproducible = Item | TransportFigure | BalanceItem | TableItem

_BALANCE = sorted((*balance_depth.ITEMS, *balance_sweeps.ITEMS), key=lambda item: int(item.name.partition("fig")[2]))
_ALL: tuple[Reproducible, ...] = (
    *t3_figures.ITEMS,
    *ischeduler_figures.ITEMS,
    *turbostream_fig8.ITEMS,
    *_BALANCE,
    TableItem(),
)
ITEMS: dict[str, Reproducible] = {item.name: item for item in _ALL}

# Seconds of each item by itself on two shared cores: rough, but enough to tell a minute from a second. Figures of one
# paper's placements share their measurements, so all of them together take less than the sum.
ABOUT_SECONDS: dict[str, int] = {
    "t3-fig5": 15,
    "t3-fig6": 15,
    "ischeduler-fig4": 20,
    "ischeduler-fig5": 10,
    "ischeduler-fig6": 10,
    "ischeduler-fig7": 20,
    "ischeduler-fig8": 10,
    "ischeduler-fig9": 10,
    "turbostream-fig8": 300,
    "balance-fig5": 5,
    "balance-fig8": 15,
    "balance-fig9": 45,
    "balance-fig10": 60,
    "balance-fig11": 30,
    "balance-fig12": 15,
    "balance-fig13": 300,
    "cola-table1": 75,
}


def find_item(name: str) -> Reproducible:
    """The item of that name, or InvalidInput listing the known ones."""
    if name not in ITEMS:
        raise InvalidInput.unknown_name(kind="item", name=name, known=ITEMS)
    return ITEMS[name]


def reproduce(
    names: Sequence[str],
    out_dir: Path,
    progress: Progress,
    *,
    place: Place | None = None,
    sizes: Sequence[int] = PUBLISHED_SIZES,
    repeats: int = REPEATS,
    scale: Scale = FULL,
) -> list[Report]:
    """Run the named items (none: all of them), sharing measurements; several also get an index.md."""
    items = [find_item(name) for name in dict.fromkeys(names or ITEMS)]
    measurements = Measurements(place or door(), repeats)
    reports = []
    for number, item in enumerate(items):

        def within(done: int, total: int, text: str, number: int = number, name: str = item.name) -> None:
            # Each item is an equal share of the bar; an item whose rows are measured already passes quickly.
            progress(number * total + done, len(items) * total, f"{name}: {text}")

        if isinstance(item, Item):
            reports.append(item.run(out_dir, within, sizes=sizes, measurements=measurements))
        elif isinstance(item, BalanceItem):
            reports.append(item.run(out_dir, within, scale=scale))
        else:
            reports.append(item.run(out_dir, within))
    if len(reports) > 1:
        write_index(reports, out_dir / "index.md")
    return reports
