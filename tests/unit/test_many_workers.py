"""A hundred workers of one machine meet, over sockets and over rings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

WORKERS = 100
DESCRIPTORS_MAX = 1024  # what a process may have open on most machines


@pytest.mark.parametrize("transport", ["socket", "ring"])
def test_a_hundred_workers_meet(transport: str) -> None:
    words = [sys.executable, str(Path(__file__).with_name("many_workers.py")), str(WORKERS), transport]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = re.findall(rf"met {WORKERS - 1} over {transport} at \S+ (\d+) descriptors", done.stdout)
    assert len(told) == WORKERS
    assert max(map(int, told)) < DESCRIPTORS_MAX
