"""Profile iterations: fuse, run, measure, fuse again with what was measured (paper 004, section 4). Pure.

Costs are known from a run, and a run needs a fusion. So the first run is without fusion (NONE); its profile gives the
first fusion, iteration 1, which is run to measure again, and so on. Early profiles come from slow runs and understate
costs, so COLA (and COLA alone, in the paper) gets a share gamma of the capacities: 0.5 in iteration 1, 0.1 more in
each, 1.0 in the sixth. Afterwards one iteration is chosen, as in the paper's Table 2: the first (`first`), the first
that is a local maximum of throughput (`first-local`), or the one with the highest (`max`).

Running is the caller's: a `run` takes what is to be fused (`Step`) and answers with the plan that came of it and what
was measured. `penstock tune` runs jobs on Spark; `planned` makes a `run` of anything that can run a plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.errors import InvalidInput, NoPlanFound, UserError
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.topology import OperatorGraph
from penstock.optimise.fuse.contract import FuseOptions, find_method
from penstock.optimise.fuse.door import fuse

GAMMAS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SCALED = ("cola", "cola-basic")  # the methods that the paper scales capacities for
CHOICES = ("max", "first", "first-local")
ITERATIONS_MAX = 50
LEAST_GAIN = 1e-9  # relative: throughputs nearer than this are equal


@dataclass(frozen=True, eq=False)
class Step:
    """What is to be fused and run: the method, its share of the capacities, and what is known of the costs."""

    number: int
    method: str
    gamma: float
    profile: Profile | None  # None: the declared costs


@dataclass(frozen=True, eq=False)
class Measured:
    """A plan that was run, and what was seen. `throughput` is None where the caller measures none."""

    plan: Plan
    profile: Profile
    throughput: float | None = None  # the median of the plan's runs, in rows a second
    spread: float | None = None  # largest less least of these runs, as a share of the median
    latency_ms: float | None = None  # at the median
    runs: tuple[float, ...] = ()  # throughput of each run of this iteration
    bytes_between_nodes: float | None = None  # per second, in the run nearest to the median


@dataclass(frozen=True, eq=False)
class Iteration:
    """One step with what came of it: number 0 is the run without fusion; nothing where no fusion was found."""

    step: Step
    measured: Measured | None
    note: str = ""
    same_as: Step | None = None  # the earliest step that ended in the same plan (`same_plans`)

    @property
    def throughput(self) -> float | None:
        """Rows a second, where they were measured."""
        return None if self.measured is None else self.measured.throughput


Run = Callable[[Step], Measured]


def gammas_of(method: str, iterations: int = len(GAMMAS)) -> tuple[float, ...]:
    """The shares of a method's iterations: the paper's for COLA, and then all; all from the start for any other."""
    if not 1 <= iterations <= ITERATIONS_MAX:
        msg = f"iterations is {iterations}; it must be from 1 to {ITERATIONS_MAX}"
        raise InvalidInput(msg)
    rising = GAMMAS if method in SCALED else ()
    return (*rising, *[1.0] * iterations)[:iterations]


def first_run(run: Run) -> Iteration:
    """The run without fusion; where paying for every stream overloads the cluster, the best fusion there is."""
    step = Step(0, "none", 1.0, None)
    try:
        return Iteration(step, run(step))
    except NoPlanFound as error:
        instead = replace(step, method="best")
        return Iteration(instead, run(instead), f"begun with 'best': {error}")


def iterations(first: Iteration, run: Run, method: str, gammas: Sequence[float]) -> Iterator[Iteration]:
    """The iterations of one method after the first run; one that finds no fusion keeps the profile before it."""
    profile = None if first.measured is None else first.measured.profile
    for number, gamma in enumerate(gammas, start=1):
        step = Step(number, method, gamma, profile)
        try:
            measured = run(step)
        except UserError as error:
            yield Iteration(step, None, str(error))
            continue
        profile = measured.profile
        yield Iteration(step, measured)


def iterate(
    graph: OperatorGraph,
    cluster: Cluster,
    run: Callable[[Plan], Profile | tuple[Profile, float]],
    method: str = "cola",
    *,
    options: FuseOptions | None = None,
    gammas: Sequence[float] | None = None,
) -> list[Iteration]:
    """The first run and every iteration of one method, on a cluster that is known beforehand."""
    steps = planned(graph, cluster, run, options)
    first = first_run(steps)
    return [first, *iterations(first, steps, method, gammas_of(method) if gammas is None else gammas)]


def planned(
    graph: OperatorGraph,
    cluster: Cluster,
    run: Callable[[Plan], Profile | tuple[Profile, float]],
    options: FuseOptions | None = None,
) -> Run:
    """Steps that fuse for a cluster and hand the plan on."""
    given = options or FuseOptions()

    def step(asked: Step) -> Measured:
        gamma = replace(given, gamma=asked.gamma)
        heard = find_method(asked.method).heard(gamma)  # the first run is without fusion, whatever the method
        plan = fuse(graph, cluster, asked.method, profile=asked.profile, options=heard)
        answer = run(plan)
        profile, throughput = answer if isinstance(answer, tuple) else (answer, None)
        return Measured(plan, profile, throughput)

    return step


def chosen(done: Sequence[Iteration], choice: str = "max") -> Iteration:
    """The iteration to keep, of a run without fusion and one method's iterations.

    `max` looks at all, the run without fusion included; the other two at the iterations. Without throughputs the last
    plan is kept, which rests on the best measurements.
    """
    if choice not in CHOICES:
        raise InvalidInput.unknown_name(kind="choice", name=choice, known=CHOICES)
    held = [iteration for iteration in done if iteration.measured is not None]
    timed = [iteration for iteration in held if iteration.throughput is not None]
    fused = [iteration for iteration in timed if iteration.step.number > 0]
    if not timed:
        return held[-1]
    if choice == "max" or not fused:
        return max(timed, key=lambda iteration: (iteration.throughput or 0.0, -iteration.step.number))
    return fused[0] if choice == "first" else _first_local(fused)


def _first_local(fused: Sequence[Iteration]) -> Iteration:
    """The first iteration after which throughput does not rise."""
    for now, after in itertools.pairwise(fused):
        if (after.throughput or 0.0) <= (now.throughput or 0.0) * (1 + LEAST_GAIN):
            return now
    return fused[-1]


def has_peaked(done: Sequence[Iteration]) -> bool:
    """Whether the first local maximum is known, so that more iterations would not change it."""
    fused = [i for i in done if i.step.number > 0 and i.throughput is not None]
    return bool(fused) and _first_local(fused) is not fused[-1]
