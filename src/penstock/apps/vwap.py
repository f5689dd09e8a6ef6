"""VWAP: the financial job of COLA's experiments (paper 004, section 4), as a synthetic graph of the same size and kind.

The paper gives 200 operators and 283 arcs (VWAP1), 217 and 315 (VWAP2), and the scenario: real-time quotes and trades
are processed to find bargains. Its Figure 6 and its profile are not public as data, so shape and costs are DERIVED:

    feed -> parse -> split -> per partition of symbols: trades filter -> vwap -> smoothing ... -> bargain -> score
                                                        quotes filter ------------------------->
    score -> collect -> report

How partitions share feeds and collectors, and how rates and loads are scaled: docs/decisions/0018-fusion.md, "The
synthetic VWAP job". `test_published_sizes` holds the numbers of arcs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from penstock.errors import InvalidInput
from penstock.model.topology import OPERATORS_MAX, Operator, OperatorGraph, Stream

PUBLISHED_ARCS = {200: 283, 217: 315}
ARCS_PER_OPERATOR = 1.43  # between the published two
OPERATORS_MIN = 20
OPERATORS_PER_FEED = 50
PARTITION_OPERATORS = 6
LOAD_IN_ALL = 2.8
STREAMS_IN_ALL = 0.52
# Tuples out for each tuple in, and CPU for each tuple in relative to parsing one.
PASSES = {"feed": 1.0, "parse": 1.0, "split": 1.0, "trades": 0.4, "quotes": 0.6, "vwap": 0.5, "smooth": 0.9}
PASSES |= {"bargain": 0.3, "score": 0.5, "collect": 0.5, "report": 0.0}
EFFORT = {"feed": 0.4, "parse": 0.6, "split": 0.15, "trades": 0.5, "quotes": 0.5, "vwap": 2.0, "smooth": 0.8}
EFFORT |= {"bargain": 2.5, "score": 0.8, "collect": 0.5, "report": 0.6}


@dataclass
class _Draft:
    """The graph while it is drawn: kinds of operators and arcs with the share of the sender's tuples they carry."""

    kinds: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    arcs: dict[tuple[int, int], float] = field(default_factory=dict)

    def add(self, kind: str, label: str) -> int:
        self.kinds.append(kind)
        self.names.append(f"{kind}{label}")
        return len(self.kinds) - 1

    def chain(self, *operators: int) -> None:
        for source, target in pairwise(operators):
            self.arcs[source, target] = 1.0


def vwap(operators: int) -> OperatorGraph:
    """Synthetic VWAP job of COLA's experiments; 200 and 217 have the published numbers of arcs."""
    return vwap_graph(operators, seed=0)


def vwap_graph(operators: int, seed: int) -> OperatorGraph:
    """A graph of that many operators, of one task each; another seed draws other shares, costs and additional arcs."""
    if not OPERATORS_MIN <= operators <= OPERATORS_MAX:
        msg = f"vwap:{operators} is not possible; N must be from {OPERATORS_MIN} to {OPERATORS_MAX}"
        raise InvalidInput(msg)
    random = np.random.default_rng([operators, seed])
    draft, partitions = _backbone(operators, random)
    arcs = PUBLISHED_ARCS.get(operators, round(ARCS_PER_OPERATOR * operators))
    _add_arcs(draft, partitions, arcs, random)
    load, rate = _costs(draft, random)
    return OperatorGraph(
        f"vwap:{operators}" if seed == 0 else f"vwap:{operators} seed {seed}",
        tuple(
            Operator(name, load=float(load[i]), source=draft.kinds[i] == "feed") for i, name in enumerate(draft.names)
        ),
        tuple(
            Stream(draft.names[source], draft.names[target], rate=float(rate[i]))
            for i, (source, target) in enumerate(draft.arcs)
        ),
    )


@dataclass(frozen=True)
class _Partition:
    trades: int
    quotes: int
    vwap: int
    bargain: int
    feed: int  # of the splits


def _backbone(operators: int, random: np.random.Generator) -> tuple[_Draft, list[_Partition]]:
    """Feeds, partitions and collectors with the arcs that a working job cannot do without."""
    draft = _Draft()
    ends = max(1, operators // OPERATORS_PER_FEED)
    splits = [_feed(draft, str(i)) for i in range(ends)]
    collects = [draft.add("collect", str(i)) for i in range(ends)]
    for i, collect in enumerate(collects):
        draft.chain(collect, draft.add("report", str(i)))
    left = operators - 5 * ends
    count = max(1, left // PARTITION_OPERATORS)
    popularity = random.permutation(1.0 / np.arange(1, count + 1) ** 0.7)
    partitions: list[_Partition] = []
    for p in range(count):
        size = left // count + (p < left % count)
        feed = p * ends // count
        partition, score = _partition(draft, str(p), size, feed)
        for filtered in (partition.trades, partition.quotes):
            draft.arcs[splits[feed], filtered] = float(popularity[p])
        draft.chain(score, collects[p % ends])
        partitions.append(partition)
    return draft, partitions


def _feed(draft: _Draft, label: str) -> int:
    feed, parse, split = (draft.add(kind, label) for kind in ("feed", "parse", "split"))
    draft.chain(feed, parse, split)
    return split


def _partition(draft: _Draft, label: str, size: int, feed: int) -> tuple[_Partition, int]:
    """Two filters, the average, smoothing steps up to the size, the comparison and the score."""
    trades, quotes, average = (draft.add(kind, label) for kind in ("trades", "quotes", "vwap"))
    smooth = [draft.add("smooth", f"{label}-{i}") for i in range(size - 5)]
    bargain, score = draft.add("bargain", label), draft.add("score", label)
    draft.chain(trades, average, *smooth, bargain, score)
    draft.chain(quotes, bargain)
    return _Partition(trades, quotes, average, bargain, feed), score


def _add_arcs(draft: _Draft, partitions: list[_Partition], arcs: int, random: np.random.Generator) -> None:
    """Second feeds and neighbours' averages, drawn until the graph has its number of arcs or there are no more."""
    splits = [i for i, kind in enumerate(draft.kinds) if kind == "split"]
    candidates = [
        (split, filtered)
        for partition in partitions
        for number, split in enumerate(splits)
        if number != partition.feed
        for filtered in (partition.trades, partition.quotes)
    ]
    if len(candidates) > len(partitions):  # draw both kinds equally, or nearly every arc would be a second feed
        chosen = random.choice(len(candidates), len(partitions), replace=False)
        candidates = [candidates[i] for i in sorted(chosen.tolist())]
    candidates += [(a.vwap, b.bargain) for a, b in pairwise(partitions)]
    for i in random.permutation(len(candidates)).tolist()[: max(0, arcs - len(draft.arcs))]:
        draft.arcs[candidates[i]] = float(random.uniform(0.05, 0.4))


def _costs(draft: _Draft, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(load, rate): tuples flow from the feeds along the arcs; a split shares out what it receives."""
    count = len(draft.kinds)
    shared = np.zeros(count)
    for (source, _), weight in draft.arcs.items():
        shared[source] += weight
    tuples_in = np.array([random.lognormal(0.0, 0.3) if kind == "feed" else 0.0 for kind in draft.kinds])
    order = _topological(draft)
    carried: dict[tuple[int, int], float] = {}
    targets: dict[int, list[tuple[int, float]]] = {}
    for (source, target), weight in draft.arcs.items():
        targets.setdefault(source, []).append((target, weight))
    for source in order:
        sent = float(tuples_in[source]) * PASSES[draft.kinds[source]]
        for target, weight in targets.get(source, []):
            # A split shares out its tuples; any other operator sends each of its streams in full.
            part = weight / shared[source] if draft.kinds[source] == "split" else weight
            carried[source, target] = sent * part
            tuples_in[target] += sent * part
    effort = np.array([EFFORT[kind] for kind in draft.kinds])
    load = tuples_in * effort * random.lognormal(0.0, 0.4, count)
    rate = np.array([carried[arc] for arc in draft.arcs]) * random.lognormal(0.0, 0.25, len(draft.arcs))
    return load * (LOAD_IN_ALL / load.sum()), rate * (STREAMS_IN_ALL / rate.sum())


def _topological(draft: _Draft) -> list[int]:
    """Operators layer by layer; every arc leads to a later layer."""
    layers = list(PASSES)
    return sorted(range(len(draft.kinds)), key=lambda i: (layers.index(draft.kinds[i]), i))
