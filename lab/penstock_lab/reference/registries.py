"""The pages that are tables: schedulers and policies from their registries, errors from their tree, metric tables.

Rows that other packages register are left out: the page is about what Penstock itself has.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from penstock import errors
from penstock.optimise.fuse.contract import METHODS
from penstock.optimise.fuse.ratio_cut import METHODS as CUTS
from penstock.optimise.place import SCHEDULERS
from penstock.run.engine.meters import ADDED, TABLES
from penstock.run.region.policies import POLICIES

OURS = "penstock."
NOTE = "Made from the code by `make reference`; do not edit.\n"
LIMITS = """\
"Looks at" says which limits a scheduler keeps by itself; every plan is checked against all of them afterwards.
Settings go through `--set NAME=VALUE` of `penstock place`, or `ps.Options(settings={...})`; their defaults are in
[files.md](files.md#settings-of-schedulers).
"""
BALANCE = """\
The names that `balance=` of `parallel` takes. `oracle` needs weights, so it is written `weights=[...]`.
"""
METRICS = """\
What `job.metrics(table)` gives and what a metric log holds, as Parquet files in a folder for each table. Times are
microseconds since 1970. Columns marked "interval" count what happened in the `interval_us` that end at `time_us`; the
others say how things stand then. The [guide](../guide/observe.md) says what the tables are for.
"""
TREE = """\
Every error that Penstock raises on purpose is one of these; all are names of `penstock`. The exit status is that of
the command line; an interrupt exits with 130. Messages name the thing, the value, the limit and the next step.
"""


def schedulers_page() -> str:
    """Schedulers, fusion methods, ways to cut, and policies of parallel regions."""
    return "\n".join(
        [
            "# Schedulers, fusion methods and policies\n",
            NOTE,
            LIMITS,
            "## Schedulers\n",
            _table(("name", "what it is", "looks at", "settings"), _scheduler_rows()),
            "## Fusion methods\n",
            _table(("name", "what it is", "searches under constraints"), _method_rows()),
            "## Cuts of fusion\n",
            _table(("name", "what it is"), [(f"`{name}`", _head(module)) for name, module in CUTS.items()]),
            "## Policies of parallel regions\n",
            BALANCE,
            _table(("name", "what it is", "settings and defaults"), _policy_rows()),
        ]
    )


def errors_page() -> str:
    """The tree of errors with what each means and the exit status of the command line."""
    rows = [
        (f"`{kind.__name__}`", _bases(kind), str(kind.exit_code), _first_line(kind.__doc__))
        for kind in _tree(errors.PenstockError)
    ]
    return "\n".join(
        [
            "# Errors\n",
            NOTE,
            TREE,
            _table(("error", "is a", "exit status", "meaning"), rows),
        ]
    )


def metrics_page() -> str:
    """The tables of the metric log with their columns."""
    parts = ["# Metric tables\n", NOTE, METRICS]
    for name, schema in TABLES.items():
        rows = [(f"`{f.name}`", str(f.type), "interval" if f.name in ADDED[name] else "") for f in schema]
        parts += [f"## `{name}`\n", _table(("column", "type", "counts"), rows)]
    return "\n".join(parts)


def _tree(kind: type[errors.PenstockError]) -> list[type[errors.PenstockError]]:
    """A class and those below it, in the order of the file."""
    below = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [kind, *(found for child in below for found in _tree(child))]


def _bases(kind: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in kind.__bases__)


def _scheduler_rows() -> list[tuple[str, ...]]:
    order = ("cpu", "memory", "bandwidth", "constraints")
    return [
        (
            f"`{scheduler.name}`",
            scheduler.summary,
            ", ".join(limit for limit in order if limit in scheduler.looks_at) or "slots",
            ", ".join(f"`{name}`" for name in scheduler.settings) or "-",
        )
        for scheduler in SCHEDULERS.values()
        if scheduler.module.startswith(OURS)
    ]


def _method_rows() -> list[tuple[str, ...]]:
    return [
        (f"`{method.name}`", method.summary, "yes" if method.honours_constraints else "no")
        for method in METHODS.values()
        if method.module.startswith(OURS)
    ]


def _policy_rows() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for entry in POLICIES.values():
        if entry.module.startswith(OURS):
            settings = getattr(importlib.import_module(entry.module), "SETTINGS", {})
            shown = ", ".join(f"`{name}` {value:g}" for name, value in settings.items())
            found.append((f"`{entry.name}`", entry.summary, shown or "-"))
    return found


def _head(module: str) -> str:
    """The first sentence of a module's head."""
    return _first_line(importlib.import_module(module).__doc__)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"
