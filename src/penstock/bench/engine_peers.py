"""Other engines, each in an environment of its own under the user's cache folder, driven by the scripts beside this.

Peers never share our environment: their dependencies are not ours, and a figure of a peer must not depend on what we
happen to have installed. An engine that is not installed is left out, with the reason; `install` makes what is missing.
Spark needs none: it is the one that jobs run on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import UserError

LIMIT_SECONDS = 180.0
SPARK_LIMIT_SECONDS = 600.0  # a session and five micro-batches: half a minute alone, ten times that on a busy machine
INSTALL_SECONDS = 900.0
SCRIPTS = Path(__file__).parent / "peers_engine"


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine."""

    name: str
    script: str
    requirement: str | None = None  # what to install; None: it runs in our own environment
    limit_seconds: float = LIMIT_SECONDS  # for one answer

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return Path(sys.executable) if self.requirement is None else home() / self.requirement / "bin" / "python"

    def installed(self) -> bool:
        """Whether its environment is there and complete."""
        return self.requirement is None or (home() / self.requirement / "complete").exists()


BYTEWAX = Peer("bytewax", "bytewax_words.py", "bytewax==0.21.1")
SPARK = Peer("spark", "spark_words.py", limit_seconds=SPARK_LIMIT_SECONDS)
FIRST_TUPLE = Peer("penstock", "first_tuple.py", limit_seconds=SPARK_LIMIT_SECONDS)
INSTALLABLE = (BYTEWAX,)


class PeerMissing(UserError):
    """A peer is not installed, or did not answer; the benchmark goes on without it."""


def home() -> Path:
    """Where the environments are."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "penstock" / "peers"


def install(progress: Callable[[str], None]) -> None:
    """Make the environments that are missing."""
    for peer in INSTALLABLE:
        if peer.installed() or peer.requirement is None:
            continue
        progress(f"installing {peer.requirement}")
        folder = home() / peer.requirement
        venv.create(folder, with_pip=True, clear=True)
        command = [str(peer.python), "-m", "pip", "install", "-q", "--disable-pip-version-check", peer.requirement]
        try:
            done = subprocess.run(  # noqa: S603 - our own command
                command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            msg = f"{peer.requirement} was not installed within {INSTALL_SECONDS:g} s; is the package index reachable?"
            raise PeerMissing(msg) from None
        if done.returncode:
            msg = f"{peer.requirement} could not be installed: {_last_line(done.stderr)}"
            raise PeerMissing(msg)
        (folder / "complete").touch()


def measured(peer: Peer, case: str, lines: Path, words: int, lines_a_batch: int) -> dict[str, float]:
    """What a peer's script says about one case."""
    if not peer.installed():
        msg = f"{peer.name} is not installed; run: penstock bench engine --install-peers"
        raise PeerMissing(msg)
    command = [str(peer.python), str(SCRIPTS / peer.script), case, str(lines), str(words), str(lines_a_batch)]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, check=False, timeout=peer.limit_seconds
        )
    except subprocess.TimeoutExpired:
        msg = f"{peer.name} gave no answer for {case!r} within {peer.limit_seconds:g} s"
        raise PeerMissing(msg) from None
    if done.returncode or not done.stdout.strip():
        msg = f"{peer.name} failed on {case!r}: {_last_line(done.stderr)}"
        raise PeerMissing(msg)
    answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
