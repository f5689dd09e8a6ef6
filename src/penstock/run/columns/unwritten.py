"""State that has left its task and is not bytes yet: what is slow about saving is put off until somebody asks.

A marker waits for a copy and nothing else. Arrow batches never change, so keeping them is copying them, and what they
become in a file is written in the keeper's thread, where pyarrow lets go of the interpreter's lock. Python objects
cannot leave so: a thread that walks them holds the lock, and the loop stands still all the same. Such state is written
by the loop in slices between batches (`Sliced`), and what is about to change is written before it does
(`test_what_is_written_in_slices_is_the_state_at_the_marker`).
Rejected: a forked process that writes, because threads of gRPC and allocators' locks do not survive a fork.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

Written: TypeAlias = "bytes | pa.Buffer"


class Unwritten(Protocol):
    """State as it stood when it was taken."""

    def written(self) -> Written:
        """The bytes; in any thread, and after the last slice where there are slices."""


@runtime_checkable
class Sliced(Protocol):
    """State that only its own loop can write, a little at a time."""

    def slice(self) -> bool:
        """Write half a millisecond's worth or so; False: nothing is left."""

    def written(self) -> Written:
        """The bytes, after the last slice."""


State: TypeAlias = "bytes | Unwritten"


class ArrowRows:
    """Batches of one schema, as an Arrow IPC stream."""

    def __init__(self, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches, self._schema = tuple(batches), schema

    def written(self) -> Written:
        """The stream."""
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, self._schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        return buffer.getvalue()


class Several:
    """Several states as one, behind a line that says how long each is."""

    def __init__(self, states: Sequence[State]) -> None:
        self._states = tuple(states)

    def written(self) -> Written:
        """The line and the states."""
        parts = [pa.py_buffer(written(state)) for state in self._states]
        return Joined([json.dumps([part.size for part in parts]).encode() + b"\n", *parts]).written()


class Joined:
    """Pieces one behind the other."""

    def __init__(self, pieces: Sequence[Written]) -> None:
        self._pieces = pieces

    def written(self) -> Written:
        """All of them, copied without the interpreter's lock."""
        stream = pa.BufferOutputStream()
        for piece in self._pieces:
            stream.write(piece)
        return stream.getvalue()


class InSteps:
    """State that a generator writes: it yields after each slice, and returns what is left to do elsewhere."""

    def __init__(self, steps: Generator[None, None, State]) -> None:
        self._steps, self._found = steps, None

    _found: State | None

    def slice(self) -> bool:
        """Up to the next yield."""
        if self._found is not None:
            return False
        try:
            next(self._steps)
        except StopIteration as end:
            self._found = end.value
            return False
        return True

    def written(self) -> Written:
        """The bytes."""
        while self.slice():
            pass
        return written(self._found or b"")


def written(state: State) -> Written:
    """The bytes of a state."""
    return state if isinstance(state, bytes | bytearray | memoryview | pa.Buffer) else state.written()


def in_bytes(states: Mapping[str, State]) -> dict[str, bytes]:
    """A task's whole state as plain bytes, at once: for who restores it in the same moment."""
    return {name: bytes(written(state)) for name, state in states.items()}
