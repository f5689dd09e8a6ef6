"""What every scheduler promises, as a class of tests for pytest or unittest's runner.

    TestMine = scheduler_contract("mine", settings={"effort": 1})

Nothing here knows an algorithm. Plans come through `place`, which certifies them, and through a second certificate.
Each call makes a class of its own, because Hypothesis refuses one test function that several classes run. Rejected: a
base class to inherit from, for that reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Infeasible, NoPlanFound, UserError
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options
from penstock.optimise.door import place
from penstock.optimise.place import find_scheduler
from penstock.testing.certificate import SLACK, certificate_faults, cheapest, same, task_rates
from penstock.testing.instances import instances, profiles, random_cluster, random_topology
from penstock.testing.promises import PromiseBroken, examples, require, require_refusal

Instance = tuple[OperatorGraph, Cluster]

SEED = 3
# Small enough that an exact search ends before its time, so that the same seed can be held to the same plan.
SMALL = instances(max_tasks=9, max_nodes=4)
SHORTAGES = ("carries load", "holds", "sends", "receives")

CORNERS = (
    OperatorGraph("single task", (Operator("a"),)),
    OperatorGraph("no streams", (Operator("a", 3), Operator("b", 2))),
    OperatorGraph("no load", (Operator("a", 3, load=0.0), Operator("b", 2, load=0.0)), (Stream("a", "b"),)),
    OperatorGraph("no rate", (Operator("a", 3), Operator("b", 2)), (Stream("a", "b", rate=0.0),)),
    OperatorGraph("nothing", (Operator("a", 2, load=0.0), Operator("b", 2, load=0.0)), (Stream("a", "b", rate=0.0),)),
    OperatorGraph("two streams", (Operator("a", 2), Operator("b", 2)), (Stream("a", "b"), Stream("a", "b", rate=3.0))),
    OperatorGraph(
        "two components",
        (Operator("a"), Operator("b"), Operator("c"), Operator("d")),
        (Stream("a", "b"), Stream("c", "d")),
    ),
    OperatorGraph("one heavy", (Operator("a", load=5.0), Operator("b", 3, load=0.1)), (Stream("a", "b"),)),
)
CORNER_CLUSTERS = (
    Cluster((Node("only", 6.0),)),
    Cluster(tuple(Node(f"n{k}", 6.0) for k in range(12))),  # more nodes than tasks
    Cluster(
        (
            Node("n1", 7.0, memory_mb=9.0, bandwidth_mbps=1.0, slots=3, worker_capacity=None),
            Node("n2", 6.0, slots=5, rack="r2"),
        )
    ),
)
FEW_NODES = (CORNER_CLUSTERS[2], Cluster(tuple(Node(f"n{k}", 6.0) for k in range(3))))  # all assignments can be tried


@dataclass(frozen=True)
class Subject:
    """A scheduler under test, and how it is asked."""

    name: str
    settings: Mapping[str, object] = field(default_factory=dict)
    theta: float = 5.0

    def options(self, theta: float | None = None) -> Options:
        """The same seed gives the same plan."""
        return Options(SEED, self.theta if theta is None else theta, settings=self.settings)

    def asked(self, graph: OperatorGraph, cluster: Cluster, profile: Profile | None = None) -> Plan:
        """A plan, or what the scheduler raises."""
        return place(graph, cluster, self.name, profile=profile, options=self.options())

    def plan(self, graph: OperatorGraph, cluster: Cluster, profile: Profile | None = None) -> Plan | None:
        """A plan that both certificates accept, or None when the scheduler says why there is none; all else escapes."""
        try:
            plan = self.asked(graph, cluster, profile)
        except UserError:
            return None
        self.require_certified(graph, cluster, plan, profile)
        return plan

    def require_certified(
        self, graph: OperatorGraph, cluster: Cluster, plan: Plan, profile: Profile | None = None
    ) -> None:
        """Raise PromiseBroken for a plan that a certificate refuses; the second one knows no profiles."""
        faults = check_plan(graph, cluster, plan, profile)
        faults = faults or ([] if profile is not None else certificate_faults(graph, cluster, plan))
        require(not faults, f"scheduler {self.name!r} on {graph.name!r}: {'; '.join(faults)}")


def renamed(graph: OperatorGraph, cluster: Cluster, data: st.DataObject) -> Instance:
    """The same problem under other names and in another order of the files."""
    names = {operator.name: f"x-{operator.name[::-1]}" for operator in graph.operators}
    operators = data.draw(st.permutations([replace(o, name=names[o.name]) for o in graph.operators]))
    streams = [replace(s, source=names[s.source], target=names[s.target]) for s in graph.streams]
    nodes = data.draw(st.permutations([replace(node, name=f"host {node.name}") for node in cluster.nodes]))
    drawn = tuple(data.draw(st.permutations(streams)))
    return OperatorGraph("renamed", tuple(operators), drawn), Cluster(tuple(nodes))


def require_roomy_plan(subject: Subject, graph: OperatorGraph, cluster: Cluster) -> None:
    """Every node could take everything, so a refusal has no excuse; otherwise a scheduler could refuse everything."""
    load = 1.0 + sum(sum(operator.loads()) for operator in graph.operators)
    roomy = Cluster(tuple(replace(node, capacity=load, slots=graph.task_count) for node in cluster.nodes))
    require(subject.plan(graph, roomy) is not None, f"scheduler {subject.name!r} finds no plan where any would do")


def require_same_plan(subject: Subject, instance: Instance) -> None:
    """Two plans from one seed are one plan, but for the time that it took."""
    first, second = (subject.plan(*instance) for _ in range(2))
    timeless = [None if plan is None else replace(plan, seconds=0.0) for plan in (first, second)]
    require(timeless[0] == timeless[1], f"scheduler {subject.name!r} makes two plans from one seed")


def require_same_optimum(subject: Subject, one: Instance, other: Instance) -> None:
    """Plans of the same problem under other names hold, and proved optima are equal."""
    before, after = subject.plan(*one), subject.plan(*other)
    if before is not None and after is not None and before.proved_optimal and after.proved_optimal:
        require(same(before.cost, after.cost), f"the optimum of {subject.name!r} depends on names or order")


def require_honesty(subject: Subject, instance: Instance) -> None:
    """What it says is impossible or optimal is, by trying every assignment; giving up claims nothing."""
    truth, name = cheapest(*instance), subject.name
    try:
        plan = subject.asked(*instance)
    except Infeasible:
        require(truth is None, f"scheduler {name!r} says that no plan exists, but one costs {truth}")
        return
    except UserError:
        return
    claims = f"scheduler {name!r} claims {plan.lower_bound:g} to {plan.cost:g}; the optimum is {truth}"
    require(truth is not None and plan.lower_bound - SLACK <= truth <= plan.cost + SLACK, claims)
    if plan.proved_optimal and truth is not None:
        require(same(plan.cost, truth), claims)


def require_shortages_only(subject: Subject, graph: OperatorGraph, cluster: Cluster) -> None:
    """Of the faults that a plan may have where an overload is asked for, all are shortages."""
    try:
        plan = place(graph, cluster, subject.name, options=subject.options(), allow_overload=True)
    except UserError:
        return
    others = [fault for fault in check_plan(graph, cluster, plan) if not any(verb in fault for verb in SHORTAGES)]
    require(not others, f"scheduler {subject.name!r} overloads with {others}")


def require_corner(subject: Subject, graph: OperatorGraph, cluster: Cluster) -> None:
    """A plan, and a free one where nothing can cost anything."""
    plan, where = subject.plan(graph, cluster), f"{graph.name!r} on {len(cluster.nodes)} nodes"
    if plan is None:
        msg = f"scheduler {subject.name!r} finds no plan for {where}"
        raise PromiseBroken(msg)
    if len(cluster.nodes) == 1 or not any(task_rates(graph).values()):
        require(plan.cost == 0.0, f"scheduler {subject.name!r} costs {plan.cost} for {where}")


def require_hundred(subject: Subject) -> None:
    """Big enough for every phase of an algorithm; one that does not look at all limits may honestly give up."""
    graph = random_topology(5, operators=20, tasks_per_operator=5)
    cluster = random_cluster(5, graph, fill=0.6)
    try:
        plan = place(graph, cluster, subject.name, options=subject.options(theta=min(2.0, subject.theta)))
    except NoPlanFound as error:
        looks_at = find_scheduler(subject.name).looks_at
        require(not {"cpu", "memory", "bandwidth"} <= looks_at, f"it looks at everything but: {error}")
    else:
        subject.require_certified(graph, cluster, plan)


def scheduler_contract(
    scheduler: str, *, settings: Mapping[str, object] | None = None, theta: float = 5.0
) -> type[object]:
    """Tests that hold the scheduler of that name to its contract; assign the class to a name that begins with Test.

    `settings` are the scheduler's own, `theta` the seconds that it may take for one plan.
    """
    subject = Subject(scheduler, settings or {}, theta)

    class SchedulerContract:
        """The promises of one scheduler."""

        @examples(25)
        @given(data=st.data())
        def test_gives_a_certified_plan_or_says_why_not(self, data: st.DataObject) -> None:
            """Whatever the problem, and whatever was measured of it."""
            graph, cluster = data.draw(SMALL)
            subject.plan(graph, cluster, data.draw(st.none() | profiles(graph)))

        @examples(10)
        @given(instance=instances(max_tasks=9, cpu_only=True))
        def test_finds_a_plan_where_any_would_do(self, instance: Instance) -> None:
            """It does not give up without need."""
            require_roomy_plan(subject, *instance)

        @examples(12)
        @given(instance=SMALL)
        def test_same_seed_same_plan(self, instance: Instance) -> None:
            """It is a function of its input and its seed."""
            require_same_plan(subject, instance)

        @examples(12)
        @given(data=st.data())
        def test_names_and_the_order_of_the_files_do_not_matter_to_validity(self, data: st.DataObject) -> None:
            """They are no part of the problem."""
            instance = data.draw(SMALL)
            require_same_optimum(subject, instance, renamed(*instance, data))

        @examples(8)
        @given(instance=instances(max_operators=3, max_tasks=6, max_nodes=3))
        def test_what_it_says_is_impossible_or_optimal_is(self, instance: Instance) -> None:
            """Claims are checked by brute force."""
            require_honesty(subject, instance)

        def test_what_it_says_of_corners_is_true(self) -> None:
            """Random problems are often too easy to tell a claim from the truth."""
            for graph, cluster in itertools.product(CORNERS, FEW_NODES):
                require_honesty(subject, (graph, cluster))

        @examples(12)
        @given(instance=SMALL)
        def test_an_overload_is_shown_when_it_is_asked_for(self, instance: Instance) -> None:
            """Nothing but an overload is let through."""
            require_shortages_only(subject, *instance)

        def test_corners(self) -> None:
            """Small problems on which schedulers have failed."""
            for graph, cluster in itertools.product(CORNERS, CORNER_CLUSTERS):
                require_corner(subject, graph, cluster)

        def test_load_beyond_the_cluster_is_refused_with_the_shortage(self) -> None:
            """By arithmetic, before any search."""
            graph, cluster = OperatorGraph("t", (Operator("a", 9),)), Cluster.uniform([(2, 4.0)])
            said = "need load 9 in all but the cluster offers 8; it is 1 short"
            require_refusal(lambda: subject.asked(graph, cluster), Infeasible, said, subject.name)

        def test_a_task_larger_than_every_node_is_refused_by_name(self) -> None:
            """By arithmetic, before any search."""
            graph = OperatorGraph("t", (Operator("a"), Operator("big", load=5.0)))
            cluster, said = Cluster.uniform([(3, 4.0)]), "task 'big/0' needs load 5 but the largest node offers 4"
            require_refusal(lambda: subject.asked(graph, cluster), Infeasible, said, subject.name)

        def test_a_hundred_unequal_tasks(self) -> None:
            """A problem of a real size."""
            require_hundred(subject)

    return SchedulerContract
