"""The public face is re-exports only, complete, and typed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

TREE = ast.parse(Path(penstock.__file__).read_text())
LATE = {"Job"}  # imported when it is first asked for: the deployment comes with it


def for_type_checkers() -> ast.If:
    """The one condition of the face: what type checkers read, and how the same is found when the program runs."""
    (found,) = [node for node in TREE.body if isinstance(node, ast.If)]
    assert ast.unparse(found.test) == "TYPE_CHECKING"
    return found


def test_the_face_holds_re_exports_only() -> None:
    for node in TREE.body[1:]:
        assert isinstance(node, ast.ImportFrom | ast.Assign | ast.If), ast.dump(node)
        if isinstance(node, ast.Assign):
            assert [target.id for target in node.targets if isinstance(target, ast.Name)] == ["__all__"]
    late = for_type_checkers()
    assert all(isinstance(node, ast.ImportFrom) for node in late.body)
    (found,) = late.orelse
    assert isinstance(found, ast.FunctionDef)
    assert found.name == "__getattr__"


def test_all_names_exist_once_and_are_sorted() -> None:
    assert list(penstock.__all__) == sorted(set(penstock.__all__))
    for name in penstock.__all__:
        assert hasattr(penstock, name)


def test_every_imported_name_is_exported() -> None:
    imported = {
        alias.asname or alias.name
        for node in [*TREE.body, *for_type_checkers().body]
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    assert imported == set(penstock.__all__)


def test_late_names_are_what_type_checkers_are_told() -> None:
    told = {alias.name: node.module for node in for_type_checkers().body for alias in node.names}  # type: ignore[attr-defined]
    assert set(told) == LATE
    assert penstock.Job.__module__ == told["Job"]
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'Jobs'"):
        _ = penstock.Jobs  # type: ignore[attr-defined]


def test_a_topology_runs_without_another_import() -> None:
    """The deployment is found by the first job, however little was imported before."""
    code = (
        "import penstock as ps\n"
        "try:\n    ps.Topology('t').run(None, schedular='best')\n"
        "except ps.InvalidInput as error:\n    print(error)\n"
        "print(ps.Job.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "run and start have no option 'schedular'; did you mean 'scheduler'?\nJob\n"


def test_every_error_is_exported() -> None:
    from penstock import errors

    public = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert public <= set(penstock.__all__)


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(penstock.__file__).parent / "py.typed").exists()
