"""The stub `_core.pyi` against the core. It is written by hand: generated signatures lose the types inside tuples.

Every class, function, method and constant of the native module must be in the stub and the other way round, with the
same parameters: their number and, where the binding names them, their names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock
from penstock import _core

STUB = Path(penstock.__file__).with_name("_core.pyi")
Declared = dict[str, ast.FunctionDef | ast.ClassDef | None]


def _declared(body: list[ast.stmt]) -> Declared:
    """Names of a stub's module or class; None for constants and attributes."""
    found: Declared = {}
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = None
        elif isinstance(statement, ast.Assign):
            found.update((target.id, None) for target in statement.targets if isinstance(target, ast.Name))
    return found


def _public(names: Iterator[str] | list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def _native_parameters(signature: str) -> list[str]:
    """The parameters of "def name(self, a: ndarray[dtype=int32], b: int = 1) -> int", without `/` and `*`."""
    inner = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    parts, depth = [""], 0
    for character in inner:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.split(":")[0].split("=")[0].strip() for part in parts if part.strip() not in {"", "/", "*"}]


def _stub_parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    star = [arguments.vararg] if arguments.vararg else []
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *star, *arguments.kwonlyargs)]


def _named(parameter: str) -> bool:
    return not (parameter.startswith("arg") and parameter[3:].isdigit()) and parameter != "arg"


def test_the_stub_declares_the_same_names_and_parameters_as_the_core() -> None:
    declared = _declared(ast.parse(STUB.read_text(encoding="utf-8")).body)
    wrong: list[str] = []
    _compare("_core", _core, declared, wrong)
    assert wrong == []


def _compare(where: str, native: object, declared: Declared, wrong: list[str]) -> None:
    own = _public(list(vars(native)))
    wrong += [f"{where}.{name} is not in the stub" for name in sorted(own - _public(list(declared)))]
    wrong += [f"{where}.{name} is not in the core" for name in sorted(_public(list(declared)) - own)]
    for name in sorted(own & set(declared)):
        thing, statement = getattr(native, name), declared[name]
        if isinstance(statement, ast.ClassDef):
            if not issubclass(thing, BaseException):
                _compare(f"{where}.{name}", thing, _declared(statement.body), wrong)
        elif isinstance(statement, ast.FunctionDef):
            _compare_parameters(f"{where}.{name}", thing, statement, wrong)


def _compare_parameters(where: str, thing: object, statement: ast.FunctionDef, wrong: list[str]) -> None:
    signatures = getattr(thing, "__nb_signature__", ())
    if len(signatures) != 1:  # a property, a method of a plain CPython type, or several overloads
        return
    native, stub = _native_parameters(signatures[0][0]), _stub_parameters(statement)
    same = len(native) == len(stub) and all(a == b for a, b in zip(native, stub, strict=True) if _named(a))
    if not same:
        wrong.append(f"{where} takes {', '.join(native)} but its stub says {', '.join(stub)}")


def test_the_comparison_sees_a_difference() -> None:
    wrong: list[str] = []
    _compare("_core", _core, _declared(ast.parse("class Effort:\n    def later(self) -> None: ...").body), wrong)
    assert "_core.Effort.later is not in the core" in wrong
    assert "_core.Network is not in the stub" in wrong
