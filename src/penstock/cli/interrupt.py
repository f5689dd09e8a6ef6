"""Ctrl-C and SIGTERM: of commands that close what they have begun, and of those that end at once.

Ctrl-C ends the latter also while native code searches and would not come back to Python for a minute: they leave
nothing behind. Python's own handler writes the signal into a pipe, whichever thread it
reaches, and a thread that reads the pipe ends the process. Native code runs without Python's lock, so that thread gets
its turn. Rejected: blocking the signal and waiting for it; numpy's threads are there before ours, and do not block it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STATUS_INTERRUPTED = 130
STATUS_TERMINATED = 143


@contextmanager
def terminated() -> Iterator[Callable[[], bool]]:
    """SIGTERM raises KeyboardInterrupt, so that all is closed as at Ctrl-C; what is yielded tells the two apart.

    Without it the process would end where it is, with nothing said. A second SIGTERM ends it so.
    """
    was = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal was
        was = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # Python handles signals in the main thread
        yield lambda: False
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield lambda: was
    finally:
        signal.signal(signal.SIGTERM, before)


def exit_on_interrupt() -> None:
    """From now on SIGINT prints one line and ends the process."""
    if threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_await_interrupt, args=(reader,), name="interrupt", daemon=True).start()


def _await_interrupt(reader: int) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass  # other signals that Python handles come through the same pipe
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\r\x1b[K")  # a progress bar hides the cursor; show it again and clear its line
    os.write(2, b"penstock: stopped\n")
    os._exit(STATUS_INTERRUPTED)
