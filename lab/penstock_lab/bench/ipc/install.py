"""A virtual environment of its own for the peers of the transport benchmark, in the user's cache folder.

Peers are no dependencies of Penstock, and some bring large ones. So they go into a fresh environment that sees
Penstock's packages behind its own; a peer's workers run with its Python. A peer that is installed beside Penstock
already is used from there. A stamp that is written last marks a complete environment; one without a stamp is replaced
(`test_an_interrupted_installation_of_peers_counts_as_none_and_is_replaced`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from penstock.errors import UserError
from penstock_lab.bench.ipc.transports import TRANSPORTS

PACKAGES = ("iceoryx2", "pyzmq", "pynng")
INSTALL_SECONDS_MAX = 600
STAMP = "complete"  # in the environment's folder; holds the packages that are in it


def folder() -> Path:
    """Where the environment is; one for each Python environment that Penstock runs in."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(f"{sys.prefix} {sys.version}".encode()).hexdigest()[:12]
    return cache / "penstock" / f"ipc-peers-{name}"


def python_for(transport: str) -> str | None:
    """The Python that runs this transport's workers; None where its package is not installed."""
    module = TRANSPORTS[transport].module
    if not module or importlib.util.find_spec(module) is not None:
        return sys.executable
    python = folder() / "bin" / "python"
    found = any((folder() / "lib").glob(f"python*/site-packages/{module}/__init__.py"))
    return str(python) if found and python.exists() and complete() else None


def complete() -> bool:
    """Whether an installation of these packages came to its end."""
    stamp = folder() / STAMP
    return stamp.is_file() and stamp.read_text(encoding="utf-8").split() == list(PACKAGES)


def missing(transport: str) -> str:
    """Why a transport cannot be measured, and what to run."""
    return f"{TRANSPORTS[transport].needs} is not installed; run penstock bench ipc --install-peers"


def install() -> Path:
    """Make the environment and put the peers into it; a complete one is kept, half of one is replaced."""
    place = folder()
    if complete():
        return place
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    python = str(place / "bin" / "python")
    _run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES])
    site = next((place / "lib").glob("python*/site-packages"))
    # A line that starts with "import" is run when Python starts; it adds our packages behind the peers'.
    ours = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    lines = [f"import site; site.addsitedir({path!r})" for path in ours]
    (site / "zz_penstock.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (place / STAMP).write_text("\n".join(PACKAGES) + "\n", encoding="utf-8")
    return place


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        msg = f"peers were not installed within {INSTALL_SECONDS_MAX} s; is the package index reachable?"
        raise UserError(msg) from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no message"]
        msg = f"peers cannot be installed into {folder()}: {words[0][:300]}; check the network and pip's settings"
        raise UserError(msg)
