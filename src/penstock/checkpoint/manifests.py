"""Manifests as files: one JSON object, whose last field is the checksum of everything before it.

Who reads one trusts nothing: size, checksum, types, limits, and that the files which it names lie beneath the root
(`test_a_manifest_that_was_made_up_is_refused`). What is written has passed the same checks, so nothing is committed
that cannot be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NoReturn

from penstock.checkpoint.contract import Branch, Manifest, Part
from penstock.checkpoint.names import PARTS
from penstock.errors import CheckpointDamaged, InvalidInput
from penstock.run.contract import Staged

FORMAT = 2
MANIFEST_BYTES_MAX = 64 << 20
PARTS_MAX = 100_000
STAGED_MAX = 1_000_000  # files of one worker and epoch
TASKS_MAX = 1_000_000
BRANCHES_MAX = 100_000  # times that a job has gone back
TEXT_MAX = 4_096  # characters of a name or path
EPOCH_MAX = 10**15
ATTEMPT_MAX = 10**9
COUNT_MAX = 1 << 62
SEAL = ',"checksum":"'
SEAL_END = '"}\n'
DIGEST_CHARACTERS = 64


class _Fault(Exception):
    """What is wrong with a manifest."""


def sealed(document: Mapping[str, object]) -> bytes:
    """A small JSON object with its checksum; not empty."""
    body = json.dumps(document, separators=(",", ":"))[:-1]
    return f"{body}{SEAL}{_digest(body.encode())}{SEAL_END}".encode()


def unsealed(data: bytes, path: str) -> dict[str, Any]:
    """The object that `sealed` made; CheckpointDamaged where one byte differs."""
    length = len(SEAL) + DIGEST_CHARACTERS + len(SEAL_END)
    body, seal = data[:-length], data[-length:]
    if len(body) < 2 or not seal.startswith(SEAL.encode()) or not seal.endswith(SEAL_END.encode()):
        raise CheckpointDamaged(path, f"it is cut off or overwritten: {len(data):,} bytes do not end in a checksum")
    if seal[len(SEAL) : -len(SEAL_END)] != _digest(body).encode():
        raise CheckpointDamaged(path, f"its {len(data):,} bytes do not match their checksum")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise CheckpointDamaged(path, "it is not JSON") from None
    if not isinstance(found, dict) or found.get("penstock") != FORMAT:
        raise CheckpointDamaged(path, f"it is not of format {FORMAT}, which this version of Penstock reads")
    return found


def encode(manifest: Manifest) -> bytes:
    """The bytes of a manifest; InvalidInput where a reader would refuse them."""
    document = document_of(manifest)
    data = sealed({"penstock": FORMAT, **document})
    try:
        if len(data) > MANIFEST_BYTES_MAX:
            _refuse(
                f"its manifest has {len(data):,} bytes, more than {MANIFEST_BYTES_MAX:,}; let sinks write fewer files"
            )
        _manifest(document)
    except _Fault as fault:
        msg = f"epoch {manifest.epoch} cannot be committed: {fault}"
        raise InvalidInput(msg) from None
    return data


def decode(data: bytes, path: str) -> Manifest:
    """The manifest that a file holds; `path` is what errors call it."""
    found = unsealed(data, path)
    try:
        return _manifest(found)
    except _Fault as fault:
        raise CheckpointDamaged(path, str(fault)) from None


def document_of(manifest: Manifest) -> dict[str, Any]:
    """A manifest as JSON has it."""
    return {
        "epoch": manifest.epoch,
        "attempt": manifest.attempt,
        "topology": manifest.topology,
        "tasks": dict(manifest.tasks),
        "parts": [
            {
                "worker": part.worker,
                "path": part.path,
                "size": part.size,
                "checksum": part.checksum,
                "tasks": list(part.tasks),
                "finished": list(part.finished),
                "staged": [list(staged) for staged in part.staged],
            }
            for part in manifest.parts
        ],
        "is_last": manifest.is_last,
        "worker_of": dict(manifest.worker_of),
        "written_us": manifest.written_us,
        "name": manifest.name,
        "line": [list(branch) for branch in manifest.line],
        "shown": dict(manifest.shown),
    }


def _manifest(found: Mapping[str, Any]) -> Manifest:
    parts = tuple(_part(part) for part in _listed(found, "parts", PARTS_MAX))
    workers = [part.worker for part in parts]
    if len(set(workers)) < len(workers):
        _refuse("it has two parts of one worker")
    name = found.get("name")
    return Manifest(
        epoch=_whole(found, "epoch", 1, EPOCH_MAX),
        attempt=_whole(found, "attempt", 1, ATTEMPT_MAX),
        topology=_text(found.get("topology"), "topology"),
        tasks=_counts(found, "tasks", 1),
        parts=parts,
        is_last=_truth(found, "is_last"),
        worker_of=_counts(found, "worker_of", 0),
        written_us=_whole(found, "written_us", 0, COUNT_MAX),
        name=None if name is None else _text(name, "name"),
        line=tuple(_branch(entry) for entry in _listed(found, "line", BRANCHES_MAX)),
        shown=_counts(found, "shown", 1),
    )


def _part(found: object) -> Part:
    if not isinstance(found, dict):
        _refuse(f"it has {str(found)[:80]} where a part should be")
    path = _text(found.get("path"), "path")
    steps = path.split("/")
    if steps[0] != PARTS or len(steps) < 2 or {"", ".", ".."} & set(steps) or "\\" in path or "\0" in path:
        _refuse(f"it names the file {path[:80]!r}, which is not one beneath {PARTS}/")
    checksum = _text(found.get("checksum"), "checksum")
    tasks, finished = (
        tuple(_text(task, name) for task in _listed(found, name, TASKS_MAX)) for name in ("tasks", "finished")
    )
    if not set(finished) <= set(tasks):
        _refuse(f"it names finished tasks that part {path!r} does not hold")
    staged = tuple(_staged(entry) for entry in _listed(found, "staged", STAGED_MAX))
    worker = _whole(found, "worker", 0, COUNT_MAX)
    return Part(worker, path, _whole(found, "size", 0, COUNT_MAX), checksum, tasks, finished, staged)


def _staged(found: object) -> Staged:
    if not isinstance(found, list) or len(found) != len(Staged._fields):
        _refuse(f"it has {str(found)[:80]} where a staged file should be")
    staged = Staged(*found)
    counts = {"rows": staged.rows, "size": staged.size}
    rows, size = (_whole(counts, name, 0, COUNT_MAX) for name in counts)
    return Staged(_text(staged.sink, "sink"), _text(staged.path, "path"), rows, size)


def _branch(found: object) -> Branch:
    if not isinstance(found, list) or len(found) != len(Branch._fields):
        _refuse(f"it has {str(found)[:80]} where a branch of its history should be")
    fields = dict(zip(Branch._fields, found, strict=True))
    return Branch(_whole(fields, "attempt", 1, ATTEMPT_MAX), _whole(fields, "epoch", 1, EPOCH_MAX))


def _listed(found: Mapping[str, Any], name: str, most: int) -> list[Any]:
    value = found.get(name)
    if not isinstance(value, list) or len(value) > most:
        _refuse(f"its {name} are no list of at most {most:,}")
    return value


def _counts(found: Mapping[str, Any], name: str, least: int) -> dict[str, int]:
    value = found.get(name)
    if not isinstance(value, dict) or len(value) > TASKS_MAX:
        _refuse(f"its {name} are no object of at most {TASKS_MAX:,}")
    return {_text(key, name): _whole(value, key, least, COUNT_MAX) for key in value}


def _whole(found: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        _refuse(f"its {name[:80]} is {str(value)[:80]}, not a whole number from {least} to {most:,}")
    return value


def _truth(found: Mapping[str, Any], name: str) -> bool:
    value = found.get(name)
    if not isinstance(value, bool):
        _refuse(f"its {name} is {str(value)[:80]}, neither true nor false")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX:
        _refuse(f"its {name} is {str(value)[:80]!r}, not a text of 1 to {TEXT_MAX:,} characters")
    return value


def _refuse(fault: str) -> NoReturn:
    raise _Fault(fault)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
