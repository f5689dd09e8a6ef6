"""Topologies and profiles from what other systems say of themselves: Storm, Flink and (with `deploy`) Spark.

    responses (files or http) -> documents -> storm | flink -> Imported (operator graph, profile, notes)
    event log -> deploy/metrics/event_log -> spark_stages    -> Imported

Reading (`responses`, `web`, `collect`) is apart from judging: every other module here is pure. Decision 41 says what
each system counts, what it does not, and what is put in its place.
"""

from penstock.imports.doors import import_flink, import_storm
from penstock.imports.imported import Imported

__all__ = ["Imported", "import_flink", "import_storm"]
