"""Ctrl-C ends a command at once, also while native code searches and would not come back to Python for a minute.

It is for commands that leave nothing behind. Python's own handler writes the signal into a pipe, whichever thread it
reaches, and a thread that reads the pipe ends the process. Native code runs without Python's lock, so that thread gets
its turn. Rejected: blocking the signal and waiting for it; numpy's threads are there before ours, and do not block it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

STATUS_INTERRUPTED = 130


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
