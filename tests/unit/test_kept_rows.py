"""State keeps rows and not the batches that they came in: what is allocated afterwards is in proportion to the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest
from flow_kit import Recorder, opened

from penstock.flow.schema import parse_schema
from penstock.flow.windows import tumbling
from penstock.run.columns.kernels import Row
from penstock.run.contract import Task
from penstock.run.operators.convert import owned
from penstock.run.operators.keyed.join import Side, WindowJoin, joined_schema
from penstock.run.operators.keyed.top import Ranking, TopAll, TopWindows
from penstock.run.operators.keyed.top_per_key import TopFold
from penstock.run.operators.keyed.unwindowed import KeyedFold, ReduceFold, Reducer
from penstock.run.operators.keyed.windowed import windowed_schema

SCHEMA = parse_schema("window_start timestamp, n bigint, text string")
ROWS = 2_000
BATCHES = 20
TEXT = "x" * 500  # a batch is a megabyte


def batch(number: int) -> pa.RecordBatch:
    """The rows of one key and one time."""
    return pa.RecordBatch.from_arrays(
        [pa.array([0] * ROWS, SCHEMA.field(0).type), pa.array([number] * ROWS), pa.array([TEXT] * ROWS)], schema=SCHEMA
    )


def reduce_task() -> Task:
    return KeyedFold(ReduceFold(SCHEMA, ["n"], lambda a, b: a if a.n % 2 else b), "end")


def test_a_reducer_keeps_a_row_of_each_key() -> None:
    task, before = opened(reduce_task), pa.total_allocated_bytes()
    for number in range(BATCHES):
        task.process(batch(number), 0, Recorder())
    assert pa.total_allocated_bytes() - before < 1_000_000  # 20 batches are 20 MB
    out = Recorder()
    task.finish(out)
    assert [(n, text) for _, n, text in out.rows()] == [(n, TEXT) for n in range(BATCHES)]


def test_a_row_apart_is_the_same_row() -> None:
    views: list[Row] = []
    fold = Reducer(SCHEMA, ["n"], lambda a, b: views.append(b) or a)
    fold.update(batch(0).slice(0, 2))
    (kept,) = fold._rows.values()
    assert kept == views[0]
    assert kept._apart() is kept


LEFT = Side(SCHEMA, ("n",), "window_start")
RIGHT = Side(parse_schema("at timestamp, m bigint"), ("m",), "at")
JOINED = windowed_schema(joined_schema(LEFT, RIGHT, "inner"), SCHEMA.field(0).type)
RANKING = Ranking(SCHEMA, 3, "n", keys=("n",))


@pytest.mark.parametrize(
    "build",
    [
        partial(WindowJoin, LEFT, RIGHT, tumbling("1 day"), "inner", JOINED),
        partial(TopAll, Ranking(SCHEMA, 3, "n", keys=("n", "text")), "end"),
        partial(TopWindows, Ranking(SCHEMA, 3, "n", keys=("n",), window_column="window_start")),
        partial(KeyedFold, TopFold(SCHEMA, ("n",), 3, "n", True), "end"),
    ],
    ids=["join", "top", "top_windows", "top_per_key"],
)
def test_a_slice_does_not_keep_what_it_is_a_slice_of(build: Callable[[], Task]) -> None:
    task, before = opened(build), pa.total_allocated_bytes()
    for number in range(BATCHES):
        task.process(batch(number).slice(7, 1), 0, Recorder())
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_ranking_by_key_forgets_by_bytes_too() -> None:
    """Forty megabytes of rows, a few thousand of them, for three answers."""
    task, before = (
        opened(partial(KeyedFold, TopFold(SCHEMA, ("window_start",), 3, "n", True), "end")),
        pa.total_allocated_bytes(),
    )
    for number in range(2 * BATCHES):
        task.process(batch(number), 0, Recorder())
    assert pa.total_allocated_bytes() - before < 12_000_000


def test_owned_rows_are_the_same_in_a_memory_of_their_own() -> None:
    part = batch(1).slice(5, 3)
    mine = owned(part)
    assert mine.equals(part)
    assert mine.get_total_buffer_size() < 3_000
