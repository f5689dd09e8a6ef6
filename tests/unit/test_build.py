"""The build that processes compare: it changes with every file of the package and with the core."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock import _core
from penstock.run.build import SHOWN, own_build

ASKED = "from penstock.run.build import own_build; print(own_build())"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A package of its own: the sources and the core in one folder, as a wheel has them."""
    made = tmp_path / "penstock"
    shutil.copytree(Path(penstock.__file__).parent, made, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_core.__file__, made)
    return made


def build_of(package: Path) -> str:
    """As a process that imports this copy says it."""
    line = [
        sys.executable,
        "-S",
        "-P",
        "-c",
        f"import sys; sys.path[:0] = {[str(package.parent), *sys.path]!r}; {ASKED}",
    ]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()


def digests(build: str) -> tuple[str, str]:
    """Of the core and of the package."""
    found = re.search(r"\(core ([0-9a-f]+), package ([0-9a-f]+)\)$", build)
    assert found is not None, build
    return found[1], found[2]


def test_a_build_is_a_version_and_two_digests() -> None:
    assert own_build()[0].isdigit()
    assert [len(digest) for digest in digests(own_build())] == [SHOWN, SHOWN]


def test_equal_files_are_one_build_wherever_they_lie(copy: Path) -> None:
    assert digests(build_of(copy)) == digests(own_build())


def test_a_changed_line_and_a_changed_core_are_other_builds(copy: Path) -> None:
    core, package = digests(own_build())
    with (copy / "errors.py").open("a") as file:
        file.write("# changed\n")
    assert digests(build_of(copy))[0] == core
    assert digests(build_of(copy))[1] != package
    with next(copy.glob("_core*.so")).open("ab") as file:
        file.write(b"\0")
    assert digests(build_of(copy))[0] != core
