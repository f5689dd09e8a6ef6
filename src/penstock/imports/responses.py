"""Answers that were saved to files: one JSON file, or a folder of them, by name."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import InvalidInput
from penstock.model.documents import read_document

ANSWERS_MAX = 5_000
BYTES_MAX = 256 * 1024 * 1024  # of all answers together


def read_answers(source: str | Path) -> dict[str, object]:
    """Every JSON document of a file or folder, by its path below the folder."""
    path = Path(source)
    if not path.is_dir():
        return {path.name: read_document(path)}
    files: list[Path] = []
    size = 0
    for file in path.rglob("*.json"):
        if file.is_dir() or any(part.startswith(".") for part in file.relative_to(path).parts):
            continue
        files.append(file)
        size += _size(file)
        if len(files) > ANSWERS_MAX or size > BYTES_MAX:
            msg = f"{path} holds more than {ANSWERS_MAX} JSON files or {BYTES_MAX >> 20} MiB of them; give one job's"
            raise InvalidInput(msg)
    if not files:
        msg = f"{path} holds no JSON files; save each answer to a file that ends in .json"
        raise InvalidInput(msg)
    return {file.relative_to(path).as_posix(): read_document(file) for file in sorted(files)}


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0  # reading it says what is wrong
