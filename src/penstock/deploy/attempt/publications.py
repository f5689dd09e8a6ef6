"""How the sinks of a job show what is committed, and what their users should know of it."""

from __future__ import annotations

from penstock.checkpoint.publication import CollectPublication, ParquetPublication
from penstock.checkpoint.store import Store
from penstock.run.dataflow import Dataflow


def publications(dataflow: Dataflow, store: Store) -> dict[str, CollectPublication | ParquetPublication]:
    """One for each sink that keeps rows, by its name."""
    found: dict[str, CollectPublication | ParquetPublication] = {}
    token = store.token()
    for name, (sink, _) in dataflow.sinks().items():
        if sink.collects:
            found[name] = CollectPublication(store.results(), name, store.staging(), token)
        elif sink.folder is not None:
            found[name] = ParquetPublication(sink.folder, name, token)
    return found


def checkpoint_notes(dataflow: Dataflow) -> tuple[str, ...]:
    """A sentence for each sink whose rows come more than once after a recovery."""
    return tuple(
        f"sink {name!r} calls a function, which is given rows at least once: after a recovery those behind the last "
        "epoch come again, with the same task and sequence where they come in the same order"
        for name, (sink, _) in dataflow.sinks().items()
        if sink.repeats
    )
