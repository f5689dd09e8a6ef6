"""Every code block of README and guide runs: Python in a real session, commands, and JSON as the files of these."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from documented_code import blocks_of, commands_of, script_of
from pyspark.sql import SparkSession

from penstock.cli import run_command

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs" / "guide").glob("*.md"))]
LANGUAGES = {"python", "sh", "json", "text"}
NOT_RUN = 6  # they start sessions of their own, or need other hosts or a job's folder; each says so in its page


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, as a reader may have one, with the repository's examples beside it."""
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_python_of_a_page_runs(page: Path, spark: SparkSession, folder: Path) -> None:
    script = folder / f"{page.stem}.py"  # tracebacks name its lines, which are the page's
    script.write_text(script_of(blocks_of(page)))
    runpy.run_path(str(script), run_name="__main__")  # functions of it travel to workers as a user's own do


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_commands_of_a_page_run(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = blocks_of(page)
    for block in blocks:
        if block.language == "json" and block.name:
            (folder / block.name).write_text(block.text)
    for command in commands_of(blocks):
        monkeypatch.setattr(sys, "argv", ["penstock", *command])
        assert run_command() == 0, f"penstock {' '.join(command)}: {capsys.readouterr().err}"


def test_blocks_that_do_not_run_are_few_and_say_why() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert {block.language for block in blocks} <= LANGUAGES
    left_alone = [block for block in blocks if block.not_run is not None]
    assert len(left_alone) == NOT_RUN
    assert sum(block.language == "python" for block in left_alone) == 0


def test_the_reader_of_pages_sees_blocks_names_and_reasons(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "a\n\n```python\nx = 1\n```\n\n<!-- not run: why -->\n```sh\npenstock run a\n```\n\n"
        "```json a.json\n{}\n```\n\n```sh\nmake demo\npenstock check a.json  # quick\n```\n\n```python\ny = x\n```\n"
    )
    blocks = blocks_of(page)
    assert [(b.language, b.name, b.not_run) for b in blocks] == [
        ("python", "", None),
        ("sh", "", "why"),
        ("json", "a.json", None),
        ("sh", "", None),
        ("python", "", None),
    ]
    assert commands_of(blocks) == [["check", "a.json"]]
    assert script_of(blocks).splitlines()[3] == page.read_text().splitlines()[3] == "x = 1"
    assert script_of(blocks).splitlines()[-1] == "y = x"
