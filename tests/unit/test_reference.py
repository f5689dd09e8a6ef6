"""The generated pages of docs/reference are those that the code would make now."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import penstock
from penstock.errors import PenstockError
from penstock_lab.reference import pages
from penstock_lab.reference.__main__ import main

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
WRITTEN_BY_HAND = {"README.md", "files.md"}


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages()


def test_the_pages_are_up_to_date(made: dict[str, str]) -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == {*made, *WRITTEN_BY_HAND}
    old = [name for name, text in made.items() if (FOLDER / name).read_text() != text]
    assert old == [], "these are older than the code; run: make reference"


def test_every_public_name_has_its_place(made: dict[str, str]) -> None:
    for name in penstock.__all__:
        thing = getattr(penstock, name)
        page = "errors.md" if isinstance(thing, type) and issubclass(thing, PenstockError) else "python.md"
        assert f"`{name}`" in made[page] or f"ps.{name}" in made[page], f"{name} is not in {page}"


def test_pages_do_not_depend_on_the_terminal(made: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "43")
    monkeypatch.setenv("FORCE_COLOR", "1")
    arguments = list(sys.argv)
    assert pages() == made
    assert sys.argv == arguments
    assert os.environ["COLUMNS"] == "43"


def test_the_command_writes_what_changed_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("penstock_lab.reference.__main__.pages", lambda: {"a.md": "# A\n", "b.md": "# B\n"})
    main(tmp_path / "reference")
    (tmp_path / "reference" / "b.md").write_text("# old\n")
    capsys.readouterr()
    main(tmp_path / "reference")
    assert capsys.readouterr().out == f"{tmp_path / 'reference' / 'b.md'} has changed\n"
    assert (tmp_path / "reference" / "b.md").read_text() == "# B\n"
