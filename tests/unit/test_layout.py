"""What each worker is told of the job: both ends of an edge must agree."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import InvalidInput
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker_share import (
    WINDOW_BYTES,
    WORKER_BYTES,
    EdgeNumbers,
    RunSettings,
    WorkerShare,
    job_streams,
    share_of,
    task_ids,
)


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


def graph(sources: int, middles: int) -> Dataflow:
    top = ps.Topology("graph")
    made = top.source("a", ps.io.generator(lambda task, tasks: [], "i bigint", tasks=sources))
    counted = made.map(lambda row: row, "i bigint", name="b", tasks=middles).key_by("i").count(tasks=3)
    counted.sink("c", ps.io.discard(), tasks=1)
    return top.build()


def by_ends(share: WorkerShare) -> dict[tuple[str, str], int]:
    return {(edge.source, edge.target): edge.number for edge in share.edges}


def test_an_edge_keeps_its_number_when_operators_get_other_tasks() -> None:
    small, large = graph(2, 4), graph(5, 3)
    numbers = [by_ends(share_of(flow, dict.fromkeys(task_ids(flow), 0), 0, RunSettings())) for flow in (small, large)]
    both = numbers[0].keys() & numbers[1].keys()
    assert len(both) == 2 * 3 + 3 * 3 + 3
    assert all(numbers[0][ends] == numbers[1][ends] for ends in both)
    assert len(set(numbers[1].values())) == len(numbers[1])


def test_workers_list_their_own_edges_and_together_all() -> None:
    flow = graph(4, 3)
    worker_of = {task: (7 * i) % 3 for i, task in enumerate(task_ids(flow))}
    whole = by_ends(share_of(flow, dict.fromkeys(task_ids(flow), 0), 0, RunSettings()))
    shares = [share_of(flow, worker_of, me, RunSettings()) for me in range(3)]
    assert {ends: number for share in shares for ends, number in by_ends(share).items()} == whole
    for me, share in enumerate(shares):
        assert by_ends(share).keys() == {ends for ends in whole if me in (worker_of[ends[0]], worker_of[ends[1]])}
        assert {e: worker_of[share.edges[e].target] for e in share.peer_of if share.layout.edges[e].target is None} == {
            e: peer for e, peer in share.peer_of.items() if share.layout.edges[e].target is None
        }


@pytest.mark.parametrize("streams", [0, 1, 2, 3, 64, 1000])
def test_numbers_fit_the_head_of_a_frame_and_are_never_shared(streams: int) -> None:
    numbers = EdgeNumbers(streams)
    last = numbers.tasks_max - 1
    ends = [(s, i, j) for s in {0, 1, streams - 1} & set(range(streams)) for i in (0, 1, last) for j in (0, 1, last)]
    found = [numbers.of(*end) for end in ends]
    assert len(set(found)) == len(ends)
    assert all(0 <= number < numbers.end < 1 << 32 for number in found)
    assert numbers.tasks_max >= 511


def test_more_tasks_than_numbers_can_tell_apart_are_refused() -> None:
    flow = graph(1, 40_000)
    limit = EdgeNumbers(len(job_streams(flow))).tasks_max
    with pytest.raises(InvalidInput, match=rf"operator 'b' has 40000 tasks; .* at most {limit}"):
        share_of(flow, dict.fromkeys(task_ids(flow), 0), 0, RunSettings())
