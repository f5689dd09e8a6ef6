"""No key of a job is shown: in no command line, environment, log, event log, error, metric log or checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kept_secrets import forms, shown_by_files, shown_by_processes

from conftest import MASTERS

PROGRAM = Path(__file__).parent / "kept_secrets.py"
SECONDS = 200


@pytest.mark.parametrize("master", MASTERS)
def test_no_key_of_a_job_is_shown_anywhere(master: str, tmp_path: Path) -> None:
    written, found = tmp_path / "written", tmp_path / "found.json"
    (written / "temporary").mkdir(parents=True)
    folders = os.pathsep.join([str(PROGRAM.parent), str(PROGRAM.parents[1])])
    environment = {**os.environ, "TMPDIR": str(written / "temporary"), "PYTHONPATH": folders}
    line = [sys.executable, str(PROGRAM), str(written), str(found), master]
    with (written / "said").open("wb") as said:
        subprocess.run(line, stdout=said, stderr=said, env=environment, check=True, timeout=SECONDS)
    told = json.loads(found.read_text())
    keys = [bytes.fromhex(key) for key in told["keys"]]
    assert told["recoveries"] == 1
    assert len(set(keys)) == 3 * 5  # three attempts: ticket, secret, data key and those of two workers
    assert told["seen"] == []
    assert shown_by_files(keys, written) == []
    assert shown_by_files([line.encode() for line in told["lines"]], written) == []
    # All of them would have been there to be shown.
    events = b"".join(path.read_bytes() for path in (written / "events").rglob("*") if path.is_file())
    assert b'"penstock.secret":"*********(redacted)"' in events
    log = (written / "said").read_bytes()
    assert b"A command that names a secret" in log
    assert b"ZeroDivisionError" in log
    assert list((written / "metrics").rglob("*.parquet"))
    assert list((written / "checkpoint").rglob("*"))


def test_a_key_that_is_shown_is_found(tmp_path: Path) -> None:
    key = os.urandom(32)
    for form in forms(key) - {key, repr(key)[2:-1].encode()}:
        for shown, environment in ((["x", form.decode()], {}), (["x"], {"KEY": form.decode()})):
            line = [sys.executable, "-c", "print(flush=True); input()", *shown]
            with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
                assert process.stdout is not None
                process.stdout.readline()  # it is there
                assert shown_by_processes([os.urandom(32), key], [process.pid])
                assert not shown_by_processes([os.urandom(32)], [process.pid])
                process.communicate(b"\n")
    for number, form in enumerate(sorted(forms(key))):
        (tmp_path / "deep").mkdir(exist_ok=True)
        (tmp_path / "deep" / str(number)).write_bytes(b"before " + form + b" after")
    assert len(shown_by_files([key], tmp_path)) == len(forms(key))
    assert shown_by_files([os.urandom(32)], tmp_path) == []
