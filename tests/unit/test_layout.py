"""What each worker is told of the job: both ends of an edge must agree."""

from __future__ import annotations

import penstock as ps
from penstock.run.layout import WINDOW_BYTES, WORKER_BYTES, RunSettings, share_of, task_ids


def test_both_ends_of_an_edge_reckon_with_the_same_window() -> None:
    # Worker 0 only sends, worker 1 has hundreds of edges into it: its memory is what the windows share.
    top = ps.Topology("many")
    source = top.source("a", ps.io.generator(lambda task, tasks: [], "i bigint", tasks=20))
    source.map(lambda row: row, "i bigint", name="b", tasks=20).sink("c", ps.io.discard(), tasks=1)
    dataflow = top.build()
    worker_of = {task: int(not task.startswith("a/")) for task in task_ids(dataflow)}
    shares = [share_of(dataflow, worker_of, me, RunSettings()) for me in (0, 1)]
    windows = [
        {edge.number: layout.window for edge, layout in zip(share.edges, share.layout.edges, strict=True)}
        for share in shares
    ]
    both = windows[0].keys() & windows[1].keys()
    assert len(both) == 400
    assert all(windows[0][number] == windows[1][number] for number in both)
    assert sum(windows[1].values()) <= WORKER_BYTES
    assert max(windows[1].values()) < WINDOW_BYTES
