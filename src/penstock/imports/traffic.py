"""What flowed where, as far as totals tell: per stream from operators' totals, per pair of tasks from tasks' totals.

Systems count what leaves an operator and what enters one, over all its streams. Iterative proportional fitting (Deming
and Stephan 1940) finds the flows that have these totals and assume no more than that; where every operator on one side
has one stream, there is no choice and the flows are exact. A pair's share is what the two ends sent and received,
multiplied, for the same reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

ROUNDS = 100  # each is a pass over all streams; totals that agree are met far earlier


def fit_flows(
    streams: Sequence[tuple[str, str]], sent: Mapping[str, float], received: Mapping[str, float]
) -> list[float]:
    """The flow of each stream (source, target), so that an operator's flows add up to what it sent and received.

    An operator that is not in `sent` (or `received`) has no total there. Where the two sides contradict each other,
    what was received holds: data that is under way is counted by its sender only.
    """
    leaving = _by_end(streams, 0, sent)
    entering = _by_end(streams, 1, received)
    flows = [1.0] * len(streams)
    for _ in range(ROUNDS):
        before = list(flows)
        _scale(flows, leaving, sent)
        _scale(flows, entering, received)
        if all(abs(a - b) <= 1e-12 * max(a, b) for a, b in zip(before, flows, strict=True)):
            break
    return flows


def _by_end(streams: Sequence[tuple[str, str]], end: int, totals: Mapping[str, float]) -> dict[str, list[int]]:
    """The streams of each operator that has a total at this end."""
    found: dict[str, list[int]] = {}
    for k, stream in enumerate(streams):
        if stream[end] in totals:
            found.setdefault(stream[end], []).append(k)
    return found


def _scale(flows: list[float], streams_of: Mapping[str, list[int]], totals: Mapping[str, float]) -> None:
    for operator, members in streams_of.items():
        now, wanted = sum(flows[k] for k in members), totals[operator]
        for k in members:
            # Flows that a total of 0 on the other side has emptied stay where they are: nothing says which was meant.
            flows[k] = flows[k] * (wanted / now) if now > 0 else 0.0


def pair_shares(grouping: str, sent: Sequence[float], received: Sequence[float]) -> Iterator[tuple[int, int, float]]:
    """The pairs (i, j) of a stream that carry anything, with their shares; the shares add up to 1.

    `sent` and `received` have one figure per task; only their proportions count, and zeros alone mean evenly.
    """
    rows = _proportions(sent)
    if grouping == "forward":
        yield from ((i, i, share) for i, share in enumerate(rows) if share > 0)
        return
    columns = [1.0] + [0.0] * (len(received) - 1) if grouping == "global" else _proportions(received)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            if row * column > 0:
                yield i, j, row * column


def _proportions(figures: Sequence[float]) -> list[float]:
    total = sum(figures)
    return [figure / total for figure in figures] if total > 0 else [1.0 / len(figures)] * len(figures)
