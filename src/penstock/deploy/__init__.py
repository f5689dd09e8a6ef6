"""Penstock jobs on Spark: the one room that knows pyspark (tests/unit/test_architecture.py).

    session -> facts -> preflight -> stage -> (worker/main: hello) -> binding -> Deployment -> Job

`preflight` and `binding` decide and are pure; `facts`, `stage` and `rendezvous` act and are thin.
"""

from penstock.deploy.driver.binding import Replan, costed
from penstock.deploy.driver.facts import jvm_ending_behind
from penstock.deploy.driver.job import Job
from penstock.deploy.driver.options import JobOptions, require_known_options
from penstock.deploy.driver.submit import follow, run_topology, start_topology
from penstock.deploy.metrics.event_log import import_spark
from penstock.deploy.metrics.metric_log import read_job_table, read_metric_table
from penstock.deploy.metrics.profile_builder import build_profile, logged_job
from penstock.deploy.metrics.recent import window_us
from penstock.deploy.metrics.stages import bytes_between_nodes, foretold_bytes, stages_of
from penstock.deploy.results.answer import write_answer
from penstock.deploy.results.preview import newest_rows
from penstock.deploy.session.asked_session import session_on_demand
from penstock.deploy.session.local import local_session
from penstock.deploy.tuning.runs import Tuned, Tuning, tune_topology

__all__ = [
    "Job",
    "JobOptions",
    "Replan",
    "Tuned",
    "Tuning",
    "build_profile",
    "bytes_between_nodes",
    "costed",
    "follow",
    "foretold_bytes",
    "import_spark",
    "jvm_ending_behind",
    "local_session",
    "logged_job",
    "newest_rows",
    "read_job_table",
    "read_metric_table",
    "require_known_options",
    "run_topology",
    "session_on_demand",
    "stages_of",
    "start_topology",
    "tune_topology",
    "window_us",
    "write_answer",
]
