"""The one road of plans: whatever job is asked for, the plan that it follows is certified, or a typed error says why.

Dataflows with readers of DataFrames, regions and constraints, slots as Spark might give them, plans that callers might
give: `check_plan` finds nothing wrong with what `bind` answers, and the deployment puts every task where the plan says.
"""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.deploy.driver.binding import Bound, Certified, Placing, bind, replan, scheduled
from penstock.deploy.driver.slots import Slots
from penstock.deploy.line.messages import Hello
from penstock.deploy.metrics.stages import foretold_bytes
from penstock.errors import InvalidInput, UserError
from penstock.model.check import check_plan
from penstock.model.constraints import Apart, Constraint, Dedicated, Pin, Replicas, Resource, Together
from penstock.model.plan import Forecast, Plan, Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.optimise.fuse.contract import FuseOptions
from penstock.run.contract import MAIN, Task
from penstock.run.dataflow import FORWARD, Dataflow, Grouping, Input, OperatorSpec, RegionPart, sized
from penstock.run.engine.worker_share import RunSettings, task_ids

SCHEMA = pa.schema([pa.field("n", pa.int64())])
QUICK = ("even", "ffd", "ras", "rstorm", "t3", "ols", "turbostream", "best")
NODES = ("n1", "n2", "n3", "elsewhere")
FUSING = ("cola", "cola-basic", "fint", "none", "best")
LOADS = st.sampled_from([0.0, 0.1, 1.0, 3.0])


@st.composite
def dataflows(draw: st.DrawFn) -> Dataflow:
    """Sources, plain operators, up to two regions, each reading something before it."""
    made: list[OperatorSpec] = []
    for i in range(draw(st.integers(1, 2))):
        frame = draw(st.booleans())
        tasks = draw(st.integers(1, 3))
        made.append(_spec(f"s{i}", tasks, draw(LOADS), role="source", one_per_worker=frame))
    for i in range(draw(st.integers(0, 3))):
        inputs = draw(st.lists(st.sampled_from([o.name for o in made]), min_size=1, max_size=2, unique=True))
        made.append(_spec(f"o{i}", draw(st.integers(1, 4)), draw(LOADS), *map(Input, inputs)))
    for i in range(draw(st.integers(0, 2))):
        made += _region(f"r{i}", made[-1].name, draw(st.integers(1, 4)), draw(st.integers(1, 2)))
    return Dataflow("random", tuple(made))


def _spec(name: str, tasks: int, load: float, *inputs: Input, **more: object) -> OperatorSpec:
    return OperatorSpec(name, "map", Task, tasks, inputs, {MAIN: SCHEMA}, load=load, **more)  # type: ignore[arg-type]


def _region(name: str, read: str, replicas: int, depth: int) -> list[OperatorSpec]:
    splitter = _spec(f"{name}.split", 1, 1.0, Input(read), region=RegionPart(name, "splitter"))
    chain, before = [], Input(splitter.name)
    for i in range(depth):
        inside = RegionPart(name, "replica")
        chain.append(_spec(f"{name}.{i}", replicas, 1.0, before, region=inside))
        before = Input(chain[-1].name, grouping=Grouping(FORWARD))
    merger = _spec(f"{name}.merge", 1, 1.0, Input(chain[-1].name), region=RegionPart(name, "merger"))
    return [splitter, *chain, merger]


def hellos(executors: list[str]) -> list[Hello]:
    return [
        Hello(i, len(executors), name, "127.0.0.1", 1000 + i, 10 + i, 1, "m", "ipc", "3", "1", 8000.0)
        for i, name in enumerate(executors)
    ]


@st.composite
def constraints(draw: st.DrawFn, flow: Dataflow) -> tuple[Constraint, ...]:
    """Up to three, over operators and tasks; they may clash, name nodes that are not there or concern readers."""
    names = [operator.name for operator in flow.operators] + task_ids(flow)
    found: list[Constraint] = []
    for _ in range(draw(st.integers(0, 3))):
        a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        where = draw(st.sampled_from(["worker", "node"]))
        nodes = tuple(draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True)))
        drawn = (
            Resource(a, nodes),
            Together(where, (a, b)),  # type: ignore[arg-type]
            Apart(where, (a, b)),  # type: ignore[arg-type]
            Dedicated(where, a),  # type: ignore[arg-type]
            Replicas(((a,), (b,))),
        )
        found.append(draw(st.sampled_from(drawn)))
    return tuple(found)


@st.composite
def plans(draw: st.DrawFn, flow: Dataflow) -> Plan:
    """A plan that somebody might give: its figures are not true, and it may lack readers or a task."""
    tasks = task_ids(flow)
    if draw(st.integers(0, 9)) == 0:
        tasks = tasks[1:]
    if draw(st.booleans()):
        readers = {operator.name for operator in flow.operators if operator.one_per_worker}
        tasks = [task for task in tasks if task.rpartition("/")[0] not in readers]
    nodes = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=2))
    slots = st.builds(Slot, st.sampled_from(nodes), st.sampled_from(draw(st.sampled_from([(0,), (0, 1), (0, 2)]))))
    assignment = {task: draw(slots) for task in tasks}
    limits = draw(st.just(()) | constraints(flow))
    return Plan("hand", 0, 0.0, 9.0, 9.0, 9.0, True, 9, 9.0, assignment, constraints=limits)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Dataflow, list[Hello], Profile | None]:
    executors = draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=8))
    flow = sized(draw(dataflows()), len(executors))
    measured = Profile({task: TaskProfile(draw(LOADS)) for task in task_ids(flow)}) if draw(st.booleans()) else None
    return flow, hellos(executors), measured


def require_certified(certified: Certified, profile: Profile | None) -> None:
    assert check_plan(certified.graph, certified.cluster, certified.plan, profile) == []
    assert certified.plan.faults == ()


@settings(max_examples=60)
@given(jobs(), st.sampled_from(QUICK), st.data())
def test_a_scheduled_job_follows_a_certified_plan(
    job: tuple[Dataflow, list[Hello], Profile | None], scheduler: str, data: st.DataObject
) -> None:
    flow, workers, profile = job
    placing = Placing(scheduler, profile=profile, theta=0.02)
    bound = bind(flow, workers, placing, "job", RunSettings())  # without constraints of the user there is always a plan
    require_certified(bound.certified, profile)
    require_demands_kept(bound, flow, workers)


@settings(max_examples=40)
@given(jobs(), st.sampled_from(FUSING))
def test_a_fused_job_follows_a_certified_plan(job: tuple[Dataflow, list[Hello], Profile | None], method: str) -> None:
    flow, workers, profile = job
    placing = Placing(fuse=method, fuse_options=FuseOptions(theta=0.5), profile=profile)
    bound = bind(flow, workers, placing, "job", RunSettings())
    require_certified(bound.certified, profile)
    require_demands_kept(bound, flow, workers)
    assert bound.certified.plan.scheduler in {method, "best"}  # of measured loads, where the method overloads a worker


def require_demands_kept(bound: Bound, flow: Dataflow, workers: list[Hello]) -> None:
    """Readers where Spark hands their rows, replicas apart as far as there are workers, tasks where the plan says."""
    slots, plan = Slots.of(workers, None), bound.certified.plan
    assert {task: slots.slot(w) for task, w in bound.deployment.worker_of.items()} == plan.assignment
    assert plan.constraints == ()
    for operator in flow.operators:
        if operator.one_per_worker:
            assert [bound.deployment.worker_of[f"{operator.name}/{i}"] for i in range(operator.tasks)] == list(
                range(len(workers))
            )
    for region, replicas in flow.regions().items():
        used = {plan.assignment[f"{region}.0/{i}"] for i in range(replicas)}
        assert len(used) == min(replicas, len(workers))


@settings(max_examples=60)
@given(jobs(), st.data())
def test_a_given_plan_is_followed_as_it_is_or_refused(
    job: tuple[Dataflow, list[Hello], Profile | None], data: st.DataObject
) -> None:
    flow, workers, profile = job
    plan = data.draw(plans(flow))
    try:
        bound = bind(flow, workers, Placing(plan=plan, profile=profile), "job", RunSettings())
    except InvalidInput:
        return
    require_certified(bound.certified, profile)
    at = bound.certified.plan.assignment
    readers = {operator.name for operator in flow.operators if operator.one_per_worker}
    own = [task for task in plan.assignment if task.rpartition("/")[0] not in readers]
    assert all((plan.assignment[a] == plan.assignment[b]) == (at[a] == at[b]) for a in own for b in own)
    assert bound.certified.plan.constraints == tuple(dict.fromkeys(plan.constraints))
    if profile is None:  # both are costed anew, and the job's own one stays certified
        measured = Profile({task: TaskProfile(1.0) for task in task_ids(flow)})
        plain = dataclasses.replace(bound.certified.plan, constraints=())
        assert replan(flow, workers, plain, Placing("ffd", profile=measured)).current.assignment == at


@settings(max_examples=40)
@given(jobs(), st.sampled_from(QUICK), st.data())
def test_a_job_with_constraints_follows_a_certified_plan_or_says_why_not(
    job: tuple[Dataflow, list[Hello], Profile | None], scheduler: str, data: st.DataObject
) -> None:
    flow, workers, profile = job
    limits = data.draw(constraints(flow))
    placing = Placing(scheduler, profile=profile, theta=0.02)
    try:
        certified = scheduled(flow, Slots.of(workers, None), placing, limits)
    except UserError:
        return
    require_certified(certified, profile)
    assert certified.plan.constraints == tuple(dict.fromkeys(limits))


def test_a_given_plan_keeps_its_own_word_on_what_it_costs_and_that_is_no_figure_of_the_certificate() -> None:
    flow = Dataflow("flow", (_spec("rows", 1, 0.1, role="source"), _spec("out", 1, 0.1, Input("rows"))))
    at = {"rows/0": Slot("n1", 0), "out/0": Slot("n2", 0)}
    told = Plan("hand", 0, 0.0, 900.0, 0.0, 0.0, False, 2, 0.1, at, rows_per_second=100.0)
    workers = hellos(["x", "y"])
    plan = bind(flow, workers, Placing(plan=told), "job", RunSettings()).certified.plan
    assert (plan.cost, plan.rows_per_second) == (1.0, None)  # computed from what is declared
    assert foretold_bytes(plan, 200.0) == 1_800.0
    again = bind(flow, workers, Placing(plan=plan), "job", RunSettings()).certified.plan  # as a job that recovers does
    assert again.forecast == plan.forecast == Forecast(900.0, 100.0)
    edges = (EdgeProfile("rows/0", "out/0", 50.0),)
    profile = Profile({task: TaskProfile(0.1) for task in at}, edges, seconds=1.0, rows=10.0)
    measured = bind(flow, workers, Placing(plan=told, profile=profile), "job", RunSettings()).certified.plan
    assert measured.own_word is None
    assert measured.forecast == Forecast(50.0, 10.0)
    for nonsense in (0.0, -1.0, float("nan"), float("inf")):
        wrong = dataclasses.replace(told, rows_per_second=nonsense)
        assert bind(flow, workers, Placing(plan=wrong), "job", RunSettings()).certified.plan.forecast is None


def test_a_given_plan_of_which_readers_were_moved_foretells_nothing() -> None:
    flow = sized(Dataflow("flow", (_spec("rows", 1, 0.1, role="source", one_per_worker=True),)), 2)
    here = {"rows/0": Slot("n1", 0), "rows/1": Slot("n2", 0)}
    crossed = {"rows/0": Slot("n2", 0), "rows/1": Slot("n1", 0)}
    for at, cost in ((here, 900.0), (crossed, None), ({}, None)):
        told = Plan("hand", 0, 0.0, 900.0, 0.0, 0.0, False, 2, 0.1, at, rows_per_second=100.0)
        forecast = bind(flow, hellos(["x", "y"]), Placing(plan=told), "job", RunSettings()).certified.plan.forecast
        assert (forecast and forecast.cost) == cost


def test_a_reader_that_a_constraint_wants_elsewhere_is_told() -> None:
    flow = sized(Dataflow("flow", (_spec("rows", 1, 1.0, role="source", one_per_worker=True),)), 2)
    plan = Plan("hand", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, {}, constraints=(Resource("rows", ("n1",)),))
    told = r"cannot be followed here: constraint 0 \(resource\): 'rows' runs on 'n2', which is not among n1; make one"
    with pytest.raises(InvalidInput, match=told):
        bind(flow, hellos(["x", "y"]), Placing(plan=plan), "job", RunSettings())


@pytest.mark.parametrize("plan", [None, Plan("hand", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, {"rows/0": Slot("n1", 0)})])
def test_a_profile_of_another_topology_is_refused(plan: Plan | None) -> None:
    flow = Dataflow("flow", (_spec("rows", 1, 1.0, role="source"),))
    for task in ("other/0", "rows/7"):
        placing = Placing("even", plan=plan, profile=Profile({task: TaskProfile(1.0)}))
        with pytest.raises(InvalidInput, match=task):
            bind(flow, hellos(["x", "y"]), placing, "job", RunSettings())


def test_capacity_is_stretched_to_an_exact_fit_and_no_further() -> None:
    flow = Dataflow("flow", (_spec("rows", 7, 1.0, role="source"), _spec("out", 7, 1.0, Input("rows"))))
    certified = bind(flow, hellos(["x", "y"]), Placing(theta=0.1), "job", RunSettings()).certified
    assert [node.capacity for node in certified.cluster.nodes] == pytest.approx([7.0, 7.0], rel=1e-12)


def test_pins_are_among_what_a_plan_is_checked_for() -> None:
    flow = sized(Dataflow("flow", (_spec("rows", 1, 1.0, role="source", one_per_worker=True),)), 2)
    certified = bind(flow, hellos(["x", "x"]), Placing("even"), "job", RunSettings()).certified
    assert certified.graph.constraints == (Pin("rows/0", "n1", 0), Pin("rows/1", "n1", 1))
    crossed = dataclasses.replace(certified.plan, assignment={"rows/0": Slot("n1", 1), "rows/1": Slot("n1", 0)})
    assert check_plan(certified.graph, certified.cluster, crossed) == [
        "constraint 0 (pin): 'rows/0' runs in worker 1 of 'n1' and not in worker 0 of 'n1'",
        "constraint 1 (pin): 'rows/1' runs in worker 0 of 'n1' and not in worker 1 of 'n1'",
    ]


def test_nothing_in_optimise_imports_in_a_circle() -> None:
    """Imports inside functions count: they are where circles hide."""
    root = Path(penstock.__file__).parent
    names = {".".join(("penstock", *p.relative_to(root).with_suffix("").parts)): p for p in root.rglob("*.py")}
    names = {name.removesuffix(".__init__"): path for name, path in names.items() if ".optimise" in name}
    imports = {name: _imports(path) & names.keys() - {name} for name, path in names.items()}
    left = dict(imports)
    while ready := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in ready:
            del left[name]
    assert {name: sorted(needs & left.keys()) for name, needs in left.items()} == {}
    place, fuse = "penstock.optimise.place.", "penstock.optimise.fuse."
    assert not [name for name in names if name.startswith(fuse) and any(n.startswith(place) for n in imports[name])]


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
