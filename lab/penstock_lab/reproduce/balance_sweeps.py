"""Figures 9, 10, 11 and 13 of the balancing paper: execution time and final throughput over the number of replicas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock_lab.reproduce.balance_item import BalanceItem, Finding, Outcome, Row, Scale
from penstock_lab.reproduce.balance_pictures import Curve, SweepPanel, draw_sweeps
from penstock_lab.reproduce.words import (
    MEANINGS,
    a_little_more,
    about,
    almost,
    between,
    close_to,
    meaning,
    similar,
    the_same,
)
from penstock_lab.simulate import experiments
from penstock_lab.simulate.experiments import Hosts, run_rows, run_seconds
from penstock_lab.simulate.region import RegionModel, Trace

Step = Callable[[str], None]
POLICIES = ("oracle", "static", "adaptive", "knee", "round-robin")


@dataclass(frozen=True, slots=True)
class Result:
    """One run."""

    seconds: float
    final: float  # million tuples per second
    trace: Trace


Results = dict[tuple[int, str], Result]  # by replicas and policy


def _measure(
    step: Step, sizes: Sequence[int], make: Callable[[int], tuple[RegionModel, int]], multiplies: int
) -> Results:
    found: Results = {}
    for replicas in sizes:
        model, rows = make(replicas)
        for name in POLICIES:
            step(f"{replicas} replicas, {name}")
            trace = run_rows(name, model, rows)
            scale = experiments.tuples_per_row(multiplies) / 1e6
            found[replicas, name] = Result(trace.seconds, trace.final_throughput() * scale, trace)
    return found


def _ratio(results: Results, replicas: int, name: str) -> float:
    return results[replicas, name].seconds / results[replicas, "oracle"].seconds


def _final(results: Results, replicas: int, name: str) -> float:
    return results[replicas, name].final / results[replicas, "oracle"].final


def _sizes(results: Results) -> list[int]:
    return sorted({replicas for replicas, _ in results})


def _time_panel(title: str, results: Results) -> SweepPanel:
    sizes = _sizes(results)
    x = tuple(float(n) for n in sizes)
    curves = tuple(Curve(name, x, tuple(_ratio(results, n, name) for n in sizes)) for name in POLICIES)
    return SweepPanel(title, "execution time over oracle's", curves, log=True)


def _final_panel(title: str, results: Results) -> SweepPanel:
    sizes = _sizes(results)
    x = tuple(float(n) for n in sizes)
    curves = tuple(Curve(name, x, tuple(results[n, name].final for n in sizes)) for name in POLICIES)
    return SweepPanel(title, "final throughput, M tuples/s", curves)


def _rows(load: str, results: Results) -> list[Row]:
    return [
        {
            "load": load,
            "replicas": float(n),
            "policy": name,
            "seconds": result.seconds,
            "over oracle": _ratio(results, n, name),
            "final M tuples/s": result.final,
            "final over oracle": _final(results, n, name),
        }
        for (n, name), result in results.items()
    ]


def _listed(results: Results, values: Mapping[int, float]) -> str:
    return ", ".join(f"{n}: {values[n]:.2f}" for n in _sizes(results))


def _of(results: Results, name: str, measure: Callable[[Results, int, str], float] = _ratio) -> dict[int, float]:
    return {n: measure(results, n, name) for n in _sizes(results)}


def _against_round_robin(results: Results, name: str) -> dict[int, float]:
    return {n: results[n, "round-robin"].seconds / results[n, name].seconds for n in _sizes(results)}


# -- figures 9, 10 and 13 ----------------------------------------------------------------------------------------------


def _figure_9(step: Step, scale: Scale) -> Outcome:
    sizes = [n for n in (2, 4, 8, 16) if n <= scale.replicas_max]
    constant = _measure(step, sizes, lambda n: experiments.constant_load(n, 1_000, 10.0, scale.run_s), 1_000)
    removed = _measure(step, sizes, lambda n: experiments.removed_load(n, 1_000, 10.0, scale.run_s), 1_000)
    better = {name: _against_round_robin(constant, name) for name in ("static", "adaptive")}
    gap = {n: constant[n, "adaptive"].seconds / constant[n, "static"].seconds for n in sizes}
    knee, largest = _of(constant, "knee"), max(sizes)
    findings = [
        Finding("6.3", "both schemes are 1.5 to 4 times better than round robin, 2 to 16 replicas",
                all(between(value, 1.5, 4) for found in better.values() for value in found.values()),
                "; ".join(f"{name} {_listed(constant, found)}" for name, found in better.items())),
        Finding("6.3", "with medium-cost tuples being adaptive costs only a little more than being static",
                a_little_more(max(gap.values()), 1), f"{_listed(constant, gap)}; {meaning('a little')}"),
        Finding("6.3", "after the load is removed adaptive reaches the oracle's throughput, static does not (2 and 4)",
                all(
                    the_same(_final(removed, n, "adaptive"), 1) and not the_same(_final(removed, n, "static"), 1)
                    for n in sizes
                    if n <= 4
                ),
                f"adaptive {_listed(removed, _of(removed, 'adaptive', _final))}; "
                f"static {_listed(removed, _of(removed, 'static', _final))}; {meaning('the same')}"),
        Finding("6.3", "adaptive outperforms the oracle, which changes its weights too early",
                max(_of(removed, "adaptive").values()) < 1,
                f"time over the oracle's {_listed(removed, _of(removed, 'adaptive'))}"),
        Finding("6.3", "beyond 8 replicas the workload does not scale",
                None if largest < 16 else the_same(removed[16, "oracle"].final, removed[8, "oracle"].final),
                f"oracle's final M tuples/s {_listed(removed, {n: removed[n, 'oracle'].final for n in sizes})}; "
                f"{meaning('the same')}"),
        Finding("ours", "knee: execution time at most 1.15 of the oracle's", max(knee.values()) <= 1.15,
                _listed(constant, knee)),
    ]  # fmt: skip
    panels = [
        _time_panel("half 10x, throughout", constant),
        _time_panel("half 10x, for an eighth", removed),
        _final_panel("half 10x, for an eighth", removed),
    ]
    title = "1,000 multiplies, half of the replicas 10 times as expensive; simulated"
    rows = _rows("throughout", constant) + _rows("an eighth", removed)
    return Outcome(rows, lambda path: draw_sweeps(panels, path, title), findings, _LENGTH)


def _figure_10(step: Step, scale: Scale) -> Outcome:
    sizes = [n for n in (2, 4, 8, 16) if n <= scale.replicas_max]
    constant = _measure(step, sizes, lambda n: experiments.constant_load(n, 10_000, 100.0, scale.run_s), 10_000)
    removed = _measure(step, sizes, lambda n: experiments.removed_load(n, 10_000, 100.0, scale.run_s), 10_000)
    findings = figure_10_findings(constant, removed)
    panels = [
        _time_panel("half 100x, throughout", constant),
        _time_panel("half 100x, for an eighth", removed),
        _final_panel("half 100x, for an eighth", removed),
    ]
    title = "10,000 multiplies, half of the replicas 100 times as expensive; simulated"
    rows = _rows("throughout", constant) + _rows("an eighth", removed)
    return Outcome(rows, lambda path: draw_sweeps(panels, path, title), findings, _LENGTH)


def figure_10_findings(constant: Results, removed: Results) -> list[Finding]:
    """What the paper says of heavy-cost tuples, on our runs."""
    sizes = _sizes(constant)
    gap = {n: constant[n, "adaptive"].seconds / constant[n, "static"].seconds for n in sizes}
    return [
        Finding("6.4", "the cost of being adaptive grows from marginal to about 30 % with the replicas",
                a_little_more(gap[min(sizes)], 1) and about(gap[max(sizes)] - 1, 0.30),
                f"adaptive's time over static's {_listed(constant, gap)}; {meaning('marginal', 'about')}"),
        *_removed_findings(removed, "6.4"),
    ]  # fmt: skip


def _removed_findings(removed: Results, section: str) -> list[Finding]:
    sizes = _sizes(removed)
    twice = {n: removed[n, "adaptive"].final / removed[n, "static"].final for n in sizes}
    robin, plain = _of(removed, "round-robin", _final), _reached(removed)
    total, final = _of(removed, "knee"), _of(removed, "knee", _final)
    return [
        Finding(section, "adaptive's final throughput is almost twice static's",
                all(almost(value, 2) for value in twice.values()), f"{_listed(removed, twice)}; {meaning('almost')}"),
        Finding(section, "round robin's final throughput is that of the oracle",
                all(the_same(value, 1) for value in robin.values()),
                f"{_listed(removed, robin)}; {meaning('the same')}"),
        Finding(section, "but it takes at least 10 times as long to reach it", min(plain.values()) >= 10,
                f"time until it is reached, over the oracle's {_listed(removed, plain)}"),
        Finding("ours", "knee: total time at most 1.2 of the oracle's, final throughput at least 0.95",
                max(total.values()) <= 1.2 and min(final.values()) >= 0.95,
                f"time {_listed(removed, total)}; final {_listed(removed, final)}"),
    ]  # fmt: skip


def _reached(removed: Results) -> dict[int, float]:
    """How much longer round robin takes until its throughput is the same as the oracle's final one."""
    found = {}
    for n in _sizes(removed):
        wanted = (1 - MEANINGS["the same"]) * removed[n, "oracle"].trace.final_throughput()
        robin, oracle = (removed[n, name].trace.reached_after(wanted) for name in ("round-robin", "oracle"))
        found[n] = math.nan if oracle is None else math.inf if robin is None else robin / oracle
    return found


def _figure_13(step: Step, scale: Scale) -> Outcome:
    sizes = [n for n in (2, 4, 8, 16, 32, 64) if n <= scale.replicas_max]
    removed = _measure(step, sizes, lambda n: experiments.removed_load(n, 60_000, 100.0, scale.run_s), 60_000)
    large = [n for n in sizes if n >= 32]
    alike = {n: removed[n, "adaptive"].seconds / removed[n, "static"].seconds for n in sizes}
    better = {name: _against_round_robin(removed, name) for name in ("static", "adaptive")}
    findings = [
        Finding("6.6", "at 32 and 64 replicas the times of static and adaptive are similar",
                all(similar(alike[n], 1) for n in large) if large else None,
                f"adaptive's over static's {_listed(removed, alike)}; {meaning('similar')}"),
        Finding("6.6", "both are there close to 9 times better than round robin",
                all(close_to(found[n], 9) for found in better.values() for n in large) if large else None,
                "; ".join(f"{name} {_listed(removed, found)}" for name, found in better.items())
                + f"; {meaning('close to')}"),
        Finding("6.6", "adaptive's final throughput is above static's at every size",
                all(removed[n, "adaptive"].final > removed[n, "static"].final for n in sizes),
                f"over the oracle's: adaptive {_listed(removed, _of(removed, 'adaptive', _final))}; "
                f"static {_listed(removed, _of(removed, 'static', _final))}"),
        *_removed_findings(removed, "6.6")[-1:],
    ]  # fmt: skip
    panels = [_time_panel("half 100x, for an eighth", removed), _final_panel("half 100x, for an eighth", removed)]
    title = "60,000 multiplies, clusters from 32 replicas on; simulated"
    return Outcome(_rows("an eighth", removed), lambda path: draw_sweeps(panels, path, title), findings, _LENGTH)


_LENGTH = (
    f"The paper does not print how long its runs are; here the oracle takes about {experiments.RUN_S:g} s.",
    "Our oracle's weights are the true capacities and change with the first sample after the load's end.",
    "`knee` is ours and no reproduction.",
)


# -- figure 11 ---------------------------------------------------------------------------------------------------------


def _all_fast(count: int) -> Hosts:
    return Hosts(count, 0)


def _all_slow(count: int) -> Hosts:
    return Hosts(0, count)


def _even(count: int) -> Hosts:
    """Half on each kind of host; of 24 the paper puts 16 on the fast one."""
    slow = min(count // 2, 8)
    return Hosts(count - slow, slow)


_PLACED: dict[str, tuple[str, Callable[[int], Hosts]]] = {
    "All-Fast": ("round-robin", _all_fast),
    "All-Slow": ("round-robin", _all_slow),
    "Even-RR": ("round-robin", _even),
    "Even-LB": ("adaptive", _even),
    "Even-knee": ("knee", _even),
}


def _figure_11(step: Step, scale: Scale) -> Outcome:
    sizes = [n for n in (2, 4, 8, 16, 24) if n <= scale.replicas_max]
    step("in depth")
    pair = Hosts(1, 1).model()
    depth = run_seconds("adaptive", pair, min(200.0, scale.depth_s))
    late = depth.weights[min(30, len(depth.weights) // 2) :, 0] / 10
    found: dict[tuple[int, str], float] = {}
    for n in sizes:
        for label, (policy, hosts) in _PLACED.items():
            step(f"{n} replicas, {label}")
            trace = run_seconds(policy, hosts(n).model(), scale.run_s)
            found[n, label] = trace.left / float(trace.time_s[-1]) * experiments.tuples_per_row(20_000) / 1e6
    findings = [
        Finding("6.5", "two replicas settle on about 65-35 by 30 s, with small variations",
                all(close_to(share, said) for share, said in ((late.mean(), 65.0), (100 - late.mean(), 35.0)))
                and all(the_same(share, float(late.mean())) for share in late),
                f"fast host's share after 30 s: mean {late.mean():.1f} %, from {late.min():.1f} to {late.max():.1f} %; "
                f"both shares are close to those: {meaning('close to', 'a small variation')}"),
        *_host_findings(found, sizes),
    ]  # fmt: skip
    x = tuple(float(n) for n in sizes)
    times = tuple(depth.time_s.tolist())
    panels = [
        SweepPanel("two replicas, weights in per cent", "weight, per cent", tuple(
            Curve(label, times, tuple((depth.weights[:, j] / 10).tolist()))
            for j, label in enumerate(("fast host", "slow host"))
        ), x="seconds"),
        SweepPanel("execution time over Even-RR's", "execution time over Even-RR's", tuple(
            Curve(label, x, tuple(found[n, "Even-RR"] / found[n, label] for n in sizes)) for label in _PLACED)),
        SweepPanel("throughput", "M tuples/s", tuple(
            Curve(label, x, tuple(found[n, label] for n in sizes)) for label in _PLACED)),
    ]  # fmt: skip
    rows: list[Row] = [
        {"replicas": float(n), "run": label, "M tuples/s": value, "time over Even-RR's": found[n, "Even-RR"] / value}
        for (n, label), value in found.items()
    ]
    remarks = (
        "The hosts' speeds are set to the 65-35 split on which the paper's hosts settle: that split is an input, and "
        "that the scheme finds it is the result. A host with more replicas than threads slows all of them alike.",
        "`Even-knee` is ours.",
    )
    title = "Fast and slow hosts, 20,000 multiplies; simulated"
    return Outcome(rows, lambda path: draw_sweeps(panels, path, title), findings, remarks)


def _host_findings(found: Mapping[tuple[int, str], float], sizes: Sequence[int]) -> list[Finding]:
    small = [n for n in sizes if n <= 8]
    slow = {n: found[n, "All-Slow"] / found[n, "Even-RR"] for n in small}
    best = max(found, key=lambda key: (key[1] != "Even-knee") * found[key])
    return [
        Finding("6.5", "up to 8 replicas All-Slow and Even-RR perform similarly",
                all(similar(value, 1) for value in slow.values()),
                ", ".join(f"{n}: {value:.2f}" for n, value in slow.items()) + f"; {meaning('similar')}"),
        Finding("6.5", "up to 16 replicas All-Fast outperforms Even-LB",
                all(found[n, "All-Fast"] > found[n, "Even-LB"] for n in sizes if n <= 16),
                ", ".join(f"{n}: {found[n, 'All-Fast'] / found[n, 'Even-LB']:.2f}" for n in sizes if n <= 16)),
        Finding("6.5", "the fastest of all is Even-LB with 16 replicas on the fast and 8 on the slow host",
                best == (24, "Even-LB") if max(sizes) >= 24 else None,
                f"fastest is {best[1]} with {best[0]} replicas at {found[best]:.3f} M tuples/s; All-Fast's best is "
                f"{max(value for (_, label), value in found.items() if label == 'All-Fast'):.3f}"),
    ]  # fmt: skip


ITEMS = (
    BalanceItem("balance-fig9", "Half of the replicas 10 times as expensive", "6.3", _figure_9, 40),
    BalanceItem("balance-fig10", "Half of the replicas 100 times as expensive", "6.4", _figure_10, 40),
    BalanceItem("balance-fig11", "Fast and slow hosts", "6.5", _figure_11, 26),
    BalanceItem("balance-fig13", "Up to 64 replicas, with clusters", "6.6", _figure_13, 30),
)
