"""Binding: from the slots that Spark gave to a certified plan and a deployment. Pure.

Spark decides on which executor each task runs, so the order is hello first, plan after: the cluster that the scheduler
sees is made of the workers that are really there (`slots`), and what the deployment needs is among its constraints
(`demands`). Every plan that leaves has passed `certify` as it is (tests/unit/test_plan_road.py).

Declared loads of a bounded job (1.0 per task unless the user knows better) say how tasks compare, not that 45 cores are
needed: where they exceed what there is, capacities are stretched by the same factor everywhere. Measured loads are a
constraint, kept if the scheduler or `best` finds how; where neither does, capacities are stretched too, and the plan
says so. A given plan is followed, however full. Rejected: refusing these jobs, and shrinking the loads.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.deploy.driver.demands import among, pins, replicas_apart
from penstock.deploy.driver.given_plan import NEXT_STEP, matched, placed_tasks, require_own_plan
from penstock.deploy.driver.plan_notes import job_notes, numbered, overload
from penstock.deploy.driver.slots import USABLE_SHARE, Slots, Use, taken_note
from penstock.deploy.line.messages import Hello
from penstock.errors import Infeasible, InternalError, InvalidInput, NoPlanFound, PenstockError, UnhonouredConstraints
from penstock.model.cluster import Cluster
from penstock.model.constraints import Constraint, tags_as_nodes
from penstock.model.plan import Forecast, Plan, Slot
from penstock.model.profile import Profile
from penstock.model.task_id import TaskId
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import OperatorGraph
from penstock.optimise.certificate import certify, demanding, make_plan
from penstock.optimise.contract import SLACK, THROUGHPUT, Options, Placement, Problem
from penstock.optimise.door import place
from penstock.optimise.fuse.contract import FuseOptions
from penstock.optimise.fuse.door import fuse
from penstock.optimise.search.pressure import PRESSURE_NOTE
from penstock.optimise.stretch import fullest, least_stretch, surest_stretch
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker import Deployment
from penstock.run.engine.worker_share import RunSettings
from penstock.run.transport.host import identity
from penstock.run.transport.links import WorkerPlace

if TYPE_CHECKING:
    from penstock.deploy.attempt.crossing import Crossing

QUICK_SCHEDULER = "ffd"
BEST = "best"
JOB_SETTINGS = {"goal": THROUGHPUT}  # of `best`
# What a job waits for its plan, unless its theta says otherwise. Schedulers stop sooner where they are done or stalled.
THETA_SECONDS = 1.0  # of a scheduler, as in the paper
FUSE_SECONDS = 10.0  # of a fusion method
LEAST_SHARE = 0.5  # of that, for a search after others that found nothing
MOVED_NOTE = "tasks that read a DataFrame are not where the plan has them: Spark hands a partition to every worker"
INSTEAD_NOTE = (
    "found no plan in which no node or worker has more than it can carry, by the loads that the profile measured; "
    "scheduler 'best' did, and this plan is its"
)
NODES_NOTE = (
    "executors of one machine count as nodes: workers of one node share memory, and workers of two nodes speak through "
    "sockets, as they would between machines; transport='ring' shares memory between nodes of one machine too"
)
# How far capacities are stretched beyond what is needed by arithmetic, until the tasks also fit node by node.
STRETCHES = (1.0, 1.05, 1.15, 1.35, 1.75, 2.5, 4.0)


@dataclass(frozen=True, slots=True)
class Placing:
    """How the caller wants tasks to be placed."""

    scheduler: str = "best"
    plan: Plan | None = None
    profile: Profile | None = None
    node: str | None = None  # "executor", "host", or None to decide by where the executors are
    seed: int = 0
    theta: float | None = None  # seconds to search; None: THETA_SECONDS, and FUSE_SECONDS of a fusion method
    tasks_per_worker: int = 5
    settings: Mapping[str, object] = field(default_factory=dict)  # the scheduler's own parameters
    fuse: str | None = None  # a fusion method, in place of the scheduler
    fuse_options: FuseOptions | None = None

    def again(
        self,
        profile: Profile,
        tasks_per_worker: int,
        scheduler: str | None,
        seed: int | None,
        theta: float | None,
        settings: Mapping[str, object] | None = None,
    ) -> Placing:
        """Wishes for a new plan of the same job; what is None stays. Another scheduler has settings of its own."""
        return dataclasses.replace(
            self,
            fuse=self.fuse if scheduler is None else None,
            fuse_options=self._fuse_options_again(seed, theta),
            scheduler=scheduler or self.scheduler,
            settings=(self.settings if scheduler in {None, self.scheduler} else {}) if settings is None else settings,
            plan=None,
            profile=profile,
            seed=self.seed if seed is None else seed,
            theta=self.theta if theta is None else theta,
            tasks_per_worker=self.tasks_per_worker if self.plan is None else tasks_per_worker,
        )

    def _fuse_options_again(self, seed: int | None, theta: float | None) -> FuseOptions | None:
        if seed is None and theta is None:
            return self.fuse_options
        given = self.fuse_options or FuseOptions(seed=self.seed)
        return dataclasses.replace(
            given, seed=given.seed if seed is None else seed, theta=given.theta if theta is None else theta
        )

    @property
    def own_settings(self) -> Mapping[str, object]:
        """The scheduler's settings; a job is to be fast: that is the goal of `best` unless the caller has another."""
        return {**JOB_SETTINGS, **self.settings} if self.scheduler == BEST else self.settings

    def faults(self) -> list[str]:
        """What is wrong with these wishes."""
        return [] if self.node in {None, "executor", "host"} else [f"node is {self.node!r}; give 'executor' or 'host'"]


@dataclass(frozen=True, slots=True)
class Certified:
    """A plan and what it was certified for: the graph with everything that is demanded of it, and the cluster."""

    graph: OperatorGraph
    cluster: Cluster
    plan: Plan


@dataclass(frozen=True, slots=True)
class Bound:
    """What a job follows, and where that puts every task."""

    certified: Certified
    deployment: Deployment
    notes: tuple[str, ...] = ()  # what the job's user should know of it

    @property
    def loads(self) -> dict[str, float]:
        """What each task was taken to need."""
        operators = self.certified.graph.operators
        return {TaskId.of(o.name, i): load for o in operators for i, load in enumerate(o.loads())}


def bind(
    dataflow: Dataflow,
    hellos: Sequence[Hello],
    placing: Placing,
    job: str,
    settings: RunSettings,
    work_ms: float | None = None,
    others: Sequence[Use] = (),
) -> Bound:
    """Where every task runs: hellos are in order of worker, and the dataflow is already `sized` to them.

    `work_ms` is what the workers' test of speed takes here; None: their speeds are not compared. `others` is what other
    jobs of the session use.
    """
    slots = Slots.of(hellos, placing.node, work_ms, others)
    if placing.plan is None:
        certified = scheduled(dataflow, slots, placing)
    else:
        certified = given(dataflow, slots, placing.plan, placing.profile)
    places, notes = worker_places(hellos, slots, settings.transport)
    worker_of = {task: slots.worker(slot) for task, slot in certified.plan.assignment.items()}
    if len({slots.node_of[worker] for worker in worker_of.values()}) < 2:
        notes = ()  # nothing passes between nodes
    return Bound(certified, Deployment(job, places, worker_of, settings), notes + taken_note(slots))


def worker_places(
    hellos: Sequence[Hello], slots: Slots, transport: str
) -> tuple[tuple[WorkerPlace, ...], tuple[str, ...]]:
    """Where every worker is and with which others it shares memory, and a note where nodes share a machine.

    With transport "auto" workers of one node share memory and workers of two nodes do not, also where several nodes are
    executors of one machine: what passes between nodes is what it would be between machines. "ring" shares it wherever
    that can be.
    """
    machines = [identity(hello.boot_id, hello.ipc) for hello in hellos]
    nodes_of = {machine: {slots.node_of[i] for i, m in enumerate(machines) if m == machine} for machine in machines}
    by_node = transport == "auto" and any(machine and len(nodes) > 1 for machine, nodes in nodes_of.items())
    places = tuple(
        WorkerPlace(i, node, hello.host, hello.port, f"{machine} {node}" if by_node and machine else machine)
        for i, (hello, machine, node) in enumerate(zip(hellos, machines, slots.node_of, strict=True))
    )
    return places, (NODES_NOTE,) if by_node else ()


def scheduled(
    dataflow: Dataflow,
    slots: Slots,
    placing: Placing,
    constraints: tuple[Constraint, ...] = (),
    kept: tuple[Constraint, ...] = (),
) -> Certified:
    """The scheduler's plan for the workers that are there, under its constraints and what the deployment demands.

    `kept` is demanded beside that, and no part of what the plan records.
    """
    stated = _graph(dataflow, constraints, placing.profile)
    demands = (*pins(dataflow, slots), *replicas_apart(dataflow, len(slots.node_of)), *kept)
    search = _Search(among(stated, slots), slots, placing, demands)
    found = search.declared() if placing.profile is None else search.measured()
    if found is None:
        refusal = search.refusals[-1]
        if isinstance(refusal, Infeasible | UnhonouredConstraints):  # capacity is no limit here, the constraints are
            raise refusal
        msg = f"{search.maker} found no place for {dataflow.name!r} on {slots.counts}: {refusal}"
        raise NoPlanFound(msg)
    made, factor = found
    too_full = search.overload(made) > 1 + SLACK
    if factor > 1 and not too_full and placing.profile is not None:  # it keeps what the search did not have to
        made, factor = dataclasses.replace(made, max_utilisation=made.max_utilisation * factor), 1.0
    notes = job_notes(made.notes, search.graph, slots, placing.profile, made.assignment, fused=placing.fuse is not None)
    # What is proved of stretched capacities is not proved of those that are there.
    proved = made.proved_optimal and not too_full
    plan = dataclasses.replace(made, notes=notes, constraints=stated.constraints, proved_optimal=proved)
    cluster = slots.cluster(factor)
    plan = certify(search.whole, cluster, plan, placing.profile, JobRefusals(given=False))
    return Certified(search.whole, cluster, plan)


@dataclass
class _Search:
    """One job's search for a plan: who is asked, and at which capacities. A plan comes with the factor it was made at.

    Loads that were measured are a constraint: capacities are stretched only where neither the scheduler that was asked
    nor `best` finds a plan within what is there. Later searches have what time is left, and half of it at least.
    """

    graph: OperatorGraph  # with the constraints of the topology, as far as its nodes are there
    slots: Slots
    placing: Placing
    demands: tuple[Constraint, ...]
    refusals: list[PenstockError] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def whole(self) -> OperatorGraph:
        """The graph with everything that is demanded of it."""
        return demanding(self.graph, self.demands)

    @cached_property
    def tasks(self) -> TaskGraph:
        """The tasks, with measured loads where there are any."""
        return TaskGraph.expand(self.whole, self.placing.profile)

    @property
    def maker(self) -> str:
        """Who was asked for a plan."""
        fuse = self.placing.fuse
        return f"scheduler {self.placing.scheduler!r}" if fuse is None else f"fusion method {fuse!r}"

    def overload(self, plan: Plan) -> float:
        """Load over what is there, of the fullest node or worker."""
        return overload(self.tasks, self.slots, plan.assignment)

    def declared(self) -> tuple[Plan, float] | None:
        """Loads say how tasks compare, so the first factor that fits is as good as any."""
        return self._first(self._factors_that_fit())

    def measured(self) -> tuple[Plan, float] | None:
        """Within what is there if any plan is, else stretched."""
        fusing, within = self.placing.fuse is not None, self._within()
        if found := self._first(within):
            return found
        if within and not fusing and (found := self._by_best()):
            return found
        spent = self.clock() - self.began
        beyond = [factor for factor in self._factors_that_fit() if factor > max(within, default=0.0)]
        found = self._first(beyond, spent if within else 0.0)
        # Fusion also counts the CPU of streams, so its plan may keep to the loads although the search was stretched.
        if within and fusing and (found is None or self.overload(found[0]) > 1 + SLACK):
            return self._by_best() or found
        return found

    def _within(self) -> list[float]:
        """Factors at which a plan keeps to what is there, of which gamma withholds some; none where no plan can."""
        if least_stretch(Problem(self.tasks, self.slots.cluster(), self.whole.constraints)) > 1 + SLACK:
            return []
        options = self.placing.fuse_options
        whole = 1 / options.gamma if self.placing.fuse is not None and options is not None else 1.0
        return [*(factor for factor in STRETCHES if factor < whole), whole]

    def _factors_that_fit(self) -> list[float]:
        """Factors worth trying: a quick first fit finds the least, which spares proofs that smaller ones do not fit."""
        problem = Problem(self.tasks, self.slots.cluster(), self.whole.constraints)
        needed = max(1.0, least_stretch(problem))
        factors = [needed * stretch for stretch in STRETCHES]
        factors += [surest] if (surest := surest_stretch(problem)) > factors[-1] else []
        for i, factor in enumerate(factors):
            with suppress(NoPlanFound, Infeasible, UnhonouredConstraints):
                self._placed(QUICK_SCHEDULER, factor, {})
                return factors[i:]
        return factors

    def _first(self, factors: Sequence[float], spent: float = 0.0) -> tuple[Plan, float] | None:
        """The plan of whom the job asks, at the first factor at which there is one."""
        for factor in factors:
            try:
                if self.placing.fuse is not None:
                    return fused(self.graph, self.slots.cluster(factor), self.placing, self.demands, spent), factor
                return self._placed(self.placing.scheduler, factor, self.placing.own_settings, spent), factor
            except (NoPlanFound, Infeasible, UnhonouredConstraints) as error:
                self.refusals.append(error)
        return None

    def _by_best(self) -> tuple[Plan, float] | None:
        """The plan that `best` has within what is there, where another was asked, with a note that says so."""
        spent = self.clock() - self.began if self.placing.fuse is None else 0.0
        if self.placing.fuse is None and self.placing.scheduler == BEST:
            return None
        try:
            made = self._placed(BEST, 1.0, JOB_SETTINGS, spent)
        except (NoPlanFound, Infeasible, UnhonouredConstraints):  # what the asked one said is what is told
            return None
        return dataclasses.replace(made, notes=(*made.notes, f"{self.maker} {INSTEAD_NOTE}")), 1.0

    def _placed(self, scheduler: str, factor: float, settings: Mapping[str, object], spent: float = 0.0) -> Plan:
        placing = self.placing
        theta = _left(THETA_SECONDS if placing.theta is None else placing.theta, spent)
        options = Options(placing.seed, theta, placing.tasks_per_worker, settings, usable_share=USABLE_SHARE)
        cluster, profile = self.slots.cluster(factor), placing.profile
        return place(self.graph, cluster, scheduler, profile=profile, options=options, demands=self.demands, meet=True)


def _left(theta: float, spent: float) -> float:
    """Seconds for a search after others have taken some."""
    return max(theta - spent, LEAST_SHARE * theta) if spent > 0 else theta


def fused(
    graph: OperatorGraph, cluster: Cluster, placing: Placing, demands: tuple[Constraint, ...], spent: float = 0.0
) -> Plan:
    """The fusion method's plan; seed and theta are the job's unless its own options state them (0 is no seed)."""
    options = placing.fuse_options or FuseOptions()
    options = dataclasses.replace(options, seed=options.seed or placing.seed)
    if options.theta is None:
        options = dataclasses.replace(options, theta=FUSE_SECONDS if placing.theta is None else placing.theta)
    options = dataclasses.replace(options, theta=_left(options.theta or 0.0, spent))
    return fuse(
        graph, cluster, placing.fuse or BEST, profile=placing.profile, options=options, demands=demands, meet=True
    )


def _graph(dataflow: Dataflow, constraints: tuple[Constraint, ...], profile: Profile | None) -> OperatorGraph:
    """What is to be placed, with more constraints than its own; InvalidInput where they or the profile do not fit."""
    graph = dataflow.graph()
    graph = dataclasses.replace(graph, constraints=tuple(dict.fromkeys((*graph.constraints, *constraints))))
    if profile is not None:
        profile.validated(graph)
    return graph.validated()


def scene_of(
    dataflow: Dataflow, slots: Slots, profile: Profile | None, constraints: tuple[Constraint, ...]
) -> tuple[OperatorGraph, Cluster, tuple[Constraint, ...]]:
    """What a scheduler would see of a job that runs: its graph, its cluster, and what the deployment demands."""
    graph = among(_graph(dataflow, constraints, profile), slots)
    return graph, slots.cluster(), (*pins(dataflow, slots), *replicas_apart(dataflow, len(slots.node_of)))


def given(dataflow: Dataflow, slots: Slots, plan: Plan, profile: Profile | None) -> Certified:
    """The caller's plan on the nodes that Spark gave, with every task that reads a DataFrame where its rows arrive."""
    require_own_plan(dataflow, plan)
    graph, pinned = _graph(dataflow, plan.constraints, profile), pins(dataflow, slots)
    own = placed_tasks(dataflow, plan)
    limits = tags_as_nodes(graph.constraints, slots.cluster().tags)
    real = matched(own, slots.counts, limits, {o.name: o.tasks for o in dataflow.operators})
    readers = {pin.operator: Slot(pin.node, pin.worker) for pin in pinned}
    told = {task: plan.assignment[task] for task in readers if task in plan.assignment}
    moved = any(real.get(slot, slot) != readers[task] for task, slot in told.items())
    assignment = {task: real[slot] for task, slot in own.items()} | readers
    own_notes = tuple(note for note in plan.notes if not note.startswith(PRESSURE_NOTE))  # of other workers
    notes = job_notes(own_notes, graph, slots, profile, assignment) + ((MOVED_NOTE,) if moved else ())
    stated = dataclasses.replace(plan, notes=notes, constraints=graph.constraints)
    certified = costed(demanding(graph, pinned), assignment, slots, profile, stated)
    if profile is not None or moved or len(told) < len(readers):
        return certified  # the cost is computed here, or the plan speaks of other places
    return dataclasses.replace(certified, plan=dataclasses.replace(certified.plan, own_word=_own_word(plan)))


def _own_word(plan: Plan) -> Forecast | None:
    """What a plan from elsewhere foretells, if it can be true."""
    said = plan.forecast
    sound = said is not None and 0 < said.rows_per_second < math.inf and 0 <= said.cost < math.inf
    return said if sound else None


def costed(
    graph: OperatorGraph, assignment: Mapping[str, Slot], slots: Slots, profile: Profile | None, plan: Plan
) -> Certified:
    """Places that were decided elsewhere, with every figure computed here; scheduler, seed and notes are the plan's.

    Capacities are stretched until they carry the fullest node and worker: the plan's maker knew how full they would be.
    """
    tasks = TaskGraph.expand(graph, profile)
    node, worker = numbered(tasks, assignment, slots)
    cluster = slots.cluster(max(1.0, fullest(Problem(tasks, slots.cluster()), node, worker)))
    problem, placement = Problem(tasks, cluster, graph.constraints), Placement(node)
    made = make_plan(problem, plan.scheduler, plan.seed, plan.seconds, placement, worker, plan.notes, plan.constraints)
    return Certified(graph, cluster, certify(graph, cluster, made, profile, JobRefusals(given=True)))


@dataclass(frozen=True, slots=True)
class JobRefusals:
    """What is said of a plan that a job cannot follow: a given plan is the user's mistake, a scheduler's is ours."""

    given: bool

    def broken(self, constraints: list[str]) -> PenstockError:
        """For a constraint, of the plan itself or of what Spark hands to each worker."""
        return self.refused(constraints)

    def refused(self, faults: list[str]) -> PenstockError:
        """For anything else."""
        if self.given:
            return InvalidInput(f"the plan cannot be followed here: {faults[0]}; {NEXT_STEP}")
        return InternalError(f"a certified plan fails its certificate in a job: {faults[0]}; please report this")


@dataclass(frozen=True, slots=True)
class Replan:
    """The plan that a job follows and one made from what it measured, both costed with those measurements."""

    current: Plan
    plan: Plan
    crossing: Crossing | None = None  # where the job has gone over to the new plan

    def __repr__(self) -> str:
        moves = f"{len(self.moves)} task{'' if len(self.moves) == 1 else 's'} would move"
        return (
            f"Replan(saves {self.gain:g} of {self.current.cost:g} B/s between nodes, {moves}; .plan is {self.plan!r})"
        )

    @property
    def gain(self) -> float:
        """Bytes per second between nodes that the new plan saves; negative when the current one is better."""
        return self.current.cost - self.plan.cost

    @property
    def moves(self) -> tuple[str, ...]:
        """Tasks that would have to move."""
        return tuple(task for task, slot in self.plan.assignment.items() if self.current.assignment[task] != slot)


def replan(
    dataflow: Dataflow,
    hellos: Sequence[Hello],
    current: Plan,
    placing: Placing,
    work_ms: float | None = None,
    others: Sequence[Use] = (),
) -> Replan:
    """A new plan for the workers that a job has; `placing.profile` is what it measured."""
    slots = Slots.of(hellos, placing.node, work_ms, others)
    graph = demanding(_graph(dataflow, current.constraints, placing.profile), pins(dataflow, slots))
    followed = costed(graph, current.assignment, slots, placing.profile, current)
    return Replan(followed.plan, scheduled(dataflow, slots, placing, current.constraints).plan)


def workers_needed(plan: Plan) -> int:
    """Worker processes that a plan uses."""
    return len(set(plan.assignment.values()))


def tasks_per_worker(tasks: int, workers: int) -> int:
    """The number that lets a split of the tasks use every worker."""
    return max(1, math.ceil(tasks / workers))
