"""Seconds from a kill to the first new row of a Bytewax flow with recovery; prints one line of JSON.

    python bytewax_recovery.py CASE FOLDER

Case: `driver` (the process is killed and started again from its recovery store; Bytewax restarts processes and has no
session that outlives them). Snapshots are taken every second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from recovery_notes import ROWS_PER_SECOND, note, restarted


def flow(path):
    """A steady source that resumes, a keyed count, and a sink that notes the highest row."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    class Part(StatefulSourcePartition):
        def __init__(self, resumed):
            self.sent, self.began = resumed or (
                0,
                time.time(),
            )  # on one schedule: what fell due meanwhile comes at once

        def next_batch(self):
            due = int((time.time() - self.began) * ROWS_PER_SECOND)
            batch = [(str(value % 1000), value) for value in range(self.sent, due)]
            self.sent = max(self.sent, due)
            return batch

        def next_awake(self):
            return datetime.now(timezone.utc) + timedelta(milliseconds=5)

        def snapshot(self):
            return self.sent, self.began

    class Source(FixedPartitionedSource):
        def list_parts(self):
            return ["all"]

        def build_part(self, step_id, for_part, resume_state):
            return Part(resume_state)

    class SinkPart(StatelessSinkPartition):
        def write_batch(self, items):
            note(path, max(value for _, (_, value) in items))

    class Sink(DynamicSink):
        def build(self, step_id, worker_index, worker_count):
            return SinkPart()

    dataflow = Dataflow("recovery")
    stream = op.input("ticks", dataflow, Source())
    counted = op.stateful_map("count", stream, lambda n, value: ((n or 0) + 1, ((n or 0) + 1, value)))
    op.output("out", counted, Sink())
    return dataflow


def run(folder):
    """The flow in this process, from its recovery store."""
    from bytewax.recovery import RecoveryConfig
    from bytewax.testing import run_main

    with tempfile.TemporaryDirectory() as cache:
        os.environ["BYTEWAX_DATAFLOW_API_CACHE_PATH"] = cache
        kept = RecoveryConfig(str(Path(folder, "kept")))
        run_main(flow(str(Path(folder, "notes"))), epoch_interval=timedelta(seconds=1), recovery_config=kept)


def main(case, folder):
    """One figure."""
    if case == "run":
        run(folder)
        return
    kept = Path(folder, "kept")
    kept.mkdir()
    subprocess.run([sys.executable, "-m", "bytewax.recovery", str(kept), "1"], check=True)
    print(json.dumps({"seconds": restarted(__file__, folder)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
