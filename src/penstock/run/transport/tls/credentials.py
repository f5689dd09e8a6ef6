"""Credentials: this machine's certificate, its key and the authority that every end must show a certificate of.

TLS 1.3 in both directions. The names in certificates are not compared with addresses: the proof of the job's key that
follows inside covers both certificates (`binding`). So a machine in the middle, even one with a certificate of the same
authority, has to hold the job's key (`test_a_machine_in_the_middle_with_a_sound_certificate_is_found_out`). Rejected: a
certificate drawn for each job (Python can read certificates, not make them), the job's key instead of certificates
(Python 3.13), and sockets that the kernel encrypts (a module that few kernels have loaded).
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InvalidInput

CERTIFICATE, KEY, AUTHORITY = "cert.pem", "key.pem", "ca.pem"
PEM_BYTES_MAX = 1 << 20  # of one file
FLIGHTS_MAX = 8  # of a handshake with oneself; three suffice
_BROKEN_OFF = ssl.SSLEOFError, ssl.SSLZeroReturnError


class TlsRefused(ConnectionError):
    """The two ends do not accept each other's certificates, or one does not speak TLS 1.3."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a process needs for TLS at either end of a connection."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    digest: bytes  # of the own certificate

    @classmethod
    def load(cls, folder: str) -> Credentials:
        """From a folder; InvalidInput where its files do not do, found out by a handshake with oneself."""
        for name in (CERTIFICATE, KEY, AUTHORITY):
            _require_file(Path(folder, name))
        _require_private(Path(folder, KEY))
        try:
            server, client = _context(folder, ssl.PROTOCOL_TLS_SERVER), _context(folder, ssl.PROTOCOL_TLS_CLIENT)
            _shake_hands(server, client)
            return cls(server, client, _digest(_own_certificate(Path(folder, CERTIFICATE))))
        except (ssl.SSLError, ValueError) as error:
            msg = f"the certificate, key and authority in {folder} do not do: {reason(error)}; {_advice(error)}"
            raise InvalidInput(msg) from None

    def call(self, connection: socket.socket) -> ssl.SSLSocket:
        """Our end of a connection that we opened, before the handshake."""
        return self.client.wrap_socket(connection, do_handshake_on_connect=False)

    def answer(self, connection: socket.socket) -> ssl.SSLSocket:
        """Our end of a connection that we accepted, before the handshake."""
        return self.server.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def binding(self, connection: ssl.SSLSocket) -> bytes:
        """The certificates of both ends, the called one's first; equal at both, whoever is between them."""
        theirs = _digest(connection.getpeercert(binary_form=True) or b"")
        return self.digest + theirs if connection.server_side else theirs + self.digest


def refusal(error: ssl.SSLError) -> ConnectionError:
    """What a fault of TLS means: the connection broke off, or another try would end in the same way."""
    if isinstance(error, _BROKEN_OFF):
        return ConnectionResetError("the other end broke the connection off during TLS")
    return TlsRefused(f"TLS failed: {reason(error)}; {_advice(error)}")


def reason(error: Exception) -> str:
    """What OpenSSL said, without its file names and codes."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    told = getattr(error, "reason", None) or str(error)
    return str(told).lower().replace("_", " ")


def _advice(error: Exception) -> str:
    told = reason(error)
    for words, advice in (
        ("expired", f"renew {CERTIFICATE} on the machine whose certificate it is"),
        ("not yet valid", "set the clocks"),
        ("mismatch", f"{KEY} must belong to {CERTIFICATE}"),
        ("decrypt", f"give a {KEY} without a password"),
        ("purpose", "certificates must allow both ends: serverAuth and clientAuth"),
        ("unknown ca", f"all machines need a certificate of the authority in {AUTHORITY}"),
        ("issuer", f"all machines need a certificate of the authority in {AUTHORITY}"),
        ("self-signed", f"all machines need a certificate of the authority in {AUTHORITY}"),
    ):
        if words in told:
            return advice
    return f"look at {CERTIFICATE}, {KEY} and {AUTHORITY}, on both machines"


def _require_file(path: Path) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb"):
            pass
    except OSError as error:
        msg = (
            f"tls needs {path}, which cannot be read: {error.strerror}; put {CERTIFICATE}, {KEY} and {AUTHORITY} there"
        )
        raise InvalidInput(msg) from None
    if size > PEM_BYTES_MAX:
        msg = f"{path} has {size} bytes; the limit is {PEM_BYTES_MAX}: give a certificate or key in PEM"
        raise InvalidInput(msg)


def _require_private(path: Path) -> None:
    if path.stat().st_mode & 0o007:
        msg = f"every user of this machine may use the key in {path}; take that away: chmod o= {path}"
        raise InvalidInput(msg)


def _context(folder: str, side: int) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # the binding says more
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(os.path.join(folder, AUTHORITY))
    # A password is given so that OpenSSL does not ask for one at the terminal.
    made.load_cert_chain(os.path.join(folder, CERTIFICATE), os.path.join(folder, KEY), password="")
    # One direction may end before the other. What was cut short shows in the frames and messages that are missing.
    made.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    if side == ssl.PROTOCOL_TLS_SERVER:
        made.num_tickets = 0  # nobody resumes
    return made


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A handshake in memory: what other machines will say of our certificate, they with the same authority."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server).do_handshake,
        server.wrap_bio(to_server, to_client, server_side=True).do_handshake,
    ]
    for flight in range(FLIGHTS_MAX):
        if _has_shaken(ends[flight % 2]) and flight % 2:
            return
    msg = "the handshake does not end"
    raise ValueError(msg)


def _has_shaken(handshake: Callable[[], None]) -> bool:
    try:
        handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _own_certificate(path: Path) -> bytes:
    """The first certificate of a file, which is our own; those of authorities between may follow."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", path.read_text("latin-1"), re.DOTALL)
    if found is None:
        msg = f"{path} holds no certificate"
        raise ValueError(msg)
    return ssl.PEM_cert_to_DER_cert(found[0])


def _digest(certificate: bytes) -> bytes:
    return hashlib.sha256(certificate).digest()
