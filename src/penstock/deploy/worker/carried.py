"""How a dataflow travels in Spark's closure: so that a process which goes over to another attempt has it anew.

Functions and objects of users may keep values. What they kept belongs to rows behind the epoch from which the next
attempt goes on, so a worker that kept its objects would lose those rows without a word
(`test_what_users_objects_keep_does_not_come_over`). New processes unpack the closure again; one that stays unpacks the
dataflow again, from the bytes that came in that closure. Nothing else is ever unpacked, and nothing from the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pyspark.cloudpickle import dumps, loads

from penstock.run.dataflow import Dataflow


class Carried:
    """A dataflow on its way to the workers; `goes_on`: the job may make another attempt in the same processes."""

    def __init__(self, dataflow: Dataflow, *, goes_on: bool = False, packed: bytes = b"") -> None:
        self.name = dataflow.name
        self._dataflow, self._goes_on, self._packed = dataflow, goes_on, packed
        self._was_given = False

    def __reduce__(self) -> tuple[Callable[..., Carried], tuple[object, ...]]:
        """Without checkpoints there is no other attempt, and a large object need not be there twice."""
        return (_arrived, (_packed(self._dataflow),)) if self._goes_on else (Carried, (self._dataflow,))

    def fresh(self) -> Dataflow:
        """The dataflow as it was packed, whatever an attempt before has done to its objects."""
        if self._was_given and self._packed:
            return _unpacked(self._packed)
        self._was_given = True
        return self._dataflow


def _arrived(packed: bytes) -> Carried:
    """Unpacked here, so that a module that is missing is told as Spark's closure would tell it."""
    return Carried(_unpacked(packed), packed=packed)


def _packed(dataflow: Dataflow) -> bytes:
    return bytes(dumps(dataflow))  # type: ignore[no-untyped-call] # PySpark's


def _unpacked(packed: bytes) -> Dataflow:
    return cast("Dataflow", loads(packed))
