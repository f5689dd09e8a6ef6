"""Texts in the code name the tests that hold their promises; a test that is renamed must be renamed there too."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXTS = ("src/**/*.py", "lab/**/*.py", "core/**/*.hpp", "core/**/*.cpp")
NAMED = re.compile(r"`(?:tests/[\w/]+\.py::)?(test_\w+)`")


def _unknown(texts: dict[str, str], known: set[str]) -> list[str]:
    """Each named test that is not known, with the file that names it."""
    return [f"{path}: {name}" for path, text in texts.items() for name in NAMED.findall(text) if name not in known]


def test_tests_that_texts_name_exist() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("tests/**/*.py")))
    known = set(re.findall(r"^ *def (test_\w+)\(", tests, re.MULTILINE))
    paths = [path for pattern in TEXTS for path in sorted(ROOT.glob(pattern))]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    assert sum(len(NAMED.findall(text)) for text in texts.values()) > 50
    assert _unknown(texts, known) == []


def test_a_name_that_no_test_has_is_found() -> None:
    texts = {"a.py": "holds (`test_gone`, `tests/unit/test_x.py::test_here`)"}
    assert _unknown(texts, {"test_here"}) == ["a.py: test_gone"]
