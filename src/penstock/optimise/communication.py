"""What communication costs under a placement: CPU of every stream at both ends, by how far apart its tasks are.

    CPU of a worker = sum of w_v over its tasks + what each stream costs at the ends that it holds

A task's load is w_v, its own work. A stream costs something at any distance: least as a call inside one worker, more
as a ring between workers of one node, most as a socket between nodes (formula (1) of paper 004 with a distance). Where
all rates together are small enough to be CPU themselves, as in the paper's graphs, a rate is what a cut costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.model.costs import DISTANCES, Distance, StreamCosts
from penstock.model.plan import Slot
from penstock.model.profile import Profile
from penstock.model.taskgraph import Floats, Ints, Longs, TaskGraph
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import Problem

CALL, RING, SOCKET = range(len(DISTANCES))
StreamCost = float | Floats  # CPU of one unit of rate at each end of a cut stream: one figure, or one for each edge


def rates_are_cpu(graph: TaskGraph) -> bool:
    """Whether rates may be fractions of a CPU: all streams, cut at both ends, cost no more than all tasks then.

    Rates that a profile counted are bytes, and those of a program that was not measured have no unit
    (`test_rates_of_a_program_are_not_taken_for_cpu_however_loads_are_declared`).
    """
    return not (graph.counted or graph.relative) and 2.0 * graph.total_rate <= float(graph.load.sum())


def stream_ends(graph: TaskGraph, distance: Distance, costs: StreamCosts | None = None) -> tuple[Floats, Floats]:
    """CPU of each edge at its sending and its receiving end, with its tasks so far apart."""
    if not rates_are_cpu(graph):
        return graph.ends(distance, costs)
    cut = graph.rate if distance != "call" else np.zeros_like(graph.rate)
    return cut, cut


def usual_stream_cost(problem: Problem) -> StreamCost:
    """What a cut stream costs at each end, for each unit of its rate, where the caller does not say it.

    Fusion decides on workers before it is known which share a node, so a stream is taken to be a socket where there
    are several nodes: a plan has room for what it may come to. Its two ends count alike, as in the paper: each is their
    mean, so both together are right. Capacities of nodes have no part in this
    (`test_stream_costs_do_not_depend_on_the_cluster_s_capacity`).
    """
    if rates_are_cpu(problem.graph):
        return 1.0
    send, receive = problem.graph.ends("socket" if problem.node_count > 1 else "ring")
    each: Floats = (send + receive) / (2.0 * problem.graph.rate)  # pairs without traffic are not in the graph
    return each


def mean_stream_cost(graph: TaskGraph, cost: StreamCost) -> float:
    """CPU of one unit of rate over all streams."""
    total = graph.total_rate
    return float((graph.rate * cost).sum()) / total if total > 0 else float(np.mean(cost))


def distances(graph: TaskGraph, node: Ints, worker: Ints) -> Ints:
    """The position in DISTANCES of each edge under a placement."""
    a, b = graph.source, graph.target
    apart = np.where(worker[a] != worker[b], RING, CALL)
    return np.where(node[a] != node[b], SOCKET, apart).astype(np.int32)


@dataclass(frozen=True, eq=False)
class SeatLoads:
    """CPU of every worker that holds a task, in the order of nodes and of workers on a node."""

    node: Ints
    worker: Ints
    seat_of: Longs  # of each task
    work: Floats  # sum of w_v
    sending: Floats
    receiving: Floats

    @property
    def load(self) -> Floats:
        """CPU of each worker, communication included."""
        return self.work + self.sending + self.receiving


def seat_loads(problem: Problem, node: Ints, worker: Ints, costs: StreamCosts | None = None) -> SeatLoads:
    """What each worker carries when task i is in worker `worker[i]` of node `node[i]`.

    Costs None: those of the problem's graph.
    """
    return _seat_loads(problem.graph, node, worker, costs)


def _seat_loads(graph: TaskGraph, node: Ints, worker: Ints, costs: StreamCosts | None) -> SeatLoads:
    key = node.astype(np.int64) << 32 | worker.astype(np.int64)
    seats, seat_of = np.unique(key, return_inverse=True)
    count, far = len(seats), distances(graph, node, worker)
    sending, receiving = np.zeros(count), np.zeros(count)
    for position, distance in enumerate(DISTANCES):
        here = far == position
        if here.any():
            send, receive = stream_ends(graph, distance, costs)
            sending += np.bincount(seat_of[graph.source[here]], send[here], minlength=count)
            receiving += np.bincount(seat_of[graph.target[here]], receive[here], minlength=count)
    return SeatLoads(
        node=(seats >> 32).astype(np.int32),
        worker=(seats & 0xFFFFFFFF).astype(np.int32),
        seat_of=seat_of.astype(np.int64),
        work=np.bincount(seat_of, graph.load, minlength=count).astype(np.float64),
        sending=sending,
        receiving=receiving,
    )


@dataclass(frozen=True)
class PredictedCpu:
    """CPU seconds per second that an assignment will take."""

    work: float  # sum of w_v
    communication: float  # sum of w_e at both ends
    workers: Mapping[Slot, float]  # of each worker, both together

    @property
    def total(self) -> float:
        """Of the whole job."""
        return self.work + self.communication


def predicted_cpu(
    graph: OperatorGraph, profile: Profile | None, assignment: Mapping[str, Slot], costs: StreamCosts | None = None
) -> PredictedCpu:
    """w_v + w_e of a whole assignment, from what a profile measured, maybe of another assignment.

    Costs None: the profile's own, else the default ones.
    """
    tasks = TaskGraph.expand(graph, profile)
    slots = [assignment[task] for task in tasks.ids]
    names = {name: k for k, name in enumerate(dict.fromkeys(slot.node for slot in slots))}
    node = np.array([names[slot.node] for slot in slots], dtype=np.int32)
    seats = _seat_loads(tasks, node, np.array([slot.worker for slot in slots], dtype=np.int32), costs)
    known = list(names)
    where = zip(seats.node.tolist(), seats.worker.tolist(), seats.load.tolist(), strict=True)
    return PredictedCpu(
        work=float(seats.work.sum()),
        communication=float(seats.sending.sum() + seats.receiving.sum()),
        workers={Slot(known[k], w): load for k, w, load in where},
    )
