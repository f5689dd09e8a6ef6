"""A program: jobs whose keys it knows, while everything that may speak of them is as talkative as it can be.

Arguments: a folder for everything that the jobs and the session write, the file for what was found, and the master.
One job fails in a user's function; the other loses a worker and goes on. The keys go into the file alone.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from footprint import below
from recovery_kit import PATIENCE_S, await_epoch, await_recoveries, counts, kill, numbers

import penstock as ps
from certificates import folder
from penstock.deploy import Job, local_session

SEEN_IN = ("cmdline", "environ")


def forms(key: bytes) -> set[bytes]:
    """A key as it may be written down."""
    words = key.hex().encode()
    plain = {base64.b64encode(key).rstrip(b"="), base64.urlsafe_b64encode(key).rstrip(b"=")}
    return {key, words, words.upper(), repr(key)[2:-1].encode(), *plain}


def shown_by_processes(keys: Iterable[bytes], processes: Iterable[int]) -> list[str]:
    """Where the command line or the environment of one of these processes shows a key."""
    wanted = [form for key in keys for form in forms(key)]
    found = []
    for pid in processes:
        for name in SEEN_IN:
            try:
                words = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:  # it has ended
                continue
            found += [f"/proc/{pid}/{name}"] * any(form in words for form in wanted)
    return found


def shown_by_files(keys: Iterable[bytes], root: Path) -> list[str]:
    """Files below a folder that hold a key."""
    wanted = [form for key in keys for form in forms(key)]
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    return [str(path) for path in files if any(form in path.read_bytes() for form in wanted)]


def keys_of(job: Job) -> list[bytes]:
    """Every key of the attempt that is under way."""
    attempt = job._attempts.now
    server = attempt._server
    workers = [server._worker_key(hello) for hello in server.roll.hellos.values()]
    return [server._ticket, server._secret, server.data_key(), *workers]


def failing() -> ps.Topology:
    """A job that ends with the traceback of a user's function."""
    top = ps.Topology("failing")
    rows = top.source("numbers", numbers())
    rows.map(lambda row: {"n": 1 // (row.n - 5)}, schema="n bigint", name="divide").sink("out", ps.io.collect())
    return top


def main(written: Path, found: Path, master: str) -> None:
    logging.basicConfig(level=logging.DEBUG)  # Py4J logs every command
    events = written / "events"
    events.mkdir(parents=True)
    config = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    spark = local_session(master, config=config, log_level="DEBUG")
    certificates = folder(found.parent / "tls")
    gate = written / "gate"
    keys: list[bytes] = []
    seen: list[str] = []
    job = counts(numbers(gate)).start(
        spark,
        workers=2,
        tls=certificates,
        transport="socket",
        metrics=written / "metrics",
        checkpoint=written / "checkpoint",
        checkpoint_interval_s=0.2,
        interval_s=0.2,
    )
    with job:
        for attempt in range(2):
            keys += keys_of(job)
            processes = [os.getpid(), *below(os.getpid())]
            seen += shown_by_processes(keys, processes)
            assert {worker.pid for worker in job.workers} < set(processes)
            if attempt == 0:
                await_epoch(job, 1)
                kill(job, 1)
                await_recoveries(job, 1)
        seen += shown_by_files(keys, written)
        gate.touch()
        assert job.wait(PATIENCE_S), job
        print(job.result.collect(), job.notes)
    failed = failing().start(spark, workers=2, tls=certificates)
    keys += keys_of(failed)
    with contextlib.suppress(ps.JobFailed):
        failed.wait(PATIENCE_S)
    print(failed.error, repr(failed.error), getattr(failed.error, "__notes__", ()))
    logging.getLogger("mine").error("%s", failed.error, exc_info=failed.error)
    spark.stop()
    own = Path(certificates, "key.pem").read_text().splitlines()[1:-1]
    told = {"keys": [key.hex() for key in keys], "lines": own, "seen": seen, "recoveries": job.recoveries}
    found.write_text(json.dumps(told))


def run(arguments: Sequence[str]) -> None:
    written, found, master = arguments
    main(Path(written), Path(found), master)


if __name__ == "__main__":
    run(sys.argv[1:])
