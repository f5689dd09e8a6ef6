"""Code out of Markdown pages: what a page tells its reader to run, in page order.

A page's `python` blocks are one script, so later blocks may use names of earlier ones. `json NAME` blocks are files.
Lines of `sh` blocks that begin with `penstock` are commands. A block behind `<!-- not run: reason -->` is counted and
left alone.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\S*)[ ]?(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: (.+) -->\n\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    name: str  # of the file that it is, where it is one
    text: str
    line: int  # of its first line of code in the page
    not_run: str | None  # why


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        reason = NOT_RUN.search(text[: match.start()])
        line = text[: match.start(3)].count("\n") + 1
        found.append(Block(match[1], match[2], match[3], line, reason[1] if reason else None))
    return found


def script_of(blocks: list[Block]) -> str:
    """The page's Python as one script whose lines have the numbers that they have in the page."""
    lines: list[str] = []
    for block in blocks:
        if block.language == "python" and block.not_run is None:
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


def commands_of(blocks: list[Block]) -> list[list[str]]:
    """The page's `penstock` commands, as arguments."""
    texts = [block.text for block in blocks if block.language == "sh" and block.not_run is None]
    words = [shlex.split(line, comments=True) for text in texts for line in text.splitlines()]
    return [line[1:] for line in words if line[:1] == ["penstock"]]
