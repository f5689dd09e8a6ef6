"""The parent's handle on a process that runs one end of the stream that is measured: lines of JSON, within limits."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping

from penstock.errors import PenstockError

ANSWER_SECONDS = 20.0  # of one case; a machine may be busy
LINE_BYTES_MAX = 65_536


class CalibrationFailed(PenstockError):
    """What streams cost could not be measured here."""


class EndProcess:
    """A process of `end.py`; gone when closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "penstock.run.calibration.end"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None  # noqa: S101 - pipes were asked for
        assert self._process.stdout is not None  # noqa: S101
        self._in, self._out = self._process.stdin, self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._unread = b""

    @property
    def number(self) -> int:
        """The system's number of the process."""
        return self._process.pid

    def tell(self, document: Mapping[str, object]) -> None:
        """Send a line."""
        with contextlib.suppress(BrokenPipeError):  # `answer` will say that it has ended
            self._in.write(json.dumps(document).encode() + b"\n")
            self._in.flush()

    def answer(self) -> dict[str, object]:
        """The next line's document; CalibrationFailed where none comes."""
        until = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self._unread:
            if not self._selector.select(max(0.0, until - time.monotonic())):
                msg = f"a process of the calibration gave no answer within {ANSWER_SECONDS:g} s; try again at rest"
                raise CalibrationFailed(msg)
            piece = os.read(self._out.fileno(), LINE_BYTES_MAX)
            if not piece or len(self._unread) > LINE_BYTES_MAX:
                msg = "a process of the calibration ended before it answered; please report this"
                raise CalibrationFailed(msg)
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, object] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        self._selector.close()
        self._process.kill()
        self._process.communicate()
