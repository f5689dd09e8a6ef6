"""The texts hold together: links lead somewhere, named files exist, and pages keep to what they promise."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from test_architecture import ALLOWED, ALLOWED_IN_LAB, CORE_ALLOWED

REPOSITORY = Path(__file__).parents[2]
PARTS = ("src", "lab", "core", "tests", "docs", "examples", ".ci")
FOUND = [*REPOSITORY.glob("*"), *(path for part in PARTS for path in (REPOSITORY / part).rglob("*"))]
FILES = sorted(
    str(path.relative_to(REPOSITORY)) for path in FOUND if path.is_file() and "__pycache__" not in path.parts
)
FOLDERS = {str(folder) for path in FILES for folder in Path(path).parents}
PAGES = [REPOSITORY / path for path in FILES if path.endswith(".md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_PATH = re.compile(r"`([A-Za-z_.][\w./-]*)`")
README_LINES_MAX, README_WIDTH_MAX = 110, 120
MADE_ELSEWHERE = {".venv/bin/penstock", "operator/index"}  # by `make`, and the form of a task's id


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What links into a page can name: its headings, as forges spell them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def dead_links(page: Path) -> list[str]:
    """Links of a page to files or headings that are not there."""
    found = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not path.startswith("http") and not (target.exists() and (not anchor or anchor in anchors(target))):
            found.append(link)
    return found


def missing_files(page: Path) -> list[str]:
    """Paths that a page names and that are not there.

    A path may leave out how it begins: `run/machine/machine.py` is `src/penstock/run/machine/machine.py`.
    """
    paths = [path for path in NAMED_PATH.findall(prose(page)) if path not in MADE_ELSEWHERE]
    wanted = [path.rstrip("/") for path in paths if "/" in path or path.endswith((".py", ".cpp", ".hpp"))]
    return [path for path in wanted if not any(f"/{found}".endswith(f"/{path}") for found in (*FILES, *FOLDERS))]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere_and_files_that_are_named_exist(page: Path) -> None:
    assert dead_links(page) == []
    assert missing_files(page) == []


def test_a_dead_link_and_a_missing_file_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A head\n\n[a](#a-head) [b](#b) [c](no.md) `model/check.py` `model/cheque.py`\n")
    assert dead_links(page) == ["#b", "no.md"]
    assert missing_files(page) == ["model/cheque.py"]


def test_the_first_page_is_short_and_names_its_two_commands() -> None:
    lines = (REPOSITORY / "README.md").read_text().splitlines()
    assert len(lines) <= README_LINES_MAX
    assert [line for line in lines if len(line) > README_WIDTH_MAX] == []
    for command in ("make demo", "make test"):
        assert any(command in line for line in lines)


def test_the_index_of_decisions_names_every_page() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    linked = LINK.findall((folder / "README.md").read_text())
    assert sorted(linked) == sorted(path.name for path in folder.glob("0*.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if re.match(r"0\d+-", page.name)], ids=named)
def test_titles_of_decisions_have_one_form(page: Path) -> None:
    number = int(page.name.split("-")[0])
    title = page.read_text().splitlines()[0]
    assert re.fullmatch(rf"# {number}\. [^:]+: .+", title), f"{title!r}; write '# {number}. Subject: what was decided'"


def test_the_glossary_is_in_order() -> None:
    words = re.findall(r"^\| \*\*([^*]+)\*\*", (REPOSITORY / "docs" / "glossary.md").read_text(), flags=re.MULTILINE)
    assert len(words) > 50
    assert [pair for pair in pairwise(words) if pair[0].lower() > pair[1].lower()] == []


def drawn(title: str) -> dict[str, set[str]]:
    """A table of ARCHITECTURE.md: each first column, with the names in the last."""
    section = (REPOSITORY / "ARCHITECTURE.md").read_text().partition(f"### {title}\n")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in section.splitlines() if "|" in line]
    return {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[-1])) for row in rows[2:] if len(row) == 3}


def test_the_map_that_is_drawn_is_the_map_that_is_enforced() -> None:
    assert drawn("Rooms of the product") == {room: may for room, may in ALLOWED.items() if room != "penstock_lab"}
    assert drawn("Rooms of the laboratory") == ALLOWED_IN_LAB
    libraries = {name: may for name, may in CORE_ALLOWED.items() if name != "tests"}
    assert drawn("Libraries of the core") == {f"core/{name}": may for name, may in libraries.items()}
