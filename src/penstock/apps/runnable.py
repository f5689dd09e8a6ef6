"""Applications that can be run: built-in ones by name, and a user's own by `file.py:name`.

A user's file is loaded like a script. Its functions go to the workers by value, so that the file need not be installed
there. What it prints meanwhile goes to stderr: stdout is the answer's (`test_what_a_program_prints_is_no_answer`).
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

from penstock.apps import routes
from penstock.errors import InvalidInput, UserError
from penstock.flow import io
from penstock.flow.topology import Topology

RUNNABLE: dict[str, Callable[[io.Source | None], Topology]] = {"routes": lambda source: routes.build(source=source)}


def find_runnable(name: str, input_path: str | None = None) -> Topology:
    """The topology that APP names; `input_path` replaces a built-in application's generated data by Parquet files."""
    if name in RUNNABLE:
        return RUNNABLE[name](None if input_path is None else io.files(input_path))
    path, colon, attribute = name.rpartition(":")
    if not colon or not path.endswith(".py"):
        known = ", ".join(RUNNABLE)
        msg = f"application {name!r} is neither built in (known: {known}) nor of the form file.py:name"
        raise InvalidInput(msg)
    if input_path is not None:
        msg = f"--input is for built-in applications; {name!r} names its own sources"
        raise InvalidInput(msg)
    with redirect_stdout(sys.stderr):
        return _of_program(name, Path(path), attribute)


def _of_program(name: str, path: Path, attribute: str) -> Topology:
    """The topology that a user's file has under a name, or makes by it."""
    module = _load(path)
    if not hasattr(module, attribute):
        msg = f"{path} has no {attribute!r}; name a penstock.Topology in it, or a function that returns one"
        raise InvalidInput(msg)
    found = getattr(module, attribute)
    made = _made(name, path, found) if callable(found) and not isinstance(found, Topology) else found
    if not isinstance(made, Topology):
        msg = f"{name!r} is {type(made).__name__}; it must be a penstock.Topology or a function that returns one"
        raise InvalidInput(msg)
    return made


def _made(name: str, path: Path, function: Callable[[], object]) -> object:
    """What a user's function returns; where it fails, an error of one line that says where."""
    _require_no_arguments(name, function)
    try:
        return function()
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"{name!r} cannot be built: {_told(path, error)}"
        raise InvalidInput(msg) from error


def _require_no_arguments(name: str, function: Callable[[], object]) -> None:
    """Refuse a function that needs arguments; a Spark session, for example, does not exist yet."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function of an extension may not say
        return
    try:
        signature.bind()
    except TypeError as error:
        msg = (
            f"{name!r} takes {signature} but is called without arguments ({error}); write a function that needs none "
            "and returns a penstock.Topology, such as def topology(): ..."
        )
        raise InvalidInput(msg) from None


def _told(path: Path, error: BaseException) -> str:
    """What happened, and the line of the user's file that did it or led to it."""
    what = (
        f"it called sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
    )
    own = [
        line for line in traceback.extract_tb(error.__traceback__) if Path(line.filename).resolve() == path.resolve()
    ]
    return f"{what} ({own[-1].filename}, line {own[-1].lineno})" if own else what


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        msg = f"cannot read {path}: {'it is not a regular file' if path.exists() else 'no such file'}"
        raise InvalidInput(msg)
    sys.path.insert(0, str(path.parent.resolve()))  # workers get this path through the session
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        msg = f"{path} is not a Python file"
        raise InvalidInput(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"{path} cannot be loaded: {_told(path, error)}"
        raise InvalidInput(msg) from error
    return module
