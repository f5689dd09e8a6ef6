"""Whether a job moves, from one look to the next. Pure: a look and a memory in, a decision and a memory out.

1. Rest: for a while after moves nothing moves.
2. Propose: of each candidate the nearest renaming, of that the fewest moves that pay; the best is watched from then on.
3. Watch: later looks price it on measurements from which it was not made. A search finds what noise makes cheap; that
   is gone then, and a real gain is still there (`test_noise_alone_moves_nothing`). As soon as the mean gain of these
   looks exceeds the cost of moving and their noise, which falls with their number, its tasks move.

Rejected: longer means instead of watching, which answer a change later and still pick the luckiest of many plans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from penstock.adapt.contract import AdaptSettings, Assignment, Candidate, Decision, Look, Memory, Move, Offer, Proposal
from penstock.adapt.fewest import fewest_moves
from penstock.adapt.nearest import relabelled
from penstock.adapt.price import Price, Pricer
from penstock.adapt.scene import Places, Scene
from penstock.adapt.words import change, tasks, troubles, worth
from penstock.errors import InternalError, InvalidInput, PenstockError
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.taskgraph import TaskGraph
from penstock.optimise.certificate import certify, demanding, make_plan
from penstock.optimise.contract import Placement, Problem


@dataclass(frozen=True, slots=True)
class _Judged:
    """A plan, and what going there is worth over the horizon."""

    target: Assignment
    moves: tuple[Move, ...]
    stretch: float
    now: Price
    then: Price
    gain: float
    cost: float
    noise: float
    looks: int  # since it was proposed
    looked_at: int  # sets of moves

    @property
    def net(self) -> float:
        return self.gain - self.cost - self.noise

    def promises(self, settings: AdaptSettings) -> bool:
        """Whether it would pay if measurements were exact."""
        least = settings.tolerance * self.now.total * settings.horizon_s
        return bool(self.moves) and self.gain > max(self.cost, least)

    def pays(self, settings: AdaptSettings) -> bool:
        return self.net > 0 and self.promises(settings)

    def figures(self) -> dict[str, float]:
        return {
            "price_now": self.now.total,
            "price_then": self.then.total,
            "gain": self.gain,
            "cost": self.cost,
            "noise": self.noise,
            "pressure_now": self.now.pressure,
            "pressure_then": self.then.pressure,
            "bytes_now": self.now.between_nodes,
            "bytes_then": self.then.between_nodes,
            "latency_us_now": self.now.latency_us,
            "latency_us_then": self.then.latency_us,
            "stretch": self.stretch,
            "looks": float(self.looks),
            "tasks_considered": float(len(self.moves)),
            "sets_considered": float(self.looked_at),
        }


def decide(look: Look, offer: Offer, memory: Memory, settings: AdaptSettings) -> tuple[Decision, Memory]:
    """What to do now, and what to remember until the next look."""
    if faults := [*look.profile.faults(look.graph), *_odd(look)]:
        raise InvalidInput(faults)
    if left := memory.rests_s(look.now_s, settings):
        words = f"nothing moves: the job rests for {left:.0f} s more after its last moves"
        return _stay(look, settings, _present(look, settings), words), memory
    watched = _watched(look, settings, memory.proposal)
    if watched is not None and watched.pays(settings):
        return _go(look, settings, watched)
    found = [_nearest(look, settings, candidate) for candidate in offer.candidates]
    best = max(found, key=lambda one: (one.promises(settings), one.net), default=None)
    if best is not None and best.pays(settings) and not settings.confirm:
        return _go(look, settings, best)
    return _later(look, offer, Memory(memory.moved_at_s), settings, watched, best)


def _later(
    look: Look, offer: Offer, fresh: Memory, settings: AdaptSettings, watched: _Judged | None, best: _Judged | None
) -> tuple[Decision, Memory]:
    """Nothing moves at this look: what is watched until the next."""
    keeps = watched is not None and watched.promises(settings) and watched.looks < settings.watch_max
    if watched is not None and keeps and (best is None or best.net <= watched.net):
        words = f"nothing moves yet: {_would(watched)}; {_doubt(watched, settings)}, so the next look is asked"
        proposal = Proposal(watched.target, watched.stretch, watched.looks, watched.gain * watched.looks)
        return _stay(look, settings, watched, words), replace(fresh, proposal=proposal)
    if best is None:
        words = f"nothing moves: there is no plan to move to, {offer.refusal or 'as none was offered'}"
        return _stay(look, settings, _present(look, settings), words), fresh
    if not best.promises(settings):
        return _stay(look, settings, best, _why_not(best, settings)), fresh
    if not settings.confirm:
        words = f"nothing moves: {_would(best)}, but {_doubt(best, settings)}"
        return _stay(look, settings, best, words), fresh
    words = f"nothing moves yet: {_would(best)}; the next look is asked before"
    return _stay(look, settings, best, words), replace(fresh, proposal=Proposal(best.target, best.stretch))


def _present(look: Look, settings: AdaptSettings) -> _Judged:
    scene = Scene.of(look)
    return _valued(Pricer(scene, settings), scene.present, 1.0, 1)


def _odd(look: Look) -> list[str]:
    """Figures of a look that cannot be, apart from its profile's."""
    figures = [(f"state of task {task!r}", value) for task, value in look.state_bytes.items()]
    figures += [(f"speed of worker {slot.worker} of {slot.node!r}", value) for slot, value in look.speed.items()]
    figures += [(f"what worker {slot.worker} of {slot.node!r} can do", value) for slot, value in look.able.items()]
    figures += [("latency_us", look.latency_us or 0.0), ("now_s", look.now_s)]
    return [f"{what} is {value:g}; it must be finite and 0 or more" for what, value in figures if not 0 <= value < inf]


def _valued(pricer: Pricer, places: Places, stretch: float, looked_at: int, before: Proposal | None = None) -> _Judged:
    """What going there is worth, in the mean of this look and of those that have watched it before."""
    scene, horizon = pricer.scene, pricer.settings.horizon_s
    now, then = pricer.price(scene.present), pricer.price(places)
    moves = scene.moves(places)
    gain, looks = (now.total - then.total) * horizon, 0
    if before is not None:
        looks = before.looks + 1
        gain = (before.gain + gain) / looks
    return _Judged(
        target=scene.assignment(places),
        moves=moves,
        stretch=stretch,
        now=now,
        then=then,
        gain=gain,
        cost=pricer.moving(places),
        noise=pricer.noise(scene.present, places, max(1, looks)) * horizon if moves else 0.0,
        looks=looks,
        looked_at=looked_at,
    )


def _nearest(look: Look, settings: AdaptSettings, candidate: Candidate) -> _Judged:
    """What of a candidate is worth moving for."""
    scene = Scene.of(look, [candidate.plan.assignment], candidate.stretch)
    pricer = Pricer(scene, settings)
    target = relabelled(scene, scene.places(candidate.plan.assignment))
    places, looked_at = fewest_moves(pricer, target)
    return _valued(pricer, places, candidate.stretch, looked_at)


def _watched(look: Look, settings: AdaptSettings, proposal: Proposal | None) -> _Judged | None:
    """What this look says of the proposal; None where it has none, or the proposal does not hold any more.

    Loads may have grown by the tolerance since it was made.
    """
    if proposal is None or not _still_there(look, proposal):
        return None
    for stretch in (proposal.stretch, proposal.stretch * (1.0 + settings.tolerance)):
        scene = Scene.of(look, [proposal.target], stretch)
        places = scene.places(proposal.target)
        if scene.holds(places):
            return _valued(Pricer(scene, settings), places, stretch, 1, proposal)
    return None


def _still_there(look: Look, proposal: Proposal) -> bool:
    nodes = {node.name for node in look.cluster.nodes}
    same = proposal.target.keys() == look.assignment.keys()
    return same and all(slot.node in nodes for slot in proposal.target.values())


def _would(one: _Judged) -> str:
    return f"to move {tasks(len(one.moves))} would pay ({change(one.now, one.then)})"


def _doubt(one: _Judged, settings: AdaptSettings) -> str:
    gain, noise, looks = worth(one.gain, settings), worth(one.noise, settings), max(1, one.looks)
    return f"a gain of {gain} in {looks} look{'s' if looks > 1 else ''} is sure to {noise}"


def _why_not(best: _Judged, settings: AdaptSettings) -> str:
    """Words for plans that do not pay."""
    if not best.moves:
        return "nothing moves: no plan that was found is better by more than the tolerance"
    gain, cost = worth(best.gain, settings), worth(best.cost, settings)
    why = f"it gains {gain} and costs {cost}"
    if best.gain > best.cost:
        why = f"a gain of {gain} is below the tolerance of {settings.tolerance:.0%}"
    return f"nothing moves: to move {tasks(len(best.moves))} does not pay within {settings.horizon_s:g} s, {why}"


def _stay(look: Look, settings: AdaptSettings, judged: _Judged, words: str) -> Decision:
    wrong = troubles(look, judged.now, settings)
    words += f" ({wrong})" if wrong else ""
    return Decision(look.now_s, False, words, look.assignment, judged.figures())


def _go(look: Look, settings: AdaptSettings, judged: _Judged) -> tuple[Decision, Memory]:
    gain, cost = worth(judged.gain, settings), worth(judged.cost, settings)
    wrong = troubles(look, judged.now, settings)
    words = (
        f"{tasks(len(judged.moves))} move{'s' if len(judged.moves) == 1 else ''}: {change(judged.now, judged.then)}; "
        f"over {settings.horizon_s:g} s that gains {gain} and costs {cost}" + (f"; {wrong}" if wrong else "")
    )
    plan, cluster = _certified(look, settings, judged, words)
    decision = Decision(look.now_s, True, words, judged.target, judged.figures(), judged.moves, plan, cluster)
    return decision, Memory(moved_at_s=look.now_s)


def _certified(look: Look, settings: AdaptSettings, judged: _Judged, words: str) -> tuple[Plan, Cluster]:
    """The plan with its certificate, for what was measured."""
    scene = Scene.of(look, [judged.target], judged.stretch)
    node, worker = scene.places(judged.target)
    whole, cluster = demanding(look.graph, look.demands), scene.problem.cluster
    problem = Problem(TaskGraph.expand(whole, look.profile), cluster, whole.constraints)
    own = look.graph.constraints
    made = make_plan(problem, settings.scheduler, settings.seed, 0.0, Placement(node), worker, (words,), own)
    return certify(whole, cluster, made, look.profile, _Refusals()), cluster


class _Refusals:
    """A plan of ours that fails its certificate is a bug of ours."""

    def broken(self, constraints: list[str]) -> PenstockError:
        """For a constraint."""
        return self.refused(constraints)

    def refused(self, faults: list[str]) -> PenstockError:
        """For anything else."""
        return InternalError(f"a plan to move to fails its certificate: {faults[0]}; please report this")
