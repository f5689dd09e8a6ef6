"""Verbs of other packages, the laboratory's first of all; where that is not installed, its verbs say how to get it.

A package's function gets an app of its own, from which the verb that its entry point names is taken over and no other.
Verbs of ours cannot be replaced, and a package that cannot be loaded costs its own verb and no other
(tests/unit/test_extensions.py).
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import typer

from penstock.errors import InvalidInput
from penstock.extensions import COMMANDS, OURS, extensions_of, package_of, taken, why_not_loaded

# Verbs that users know from the documentation, and the package that has them.
ELSEWHERE = {"reproduce": "penstock-lab", "bench": "penstock-lab", "torture": "penstock-lab"}


def register(app: typer.Typer) -> None:
    """Add the verbs that installed packages bring, and stand-ins for those that people will ask for."""
    own = {_name(command) for command in app.registered_commands}
    known = extensions_of(COMMANDS)
    for name, points in known.items():
        packages = [package_of(point) for point in points]
        if name in own:
            _tell(name, taken("verb", name, (OURS, *packages)))
        elif len(points) > 1:
            _stand_in(app, name, taken("verb", name, packages))
        else:
            _add(app, name, points[0])
    for name, package in ELSEWHERE.items():
        if name not in known:
            _stand_in(app, name, f"{name!r} is part of the package {package!r}; run: pip install {package}")


def _add(app: typer.Typer, name: str, point: EntryPoint) -> None:
    """Add the verb of one package, or a stand-in that says what is wrong with it."""
    theirs = typer.Typer()
    try:
        point.load()(theirs)
        found = [command for command in theirs.registered_commands if _name(command) == name]
        fault = "" if len(found) == 1 else f"it adds {len(found)} verbs of that name"
    except (Exception, SystemExit) as error:
        found, fault = [], why_not_loaded(error)
    if fault:
        _stand_in(
            app, name, f"verb {name!r} of package {package_of(point)!r} cannot be used: {fault}; mend or remove it"
        )
    else:
        app.registered_commands.append(found[0])


def _name(command: typer.models.CommandInfo) -> str:
    """The verb as it is typed."""
    function = command.callback
    return command.name or ("" if function is None else function.__name__.replace("_", "-"))


def _tell(name: str, message: str) -> None:
    """Tell the user of a verb of ours that another package wanted it."""
    if sys.argv[1:2] == [name]:
        typer.echo(f"penstock: note: {message}", err=True)


def _stand_in(app: typer.Typer, name: str, message: str) -> None:
    @app.command(
        name,
        help=message,
        hidden=True,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )
    def refuse() -> None:
        raise InvalidInput(message)
