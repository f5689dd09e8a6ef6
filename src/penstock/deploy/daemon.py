"""PySpark's worker daemon with the heavy imports done before it forks.

Spark starts one daemon per executor and forks every Python worker from it; what the daemon has imported, workers have.
Without this a killed worker takes seconds to come back on a busy machine, mostly imports. Chosen with
`spark.python.daemon.module`, which only a new session can set (`session.local_session` does).

Nothing is called here that could start a thread: threads do not survive a fork.
"""

from __future__ import annotations

import pyarrow
import pyarrow.flight
import pyarrow.parquet  # noqa: F401
import pyspark.daemon
import pyspark.worker

import penstock.deploy.worker_main
import penstock.run.kernels  # noqa: F401

if __name__ == "__main__":
    pyspark.daemon.manager()
