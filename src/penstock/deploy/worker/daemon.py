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
import sys
import zipimport

import numpy.ma
import numpy.random  # noqa: F401
import pyarrow
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
import pyspark.daemon
import pyspark.worker

import penstock.deploy.worker.main
import penstock.run.columns.kernels  # noqa: F401
from penstock.run.build import own_build


def forget_finders_in_archives() -> None:
    """Leave nothing that would read an archive again when caches are invalidated.

    Each worker begins with `importlib.invalidate_caches()`, by which a finder in an archive reads the archive's
    directory again. There is one for each package of pyspark.zip: 90 ms of CPU a worker. Whoever imports from the
    archive makes a new finder of what is known already.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    own_build()
    forget_finders_in_archives()
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
