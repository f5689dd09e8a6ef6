"""The rows of a result that people look at first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def newest_rows(frame: DataFrame, count: int) -> DataFrame:
    """At most `count` rows; of windowed results those of the newest window, highest count first."""
    from pyspark.sql import functions

    by = [functions.desc(column) for column in ("window_start", "count") if column in frame.columns]
    return (frame.orderBy(*by) if by else frame).limit(count)
