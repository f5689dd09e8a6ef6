"""Whether a topology can go on from a checkpoint, asked before any worker begins; `checkpoint/shape.py` decides."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.files import reason_of
from penstock.checkpoint.publication import ParquetPublication
from penstock.checkpoint.shape import Shape, misfit, reopened, shape_of
from penstock.checkpoint.store import Store
from penstock.deploy.attempt.publications import publications
from penstock.errors import InvalidInput, JobFailed
from penstock.model.task_id import TaskId
from penstock.run.dataflow import Dataflow

GONE = -1  # in place of the size of a file that is not there any more


class Fitting:
    """What one topology is like, and whether it fits what a store has."""

    def __init__(self, dataflow: Dataflow, store: Store) -> None:
        self._dataflow, self._store = dataflow, store
        self._shape: Shape | None = None
        self._found: dict[str, ParquetPublication] | None = None

    @property
    def _folders(self) -> dict[str, ParquetPublication]:
        """Of Parquet sinks, once the store is somebody's. A cached property would have all jobs wait for one store."""
        if self._found is None:
            found = publications(self._dataflow, self._store)
            self._found = {name: at for name, at in found.items() if isinstance(at, ParquetPublication)}
        return self._found

    @property
    def shape(self) -> Shape:
        """The topology's own, with the sizes that its files have now."""
        if self._shape is None:
            self._shape = shape_of(self._dataflow, _size)
        return self._shape

    def require(self, manifest: Manifest | None) -> None:
        """InvalidInput where the topology cannot go on from this epoch."""
        if manifest is None or manifest.topology != self._dataflow.name:  # claiming the store refuses the latter
            return
        if (fault := self._fault(manifest)) is not None:
            msg = f"topology {self._dataflow.name!r} cannot go on from epoch {manifest.epoch}: {fault}"
            raise InvalidInput(msg)

    def _fault(self, manifest: Manifest) -> str | None:
        was, fault = self._store.record.shape_of(manifest), None
        if was is None:
            require_restorable(self._dataflow, manifest)
        else:
            moved = [name for name in self._folders if self._has_files(name)]
            fault = misfit(was, self.shape, ended(manifest), moved)
        return fault or reopened(self._dataflow, manifest.tasks, finished(manifest))

    def require_shown(self, manifest: Manifest | None) -> None:
        """CheckpointDamaged where files are gone that sinks have shown; of a job that is over they are its user's."""
        if manifest is None or manifest.is_last:
            return
        was = self._store.record.shape_of(manifest)
        before = [known for known in self._store.epochs() if known.epoch < manifest.epoch]
        for name, publication in self._folders.items():
            if was is not None and name in was["sinks"]:
                with self._reading(name):
                    publication.require_shown(before)

    def _has_files(self, name: str) -> bool:
        with self._reading(name):
            return self._folders[name].has_files

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """What a sink's folder complains of, as an error of the job."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            folder = self._folders[name].folder.given
            msg = f"topology {self._dataflow.name!r}: sink {name!r} cannot read {folder}: {reason_of(error)}"
            raise JobFailed(msg) from error

    def keep(self, attempt: int) -> None:
        """From this attempt on the job has this topology."""
        self._store.record.keep_shape(attempt, self.shape)


def ended(manifest: Manifest) -> set[str]:
    """The operators of which every task had finished."""
    past = finished(manifest)
    return {operator for operator, tasks in manifest.tasks.items() if len(past.get(operator, ())) == tasks}


def finished(manifest: Manifest) -> Mapping[str, set[int]]:
    """The numbers of the tasks that had finished, by operator."""
    found: dict[str, set[int]] = {}
    for task in (TaskId(task) for part in manifest.parts for task in part.finished):
        found.setdefault(task.operator, set()).add(task.number)
    return found


def require_restorable(dataflow: Dataflow, manifest: Manifest) -> None:
    """Refuse an epoch of an earlier version, which has kept no shape, where the topology lacks operators of it."""
    known = {operator.name for operator in dataflow.operators}
    if lacking := sorted(set(manifest.tasks) - known):
        msg = (
            f"epoch {manifest.epoch} holds the state of operator {lacking[0]!r}, which topology {dataflow.name!r} does "
            "not have; give it back, or begin in another checkpoint folder"
        )
        raise InvalidInput(msg)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return GONE
