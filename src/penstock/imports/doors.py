"""`import_storm` and `import_flink`: from files or an address to an operator graph, a profile and notes."""

from __future__ import annotations

import math
from pathlib import Path

from penstock.errors import InvalidInput
from penstock.imports.collect import collect_flink, collect_storm
from penstock.imports.flink import read_flink
from penstock.imports.imported import UNKNOWN_LOAD, Imported
from penstock.imports.responses import read_answers
from penstock.imports.storm import TUPLE_BYTES, read_storm
from penstock.imports.web import Web, is_address, split_address
from penstock.model.topology import MAGNITUDE_MAX


def import_storm(
    source: str | Path, *, tuple_bytes: float = TUPLE_BYTES, unknown_load: float = UNKNOWN_LOAD
) -> Imported:
    """A topology and its profile from Storm's REST answers: a folder of them, or `http://HOST:PORT/api/v1/topology/ID`.

    Storm counts tuples; `tuple_bytes` is the size to take each for. `unknown_load` is the load of what nobody measured:
    a spout for which no CPU was requested.
    """
    _require("tuple_bytes", tuple_bytes)
    _require("unknown_load", unknown_load)
    if is_address(str(source)):
        address = split_address(str(source))
        documents = collect_storm(address, Web(address))
    else:
        documents = read_answers(source)
    return read_storm(documents, tuple_bytes=tuple_bytes, unknown_load=unknown_load)


def import_flink(source: str | Path, *, unknown_load: float = UNKNOWN_LOAD) -> Imported:
    """A topology and its profile from Flink's REST answers: a file or folder of them, or `http://HOST:PORT/jobs/ID`.

    `unknown_load` is the load of subtasks whose busy time Flink does not know: those of sources of the old kind.
    """
    _require("unknown_load", unknown_load)
    if is_address(str(source)):
        address = split_address(str(source))
        documents = collect_flink(address, Web(address))
    else:
        documents = read_answers(source)
    return read_flink(documents, unknown_load=unknown_load)


def _require(name: str, value: float) -> None:
    if not (isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= MAGNITUDE_MAX):
        msg = f"{name} is {value}; it must be finite, 0 or more and at most {MAGNITUDE_MAX:g}"
        raise InvalidInput(msg)
