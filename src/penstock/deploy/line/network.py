"""Network: at which ports a job listens, and whether its connections are encrypted; the same for all of its processes.

Workers are told before they can call the driver, so it travels in the closure: it holds ranges and a path, no secret.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.run.transport.ports import Ports
from penstock.run.transport.tls.credentials import Credentials


@dataclass(frozen=True, slots=True)
class Network:
    """What a user may say about a job's connections."""

    control: Ports | None = None  # the driver's; None: the kernel picks
    data: Ports | None = None  # the workers'
    tls: str | None = None  # the folder with this machine's certificate, the same path on all; None: no TLS

    def credentials(self) -> Credentials | None:
        """For TLS, where it is asked for; InvalidInput where the folder's files do not do."""
        return None if self.tls is None else Credentials.load(self.tls)
