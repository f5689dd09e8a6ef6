"""The keys of a stateful operator as bytes: written by the core a slice at a time, and read again.

Under other task counts each key goes to the task to which its rows are routed. Routing hashes columns, so keys become
columns again, of the types that their rows had; these are saved with them.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from penstock import _core
from penstock._core import Clock, KeyedTable
from penstock.errors import InvalidInput
from penstock.run.columns.unwritten import InSteps, Joined, State
from penstock.run.contract import Owns
from penstock.run.operators.convert import shown
from penstock.run.operators.state.keyed_state import decode, encode

KEYS_A_SLICE = 1024  # some hundred microseconds, unless keys have long lists
KEYS_A_READ = 4096

Entry: TypeAlias = tuple[Any, dict[str, Any], list[tuple[int, int]], list[tuple[int, int]]]


def being_written(table: KeyedTable) -> InSteps:
    """All keys as they are now: values and timers."""
    table.begin_writing(_in_json)
    return InSteps(_steps(table))


def _steps(table: KeyedTable) -> Generator[None, None, State]:
    pieces = []
    while (piece := table.write(KEYS_A_SLICE)) is not None:
        pieces.append(piece)
        yield
    return Joined(pieces)


def put_keys(table: KeyedTable, state: bytes, types: pa.Schema | None = None, owns: Owns | None = None) -> None:
    """Put saved keys into a table: all of them, or those that are ours."""
    for entries in _read(state):
        for key, values, events, moments in entries if owns is None else _own(entries, types, owns):
            table.put(key, values)
            for clock, timers in ((Clock.EVENT, events), (Clock.PROCESSING, moments)):
                for at_us, order in timers:
                    table.put_timer(clock, at_us, order, key)


def own_keys(keys: Sequence[Any], types: pa.Schema | None, owns: Owns) -> Iterable[bool]:
    """Which of these keys are ours."""
    if not keys or types is None:
        return [True] * len(keys)
    columns = [keys] if len(types) == 1 else list(zip(*keys, strict=True))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, types, strict=True)]
    found: list[bool] = owns(pa.RecordBatch.from_arrays(arrays, schema=types), types.names).tolist()
    return found


def _own(entries: Sequence[Entry], types: pa.Schema | None, owns: Owns) -> Iterator[Entry]:
    ours = own_keys([entry[0] for entry in entries], types, owns)
    return (entry for entry, is_ours in zip(entries, ours, strict=True) if is_ours)


def _read(state: bytes) -> Iterator[list[Entry]]:
    at = 0
    while at < len(state):
        try:
            entries, at = _core.read_states(state, at, KEYS_A_READ, _from_json)
        except ValueError as error:
            msg = f"the keys of a stateful operator cannot be read from {len(state):,} bytes of state: {error}"
            raise InvalidInput(msg) from error
        yield entries


def _in_json(value: object, name: str | None, key: object) -> bytes:
    """Called by the core with a value for which it has no form."""
    who = "key" if name is None else f"state {name!r} of key {shown(key)}"
    return json.dumps(encode(value, who)).encode()


def _from_json(data: bytes) -> Any:  # noqa: ANN401 - whatever the user kept
    return decode(json.loads(data))
