"""Certificates for tests: sound ones, and ones with a fault each, from authorities that are made for the process."""

from __future__ import annotations

import functools
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from penstock.run.transport.tls import credentials as credentials_room
from penstock.run.transport.tls.credentials import Credentials

NOW = datetime.now(UTC)
LONG_AGO, FAR_OFF = NOW - timedelta(days=400), NOW + timedelta(days=400)
HOST = "127.0.0.1"


@functools.cache
def authority(name: str = "ours") -> trustme.CA:
    """One authority for each name."""
    return trustme.CA(organization_name=name)


def folder(
    path: Path,
    *,
    issued_by: str = "ours",
    trusts: str = "ours",
    not_before: datetime = LONG_AGO,
    not_after: datetime = FAR_OFF,
) -> str:
    """A folder as a machine has it."""
    path.mkdir(parents=True, exist_ok=True)
    made = authority(issued_by).issue_cert(HOST, not_before=not_before, not_after=not_after)
    made.cert_chain_pems[0].write_to_path(path / "cert.pem")
    made.private_key_pem.write_to_path(path / "key.pem")
    (path / "key.pem").chmod(0o600)
    authority(trusts).cert_pem.write_to_path(path / "ca.pem")
    return str(path)


@functools.cache
def credentials() -> Credentials:
    """Sound ones, the same for all who ask."""
    with tempfile.TemporaryDirectory() as made:
        return Credentials.load(folder(Path(made)))


def unsound(made: str) -> Credentials:
    """As a process has them whose certificate was sound when it began, or that trusts what others do not."""
    own = credentials_room._own_certificate(Path(made, "cert.pem"))
    contexts = [
        credentials_room._context(made, side)
        for side in (credentials_room.ssl.PROTOCOL_TLS_SERVER, credentials_room.ssl.PROTOCOL_TLS_CLIENT)
    ]
    return Credentials(*contexts, credentials_room._digest(own))
