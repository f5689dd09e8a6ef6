"""The files of a Spark event log: one file or a rolled folder, plain or compressed by Spark.

Spark cannot read its own compressed logs back as text: Hadoop's codecs know neither the ending `.zstd` nor Spark's own
framing of the others. Zstandard, with which Spark compresses by default, is unpacked into a private folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.deploy.session.private_folder import PrivateFolder
from penstock.errors import InvalidInput

ROLLED = "eventlog_v2_"
FILES_MAX = 10_000
UNPACKED_BYTES_MAX = 8 * 1024**3
IN_PROGRESS = ".inprogress"
_OTHER_CODECS = frozenset({".lz4", ".snappy", ".lzf"})
_CHUNK = 1024 * 1024


def log_files(source: str | Path) -> list[Path]:
    """The files of one application's log; refuses a folder that holds several applications, and names them."""
    path = Path(source)
    if path.is_file():
        return [_readable(path)]
    if not path.is_dir():
        msg = f"there is no event log {path}; give the file or folder that spark.eventLog.dir got"
        raise InvalidInput(msg)
    inside = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if path.name.startswith(ROLLED):
        events = [entry for entry in inside if entry.name.startswith("events_") and entry.is_file()]
        if not 0 < len(events) <= FILES_MAX:
            msg = f"{path} holds {len(events)} files of events; a rolled log has 1 to {FILES_MAX}"
            raise InvalidInput(msg)
        return [_readable(entry) for entry in events]
    logs = [entry for entry in inside if entry.is_file() or entry.name.startswith(ROLLED)]
    if len(logs) != 1:
        named = ", ".join(entry.name for entry in logs[:8]) or "none"
        msg = f"{path} holds {len(logs)} event logs ({named}); give the one to import"
        raise InvalidInput(msg)
    return log_files(logs[0])


def _readable(path: Path) -> Path:
    if codec(path) in _OTHER_CODECS:
        msg = f"{path} is compressed with {codec(path)[1:]}, in Spark's own framing; only zstd and plain logs are read"
        raise InvalidInput(msg)
    return path


def codec(path: Path) -> str:
    """The ending that names the codec; a log that is still written has one more after it."""
    return Path(path.name.removesuffix(IN_PROGRESS)).suffix


@contextmanager
def plain_files(files: list[Path]) -> Iterator[list[Path]]:
    """The same files as text, while the block runs."""
    packed = [path for path in files if codec(path) == ".zstd"]
    if not packed:
        yield files
        return
    folder = PrivateFolder("events")
    try:
        left = UNPACKED_BYTES_MAX
        found: list[Path] = []
        for number, path in enumerate(files):
            if path not in packed:
                found.append(path)
                continue
            target = folder.path / f"events-{number}"
            left -= _unpack(path, target, left)
            found.append(target)
        yield found
    finally:
        folder.remove()


def _unpack(path: Path, target: Path, bytes_max: int) -> int:
    """Write the file unpacked; a log that is still written may end in the middle."""
    import pyarrow as pa

    size = 0
    try:
        with pa.CompressedInputStream(pa.OSFile(str(path), "rb"), "zstd") as events, target.open("wb") as out:
            while chunk := _next_chunk(events, path):
                size += len(chunk)
                if size > bytes_max:
                    msg = f"{path} unpacks to more than {UNPACKED_BYTES_MAX >> 30} GiB of events; import a part of it"
                    raise InvalidInput(msg)
                out.write(chunk)
    except (OSError, pa.ArrowException) as error:
        msg = f"cannot unpack {path}: {' '.join(str(error).split())}"
        raise InvalidInput(msg) from None
    return size


def _next_chunk(events: object, path: Path) -> bytes:
    try:
        return bytes(events.read(_CHUNK))  # type: ignore[attr-defined]
    except OSError:
        if path.name.endswith(IN_PROGRESS):
            return b""
        raise
