"""Sinks attached to the task that produces their rows: no task, no hop and no queue of their own.

A sink without tasks of its own is one function call after its producer, so a plan need not place it and a profile need
not know it: the paper's 45 tasks of top frequent routes are 45 tasks here, wherever the answer goes. What a sink costs
is part of what its producer costs. Rejected: a task of its own that every scheduler is told to keep beside its
producer, which all published algorithms would have to be taught first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from penstock.run.columns.unwritten import State
from penstock.run.contract import MAIN, Build, Outputs, Owns, Polled, SourceTask, Staging, Task, TaskContext
from penstock.run.dataflow import AttachedSink
from penstock.run.engine.user_errors import SinkFailed
from penstock.run.engine.worker import Cancelled
from penstock.run.transport.protocol import PeerGone

_SINK = "sink "  # how names of sinks' state begin


@contextmanager
def _named(attached: AttachedSink) -> Iterator[None]:
    """Say which sink it was that raised."""
    try:
        yield
    except (Cancelled, PeerGone):
        raise  # the job ends, or its driver is gone; not the sink's failure
    except Exception as error:
        raise SinkFailed(attached.name, error) from error
    except BaseException as error:
        error.add_note(f"in sink {attached.name!r}")
        raise


class _Tee:
    """Outputs that hand every batch to the sinks of its output as well."""

    def __init__(self, sinks: Sequence[tuple[AttachedSink, Task]]) -> None:
        self.sinks = sinks
        self.out: Outputs

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        self.out.emit(batch, output)
        if not batch.num_rows:
            return
        for attached, sink in self.sinks:
            if attached.output == output:
                with _named(attached):
                    sink.process(batch, 0, self.out)
                self.out.arrived(batch.num_rows)

    def watermark(self, time_us: int) -> None:
        self.out.watermark(time_us)

    def arrived(self, rows: int) -> None:
        self.out.arrived(rows)


class WithSinks(Task):
    """A task and the sinks that take what it emits."""

    def __init__(self, inner: Task, sinks: Sequence[AttachedSink]) -> None:
        self.inner = inner
        self.sinks = [(attached, attached.build()) for attached in sinks]
        self.tee = _Tee(self.sinks)

    def open(self, context: TaskContext) -> None:
        """Open the sinks under their own names, then the inner task."""
        super().open(context)
        for attached, sink in self.sinks:
            with _named(attached):
                sink.open(replace(context, operator=attached.name))
        self.inner.open(context)

    def _to(self, out: Outputs) -> _Tee:
        self.tee.out = out
        return self.tee

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Rows through the inner task."""
        self.inner.process(batch, port, self._to(out))

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """As the inner task."""
        self.inner.advance(watermark_us, self._to(out))

    def idle(self, out: Outputs) -> None:
        """As the inner task."""
        self.inner.idle(self._to(out))

    def observed_us(self) -> int | None:
        """As the inner task."""
        return self.inner.observed_us()

    def wake_at(self) -> int | None:
        """As the inner task."""
        return self.inner.wake_at()

    def wake(self, now_us: int, out: Outputs) -> None:
        """As the inner task."""
        self.inner.wake(now_us, self._to(out))

    def finish(self, out: Outputs) -> None:
        """The inner task first: what it still holds back goes to the sinks too."""
        self.inner.finish(self._to(out))
        for attached, sink in self.sinks:
            with _named(attached):
                sink.finish(out)

    def close(self) -> None:
        """Close every part, whatever the others say."""
        errors: list[BaseException] = []
        for task in (self.inner, *(sink for _, sink in self.sinks)):
            try:
                task.close()
            except BaseException as error:  # the first one is raised below
                errors.append(error)
        if errors:
            raise errors[0]

    def stage(self, epoch: int) -> Sequence[Staging]:
        """What the sinks have written since the last marker."""
        found = list(self.inner.stage(epoch))
        for attached, sink in self.sinks:
            with _named(attached):
                found += sink.stage(epoch)
        return found

    def take_state(self) -> Mapping[str, State]:
        """The inner task's, and what sinks know beside what they have written."""
        state = dict(self.inner.take_state())
        for attached, sink in self.sinks:
            state |= {f"{_SINK}{attached.name}/{name}": data for name, data in sink.take_state().items()}
        return state

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """As the inner task, and the sinks."""
        self.inner.put_state(_inner(state))
        for attached, sink in self.sinks:
            sink.put_state(_of_sink(state, attached.name))

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """As the inner task, and the sinks."""
        self.inner.put_states([_inner(state) for state in states], owns)
        for attached, sink in self.sinks:
            sink.put_states([_of_sink(state, attached.name) for state in states], owns)


class SourceWithSinks(WithSinks, SourceTask):
    """The same around a source."""

    inner: SourceTask

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """Ask the inner source."""
        return self.inner.poll(now_us, self._to(out))

    def due_us(self) -> int | None:
        """As the inner source."""
        return self.inner.due_us()

    def stop(self) -> None:
        """Drain the inner source."""
        super().stop()
        self.inner.stop()


def _inner(state: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in state.items() if not name.startswith(_SINK)}


def _of_sink(state: Mapping[str, bytes], sink: str) -> dict[str, bytes]:
    start = f"{_SINK}{sink}/"
    return {name.removeprefix(start): data for name, data in state.items() if name.startswith(start)}


def with_sinks(build: Build, sinks: Sequence[AttachedSink]) -> Task:
    """The factory's task with its sinks; a factory itself once the arguments are bound."""
    inner = build()
    kind = SourceWithSinks if isinstance(inner, SourceTask) else WithSinks
    return kind(inner, sinks)
