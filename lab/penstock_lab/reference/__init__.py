"""The reference pages that are made from the code: `make reference` writes them to `docs/reference/`.

    pages() -> {"python.md": "...", "command-line.md": "...", "schedulers.md": "...", ...}

`tests/unit/test_reference.py` makes them in memory and says when those in the repository are older. Rejected: Sphinx
and pdoc, which bring themes, servers and dozens of packages for five pages that are read in an editor or on a forge.
"""

from __future__ import annotations

from penstock_lab.reference.command_line import command_line_page
from penstock_lab.reference.python_names import python_page
from penstock_lab.reference.registries import errors_page, metrics_page, schedulers_page


def pages() -> dict[str, str]:
    """Every generated page by the name of its file."""
    return {
        "python.md": python_page(),
        "command-line.md": command_line_page(),
        "schedulers.md": schedulers_page(),
        "metrics.md": metrics_page(),
        "errors.md": errors_page(),
    }
