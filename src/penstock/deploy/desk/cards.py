"""Cards: a file for each running job of this user, which says where its desk is and holds the key to it.

Only its user can read a card (0600, in a folder of 0700), so whoever can is allowed to ask. Files and folders that are
another's, or that others can touch, are not believed. A card goes with its job; one whose process has died is removed
by whoever looks next, if they can tell: of another container nobody knows which processes live, and of another machine
that shares a home folder as little. Rejected: a port that is known to all, which needs a daemon that outlives jobs.
Decision: docs/decisions/0046-moves.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from penstock.deploy.line.sealed import KEY_BYTES
from penstock.errors import InvalidInput
from penstock.optimise.steps.calibrate import cache_folder
from penstock.run.transport.host import boot_id, namespace

CARD_BYTES_MAX = 1 << 16
CARDS_MAX = 10_000
FORMAT = 1


def machine() -> str:
    """Equal for processes of one machine, before and after it starts anew; empty where that cannot be told.

    Its name is part of it: machines that are made of one image may have the same number.
    """
    with contextlib.suppress(OSError):
        if number := Path("/etc/machine-id").read_text().strip():
            return f"{number} {platform.node()}"
    return ""


def processes() -> str:
    """Equal for processes that see each other under the same numbers; empty where that cannot be told."""
    return namespace("pid")


def network() -> str:
    """Equal for processes of a machine that share its loopback; empty where that cannot be told."""
    return namespace("net")


@dataclass(frozen=True, slots=True)
class Card:
    """How to reach one job."""

    id: str
    name: str  # of its topology
    host: str
    port: int
    key: str = field(repr=False)  # in hexadecimal digits
    pid: int = field(default_factory=os.getpid)
    boot_id: str = field(default_factory=boot_id)
    began_s: float = 0.0  # since 1970
    machine: str = field(default_factory=machine)
    processes: str = field(default_factory=processes)
    network: str = field(default_factory=network)
    penstock: int = FORMAT

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to have ended."""
        if self.boot_id != boot_id():
            return bool(self.machine) and self.machine == machine()
        return bool(self.processes) and self.processes == processes() and not Path(f"/proc/{self.pid}").exists()

    @property
    def is_here(self) -> bool:
        """Whether its desk can be reached from this process."""
        return self.boot_id == boot_id() and self.network == network()


def new_key() -> str:
    """A key for a card."""
    return secrets.token_bytes(KEY_BYTES).hex()


def cards_folder() -> Path:
    """Where cards lie: the user's folder for what lives as long as a login, else the one for caches."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return (Path(runtime) / "penstock" if runtime else cache_folder()) / "jobs"


def put(card: Card) -> Path:
    """Write a card that its user alone can read."""
    folder = cards_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private(folder)
    path = folder / f"{card.id}.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(card), file)
    return path


def cards() -> list[Card]:
    """Jobs that run here, the oldest first; cards of processes that have died are removed."""
    found = []
    for path in _paths():
        card = _read(path)
        if card is None:
            continue
        if card.is_dead:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        elif card.is_here:
            found.append(card)
    return sorted(found, key=lambda card: (card.began_s, card.id))


def find(word: str | None) -> Card:
    """The job that a user means by its id, the beginning of it, or its topology's name; None: the only one."""
    if word is not None and not word.strip():
        msg = "the job's name is empty; give its id, the beginning of that, or its topology's name"
        raise InvalidInput(msg)
    found = cards()
    if word is not None:
        found = [card for card in found if card.name == word or card.id.startswith(word)]
    if len(found) == 1:
        return found[0]
    which = "job" if word is None else f"job {word!r}"
    if not found:
        msg = f"no {which} of yours runs on this machine or with this home folder; `penstock jobs` lists those that do"
    else:
        names = ", ".join(f"{card.id} ({card.name})" for card in found[:5])
        msg = f"{len(found)} jobs can be meant by {which}: {names}; give an id"
    raise InvalidInput(msg)


def _paths() -> Iterator[Path]:
    folder = cards_folder()
    try:
        _require_private(folder)
    except FileNotFoundError:
        return
    yield from sorted(folder.glob("*.json"))[:CARDS_MAX]


def _require_private(folder: Path) -> None:
    """InvalidInput for a folder that others can read or write: what lies there may be theirs."""
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        msg = (
            f"{folder} is to hold the keys to your jobs, and is not a folder that is yours alone (mode 0700); "
            f"remove it, or `chmod 700` it"
        )
        raise InvalidInput(msg)


def _read(path: Path) -> Card | None:
    """A card; None for a file that is none, that others can touch, or that is being written or removed just now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
                return None
            document = json.loads(file.read(CARD_BYTES_MAX))
        known = {each.name for each in fields(Card)}
        if not isinstance(document, dict) or document.get("penstock") != FORMAT or not known >= document.keys():
            return None
        card = Card(**{"machine": "", "processes": "", "network": "", **document})
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return card if _is_sound(card) else None


def _is_sound(card: Card) -> bool:
    """Whether each name has a value of its kind."""
    words = (card.id, card.name, card.host, card.key, card.boot_id, card.machine, card.processes, card.network)
    numbers = (card.port, card.pid)
    if not all(isinstance(word, str) for word in words) or not all(type(number) is int for number in numbers):
        return False
    try:
        key = bytes.fromhex(card.key)
    except ValueError:
        return False
    began = card.began_s
    return len(key) == KEY_BYTES and 0 < card.port < 1 << 16 and isinstance(began, int | float)
