"""Sinks that call a user's function; it may ask which rows it is given, to tell those that come again.

After a recovery the rows behind the last committed epoch are handed over again: at least once. A function that has a
parameter named `epoch`, `sequence` or `task`, without a default, is given it by name. The sequence numbers the rows of
one task from 0, goes on exactly where the committed epoch stood, and is that of a batch's first row. It is counted only
for those who ask.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from penstock.run.columns import kernels
from penstock.run.contract import SETTING_EPOCH, Outputs, Owns, Staging, Task, TaskContext

EPOCH, SEQUENCE, TASK = "epoch", "sequence", "task"
ASKED = frozenset((EPOCH, SEQUENCE, TASK))
NO_EPOCH = 0  # of a job without checkpoints; epochs count from 1


def asked_by(function: Callable[..., object]) -> frozenset[str]:
    """What a function wants to know of the rows that it is given, besides the rows."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some functions of C tell no signature
        return frozenset()
    wanted = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    # The first parameter is the batch or row, whatever its name.
    skipped = 0 if parameters and parameters[0].kind is inspect.Parameter.KEYWORD_ONLY else 1
    named = [p for p in parameters[skipped:] if p.kind in wanted and p.default is inspect.Parameter.empty]
    return ASKED & {parameter.name for parameter in named}


class _Numbered(Task):
    """Knows the epoch and the sequence number of the rows to come."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self._asked = asked_by(function)

    def open(self, context: TaskContext) -> None:
        """Begin with the first epoch and row 0."""
        super().open(context)
        self._epoch = int(str(context.settings.get(SETTING_EPOCH, NO_EPOCH)))
        self._sequence = 0

    def known(self, rows: int) -> dict[str, int]:
        """What is asked for, of the next so many rows."""
        found = {EPOCH: self._epoch, SEQUENCE: self._sequence, TASK: self.context.index}
        self._sequence += rows
        return {name: found[name] for name in self._asked}

    def stage(self, epoch: int) -> Sequence[Staging]:
        """Rows belong to the next epoch from now on."""
        if SETTING_EPOCH in self.context.settings:
            self._epoch = epoch + 1
        return ()

    def take_state(self) -> dict[str, bytes]:
        """The next row's number."""
        return {SEQUENCE: json.dumps(self._sequence).encode()} if SEQUENCE in self._asked else {}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Go on with that number."""
        if SEQUENCE in state:
            self._sequence = int(json.loads(bytes(state[SEQUENCE])))

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Go on with a number that no task has used yet."""
        self._sequence = max((int(json.loads(bytes(s[SEQUENCE]))) for s in states if SEQUENCE in s), default=0)


class BatchCallback(_Numbered):
    """Calls a function with every batch."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Call."""
        if self._asked:
            self.function(batch, **self.known(batch.num_rows))
        else:
            self.function(batch)


class RowCallback(_Numbered):
    """Calls a function with every row."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Call for each row; what it returns does not matter."""
        kernels.filter_rows(self._numbered if self._asked else self.function, batch)

    def _numbered(self, row: kernels.Row) -> object:
        return self.function(row, **self.known(1))
