"""Settings that close `local_session` to strangers, and the note about sessions that are open.

All ports of Spark bind to loopback, and a caller must hold a secret drawn for each session. Without it any local
process could read the session's blocks, closures among them, and register as an executor. Command lines can be read by
every user of the machine, so the JVM starts without the secrets (`test_no_secret_stands_on_a_command_line`). The pages
of `local-cluster`'s master and workers cannot be turned off; they ask for a signature that no caller has. Sessions on
other masters reach other machines, where the secret must be too, so their users have to close them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import secrets
import socket
from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
LOCAL_ADDRESS = "SPARK_LOCAL_IP"  # where the pages of a local-cluster listen, and executors; no setting says so
SECRET_BYTES = 32
# As Spark's own spark.redaction.regex.
_SECRET_NAME = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
_SIGNED = "org.apache.spark.ui.JWSFilter"

OPEN_NOTE = (
    "the Spark session has spark.authenticate off, so any process that reaches its ports can read this job's rows and "
    "run code in its executors; set it and spark.network.crypto.enabled, or use penstock.deploy.local_session()"
)
EVERYWHERE_NOTE = (
    "spark.driver.bindAddress is {bind}, so the job's control line listens on all addresses of the driver's machine; "
    "set it to the one that executors call"
)
SHOWN_NOTE = (
    "spark.redaction.regex is {regex!r}, which does not match {name!r}: Spark's event log will show this job's ticket; "
    "add 'secret' to it"
)
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 # told apart, not bound to


def closing_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Settings for a session whose executors all run on this machine; the caller's own settings win."""
    settings = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(SECRET_BYTES),
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",  # to MD5
    }
    if given.get("spark.ui.enabled", "false") != "true":
        key = base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
        settings |= {"spark.ui.filters": _SIGNED, f"spark.{_SIGNED}.param.secretKey": key}
    return settings


def for_the_command_line(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that may stand on the JVM's command line, where other users can read them: those without secrets."""
    return {name: value for name, value in settings.items() if not names_a_secret(name)}


def names_a_secret(words: str) -> bool:
    """Whether words hold the name of a setting or property whose value nobody else may know."""
    return _SECRET_NAME.search(words) is not None


def keep_to_loopback() -> None:
    """Bind the JVM that this process is about to start to loopback."""
    os.environ[LOCAL_ADDRESS] = LOOPBACK


def reach_out() -> dict[str, str]:
    """Undo `keep_to_loopback` for a session with executors elsewhere; settings for a JVM that runs already."""
    if os.environ.get(LOCAL_ADDRESS) != LOOPBACK:
        return {}
    del os.environ[LOCAL_ADDRESS]
    return {"spark.driver.host": socket.gethostbyname(socket.gethostname())}


def open_notes(authenticated: bool) -> tuple[str, ...]:
    """The job's note on its session: one sentence where strangers can read its rows, else none."""
    return () if authenticated else (OPEN_NOTE,)


def setting_notes(bind: str, regex: str | None, name: str) -> tuple[str, ...]:
    """Notes on settings of a session that let strangers see more than they need: where it binds, what it blacks out.

    `regex` is of Java; one that Python cannot read is taken at its word.
    """
    notes: tuple[str, ...] = (EVERYWHERE_NOTE.format(bind=bind),) if bind in EVERY_ADDRESS else ()
    with contextlib.suppress(re.error):
        if regex is not None and re.search(regex, name) is None:
            notes += (SHOWN_NOTE.format(regex=regex, name=name),)
    return notes
