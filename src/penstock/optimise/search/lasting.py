"""The search of `best` for as long as it is given: a first answer, rounds from fresh seeds, exact's proof, more rounds.

The first answer is the annealed search (`annealed`), which stops by itself. A round is another population, from a seed,
growths and partitions of its own, `ROUND_GROWTH` times as much work as the one before. Some rounds in a row that bring
nothing cheaper (`ROUNDS_IN_VAIN`) are what "stalled" means. Would a round bring something with a chance p, n of them
would fail with a chance of (1 - p) ** n: with 95 % confidence p is below 1 - 0.05 ** (1 / n). That says something of
rounds, not of the optimum. The proof is the search of `exact`, begun from the cheapest plan, for the time that is left.

Seed, effort and theta alone decide the plan unless the clock cut an answer, a round or the proof short, which the notes
then say: `test_same_seed_same_plan`, `test_a_search_that_the_clock_cuts_says_so`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.errors import InvalidInput, NoPlanFound
from penstock.model.taskgraph import Ints
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.exact.neighbourhood_bound import neighbourhood_bound
from penstock.optimise.exact.proof import Varying
from penstock.optimise.exact.solver import COLUMN_TASKS_MAX, solve
from penstock.optimise.objective import is_feasible, node_cost
from penstock.optimise.search import annealed
from penstock.optimise.search.seatable import SEATS_SHARE, seatable
from penstock.optimise.seats import has_stated_seats

ROUNDS_IN_VAIN = 8  # unless the setting `rounds` says otherwise
ROUNDS_MAX = 1_000
ROUND_GROWTH = 1.5
ROUND_EFFORT_MAX = 64.0
UNCERTAIN = 0.05  # what is said of the chance of another round is wrong this often
SEARCH_SHARE = 0.4  # of theta before the proof begins
SEARCH_SHARE_SMALL = 0.1  # to this many tasks, where a proof is likely and the first answer seldom leaves anything
SMALL_TASKS = 64
PROOF_SECONDS_MIN = 0.02  # with less left, a proof does not get beyond its own preparations
QUICK_BOUND_TASKS_MAX = 20_000
SEED_STEP = 0x9E3779B97F4A7C15  # so that no two rounds draw from neighbouring seeds


@dataclass(eq=False)
class Standing:
    """The cheapest placement so far, the best bound, and how the rounds went."""

    problem: Problem
    options: Options
    placement: Placement
    cost: float
    rounds: int = 0
    in_vain: int = 0
    rounds_in_vain: int = ROUNDS_IN_VAIN
    cut: bool = False  # whether the plan might be another one with more time
    first_cut: bool = False  # whether the first answer already might
    left_behind: list[Ints] = field(default_factory=list)  # dearer plans: the cheapest may have tasks without seats

    def offer(self, node: Ints, margin: float = annealed.SAME_COST) -> bool:
        """Keep the placement if it fits and is cheaper; of plans of equal cost the first one stays."""
        if not is_feasible(self.problem, node):
            return False
        cost = node_cost(self.problem, node)
        if cost >= self.cost * (1 - margin):
            return False
        self.left_behind.append(self.placement.node)
        self.placement = replace(self.placement, node=node.astype(np.int32), worker=None, notes=())
        self.cost = cost
        self.tell()
        return True

    def raise_bound(self, bound: float) -> None:
        """Keep the bound if it is higher."""
        bound = min(bound, self.cost)
        if bound > self.placement.lower_bound:
            self.placement = replace(self.placement, lower_bound=bound)
            self.tell()

    @property
    def ended(self) -> bool:
        """Whether nothing cheaper exists."""
        return self.placement.proved_optimal or annealed.is_proved(self.problem, self.cost, self.placement.lower_bound)

    @property
    def stalled(self) -> bool:
        """Whether so many rounds in a row brought nothing that more of them promise little."""
        return self.in_vain >= self.rounds_in_vain

    def tell(self) -> None:
        """Tell whoever asked how far the search is."""
        self.options.progress(self.cost, self.placement.lower_bound)


def find(problem: Problem, options: Options) -> Placement:
    """The cheapest feasible placement found within theta, with a bound; constraints are not looked at.

    Where slots are stated, its tasks have seats in them, and the last share of theta is kept for finding those.
    """
    theta = annealed.THETA_DEFAULT if options.theta is None else options.theta
    deadline = Deadline.after(theta)
    kept = SEATS_SHARE * theta if has_stated_seats(problem) else 0.0
    standing = _searched(problem, replace(options, theta=theta - kept), deadline.earlier(kept))
    return seatable(problem, options, _finished(standing), deadline, kept, standing.left_behind)


def _searched(problem: Problem, options: Options, deadline: Deadline) -> Standing:
    """The first answer, rounds and proofs."""
    theta = annealed.THETA_DEFAULT if options.theta is None else options.theta
    rounds, prove = asked_rounds(options), asked_proof(options)
    first = annealed.find(problem, options)
    own = replace(first, notes=tuple(note for note in first.notes if note != annealed.CUT_NOTE))
    standing = Standing(problem, options, own, node_cost(problem, first.node), rounds_in_vain=rounds)
    standing.first_cut = own.notes != first.notes
    standing.tell()
    if not standing.ended:
        standing.raise_bound(quick_bound(problem))
    provable = prove and problem.task_count <= COLUMN_TASKS_MAX
    share = SEARCH_SHARE_SMALL if problem.task_count <= SMALL_TASKS else SEARCH_SHARE
    _search(standing, deadline.earlier((1 - share) * theta) if provable else deadline)
    while provable and not standing.ended and deadline.remaining > 0:
        before = standing.cost
        _prove(standing, deadline)
        _search(standing, deadline)
        if standing.cost >= before:
            break  # a proof that failed may succeed from a cheaper plan alone
    standing.cut |= deadline.remaining <= 0 and not standing.ended
    return standing


def quick_bound(problem: Problem) -> float:
    """A true lower bound that costs no search; 0 beyond the size to which it is quick."""
    if problem.task_count > QUICK_BOUND_TASKS_MAX:
        return 0.0
    varying = Varying(problem)
    return varying.fixed + varying.rounded_up(neighbourhood_bound(varying))


def require_settings(options: Options) -> None:
    """Refuse values that a setting of the search cannot have, also where the search is not asked."""
    asked_rounds(options), asked_proof(options), annealed.asked_effort(options)
    annealed.asked_to_follow(options)


def asked_rounds(options: Options) -> int:
    """How many rounds in vain end the search."""
    rounds = options.settings.get("rounds", ROUNDS_IN_VAIN)
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 0 <= rounds <= ROUNDS_MAX:
        msg = f"setting rounds is {rounds!r}; it must be a whole number from 0 to {ROUNDS_MAX}"
        raise InvalidInput(msg)
    return rounds


def asked_proof(options: Options) -> bool:
    """Whether a proof is to be tried."""
    prove = options.settings.get("prove", True)
    if not isinstance(prove, bool):
        msg = f"setting prove is {prove!r}; it must be true or false"
        raise InvalidInput(msg)
    return prove


def _search(standing: Standing, deadline: Deadline) -> None:
    """Rounds until the bound is met, enough of them brought nothing, or the time is over."""
    while not standing.ended and not standing.stalled and deadline.remaining > 0:
        found = _round(standing, min(ROUND_EFFORT_MAX, ROUND_GROWTH**standing.rounds), deadline)
        better = sum(standing.offer(node) for node in found) > 0
        if deadline.remaining <= 0:  # cut short: it shows nothing of rounds in vain, and is begun anew if there is time
            standing.cut |= better
            standing.in_vain = 0 if better else standing.in_vain
        else:
            standing.rounds += 1
            standing.in_vain = 0 if better else standing.in_vain + 1


def _round(standing: Standing, effort: float, deadline: Deadline) -> list[Ints]:
    """What a population from fresh seeds ends with."""
    options = standing.options
    seed = (options.seed + (standing.rounds + 1) * SEED_STEP) % (1 << 62)
    asked = annealed.asked_effort(options)
    theta = annealed.THETA_DEFAULT if options.theta is None else options.theta
    search = annealed.Search(standing.problem, annealed.native(standing.problem), deadline, seed, effort * asked, theta)
    if standing.problem.task_count > annealed.EVOLVE_TASKS_MAX:
        return [annealed.by_multilevel(search)]
    starts = annealed.own_starts(search) or [standing.placement.node]
    return annealed.improved(search, starts)


def _prove(standing: Standing, deadline: Deadline) -> None:
    """Exact's search from the cheapest plan: a bound, perhaps the proof, and a cheaper plan where there is one."""
    if standing.ended or deadline.remaining < PROOF_SECONDS_MIN:
        return
    try:
        proof = solve(standing.problem, deadline, standing.options.seed, standing.placement.node)
    except NoPlanFound:  # it was given a plan, so time was over before it looked at that
        return
    standing.offer(proof.node, margin=0.0)
    standing.raise_bound(proof.lower_bound)
    if proof.proved_optimal:
        standing.placement = replace(standing.placement, proved_optimal=True)


def _finished(standing: Standing) -> Placement:
    """The standing as an answer: with workers, and with how the search ended where that was not by a proof."""
    placement, options, problem = standing.placement, standing.options, standing.problem
    later = placement.worker is None
    if later:
        search = annealed.Search(problem, annealed.native(problem), Deadline.after(math.inf), options.seed, 1.0)
        placement = annealed.finished(search, [placement.node], options, placement.lower_bound)
    notes = placement.notes
    if not standing.ended and standing.rounds_in_vain:
        notes += (how_it_ended(standing.rounds, standing.in_vain, stalled=standing.stalled),)
    if standing.first_cut or (standing.cut and (later or not standing.ended)):
        notes += (annealed.CUT_NOTE,)
    return replace(placement, proved_optimal=standing.ended, notes=notes)


def how_it_ended(rounds: int, in_vain: int, *, stalled: bool) -> str:
    """What rounds that ended without a proof say of the plan, for its notes."""
    if stalled:
        chance = 1 - UNCERTAIN ** (1 / max(1, in_vain))
        return (
            f"stalled: the last {in_vain} of {rounds} rounds from fresh seeds found nothing cheaper; "
            f"another one would with a chance below {chance:.0%} ({1 - UNCERTAIN:.0%} confidence)"
        )
    return "the time was over before the search had stalled: a larger --theta may find a cheaper plan"
