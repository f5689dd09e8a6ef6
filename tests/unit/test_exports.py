"""The public face is re-exports only, complete, and typed."""

from __future__ import annotations

import ast
from pathlib import Path

import penstock


def test_the_face_holds_re_exports_only() -> None:
    tree = ast.parse(Path(penstock.__file__).read_text())
    for node in tree.body[1:]:
        assert isinstance(node, ast.ImportFrom | ast.Assign), ast.dump(node)
        if isinstance(node, ast.Assign):
            assert [target.id for target in node.targets if isinstance(target, ast.Name)] == ["__all__"]


def test_all_names_exist_once_and_are_sorted() -> None:
    assert list(penstock.__all__) == sorted(set(penstock.__all__))
    for name in penstock.__all__:
        assert hasattr(penstock, name)


def test_every_imported_name_is_exported() -> None:
    tree = ast.parse(Path(penstock.__file__).read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    assert imported == set(penstock.__all__)


def test_every_error_is_exported() -> None:
    from penstock import errors

    public = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert public <= set(penstock.__all__)


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(penstock.__file__).parent / "py.typed").exists()
