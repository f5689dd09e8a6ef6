"""Binding: from the slots that Spark gave to a deployment. Pure.

Spark decides on which executor each barrier task runs, so the order is hello first, plan after: the cluster that the
scheduler sees is made of the workers that are really there. A node is a host; where all executors share one host
(`local-cluster`, one machine) an executor counts as a node, so that placement means something there as well.

Capacity is cores x 0.8, as the papers set it where capacities are discovered. Declared loads of a bounded job (1.0 per
task unless somebody knows better) say how tasks compare, not that 45 cores are needed; where they exceed what there is,
capacities are stretched by the same factor everywhere and the plan carries a note. Rejected: refusing such jobs, and
shrinking the loads, which would have to be done in profiles as well.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.deploy.messages import Hello
from penstock.deploy.region_spread import spread
from penstock.errors import Infeasible, InvalidInput, NoPlanFound
from penstock.model.cluster import Cluster, Node
from penstock.model.plan import Plan, Slot
from penstock.model.profile import Profile
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.door import make_plan, place
from penstock.run.dataflow import Dataflow
from penstock.run.host import identity
from penstock.run.layout import RunSettings
from penstock.run.links import WorkerPlace
from penstock.run.worker import Deployment

USABLE_SHARE = 0.8
# How far capacities are stretched beyond what the sum of loads needs, until the tasks also fit node by node.
QUICK_SCHEDULER = "ffd"
STRETCHES = (1.0, 1.05, 1.15, 1.35, 1.75, 2.5, 4.0)


@dataclass(frozen=True, slots=True)
class Placing:
    """How the caller wants tasks to be placed."""

    scheduler: str = "best"
    plan: Plan | None = None
    profile: Profile | None = None
    node: str | None = None  # "executor", "host", or None to decide by where the executors are
    seed: int = 0
    theta: float | None = None  # seconds for the scheduler
    tasks_per_worker: int = 5

    def faults(self) -> list[str]:
        """What is wrong with these wishes."""
        return [] if self.node in {None, "executor", "host"} else [f"node is {self.node!r}; give 'executor' or 'host'"]


def sized(dataflow: Dataflow, workers: int) -> Dataflow:
    """The dataflow with one task per worker for every operator that reads what Spark hands to each worker."""
    if not any(operator.one_per_worker for operator in dataflow.operators):
        return dataflow
    return dataclasses.replace(
        dataflow,
        operators=tuple(
            dataclasses.replace(operator, tasks=workers) if operator.one_per_worker else operator
            for operator in dataflow.operators
        ),
    )


def node_names(hellos: Sequence[Hello], node: str | None) -> list[str]:
    """The node of each worker: n1, n2, ... by executor, or the host's own name."""
    machines = {hello.boot_id for hello in hellos}
    kind = node or ("executor" if len(machines) == 1 else "host")
    if kind == "executor":
        number = {address: i for i, address in enumerate(sorted({hello.address for hello in hellos}), start=1)}
        return [f"n{number[hello.address]}" for hello in hellos]
    name_of: dict[str, str] = {}
    for hello in sorted(hellos, key=lambda hello: hello.address):
        name_of.setdefault(hello.boot_id, hello.address.rpartition(":")[0] or hello.address)
    return [name_of[hello.boot_id] for hello in hellos]


def bind(
    dataflow: Dataflow, hellos: Sequence[Hello], placing: Placing, job: str, settings: RunSettings
) -> tuple[Deployment, Plan]:
    """Where every task runs: hellos are in order of worker, and the dataflow is already `sized` to them."""
    nodes = node_names(hellos, placing.node)
    workers_on: dict[str, list[int]] = defaultdict(list)
    for worker, name in enumerate(nodes):
        workers_on[name].append(worker)
    if placing.plan is not None:
        plan = renamed(placing.plan, {name: len(workers) for name, workers in workers_on.items()})
        _require_all_tasks(dataflow, plan)
    else:
        plan = make_placement(dataflow, {name: len(workers) for name, workers in workers_on.items()}, placing)
        plan = _spread(plan, dataflow, {name: len(workers) for name, workers in workers_on.items()}, placing.profile)
    plan = pinned(plan, dataflow, nodes, workers_on, placing.profile)
    places = tuple(
        WorkerPlace(i, nodes[i], hello.host, hello.port, identity(hello.boot_id, hello.ipc))
        for i, hello in enumerate(hellos)
    )
    worker_of = {task: workers_on[slot.node][slot.worker] for task, slot in plan.assignment.items()}
    return Deployment(job, places, worker_of, settings), plan


def make_placement(dataflow: Dataflow, workers_on: Mapping[str, int], placing: Placing) -> Plan:
    """The scheduler's plan for nodes with so many workers each."""
    graph = dataflow.graph().validated()
    loads = TaskGraph.expand(graph, placing.profile).load
    offered = sum(workers_on.values()) * USABLE_SHARE
    workers_per_node_max = max(workers_on.values())
    needed = max(1.0, float(loads.sum()) / offered, float(loads.max()) / (workers_per_node_max * USABLE_SHARE))
    options = Options(placing.seed, placing.theta, placing.tasks_per_worker)
    refusal: Exception | None = None
    for factor in _factors_that_fit(graph, workers_on, needed, placing.profile):
        cluster = cluster_of(workers_on, factor)
        try:
            plan = place(graph, cluster, placing.scheduler, profile=placing.profile, options=options)
        except (NoPlanFound, Infeasible) as error:
            refusal = error
            continue
        if factor == 1.0:
            return plan
        note = (
            f"loads add up to {loads.sum():g} but {sum(workers_on.values())} workers offer {offered:g}; "
            f"placed by relative load, with capacities taken {factor:.3g} times"
        )
        return dataclasses.replace(plan, notes=(*plan.notes, note))
    msg = f"scheduler {placing.scheduler!r} found no place for {dataflow.name!r} on {dict(workers_on)}: {refusal}"
    raise NoPlanFound(msg)


def _factors_that_fit(
    graph: OperatorGraph, workers_on: Mapping[str, int], needed: float, profile: Profile | None
) -> list[float]:
    """Factors worth trying: a quick first fit finds the least, lest a thorough search prove that none fits."""
    factors = [needed * stretch for stretch in STRETCHES]
    for i, factor in enumerate(factors):
        try:
            place(graph, cluster_of(workers_on, factor), QUICK_SCHEDULER, profile=profile)
        except (NoPlanFound, Infeasible):
            continue
        return factors[i:]
    return factors


def cluster_of(workers_on: Mapping[str, int], factor: float = 1.0) -> Cluster:
    """Nodes with as many slots as there are workers, each a core of which 0.8 is usable."""
    return Cluster(tuple(Node(name, count * USABLE_SHARE * factor, slots=count) for name, count in workers_on.items()))


def renamed(plan: Plan, workers_on: Mapping[str, int]) -> Plan:
    """A plan made for other node names, with its nodes matched to real ones; the neediest node chooses first."""
    needs: Counter[str] = Counter(slot.node for slot in set(plan.assignment.values()))
    if all(needs[name] <= workers_on.get(name, 0) for name in needs):
        return _compacted(plan, {name: name for name in needs})
    free = sorted(workers_on, key=lambda name: (-workers_on[name], name))
    wanted = sorted(needs, key=lambda name: (-needs[name], name))
    if len(wanted) > len(free) or any(needs[w] > workers_on[f] for w, f in zip(wanted, free, strict=False)):
        shape = "+".join(str(needs[name]) for name in wanted)
        given = "+".join(str(workers_on[name]) for name in free)
        msg = (
            f"the plan needs workers {shape} on {len(wanted)} nodes but Spark gave {given} on {len(free)}; "
            "make a plan for that, or pass scheduler= instead of plan="
        )
        raise InvalidInput(msg)
    return _compacted(plan, dict(zip(wanted, free, strict=False)))


def workers_needed(plan: Plan) -> int:
    """Worker processes that a plan uses."""
    return len(set(plan.assignment.values()))


def pinned(
    plan: Plan,
    dataflow: Dataflow,
    nodes: Sequence[str],
    workers_on: Mapping[str, Sequence[int]],
    profile: Profile | None = None,
) -> Plan:
    """The plan with task i of every `one_per_worker` operator on worker i, where its rows are, costed anew."""
    moved = {
        f"{operator.name}/{i}": Slot(nodes[i], workers_on[nodes[i]].index(i))
        for operator in dataflow.operators
        if operator.one_per_worker
        for i in range(operator.tasks)
    }
    if all(plan.assignment.get(task) == slot for task, slot in moved.items()):
        return plan
    tasks = [f"{operator.name}/{i}" for operator in dataflow.operators for i in range(operator.tasks)]
    assignment = {task: moved.get(task) or plan.assignment[task] for task in tasks}
    note = "tasks that read a DataFrame were moved to the workers that Spark hands its partitions to"
    placed = dataclasses.replace(plan, assignment=assignment, notes=(*plan.notes, note))
    return costed(placed, dataflow, {name: len(workers) for name, workers in workers_on.items()}, profile)


def _spread(plan: Plan, dataflow: Dataflow, workers_on: Mapping[str, int], profile: Profile | None) -> Plan:
    """Replicas of parallel regions on workers of their own, and the figures of that plan."""
    placed = spread(plan, dataflow, workers_on)
    return plan if placed is plan else costed(placed, dataflow, workers_on, profile)


def costed(plan: Plan, dataflow: Dataflow, workers_on: Mapping[str, int], profile: Profile | None) -> Plan:
    """The same places with every figure computed anew, from the profile's loads and rates."""
    cluster = cluster_of(workers_on)
    problem = Problem(TaskGraph.expand(dataflow.graph(), profile), cluster)
    number = {node.name: k for k, node in enumerate(cluster.nodes)}
    slots = [plan.assignment[task] for task in problem.graph.ids]
    placement = Placement(np.array([number[slot.node] for slot in slots], dtype=np.int32))
    worker = np.array([slot.worker for slot in slots], dtype=np.int32)
    return make_plan(problem, plan.scheduler, plan.seed, plan.seconds, placement, worker, plan.notes)


@dataclass(frozen=True, slots=True)
class Replan:
    """The plan that a job follows and one made from what it measured, both costed with those measurements."""

    current: Plan
    plan: Plan

    @property
    def gain(self) -> float:
        """Bytes per second between nodes that the new plan saves; negative when the current one is better."""
        return self.current.cost - self.plan.cost

    @property
    def moves(self) -> tuple[str, ...]:
        """Tasks that would have to move."""
        return tuple(task for task, slot in self.plan.assignment.items() if self.current.assignment[task] != slot)


def replan(dataflow: Dataflow, hellos: Sequence[Hello], current: Plan, placing: Placing) -> Replan:
    """A new plan for the workers that a job has; `placing.profile` is what it measured."""
    nodes = node_names(hellos, placing.node)
    workers_on: dict[str, list[int]] = defaultdict(list)
    for worker, name in enumerate(nodes):
        workers_on[name].append(worker)
    counts = {name: len(workers) for name, workers in workers_on.items()}
    made = make_placement(dataflow, counts, placing)
    made = _spread(made, dataflow, counts, placing.profile)
    made = pinned(made, dataflow, nodes, workers_on, placing.profile)
    return Replan(costed(current, dataflow, counts, placing.profile), made)


def _compacted(plan: Plan, name_of: Mapping[str, str]) -> Plan:
    """The plan with nodes renamed and the workers of each node numbered 0, 1, ..."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for slot in sorted(set(plan.assignment.values())):
        numbers[slot.node].append(slot.worker)
    assignment = {
        task: Slot(name_of[slot.node], numbers[slot.node].index(slot.worker)) for task, slot in plan.assignment.items()
    }
    return dataclasses.replace(plan, assignment=assignment)


def _require_all_tasks(dataflow: Dataflow, plan: Plan) -> None:
    wanted = {f"{operator.name}/{i}" for operator in dataflow.operators for i in range(operator.tasks)}
    free = {f"{o.name}/{i}" for o in dataflow.operators if o.one_per_worker for i in range(o.tasks)}
    missing = sorted(wanted - free - set(plan.assignment))
    extra = sorted(task for task in set(plan.assignment) - wanted if not _reads_frame(dataflow, task))
    faults = [f"the plan has no place for task {missing[0]!r} of {dataflow.name!r}"] if missing else []
    faults += [f"the plan places {extra[0]!r}, which {dataflow.name!r} does not have"] if extra else []
    if faults:
        raise InvalidInput(faults)


def _reads_frame(dataflow: Dataflow, task: str) -> bool:
    return any(o.one_per_worker and task.rpartition("/")[0] == o.name for o in dataflow.operators)


def tasks_per_worker(tasks: int, workers: int) -> int:
    """The number that lets a split of the tasks use every worker."""
    return max(1, math.ceil(tasks / workers))
