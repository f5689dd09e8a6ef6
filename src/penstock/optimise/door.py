"""`place`: the one way from a topology and a cluster to a certified Plan.

The scheduler decides, the door measures its time, computes every figure, and lets nothing out that `check_plan`
refuses (tests/contract/test_schedulers.py). A plan that overloads a node (even, flink and ols look at slots, not at
capacity) is an error by default, because it should not be deployed; a comparison asks for it with `allow_overload` and
shows how full the node would be. Published schedulers stay as published: they decide on nodes, whose workers `seats`
keeps within one thread each, and their placements are changed to meet constraints where the caller asks for that, which
a job does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.errors import Infeasible, InvalidInput, NoPlanFound, PenstockError, UnhonouredConstraints
from penstock.model.cluster import Cluster
from penstock.model.constraints import Constraint
from penstock.model.kinds import require_cluster, require_kind, require_profile
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.taskgraph import Ints
from penstock.model.topology import Operator, OperatorGraph, Placeable, Stream, graph_of
from penstock.optimise.certificate import certify, demanding, make_plan, sound_problem
from penstock.optimise.contract import Options, Placement, Problem, Scheduler
from penstock.optimise.fuse.steps.feasibility import require_no_clash
from penstock.optimise.fuse.steps.rules import compile_rules
from penstock.optimise.meet import met
from penstock.optimise.objective import node_cost
from penstock.optimise.place import SCHEDULERS, find_scheduler
from penstock.optimise.seats import bottleneck_note, narrowed, seated
from penstock.optimise.workers import slots_note, split_by_kway

LIMITS = frozenset({"cpu", "memory", "bandwidth"})
TRIAL_SECONDS = 0.02  # of search, in which a scheduler reads its settings
MOVED_NOTE = "moved to meet constraints, which the scheduler does not look at"


def place(
    graph: OperatorGraph | Placeable,
    cluster: Cluster,
    scheduler: str = "best",
    *,
    profile: Profile | None = None,
    options: Options | None = None,
    allow_overload: bool = False,
    demands: tuple[Constraint, ...] = (),
    meet: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """A certified plan by the named scheduler; raises a UserError that says why when there is none.

    `demands` are constraints of a deployment: kept as the topology's own are, but no part of what the plan records.
    With `meet`, the placement of a scheduler that does not look at constraints is changed until it keeps them.
    """
    require_kind(scheduler, str, "scheduler", "the name of one, such as 'best'")
    row = find_scheduler(scheduler)
    _require_kinds(cluster, profile, options)
    options = options or Options()
    row.require_known(options.settings)
    if faults := options.faults():
        raise InvalidInput(faults)
    graph = graph_of(graph, () if profile is None else profile.tasks)
    whole = demanding(graph, demands)
    problem = _posed(whole, cluster, profile, row, allow_overload=allow_overload)
    if whole.constraints:
        require_no_clash(problem, stream_cost=0.0)
    schedule = row.load()
    row.prepare(options)
    began = clock()
    placement = schedule(narrowed(problem), options)
    worker, notes = placement.worker, placement.notes
    if worker is None:
        worker = split_by_kway(problem, placement.node, options)
    if "constraints" not in row.looks_at or not whole.constraints:  # else it has seated the tasks under its rules
        worker, raised = seated(problem, placement.node, worker, options)
        notes += (*slots_note(problem, placement.node, worker, options), *raised)
    if whole.constraints and "constraints" not in row.looks_at:
        if meet:
            placement, worker, changed = _meeting(problem, placement, worker)
            notes += changed
        else:
            count = len(whole.constraints)
            notes += (f"{scheduler!r} does not look at constraints; that this plan keeps all {count} is luck",)
    seconds = clock() - began
    notes += bottleneck_note(problem, placement.node)
    plan = make_plan(problem, scheduler, options.seed, seconds, placement, worker, notes, graph.constraints)
    return certify(whole, cluster, plan, profile, SchedulerRefusals(row), allow_overload=allow_overload)


def _require_kinds(cluster: object, profile: object, options: object) -> None:
    require_cluster(cluster)
    require_profile(profile)
    require_kind(options, Options | None, "options", "a penstock.Options, such as penstock.Options(theta=5)")


def require_settings(scheduler: str, settings: Mapping[str, object]) -> None:
    """Refuse settings that a scheduler does not have, or values that it refuses, before there is anything to place.

    Schedulers read their settings when they are asked, so it is asked for the smallest problem that has a choice.
    """
    row = find_scheduler(scheduler)
    row.require_known(settings)
    if settings:
        graph = OperatorGraph("trial", (Operator("a", 3), Operator("b", 3)), (Stream("a", "b"),))
        problem = sound_problem(graph, Cluster.uniform([(2, 4.0)]), None)
        with contextlib.suppress(NoPlanFound):
            row.load()(problem, Options(theta=TRIAL_SECONDS, settings=settings))


def _posed(
    graph: OperatorGraph, cluster: Cluster, profile: Profile | None, row: Scheduler, *, allow_overload: bool
) -> Problem:
    """The sound problem; where an overload is asked for, also one that is short, for who does not look at load."""
    blind = "cpu" not in row.looks_at
    try:
        return sound_problem(graph, cluster, profile, short=allow_overload and blind)
    except Infeasible as error:
        if not allow_overload:
            raise
        others = [name for name, other in SCHEDULERS.items() if "cpu" not in other.looks_at]
        msg = (
            f"{error}; an overloaded plan is made by schedulers that do not look at load ({', '.join(others)}), and "
            f"{row.name!r} does"
        )
        raise Infeasible(msg) from None


def _meeting(problem: Problem, placement: Placement, worker: Ints) -> tuple[Placement, Ints, tuple[str, ...]]:
    """The placement changed as far as the constraints need; what is proved of one is not proved of the other."""
    node, seat = met(problem, compile_rules(problem), placement.node, worker)
    moved = int(((node != placement.node) | (seat != worker)).sum())
    if not moved:
        return placement, worker, ()
    bound = min(placement.lower_bound, node_cost(problem, node))
    changed = replace(placement, node=node, worker=seat, lower_bound=bound, proved_optimal=False)
    return changed, seat, (f"{moved} task{'' if moved == 1 else 's'} {MOVED_NOTE}",)


@dataclass(frozen=True)
class SchedulerRefusals:
    """What is said of a scheduler whose plan fails its certificate."""

    row: Scheduler

    def broken(self, constraints: list[str]) -> PenstockError:
        """A scheduler that looks at constraints keeps them."""
        if "constraints" in self.row.looks_at:
            return self.row.broke_its_word(f"breaks {constraints[0]}")
        return UnhonouredConstraints(self.row.name, constraints)

    def refused(self, faults: list[str]) -> PenstockError:
        """A scheduler that looks at every limit keeps them all."""
        if self.row.looks_at >= LIMITS:
            return self.row.broke_its_word(f"fails its certificate: {faults[0]}")
        who = f"scheduler {self.row.name!r}"
        return NoPlanFound(f"{who} found no plan that fits: {faults[0]}; try --scheduler best, or add nodes")


def compare(
    graph: OperatorGraph | Placeable,
    cluster: Cluster,
    schedulers: Sequence[str],
    *,
    profile: Profile | None = None,
    options: Options | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[list[Plan], dict[str, str]]:
    """A plan by each scheduler, overloaded ones included, and a reason for each that found none.

    What is wrong with the input itself is raised, not repeated once per scheduler.
    """
    _require_kinds(cluster, profile, options)
    if isinstance(schedulers, str):  # a sequence of letters to Python
        msg = f"schedulers got {schedulers!r}; give a list of names, such as [{schedulers!r}]"
        raise InvalidInput(msg)
    require_kind(schedulers, Iterable, "schedulers", "a list of names, such as ['best', 'flink']")
    graph = graph_of(graph, () if profile is None else profile.tasks)
    sound_problem(graph, cluster, profile)
    plans: list[Plan] = []
    failures: dict[str, str] = {}
    for done, name in enumerate(schedulers):
        progress(done, len(schedulers), name)
        try:
            plans.append(place(graph, cluster, name, profile=profile, options=options, allow_overload=True))
        except (NoPlanFound, UnhonouredConstraints) as error:
            failures[name] = str(error)
    progress(len(schedulers), len(schedulers), "")
    return plans, failures
