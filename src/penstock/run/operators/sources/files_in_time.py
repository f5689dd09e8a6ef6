"""Files in the order of one of their columns, with exact watermarks: no row is late, whatever order the rows are in.

A file is cut into pieces (Parquet: row groups; text: the whole file), and of each piece the least time is known before
any row goes out: from the footer's statistics or, where there are none (text; Spark's INT96), by reading that column
first. Pieces are read side by side where their times overlap, first the one with the least time still to come, a batch
at a time. The watermark is the least time of everything that has not gone out. So files in order, in any number and
however they overlap, close windows as time goes on; where rows are in no order at all, windows wait as they must.

Rejected: sorting, which needs room for the whole input; trusting a declared lateness, which loses rows where it errs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.run.contract import END_OF_TIME_US
from penstock.run.operators.sources.parquet_types import Given, open_parquet, rows_at_once
from penstock.run.operators.times import TIMESTAMP, Int64Array, column_times, time_us

OPEN_PIECES_MAX = 64  # read side by side; more that overlap are waited for, and their windows with them

Batches = Iterator[tuple[pa.RecordBatch, int]]  # each with the least time of what its piece still has after it


Taken = Callable[[int], int]  # number of a piece -> how many of its rows are not to come again


class Piece(NamedTuple):
    """A part of a file that can be read by itself."""

    number: int  # in its file
    least_us: int
    read: Callable[[], Batches]


def in_time(pieces: Sequence[Piece]) -> Batches:
    """The batches of all pieces, each with the least time of everything that is still to come after it."""
    waiting = sorted(pieces, key=lambda piece: piece.least_us, reverse=True)
    reading: list[tuple[int, int, Batches]] = []  # least time still to come, turn, batches
    turn = 0
    while waiting or reading:
        while waiting and len(reading) < OPEN_PIECES_MAX and (not reading or waiting[-1].least_us <= reading[0][0]):
            piece = waiting.pop()
            turn += 1
            heapq.heappush(reading, (piece.least_us, turn, piece.read()))
        _, order, batches = heapq.heappop(reading)
        found = next(batches, None)
        if found is not None:
            batch, rest_us = found
            heapq.heappush(reading, (rest_us, order, batches))
            yield batch, min(reading[0][0], waiting[-1].least_us if waiting else END_OF_TIME_US)


def parquet_pieces(path: Given, columns: Sequence[str], column: str, rows_max: int, taken: Taken) -> list[Piece]:
    """A piece for each row group of a Parquet file that has rows left."""
    with open_parquet(path) as file:
        counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        groups = [group for group, rows in enumerate(counts) if taken(group) < rows]
        leasts = {group: _least_in_footer(file, group, column) for group in groups}
        for group, least in leasts.items():
            if least is None:
                leasts[group] = int(times_of(file.read_row_group(group, columns=[column]), column).min(initial=_NEVER))

    def reader(group: int) -> Callable[[], Batches]:
        return lambda: _read_group(path, group, columns, column, rows_max, taken(group))

    return [Piece(group, least, reader(group)) for group, least in leasts.items() if least is not None]


_NEVER = END_OF_TIME_US  # the time of rows that have none: nobody waits for them


def _least_in_footer(file: pa.parquet.ParquetFile, group: int, column: str) -> int | None:
    """The least time of a row group by its statistics, where there are any that can be trusted."""
    position = file.schema_arrow.get_field_index(column)
    names = [file.metadata.row_group(group).column(i).path_in_schema for i in range(file.metadata.num_columns)]
    if position < 0 or column not in names:
        return None
    statistics = file.metadata.row_group(group).column(names.index(column)).statistics
    if statistics is None or not statistics.has_min_max or statistics.physical_type != "INT64":
        return None
    try:
        return time_us(statistics.min)
    except (ValueError, OverflowError):  # a time beyond the calendar
        return None


def _read_group(path: Given, group: int, columns: Sequence[str], column: str, rows_max: int, skip: int) -> Batches:
    with open_parquet(path) as file:
        rests = _least_after(times_of(file.read_row_group(group, columns=[column]), column))
        at = 0
        for batch in file.iter_batches(rows_at_once(file, rows_max), row_groups=[group], columns=list(columns)):
            begin, at = at, at + batch.num_rows
            if at > skip:
                yield batch.slice(max(0, skip - begin)), int(rests[at])


def text_piece(
    read: Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]], column: str, rows_max: int, taken: Taken
) -> Generator[None, None, Piece | None]:
    """A text file as one piece; `read` gives its blocks, of some columns or of all. None: it has no rows.

    It yields after each block that is measured, for who must not be kept waiting.
    """
    leasts = []
    for block in read([column]):
        leasts.append(int(times_of(block, column).min(initial=_NEVER)))
        yield
    if not leasts:
        return None
    rests = _least_after(np.array(leasts, dtype=np.int64))
    return Piece(0, int(rests[0]), lambda: _read_text(read(None), column, rests, rows_max, taken(0)))


def _read_text(blocks: Iterator[pa.RecordBatch], column: str, rests: Int64Array, rows_max: int, skip: int) -> Batches:
    for number, block in enumerate(blocks):
        inside = _least_after(times_of(block, column))
        for at in range(min(skip, block.num_rows), block.num_rows, rows_max):
            end = min(at + rows_max, block.num_rows)
            yield block.slice(at, end - at), min(int(inside[end]), int(rests[number + 1]))
        skip = max(0, skip - block.num_rows)


def times_of(rows: pa.RecordBatch | pa.Table, column: str) -> Int64Array:
    """The times of a column, where rows without one never come."""
    position = rows.schema.get_field_index(column)
    if not pa.types.is_timestamp(rows.schema.field(position).type):  # declared as one, and read as something else
        rows = rows.set_column(position, column, rows.column(position).cast(TIMESTAMP))
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    found = [np.where(valid, times, _NEVER) for times, valid in (column_times(batch, column) for batch in batches)]
    return np.concatenate(found) if found else np.array([], dtype=np.int64)


def _least_after(times: Int64Array) -> Int64Array:
    """Entry i: the least of times[i:]; one more at the end, for nothing left."""
    least: Int64Array = np.minimum.accumulate(np.append(times, _NEVER)[::-1])[::-1]
    return least
