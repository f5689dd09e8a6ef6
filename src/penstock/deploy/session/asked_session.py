"""While a user's file is loaded, a Spark session that it asks for is made on the command line's master, fit for jobs.

A file whose topology reads a DataFrame calls `SparkSession.builder.getOrCreate()` before any job exists. Without this
it would get `local[*]` and workers that may lack Penstock. Rejected: making the session before the file is read: a
misspelt name would be told after seconds and the start of a JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.deploy.session.local import local_session, require_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS_TO_SAY = frozenset({"spark.master", "spark.app.name"})


@contextmanager
def session_on_demand(master: str) -> Iterator[None]:
    """Within the block, `getOrCreate()` gives our session on this master, with the builder's settings."""
    from pyspark.sql import SparkSession

    require_master(master)
    builder: Any = SparkSession.Builder  # one method is replaced within the block
    plain = builder.getOrCreate

    def ours(asked: Any) -> SparkSession:  # noqa: ANN401 - a builder of pyspark's
        builder.getOrCreate = plain
        given = {str(name): str(value) for name, value in asked._options.items()}
        local_session(master, config={name: value for name, value in given.items() if name not in OURS_TO_SAY})
        session: SparkSession = plain(asked)
        return session

    builder.getOrCreate = ours
    try:
        yield
    finally:
        builder.getOrCreate = plain
