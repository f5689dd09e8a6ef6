"""Figures 5, 8 and 12 of the balancing paper: what happens inside one run, second by second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from penstock.run.region.contract import UNITS, Decision
from penstock.run.region.policies import find_policy
from penstock.run.region.policies.oracle import Known, Oracle
from penstock_lab.reproduce.balance_item import BalanceItem, Finding, Outcome, Row, Scale
from penstock_lab.reproduce.balance_pictures import Curve, DepthRow, SweepPanel, draw_classes, draw_depth, draw_sweeps
from penstock_lab.reproduce.words import MEANINGS, about, meaning
from penstock_lab.simulate import experiments
from penstock_lab.simulate.region import Floats, RegionModel, Trace, simulate

Step = Callable[[str], None]
SPLITS = (80, 70, 60, 50)
WARM_UP_S = 5
LOW_WEIGHT = 30  # units: "goes back and forth a few times between 2 and 3" per cent


def _trace_rows(run: str, trace: Trace) -> list[Row]:
    """One row per sample and connection."""
    return [
        {"run": run, "second": float(t), "connection": j + 1.0, "weight": w, "blocking": b}
        for t, weights, rates in zip(trace.time_s, trace.weights, trace.rates, strict=True)
        for j, (w, b) in enumerate(zip(weights.tolist(), rates.tolist(), strict=True))
    ]


# -- figure 5 ----------------------------------------------------------------------------------------------------------


def _figure_5(step: Step, scale: Scale) -> Outcome:
    model = experiments.region(1_000, (1.0, 1.0))
    traces = {}
    for split in SPLITS:
        step(f"{split} to {100 - split}")
        policy = Oracle([Known(0.0, {0: split, 1: 100 - split})])
        traces[split] = simulate(model, policy, seconds=min(200.0, scale.depth_s))
    first: dict[int, Floats] = {split: trace.rates[WARM_UP_S:, 0] for split, trace in traces.items()}
    means = {split: float(rates.mean()) for split, rates in first.items()}
    spread = {split: float(rates.std()) / means[split] for split, rates in first.items()}
    even = traces[50].rates[WARM_UP_S:]
    leads = np.argmax(even, axis=1)
    changes = int(np.count_nonzero(np.diff(leads)))
    panels = [
        SweepPanel(
            f"{split} %-{100 - split} % split",
            "blocking rate",
            tuple(
                Curve(f"connection {j + 1}", tuple(trace.time_s.tolist()), tuple(trace.rates[:, j].tolist()))
                for j in range(2)
            ),
            x="seconds",
            top=1.03,
        )
        for split, trace in traces.items()
    ]
    unequal = [means[split] for split in (80, 70, 60)]
    findings = [
        Finding(
            "5.1",
            "the blocking rate of connection 1 is stable over time at 80, 70 and 60 %",
            max(spread[s] for s in (80, 70, 60)) <= MEANINGS["stable"],
            "; ".join(f"{s} %: {means[s]:.3f} ± {spread[s]:.1%}" for s in (80, 70, 60)) + f"; {meaning('stable')}",
        ),
        Finding(
            "5.1",
            "it falls consistently as the weight falls from 80 to 50 %",
            sorted(unequal, reverse=True) == unequal and means[50] < min(unequal),
            " > ".join(f"{means[s]:.3f}" for s in SPLITS),
        ),
        Finding(
            "5.1",
            "with 80-20 connection 1 leads and connection 2 drafts",
            float(traces[80].rates[WARM_UP_S:, 1].max()) < 0.01,
            f"connection 2 blocks at most {float(traces[80].rates[WARM_UP_S:, 1].max()):.3f} of the time",
        ),
        Finding(
            "5.1",
            "with 50-50 the draft leader changes at some point",
            changes > 0,
            f"the leader changes {changes} times; both together block {float(even.sum(axis=1).mean()):.3f} of the time",
        ),
    ]
    rows = [row for split, trace in traces.items() for row in _trace_rows(f"{split}-{100 - split}", trace)]
    remarks = (
        "Drafting is not put into the model: one splitter with one clock waits, and meanwhile the others drain.",
    )
    title = "Blocking rates for fixed weights, simulated"
    return Outcome(rows, lambda path: draw_sweeps(panels, path, title), findings, remarks)


# -- figure 8 ----------------------------------------------------------------------------------------------------------


def _figure_8(step: Step, scale: Scale) -> Outcome:
    removed = scale.depth_s / 8
    loaded, alike = experiments.three_with_one_loaded(removed), experiments.three_alike()
    runs: dict[tuple[str, str], Trace] = {}
    for name in ("adaptive", "knee"):
        for case, model in (("loaded", loaded), ("alike", alike)):
            step(f"{name}, {case}")
            runs[case, name] = experiments.run_seconds(name, model, scale.depth_s)
    depth = [
        DepthRow(f"{name}, one 100x" if case == "loaded" else f"{name}, equal", trace,
                 removed if case == "loaded" else None, 100 / 3)
        for (case, name), trace in runs.items()
    ]  # fmt: skip
    ideal, even = loaded.ideal(0), loaded.ideal(1)
    findings = [
        *_loaded_findings(runs["loaded", "adaptive"], ideal, even, removed),
        *_alike_findings(runs["alike", "adaptive"], even, scale),
        *_own_findings(runs["loaded", "knee"], runs["alike", "knee"], ideal, even, removed),
    ]
    rows = [row for (case, name), trace in runs.items() for row in _trace_rows(f"{name}, {case}", trace)]
    title = "Three replicas: one 100 times slower until the dashed line, and three equal ones; simulated"
    remarks = (
        "The paper does not print how long its run is; here the load is removed an eighth through the time.",
        "`knee` is ours; its rows are no reproduction.",
    )
    return Outcome(rows, lambda path: draw_depth(depth, path, title), findings, remarks)


def _loaded_findings(trace: Trace, ideal: Sequence[int], even: Sequence[int], removed: float) -> list[Finding]:
    weights = np.array([decision.weights for decision in trace.decisions])
    before = int(removed)
    low = MEANINGS["about"] * LOW_WEIGHT + LOW_WEIGHT
    heavy = np.flatnonzero(weights[: before - 1, 0] > low)
    steady = 1 + (int(heavy[-1]) + 1 if len(heavy) else 0)
    rise = float(trace.rates[1, 1:].sum() - trace.rates[0, 1:].sum())
    settled = experiments.settled_after(trace, ideal, 0.1)
    back = experiments.settled_after(trace, even, 0.1, removed)
    reached = int(weights[-1, 0])
    return [
        Finding("6.1", "the loaded connection's weight first drops to 0", int(weights[0, 0]) == 0,
                f"from 334 to {int(weights[0, 0])} units at the first sample"),
        Finding("6.1", "the other connections then see a sharp increase in blocking", rise >= MEANINGS["sharp"],
                f"their blocking rises by {rise:.2f} of the time in the next interval; {meaning('sharp')}"),
        Finding("6.1", "15 s into the experiment the loaded connection has settled on a weight of about 3 % at most",
                steady <= 15,
                f"at most {low / 10:g} % from {steady} s on; all within 10 % of the ideal first at {settled} s"),
        Finding("6.1", "after the load is removed it climbs back to an even share, slowly",
                back is not None and back > 10,
                f"within 10 % of even {'never' if back is None else f'{back:g} s'} after the removal; "
                f"{reached} units at the end"),
    ]  # fmt: skip


def _alike_findings(trace: Trace, even: Sequence[int], scale: Scale) -> list[Finding]:
    weights = np.array([decision.weights for decision in trace.decisions])
    late = experiments.farthest_from(trace, even, min(150.0, scale.depth_s / 2))
    leads = np.argmax(trace.rates[len(trace.rates) // 2 :], axis=1)
    return [
        Finding("6.2", "in the beginning the draft leader's weight drops to 0", int(weights[:5].min()) == 0,
                f"the least weight in the first 5 s is {int(weights[:5].min())} units"),
        Finding("6.2", "equal replicas end at an even split, from 150 s on", late <= MEANINGS["even"],
                f"at most {late:.1%} from even; {meaning('even')}"),
        Finding("6.2", "the draft leader goes on changing", len(set(leads.tolist())) > 1,
                f"{len(set(leads.tolist()))} connections lead in the second half"),
    ]  # fmt: skip


def _own_findings(
    loaded: Trace, alike: Trace, ideal: Sequence[int], even: Sequence[int], removed: float
) -> list[Finding]:
    settled = experiments.settled_after(loaded, ideal, 0.1)
    back = experiments.settled_after(loaded, even, 0.1, removed)
    late = experiments.farthest_from(alike, even, 60.0) if alike.time_s[-1] > 60 else float("nan")
    return [
        Finding("ours", "knee: within 10 % of the ideal weights in 10 s, and of even 10 s after the load's end",
                settled is not None and settled <= 10 and back is not None and back <= 10,
                f"{settled} s, and {back} s after the end"),
        Finding("ours", "knee: equal replicas within 5 % of even after 60 s", late <= 0.05, f"at most {late:.1%}"),
    ]  # fmt: skip


# -- figure 12 ---------------------------------------------------------------------------------------------------------


def _figure_12(step: Step, scale: Scale) -> Outcome:
    deep, classes = experiments.three_classes(), experiments.CLASSES
    shallow = experiments.three_classes(buffer_tuples=experiments.SHALLOW_TUPLES)
    seconds = min(400.0, scale.depth_s)
    traces = {}
    for label, name, model, settings in (
        ("adaptive", "adaptive", deep, {}),
        ("adaptive, bounded", "adaptive", deep, experiments.BOUNDED),
        ("adaptive, bounded, shallow buffers", "adaptive", shallow, experiments.BOUNDED),
        ("static", "static", deep, {}),
        ("knee", "knee", deep, {}),
    ):
        step(label)
        traces[label] = simulate(model, find_policy(name).build(settings), seconds=seconds)
    findings = [finding for name, trace in traces.items() for finding in _class_findings(name, trace, deep.capacity())]
    rows = [_class_row(name, decision, classes) for name, trace in traces.items() for decision in trace.decisions[::10]]
    runs = list(traces.items())
    names = ("100x the cost", "5x the cost", "base cost")
    remarks = (
        "Ideal weights are 35.5, 7.1 and 0.4 units; a unit is 0.1 %.",
        f"Bounded: weights rise by {experiments.BOUNDED['rise_max']:g} units at most in a decision, and the least is "
        f"{experiments.BOUNDED['least']:g}. The paper has such bounds and prints no figures for them. With a unit "
        f"each, the 100x channels hold the region at {_with_a_unit(deep):.0%} of its capacity.",
        f"Buffers hold {experiments.BUFFER_TUPLES:,} tuples, shallow ones {experiments.SHALLOW_TUPLES}; the paper does "
        "not print what its own hold. A splitter that waits for a 100x channel waits until a third of the buffer is "
        f"worked off: {_wait_s(deep):.1f} s, with shallow buffers {_wait_s(shallow):.1f} s, beside samples of 1 s.",
        "`knee` is ours; replicas that it has not read yet are clusters of their own.",
    )
    return Outcome(rows, lambda path: draw_classes(runs, classes, names, path), findings, remarks)


def _wait_s(model: RegionModel) -> float:
    """How long the splitter waits for the slowest replica once its buffer is full."""
    return model.buffers.low_water * max(model.phases[0].cost_s)


def _with_a_unit(model: RegionModel) -> float:
    """What the region can do, as a share of its capacity, while its slowest replica has one unit."""
    return UNITS / max(model.phases[0].cost_s) / model.capacity()


def _class_row(name: str, decision: Decision, classes: Sequence[int]) -> Row:
    """Clusters, and the mean weight of each class."""
    row: Row = {"run": name, "second": decision.time_s, "clusters": float(len(set(decision.clusters)))}
    for kind, label in enumerate(("100x", "5x", "1x")):
        weights = [w for w, c in zip(decision.weights, classes, strict=True) if c == kind]
        row[f"weight of {label}"] = sum(weights) / len(weights)
    return row


def _class_findings(name: str, trace: Trace, capacity: float) -> list[Finding]:
    last = trace.decisions[-max(1, len(trace.decisions) // 10) :]
    weights = np.median([decision.weights for decision in last], axis=0)  # at any one time some channel is explored
    heavy, five, light = (weights[[c == k for c in experiments.CLASSES]] for k in range(3))
    mixed = experiments.last_mixed_s(trace, experiments.CLASSES)
    final = trace.final_throughput() / capacity
    own = "ours" if name == "knee" else "6.6"
    count = len(set(trace.decisions[-1].clusters))
    return [
        Finding(own, f"{name}: in the end only three classes of clusters are left, none of them mixed, after 220 s",
                mixed is None or mixed <= 220,
                f"{count} clusters at the end; mixed {'never' if mixed is None else f'until {mixed:g} s'}"),
        Finding(own, f"{name}: 100x channels end with a minimum weight, 5x with at most 2 %, unloaded ones around 4 %",
                heavy.max() <= 1 and five.max() <= 20 and all(about(w, 40) for w in light),
                f"at most {heavy.max() / 10:.1f} %, at most {five.max() / 10:.1f} %, from {light.min() / 10:.1f} to "
                f"{light.max() / 10:.1f} %; final throughput {final:.0%} of the capacity; a minimum is a unit or none, "
                f"{meaning('around')}; medians of the last tenth of the run"),
    ]  # fmt: skip


ITEMS = (
    BalanceItem("balance-fig5", "Blocking rates for fixed weights", "5.1", _figure_5, 4),
    BalanceItem("balance-fig8", "Three replicas, loaded and equal", "6.1 and 6.2", _figure_8, 4),
    BalanceItem("balance-fig12", "64 replicas in three classes: weights and clusters", "6.6", _figure_12, 5),
)
