"""Penstock jobs on Spark: the only room that knows pyspark.

    session -> facts -> preflight -> barrier_job -> (worker_main: hello) -> binding -> Deployment -> Job

`preflight` and `binding` decide and are pure; `facts`, `barrier_job` and `rendezvous` act and are thin.
"""

from penstock.deploy.binding import Replan
from penstock.deploy.job import Job
from penstock.deploy.metric_log import read_metric_table
from penstock.deploy.preview import newest_rows
from penstock.deploy.profile_builder import build_profile, require_metric_log
from penstock.deploy.session import local_session
from penstock.deploy.submit import require_options, require_transport, run_topology, start_topology

__all__ = [
    "Job",
    "Replan",
    "build_profile",
    "local_session",
    "newest_rows",
    "read_metric_table",
    "require_metric_log",
    "require_options",
    "require_transport",
    "run_topology",
    "start_topology",
]
