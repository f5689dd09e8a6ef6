"""Rows behind the watermark or without a time: they go to an output of their own or, if asked for, end the job.

Late rows are counted whether or not an operator reads that output (`run/engine/outputs.py`), and told at the run's end.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import RowsLate
from penstock.run.contract import LATE, Outputs, Task
from penstock.run.operators.times import column_times, moment_of

SIDE = "side"
ERROR = "error"
ON_LATE = (SIDE, ERROR)


class Lateness:
    """What an operator does with late rows; `column` is their time."""

    def __init__(self, column: str, on_late: str = SIDE, output: str = LATE) -> None:
        self.column, self.on_late, self.output = column, on_late, output

    def take(self, task: Task, rows: pa.RecordBatch | None, watermark_us: int, out: Outputs) -> None:
        """Emit the late rows of a task on the late output, or raise."""
        if rows is None or not rows.num_rows:
            return
        if self.on_late == ERROR:
            raise rows_late(task.context.operator, rows, self.column, watermark_us)
        out.emit(rows, self.output)


def rows_late(operator: str, late: pa.RecordBatch, column: str, watermark_us: int) -> RowsLate:
    """The error about late rows, naming the first."""
    times, valid = column_times(late, column)
    time = shown_time(int(times[0])) if valid[0] else None
    return RowsLate(operator, late.num_rows, time, shown_time(watermark_us))


def shown_time(at_us: int) -> str:
    """A moment as text for messages, also outside Python's calendar."""
    try:
        return moment_of(at_us).isoformat()
    except OverflowError:
        return f"{at_us} us since 1970"
