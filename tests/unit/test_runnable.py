"""Applications by name or file: what is found, and a user's mistakes told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.apps.runnable import find_runnable
from penstock.errors import InvalidInput

MODULE = """
import penstock as ps

def built():
    top = ps.Topology("mine")
    top.source("a", ps.io.generator(lambda task, tasks: [(1,)], "i bigint")).sink("out", ps.io.discard())
    return top

def raising():
    return 1 // 0

def wanting(argument):
    return built()

def leaving():
    import sys
    sys.exit(3)

def misusing():
    return ps.Topology("mine", 3)

number = 7
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "mine_for_runnable.py"
    path.write_text(MODULE)
    return str(path)


def test_a_function_that_returns_a_topology_is_called(module: str) -> None:
    assert find_runnable(f"{module}:built").name == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raising", r"raising' cannot be built: ZeroDivisionError: .*mine_for_runnable.py, line 10"),
        (
            "wanting",
            r"wanting' takes \(argument\) but is called without arguments .*; write a function that needs none",
        ),
        ("leaving", r"leaving' cannot be built: it called sys.exit\(3\) \(.*mine_for_runnable.py, line 17\)"),
        ("misusing", r"misusing' cannot be built: TypeError: .* \(.*mine_for_runnable.py, line 20\)"),
        ("number", r"number' is int; it must be a penstock.Topology"),
        ("absent", r"has no 'absent'"),
    ],
)
def test_a_mistake_in_a_users_file_is_one_line(module: str, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        find_runnable(f"{module}:{name}")
    assert "\n" not in str(caught.value)


def test_a_file_that_leaves_while_it_is_loaded_is_named(tmp_path: Path) -> None:
    path = tmp_path / "leaves_for_runnable.py"
    path.write_text("import sys\n\nsys.exit('no data today')\n")
    with pytest.raises(InvalidInput, match=r"cannot be loaded: it called sys.exit\('no data today'\) \(.*, line 3\)"):
        find_runnable(f"{path}:TOP")
