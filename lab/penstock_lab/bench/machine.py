"""The machine that measures, in one line."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine_line() -> str:
    """CPU model, cores and Python version of the machine that measured."""
    return f"{_cpu_model()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine() or "unknown CPU"
