"""Py4J's own report of a lost connection is left out of the log: the error that it then raises is told by us.

Py4J writes a traceback to the root logger whenever a call finds its connection broken, and raises afterwards. So a user
whose JVM was killed, or whose session stopped while a thread still asked it something, read a traceback of Py4J's
besides the one line that says what happened (`test_a_killed_jvm_is_named_and_no_worker_is_blamed`). Other records of
Py4J and of everybody else pass (`test_py4j_says_nothing_twice_and_others_say_all`).
"""

from __future__ import annotations

import logging

REPEATED = "Exception while sending command."


class _Repeated(logging.Filter):
    """Drops the one record that repeats an error which is raised as well."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.module != "java_gateway" or record.msg != REPEATED


_REPEATED = _Repeated()


def leave_out_repeated_errors() -> None:
    """Add the filter to the root logger, once: logging adds a filter that is there already no second time."""
    logging.getLogger().addFilter(_REPEATED)
