"""From bytes to plain values: JSON and YAML documents, read with limits and without surprises.

Hostile or careless files are stopped here: size, nesting, duplicate keys (the last would silently win), YAML aliases (a
few lines can expand to gigabytes) and YAML tags (which make Python objects). Every fault is an InvalidInput with the
file's name (`test_no_document_breaks_the_reader`).
"""

from __future__ import annotations

import json
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from penstock.errors import InvalidInput

FILE_BYTES_MAX = 64 * 1024 * 1024
YAML_BYTES_MAX = 4 * 1024 * 1024  # its parser needs about a hundred times longer than JSON's
YAML_SUFFIXES = {".yaml", ".yml"}


def read_document(path: Path) -> object:
    """The plain value that a JSON or YAML file holds."""
    is_yaml = path.suffix.lower() in YAML_SUFFIXES
    text = _text(_read_bytes(path, YAML_BYTES_MAX if is_yaml else FILE_BYTES_MAX), str(path))
    return _parsed(text, str(path), is_yaml=is_yaml)


def parse_json(data: bytes, name: str) -> object:
    """The plain value of a JSON document that came from elsewhere; `name` is what errors call it."""
    return _parsed(_text(data, name), name, is_yaml=False)


def _parsed(text: str, name: str, *, is_yaml: bool) -> object:
    try:
        return yaml.load(text, _PlainLoader) if is_yaml else json.loads(text, object_pairs_hook=_unique)  # noqa: S506
    except RecursionError:
        msg = f"{name} is nested too deeply to be one of our files"
        raise InvalidInput(msg) from None
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        msg = f"{name} is not valid {'YAML' if is_yaml else 'JSON'}: {reason}"
        raise InvalidInput(msg) from None


def _read_bytes(path: Path, bytes_max: int) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():  # reading a pipe would wait for its writer
            msg = f"cannot read {path}: it is not a regular file; write what it gives to a file first"
            raise InvalidInput(msg)
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise InvalidInput(msg) from None
    if len(data) > bytes_max:
        msg = f"{path} is larger than {bytes_max // (1024 * 1024)} MiB, the limit for a file of this kind"
        raise InvalidInput(msg)
    return data


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"{name} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
        raise InvalidInput(msg) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                msg = f"key {key!r} appears twice in one object"
                raise ValueError(msg)
            seen.add(key)
    return found


class _PlainLoader(yaml.SafeLoader):
    """SafeLoader without aliases, and with duplicate keys refused."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401 - PyYAML's own
        if self.check_event(yaml.AliasEvent):
            msg = "aliases are not allowed in our files"
            raise yaml.YAMLError(msg)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(keys):
            repeated = next(key for key in keys if keys.count(key) > 1)
            msg = f"key {repeated!r} appears twice (line {node.start_mark.line + 1})"
            raise yaml.YAMLError(msg)
        return super().construct_mapping(node, deep=True)
