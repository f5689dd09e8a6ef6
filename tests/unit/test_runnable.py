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
        ("wanting", r"wanting' cannot be built: TypeError: .*argument"),
        ("number", r"number' is int; it must be a penstock.Topology"),
        ("absent", r"has no 'absent'"),
    ],
)
def test_a_mistake_in_a_users_file_is_one_line(module: str, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        find_runnable(f"{module}:{name}")
    assert "\n" not in str(caught.value)
