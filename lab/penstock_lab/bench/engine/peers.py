"""Other engines, each in an environment of its own under the user's cache folder, driven by `bench/peer_scripts`.

Peers have their own environments: their dependencies are not ours, and a peer's figure must not depend on our packages
(`test_our_packages_stand_behind_a_peers_own`). An engine that is not installed is left out, with the reason; `install`
makes the missing environments. Spark needs none: jobs run on it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import UserError

LIMIT_SECONDS = 180.0
SPARK_LIMIT_SECONDS = 600.0  # a session and five micro-batches: half a minute alone, ten times that on a busy machine
INSTALL_SECONDS = 900.0
SCRIPTS = Path(__file__).parents[1] / "peer_scripts"


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine."""

    name: str
    script: str
    requirement: str | None = None  # the package to install; None: the engine runs in our own environment
    limit_seconds: float = LIMIT_SECONDS  # for one answer
    bench: str = "engine"  # the benchmark that measures this peer
    beside_ours: bool = False  # its environment sees our packages behind its own

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return Path(sys.executable) if self.requirement is None else self.folder / "bin" / "python"

    @property
    def folder(self) -> Path:
        """Its environment; peers that need the same share it."""
        return home() / str(self.requirement).replace(" ", "+")

    def installed(self) -> bool:
        """Whether its environment is there and complete."""
        return self.requirement is None or (self.folder / "complete").exists()


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


def install(progress: Callable[[str], None], peers: Sequence[Peer] = INSTALLABLE) -> None:
    """Make the environments that are missing."""
    for peer in peers:
        if peer.installed() or peer.requirement is None:
            continue
        progress(f"installing {peer.requirement}")
        venv.create(peer.folder, with_pip=True, clear=True)
        wanted = peer.requirement.split()
        command = [str(peer.python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]
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
        if peer.beside_ours:
            _show_ours(peer.folder)
        (peer.folder / "complete").touch()


def _show_ours(folder: Path) -> None:
    """Let an environment find our packages behind its own: a .pth line that starts with "import" is run."""
    site = next((folder / "lib").glob("python*/site-packages"))
    ours = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    lines = [f"import site; site.addsitedir({path!r})" for path in ours]
    (site / "zz_penstock.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")


def measured(peer: Peer, case: str, data: Path, *sizes: int) -> dict[str, float]:
    """The figures of a peer's script for one case, over a file, in these sizes."""
    if not peer.installed():
        msg = f"{peer.name} is not installed; run: penstock bench {peer.bench} --install-peers"
        raise PeerMissing(msg)
    command = [str(peer.python), str(SCRIPTS / peer.script), case, str(data), *map(str, sizes)]
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
