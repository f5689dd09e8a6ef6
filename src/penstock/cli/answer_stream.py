"""Stdout is the answer's alone: what native libraries print (METIS, of an empty part) goes to stderr.

A program that reads `--format json` must find one document there. Libraries write to file descriptor 1 and know nothing
of `sys.stdout`, so the descriptor becomes stderr's, and `sys.stdout` goes on writing to where it was. Held by
`test_what_native_code_prints_is_no_part_of_the_answer`.
"""

from __future__ import annotations

import os
import sys

STDOUT, STDERR = 1, 2


def keep_stdout_for_answers() -> None:
    """From now on only `sys.stdout` writes to the process's stdout; nothing changes where there is no such stream."""
    try:
        if sys.stdout.fileno() != STDOUT:
            return
        sys.stdout.flush()
        answers = os.dup(STDOUT)
        os.dup2(STDERR, STDOUT)
    except (AttributeError, OSError, ValueError):  # one of the two is closed, or no file
        return
    sys.stdout = open(answers, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115 - for good
