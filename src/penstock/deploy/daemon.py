"""PySpark's worker daemon with the heavy imports done before it forks.

Spark starts one daemon per executor and forks every Python worker from it; what the daemon has imported, workers have.
Without this a killed worker takes seconds to come back on a busy machine, mostly imports. Chosen with
`spark.python.daemon.module`, which only a new session can set (`session.local_session` does).

What pyarrow imports when it first meets a numpy array is imported here as well: each worker paid for `numpy.ma` in the
middle of its first batch, a quarter of the CPU of a short job. And what is here by then is put out of the garbage
collector's sight, which would otherwise write to it in every worker and so copy the pages that all of them share.

Nothing is called here that could start a thread: threads do not survive a fork.
"""

from __future__ import annotations

import gc

import numpy.ma
import numpy.random  # noqa: F401
import pyarrow
import pyarrow.compute
import pyarrow.flight
import pyarrow.parquet  # noqa: F401
import pyspark.daemon
import pyspark.worker

import penstock.deploy.worker_main
import penstock.run.kernels  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
