"""One decision after the other: certificates, rest, watching, reasons, words. No scheduler runs unless it is said."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from adapt_kit import MB, VirtualJob, measured, pairs_graph, round_robin, shifted, three_nodes
from hypothesis import event, given, settings
from hypothesis import strategies as st
from test_architecture import ROOT, imports

from penstock.adapt.candidate import candidates
from penstock.adapt.contract import AdaptGoals, AdaptSettings, Candidate, Look, Memory, Offer, Proposal
from penstock.adapt.decide import decide
from penstock.adapt.scene import demanded
from penstock.adapt.speeds import as_measured, as_offered
from penstock.errors import InvalidInput
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Pin, Resource
from penstock.model.plan import Plan, Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.certificate import demanding
from penstock.testing import certificate_faults, counted_profiles, instances, topologies

BYTES = AdaptSettings(goals=AdaptGoals("bytes"), interval_s=10.0, rest_s=60.0)
AT_ONCE = replace(BYTES, confirm=False, sigmas=0.0)
APART = shifted(pairs_graph())  # under `round_robin` every heavy pair is on two nodes


def paired(graph: OperatorGraph) -> dict[str, Slot]:
    """Each count of `shifted` beside the source of its heavy stream."""
    own = {f"source/{i}": Slot(f"n{i % 3}", 0) for i in range(graph.operators[0].tasks)}
    return own | {f"count/{(i + 1) % len(own)}": Slot(f"n{i % 3}", 0) for i in range(len(own))}


def offered(*targets: dict[str, Slot]) -> Offer:
    """Candidates of which the decision uses the places alone."""
    plans = [Plan("test", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 0.0, target) for target in targets]
    return Offer(tuple(Candidate(plan) for plan in plans))


def look_at(graph: OperatorGraph, assignment: dict[str, Slot], now_s: float = 0.0, **known: object) -> Look:
    profile = measured(graph, assignment, np.random.default_rng(0))
    given_too = {"usable_share": 0.8, "cluster": three_nodes(), **known}
    return Look(now_s, graph, assignment=assignment, profile=profile, **given_too)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_every_plan_to_move_to_passes_its_certificate(data: st.DataObject) -> None:
    graph, cluster = data.draw(instances(max_operators=4, max_tasks=8, max_nodes=3))
    slots = [Slot(n.name, w) for n in cluster.nodes for w in range(min(n.slots or 2, 3))]
    tasks = [f"{o.name}/{i}" for o in graph.operators for i in range(o.tasks)]
    if data.draw(st.booleans()):
        task, slot = data.draw(st.sampled_from(tasks)), data.draw(st.sampled_from(slots))
        rule = data.draw(st.sampled_from((Pin(task, *slot), Resource(task, (slot.node,)))))
    else:
        rule = None
    look = Look(
        now_s=0.0,
        graph=graph,
        cluster=cluster,
        assignment={task: data.draw(st.sampled_from(slots)) for task in tasks},
        profile=data.draw(st.just(Profile()) | counted_profiles(graph)),
        demands=() if rule is None else (rule,),
        speed={slot: data.draw(st.sampled_from((0.1, 0.5, 0.9, 1.0, 1.3))) for slot in slots[:2]},
        state_bytes={tasks[0]: 1e6},
    )
    goal = data.draw(st.sampled_from(("bytes", "throughput")))
    chosen = replace(AT_ONCE, goals=AdaptGoals(goal), scheduler=data.draw(st.sampled_from(("ffd", "t3", "even"))))
    offer = candidates(look, chosen)
    decision, memory = decide(look, offer, Memory(), chosen)
    event(f"taken {decision.taken}")
    json.dumps(decision.row())
    if not decision.taken:
        assert decision.moves == ()
        assert decision.target == look.assignment
        return
    assert decision.plan is not None
    assert decision.cluster is not None
    assert check_plan(demanding(graph, look.demands), decision.cluster, decision.plan, look.profile) == []
    if not look.profile.tasks and not look.profile.edges:
        assert certificate_faults(graph, decision.cluster, decision.plan) == []
    if decision.figures["stretch"] == 1.0:
        for node, real in zip(decision.cluster.nodes, cluster.nodes, strict=True):
            assert node.capacity <= real.capacity
    assert decision.plan.assignment == decision.target
    assert {m.task for m in decision.moves} == {t for t in tasks if decision.target[t] != look.assignment[t]}
    assert memory == Memory(moved_at_s=0.0)


def test_a_better_plan_is_proposed_and_taken_at_the_next_look() -> None:
    now = round_robin(APART, three_nodes())
    offer = offered(paired(APART))
    first, memory = decide(look_at(APART, now, 10.0), offer, Memory(), BYTES)
    assert (first.taken, first.target) == (False, now)
    assert first.words.startswith("nothing moves yet: to move 6 tasks would pay (bytes between nodes from 63.6 MB/s")
    second, memory = decide(look_at(APART, now, 20.0), offer, memory, BYTES)
    assert second.taken
    assert len(second.moves) == 6
    assert second.moves[0].origin == now[second.moves[0].task]
    assert second.words.startswith("6 tasks move: bytes between nodes from 63.6 MB/s to 4.8 MB/s")
    assert second.figures["gain"] == pytest.approx(600 * (63.6 - 4.8) * MB)
    assert second.row() == {
        "at_s": 20.0,
        "taken": True,
        "moves": 6,
        "tasks": ", ".join(move.task for move in second.moves),
        "words": second.words,
        **second.figures,
    }
    assert memory.rests_s(30.0, BYTES) == 50.0


def test_after_moves_the_job_rests() -> None:
    now = round_robin(APART, three_nodes())
    offer = offered(paired(APART))
    memory = Memory(moved_at_s=100.0)
    for at, moves in ((110.0, False), (159.0, False), (160.0, True)):
        decision, after = decide(look_at(APART, now, at), offer, memory, replace(AT_ONCE, rest_s=60.0))
        assert decision.taken is moves
        assert decision.row().keys() == decide(look_at(APART, now), Offer(), Memory(), AT_ONCE)[0].row().keys()
    assert after.moved_at_s == 160.0


def test_a_proposal_that_does_not_pay_at_the_next_look_is_given_up() -> None:
    now = round_robin(APART, three_nodes())
    _, memory = decide(look_at(APART, now, 10.0), offered(paired(APART)), Memory(), BYTES)
    back = pairs_graph()  # the traffic has changed back: the present plan is right
    decision, memory = decide(look_at(back, now, 20.0), offered(now), memory, BYTES)
    assert (decision.taken, memory.proposal) == (False, None)
    assert decision.words == "nothing moves: no plan that was found is better by more than the tolerance"


def test_a_proposal_on_a_node_that_has_left_is_given_up() -> None:
    graph = OperatorGraph("chain", (Operator("a", load=0.1), Operator("b", load=0.1)), (Stream("a", "b", rate=1e6),))
    now = {"a/0": Slot("n0", 0), "b/0": Slot("n1", 0)}
    _, memory = decide(look_at(graph, now), offered(dict.fromkeys(now, Slot("n2", 0))), Memory(), BYTES)
    assert memory.proposal is None or memory.proposal.target["a/0"].node != "n2"  # one task would do
    memory = Memory(proposal=Proposal(dict.fromkeys(now, Slot("n2", 0)), 1.0))
    left = look_at(graph, now, cluster=Cluster(three_nodes().nodes[:2]))
    decision, memory = decide(left, Offer(refusal="the scheduler gave up"), memory, BYTES)
    assert (decision.taken, memory.proposal) == (False, None)
    assert decision.words == "nothing moves: there is no plan to move to, the scheduler gave up"


def test_moves_that_cost_more_than_they_gain_are_not_made() -> None:
    now = round_robin(APART, three_nodes())
    heavy = dict.fromkeys(now, 100e9)
    decision, memory = decide(look_at(APART, now, state_bytes=heavy), offered(paired(APART)), Memory(), AT_ONCE)
    assert (decision.taken, memory.proposal) == (False, None)
    some = {"source/0": 100e9, "count/1": 100e9}  # the one pair that stays where it is
    decision, _ = decide(look_at(APART, now, state_bytes=some), offered(paired(APART)), Memory(), AT_ONCE)
    assert decision.taken
    assert {move.task for move in decision.moves}.isdisjoint(some)
    assert len(decision.moves) == 5


def test_a_pause_that_was_measured_takes_the_place_of_the_one_that_is_expected() -> None:
    now = round_robin(APART, three_nodes())
    for pause_s, moves in ((None, True), (0.1, True), (500.0, False)):
        look = look_at(APART, now, pause_s=pause_s)
        decision, _ = decide(look, offered(paired(APART)), Memory(), AT_ONCE)
        assert decision.taken is moves
        if moves:
            pause = AT_ONCE.pause_s if pause_s is None else pause_s
            assert decision.figures["cost"] == pytest.approx(6 * pause * sum(edge.rate for edge in look.profile.edges))


def test_of_a_worker_that_had_work_all_the_time_there_is_no_doubt_that_it_is_busy() -> None:
    graph = OperatorGraph("two", (Operator("a", 2, load=0.1),), ())
    now, to = dict.fromkeys(("a/0", "a/1"), Slot("n0", 0)), {"a/0": Slot("n0", 0), "a/1": Slot("n1", 0)}
    noisy = Profile({task: TaskProfile(0.1, spread=0.01) for task in now}, seconds=10.0)
    careful = replace(BYTES, confirm=False, goals=AdaptGoals("throughput"))
    for full in (True, False):
        look = look_at(graph, now, speed={Slot("n0", 0): 0.2}, full=frozenset({Slot("n0", 0)} if full else ()))
        decision, _ = decide(replace(look, profile=noisy), offered(to), Memory(), careful)
        assert decision.taken is full
        assert "worker 0 of 'n0' runs at 0.2 of its speed" in decision.words


def test_a_worker_with_work_all_the_time_is_relieved_whoever_takes_its_core() -> None:
    graph = OperatorGraph("two", (Operator("a", 2, load=0.1),), ())
    now, to = dict.fromkeys(("a/0", "a/1"), Slot("n0", 0)), {"a/0": Slot("n0", 0), "a/1": Slot("n1", 0)}
    chosen = replace(AT_ONCE, goals=AdaptGoals("throughput"))
    for able, moves in ((1.0, False), (0.2, True)):
        look = look_at(graph, now, able={Slot("n0", 0): able, Slot("n1", 0): 0.5})
        decision, _ = decide(look, offered(to), Memory(), chosen)
        assert decision.taken is moves
        assert decision.figures["pressure_now"] == pytest.approx(0.2 / able)
    nowhere = look_at(graph, now, able=dict.fromkeys((Slot("n0", 0), Slot("n1", 0)), 0.1))
    assert not decide(nowhere, offered({"a/0": Slot("n0", 0), "a/1": Slot("n0", 0)}), Memory(), chosen)[0].taken


def test_noise_that_is_greater_than_the_gain_is_said() -> None:
    now = round_robin(APART, three_nodes())
    look = look_at(APART, now)
    wild = {task: replace(m, spread=5 * m.load) for task, m in look.profile.tasks.items()}
    unsure = replace(look, profile=replace(look.profile, tasks=wild))
    decision, _ = decide(unsure, offered(paired(APART)), Memory(), replace(BYTES, confirm=False))
    assert not decision.taken
    assert "is sure to" in decision.words


def test_plans_of_equal_price_never_take_turns() -> None:
    now = paired(APART)
    others = [
        {task: Slot(order[int(slot.node[1:])], 0) for task, slot in now.items()}
        for order in itertools.permutations(("n0", "n1", "n2"))
    ]
    swapped = {**now, "source/0": now["source/1"], "count/1": now["count/2"]}
    swapped |= {"source/1": now["source/0"], "count/2": now["count/1"]}
    turns = itertools.cycle([offered(other) for other in (*others, swapped)])
    job = VirtualJob(APART, three_nodes(), AT_ONCE, offering=lambda _look, _settings: next(turns), assignment=now)
    assert not any(decision.taken for decision in job.run(600))
    job = VirtualJob(APART, three_nodes(), BYTES, noise=0.2, assignment=now)
    job.offering = lambda _look, _settings: next(turns)
    assert not any(decision.taken for decision in job.run(1200))


def test_an_overloaded_worker_is_relieved_under_any_goal() -> None:
    graph = pairs_graph(6, load=0.15)
    crowded = {task: Slot("n0" if int(task[-1]) < 4 else "n1", 0) for task in round_robin(graph, three_nodes())}
    for goal in ("bytes", "throughput"):
        chosen = replace(BYTES, goals=AdaptGoals(goal), theta=0.3)
        job = VirtualJob(graph, three_nodes(), chosen, assignment=dict(crowded))
        first, second = job.step(), job.step()
        assert "above 0.8" in first.words
        assert second.taken
        assert max(job.load_of(Slot(f"n{k}", 0)) for k in range(3)) <= 0.8


def test_a_starved_replica_gets_a_worker_with_room() -> None:
    busy = replace(AT_ONCE, goals=AdaptGoals("throughput"))
    graph = OperatorGraph("regions", (Operator("replica", 2, load=0.3), Operator("other", 2, load=0.3)), ())
    cluster = Cluster((Node("n0", 1.6, slots=2),))
    now = {"replica/0": Slot("n0", 0), "replica/1": Slot("n0", 0), "other/0": Slot("n0", 1), "other/1": Slot("n0", 1)}
    look = look_at(graph, now, cluster=cluster, starved=frozenset({"replica/0"}))
    assert demanded(look).tasks["replica/0"].load == pytest.approx(0.7)
    assert demanded(replace(look, starved=frozenset())) is look.profile
    alone = {**dict.fromkeys(now, Slot("n0", 1)), "replica/0": Slot("n0", 0)}
    light = replace(look, profile=Profile({task: TaskProfile(0.2, spread=0.0) for task in now}, seconds=10.0))
    relieved, _ = decide(light, offered(alone), Memory(), busy)
    assert [move.task for move in relieved.moves] == ["replica/1"]
    assert "replica/0 would do more if its worker let it" in relieved.words
    assert not decide(replace(light, starved=frozenset()), offered(alone), Memory(), busy)[0].taken


def test_latency_above_its_bound_is_a_reason() -> None:
    graph = OperatorGraph("chain", (Operator("a", load=0.1), Operator("b", load=0.1)), (Stream("a", "b", rate=1e3),))
    now = {"a/0": Slot("n0", 0), "b/0": Slot("n1", 0)}
    to = {"a/0": Slot("n0", 0), "b/0": Slot("n0", 0)}
    edge = EdgeProfile("a/0", "b/0", 1e3, distance="socket", latency_us=900.0)
    tasks = {task: TaskProfile(0.1, spread=0.0, execute_us=50.0) for task in now}
    look = Look(0.0, graph, three_nodes(), now, Profile(tasks, (edge,), seconds=10.0), latency_us=8000.0)
    heavy = replace(look, state_bytes={"a/0": 1e5, "b/0": 1e5})  # more than the bytes that would be saved in a second
    quick = replace(AT_ONCE, goals=AdaptGoals("bytes", latency_us=5000.0), horizon_s=100.0)
    slack = replace(quick, goals=AdaptGoals("bytes"))
    assert not decide(heavy, offered(to), Memory(), slack)[0].taken
    decision, _ = decide(heavy, offered(to), Memory(), quick)
    assert decision.taken
    assert decision.figures["latency_us_then"] < 5000.0
    assert "latency is 8000 us, above 5000" in decision.words


def test_slow_workers_scale_what_is_offered_and_what_is_certified() -> None:
    cluster = Cluster((Node("n0", 1.6, slots=2), Node("n1", 0.8, slots=1)))
    now = {"source/0": Slot("n0", 0), "count/0": Slot("n1", 0)}
    graph = pairs_graph(1)
    look = look_at(graph, now, cluster=cluster, speed={Slot("n0", 1): 0.2, Slot("n1", 0): 0.5, Slot("n0", 0): 0.9})
    assert as_offered(look).nodes[0] == Node("n0", 0.8, slots=1)
    assert as_offered(look).nodes[1] == Node("n1", 0.4, slots=1, worker_capacity=0.5)
    assert as_measured(look).nodes[0] == Node("n0", 0.96, slots=2)
    pinned = replace(look, demands=(Pin("source/0", "n0", 0),))
    assert as_offered(pinned).nodes[0].slots == 2
    assert as_offered(replace(look, speed={})) == cluster
    able = replace(look, able={Slot("n0", 0): 0.1, Slot("n0", 1): 0.9, Slot("n1", 0): 0.3})
    assert as_offered(able) == as_offered(look)
    assert as_offered(replace(able, full=frozenset({Slot("n0", 0)}))).nodes == (
        Node("n0", pytest.approx(0.08), slots=1, worker_capacity=0.1),  # of its sound worker alone
        Node("n1", 0.4, slots=1, worker_capacity=0.5),
    )
    limited = Cluster((Node("n0", 1.6, slots=2, worker_capacity=1.0),))
    tight = replace(look, cluster=limited, speed={}, able=able.able, full=frozenset({Slot("n0", 0)}))
    assert as_offered(tight).nodes == (Node("n0", 0.8, slots=2, worker_capacity=0.9),)


def test_a_look_that_cannot_be_is_refused() -> None:
    now = round_robin(APART, three_nodes())
    look = look_at(APART, now, state_bytes={"source/0": -1.0}, speed={Slot("n0", 0): float("nan")})
    with pytest.raises(InvalidInput, match=r"state of task 'source/0' is -1; .*speed of worker 0 of 'n0' is nan"):
        decide(look, Offer(), Memory(), BYTES)
    with pytest.raises(InvalidInput, match="task 'source/0' is on no node of the cluster"):
        decide(look_at(APART, now, cluster=Cluster((Node("n1", 1.0), Node("n2", 1.0)))), Offer(), Memory(), BYTES)
    with pytest.raises(InvalidInput, match="unknown task"):
        decide(replace(look_at(APART, now), profile=Profile({"x/0": TaskProfile(1.0)})), Offer(), Memory(), BYTES)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"interval_s is 0.*tolerance is -1.*moves_max is 0.*goal is 'x'.*latency"):
        AdaptSettings(interval_s=0, tolerance=-1, moves_max=0, goals=AdaptGoals("x", latency_us=0.0))


@pytest.mark.parametrize("scheduler", ["best", "t3"])
def test_candidates_are_the_scheduler_s_and_the_same_each_time(scheduler: str) -> None:
    now = round_robin(APART, three_nodes())
    chosen = replace(BYTES, scheduler=scheduler, theta=5.0)
    found = [candidates(look_at(APART, now), chosen).candidates for _ in range(2)]
    assert [c.plan.assignment for c in found[0]] == [c.plan.assignment for c in found[1]]
    assert len(found[0]) == (2 if scheduler == "best" else 1)
    assert {c.plan.scheduler for c in found[0]} == {scheduler}


def test_where_nothing_fits_capacities_are_stretched_and_a_clash_is_a_refusal() -> None:
    full = pairs_graph(6, load=0.4)
    now = round_robin(full, three_nodes())
    offer = candidates(look_at(full, now), replace(BYTES, scheduler="ffd"))
    assert offer.candidates[0].stretch == pytest.approx(12 * 0.4 / 2.4)
    clash = (Pin("source/0", "n0", 0), Resource("source/0", ("n1",)))
    refused = candidates(look_at(full, now, demands=clash), replace(BYTES, scheduler="ffd"))
    assert refused.candidates == ()
    assert "source/0" in refused.refusal


@settings(deadline=None, max_examples=40)
@given(topologies(max_operators=3, max_tasks=6), st.data())
def test_nothing_moves_where_the_scheduler_says_what_is_there(graph: OperatorGraph, data: st.DataObject) -> None:
    slots = st.sampled_from([Slot(f"n{k}", w) for k in range(2) for w in range(2)])
    now = {f"{o.name}/{i}": data.draw(slots) for o in graph.operators for i in range(o.tasks)}
    cluster = Cluster((Node("n0", 100.0, slots=2), Node("n1", 100.0, slots=2)))
    names = data.draw(st.permutations(["n0", "n1"]))
    same = {task: Slot(names[int(slot.node[1:])], 1 - slot.worker) for task, slot in now.items()}
    decision, _ = decide(look_at(graph, now, cluster=cluster), offered(same), Memory(), AT_ONCE)
    assert not decision.taken
    assert decision.figures["tasks_considered"] == 0


def test_the_room_knows_no_clock_no_socket_and_no_thread() -> None:
    known = {name.partition(".")[0] for path in (ROOT / "adapt").glob("*.py") for name in imports(path)}
    assert known <= {
        "__future__",
        "collections",
        "dataclasses",
        "functools",
        "itertools",
        "math",
        "typing",
        "numpy",
        "penstock",
    }
