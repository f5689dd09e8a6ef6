"""What is left out of Py4J's log and of stderr: reports of lost connections that are raised as errors too, and secrets.

Py4J writes a traceback to the root logger whenever a call finds its connection broken, and raises afterwards. So a user
whose JVM was killed, or whose session stopped while a thread still asked it something, read a traceback of Py4J's
besides the one line that says what happened (`test_a_killed_jvm_is_named_and_no_worker_is_blamed`). Other records of
Py4J and of everybody else pass (`test_py4j_says_nothing_twice_and_others_say_all`). At DEBUG it logs each command to
the JVM, those with a job's ticket and a session's secret too (`test_py4j_logs_no_command_that_carries_a_secret`).
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from penstock.deploy.session.closed import names_a_secret

if TYPE_CHECKING:
    from pyspark import SparkContext

REPEATED = "Exception while sending command."
COMMANDS = ("py4j.clientserver", "py4j.java_gateway")  # the loggers that are told of them


class _Repeated(logging.Filter):
    """Drops the one record that repeats an error which is raised as well."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.module != "java_gateway" or record.msg != REPEATED


class _Secret(logging.Filter):
    """Keeps the words of commands that name a secret to itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        if names_a_secret(record.getMessage()):
            record.msg, record.args = "A command that names a secret", ()
        return True


_REPEATED, _SECRET = _Repeated(), _Secret()


def leave_out() -> None:
    """Add the filters, once: logging adds a filter that is there already no second time."""
    logging.getLogger().addFilter(_REPEATED)
    for name in COMMANDS:
        logging.getLogger(name).addFilter(_SECRET)


def leave_out_lost_accumulators(context: SparkContext) -> None:
    """Have the thread that adds up Spark's accumulators end without a traceback when the JVM is gone."""
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    plain = type(server).handle_error

    def told(request: object, client: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            plain(server, request, client)

    server.handle_error = told
