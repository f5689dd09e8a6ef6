"""Word count in Bytewax on two processes; prints one line of JSON.

    python bytewax_words.py CASE LINES_FILE WORDS LINES_A_BATCH

Cases: `record` (one update per word), `grouped` (words counted in a Counter per batch before the keyed step, one update
per key and batch) and `latency` (20,000 words per second, each timed from the moment at which it was due). The parent
starts both processes; each notes when its source first ran and when its sink closed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

PROCESSES = 2
WORDS_PER_SECOND = 20_000
SHARES = 4  # of the keys, in the grouped case: two for each process
LIMIT_SECONDS = 170


def flow(case, path, words, size, notes):
    """The dataflow of one case."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import DynamicSource, StatelessSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    lines = Path(path).read_text().splitlines()
    seen = {}

    class LinesPart(StatelessSourcePartition):
        def __init__(self, index, count):
            self.left = words // 10 // count
            self.at = index * len(lines) // count

        def next_batch(self):
            if "began" not in seen:
                seen["began"], seen["cpu"] = time.monotonic(), time.process_time()
            if self.left <= 0:
                raise StopIteration
            self.left -= size
            self.at = self.at if self.at + size <= len(lines) else 0
            batch = lines[self.at : self.at + size]
            self.at += size
            return batch

    class DuePart(StatelessSourcePartition):
        def __init__(self, index, count):
            self.rate = WORDS_PER_SECOND / count
            self.limit = words // count
            self.sent = 0
            self.vocabulary = sorted({word for line in lines for word in line.split()})

        def next_batch(self):
            now = time.monotonic()
            began = seen.setdefault("began", now)
            if self.sent >= self.limit:
                raise StopIteration
            due = min(self.limit, int((now - began) * self.rate) + 1)
            batch = [(i, began + i / self.rate) for i in range(self.sent, due)]
            self.sent = due
            return batch

        def next_awake(self):
            if "began" not in seen:
                return None
            wait = seen["began"] + self.sent / self.rate - time.monotonic()
            return datetime.now(timezone.utc) + timedelta(seconds=max(0.0, wait))

    class Source(DynamicSource):
        def build(self, step_id, worker_index, worker_count):
            return (DuePart if case == "latency" else LinesPart)(worker_index, worker_count)

    class SinkPart(StatelessSinkPartition):
        def __init__(self, index):
            self.index, self.late = index, []

        def write_batch(self, items):
            if case == "latency":
                now = time.monotonic()
                self.late.extend([now - item[1][1] for item in items])

        def close(self):
            ended, used = time.monotonic(), time.process_time() - seen.get("cpu", 0.0)
            note = {"began": seen.get("began"), "ended": ended, "cpu": used, "late": self.late}
            Path(notes, f"{self.index}.json").write_text(json.dumps(note))

    class Sink(DynamicSink):
        def build(self, step_id, worker_index, worker_count):
            return SinkPart(worker_index)

    dataflow = Dataflow("words")
    stream = op.input("lines", dataflow, Source())
    if case == "latency":
        vocabulary = sorted({word for line in lines for word in line.split()})
        count = len(vocabulary)
        pairs = op.map("function", stream, lambda item: (vocabulary[item[0] % count], item[1]))
        counts = op.stateful_map("count", pairs, lambda n, due: ((n or 0) + 1, (n, due)))
    elif case == "record":
        pairs = op.flat_map("split", stream, lambda line: [(word, 1) for word in line.split()])
        counts = op.stateful_map("count", pairs, lambda n, one: ((n or 0) + one, (n or 0) + one))
    else:
        shares = op.flat_map_batch("split", stream, split_and_group)
        counts = op.stateful_map("count", shares, add_share)
    op.output("out", counts, Sink())
    return dataflow


def split_and_group(lines):
    """The words of a batch counted, one message for each share of the keys instead of one for each word."""
    shares = [{} for _ in range(SHARES)]
    for word, count in Counter(" ".join(lines).split()).items():
        shares[hash(word) % SHARES][word] = count
    return [(str(i), share) for i, share in enumerate(shares)]


def add_share(totals, share):
    """Running totals of a share of the keys, and those that have changed."""
    totals = {} if totals is None else totals
    changed = {}
    for word, count in share.items():
        totals[word] = changed[word] = totals.get(word, 0) + count
    return totals, changed


def run_process(index, case, path, words, size, notes, addresses):
    """One of the processes."""
    from bytewax.run import cli_main

    cli_main(
        flow(case, path, words, size, notes),
        workers_per_process=1,
        process_id=index,
        addresses=addresses,
    )


def free_addresses():
    """Addresses that are free."""
    held = [socket.socket() for _ in range(PROCESSES)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return found


def main(case, path, words, size):
    """Start the processes, wait, and add their notes up."""
    with tempfile.TemporaryDirectory() as notes:
        addresses = free_addresses()
        command = [sys.executable, __file__, case, path, str(words), str(size), notes, ";".join(addresses)]
        environment = {**os.environ, "BYTEWAX_DATAFLOW_API_CACHE_PATH": notes, "PYTHONHASHSEED": "0"}
        started = [subprocess.Popen([*command, str(i)], env=environment) for i in range(PROCESSES)]
        try:
            codes = [process.wait(timeout=LIMIT_SECONDS) for process in started]
        finally:
            for process in started:
                process.kill()
        if any(codes):
            sys.exit(f"a Bytewax process ended with {codes}")
        found = [json.loads(note.read_text()) for note in Path(notes).glob("*.json")]
    seconds = max(note["ended"] for note in found) - min(note["began"] for note in found)
    late = sorted(value for note in found for value in note["late"])
    answer = {"words_per_s": words / seconds, "cpu_ns_per_word": sum(note["cpu"] for note in found) / words * 1e9}
    if late:
        answer |= {
            "p50_ms": late[len(late) // 2] * 1e3,
            "p99_ms": late[len(late) * 99 // 100] * 1e3,
            "words": len(late),
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    case, path, words, size, *rest = sys.argv[1:]
    if rest:
        notes, addresses, index = rest
        run_process(int(index), case, path, int(words), int(size), notes, addresses.split(";"))
    else:
        main(case, path, int(words), int(size))
