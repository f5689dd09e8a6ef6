"""PySpark's worker daemon with the heavy imports done before it forks.

Spark starts one daemon per executor and forks every Python worker from it; workers inherit the daemon's imports.
Without this a killed worker takes seconds to come back on a busy machine, mostly for imports. A new session chooses the
daemon by `spark.python.daemon.module` (`session.local.local_session` does).

Modules that pyarrow imports when it first meets a numpy array are imported here too: `numpy.ma` alone took a quarter of
the CPU of a short job, in each worker's first batch. Then `gc.freeze` hides all objects from the garbage collector,
which would write to them in every worker and so copy pages that workers share. Nothing here may start a thread: threads
do not survive a fork.
"""

from __future__ import annotations

import gc

import numpy.ma
import numpy.random  # noqa: F401
import pyarrow
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
import pyspark.daemon
import pyspark.worker

import penstock.deploy.worker.main
import penstock.run.columns.kernels  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
