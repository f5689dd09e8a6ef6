"""A session that we make, seen by a stranger of this machine: what listens, what it answers, what can be read of it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from footprint import below, open_files, words
from pyspark.sql import SparkSession

import penstock as ps
from penstock.deploy.line.sealed import read_exactly
from penstock.deploy.session.closed import OPEN_NOTE

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
REQUEST, ANSWER, FAILURE = 3, 4, 5  # kinds of messages in Spark's own protocol


def numbers(index: int, tasks: int) -> Iterator[tuple[int] | None]:
    while True:
        yield (1,)
        yield None


def test_nothing_of_a_running_job_listens_to_other_machines(spark: SparkSession) -> None:
    top = ps.Topology("endless")
    top.source("numbers", ps.io.generator(numbers, "n bigint", tasks=2, bounded=False)).sink("out", ps.io.collect())
    with top.start(spark, scheduler="even", workers=2) as job:
        found = {pid: listening(pid) for pid in [os.getpid(), *below(os.getpid())]}
        assert {worker.pid for worker in job.workers} < set(found)
        assert OPEN_NOTE not in job.notes
    assert sum(map(len, found.values())) >= 3  # the driver's control line, and at least Spark's two
    assert {pid: ports for pid, ports in found.items() if not {address for address, _ in ports} <= LOOPBACK} == {}


def listening(pid: int) -> set[tuple[str, str]]:
    """Addresses and ports on which a process waits to be called."""
    opened = open_files(pid)
    # The tables of this process: all share one network namespace, and a process that is no more than a zombie has none.
    rows = [row.split() for kind in ("tcp", "tcp6") for row in Path(f"/proc/self/net/{kind}").read_text().splitlines()]
    waiting = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in opened]
    return {(row[1].partition(":")[0], row[1].partition(":")[2]) for row in waiting}


def test_a_stranger_gets_no_block_of_a_session(spark: SparkSession) -> None:
    """Spark would hand a broadcast to whoever asks for it, and with it the closure of a job."""
    context = spark.sparkContext
    secret = context.broadcast(b"whatever")
    listed = context._jsc.sc().statusStore().executorList(True)
    addresses = [str(listed.apply(i).hostPort()).rpartition(":") for i in range(listed.size())]
    assert addresses
    for host, _, port in addresses:
        kind, said = asked_for((host, int(port)), f"broadcast_{secret._jbroadcast.id()}_piece0")
        assert kind == FAILURE, said
    secret.destroy()


def asked_for(address: tuple[str, int], block: str) -> tuple[int, bytes]:
    """What Spark's block manager answers to a request for a block, by its public protocol."""
    words = [part.encode() for part in ("app", "driver", block)]
    app, executor, name = (struct.pack(">i", len(word)) + word for word in words)
    body = bytes([0]) + app + executor + struct.pack(">i", 1) + name
    request = struct.pack(">BqI", REQUEST, 1, len(body)) + body
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(struct.pack(">q", len(request) + 8) + request)
        (length,) = struct.unpack(">q", read_exactly(connection, 8))
        answer = bytes(read_exactly(connection, length - 8))
    return answer[0], answer


def test_no_secret_stands_on_a_command_line(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    secrets = [value for name, value in conf.getAll() if "secret" in name.lower() and len(value) > 30]
    assert len(secrets) == 2  # the session's, and that of the pages nobody may see
    lines = [b" ".join(words(pid)) for pid in below(os.getpid())]
    assert any(b"java" in line for line in lines)
    assert not [line for line in lines for secret in secrets if secret.encode() in line]
