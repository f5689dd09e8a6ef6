"""Flows from totals: the totals are met, what has no choice is exact, and shares of pairs add up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.imports.imported import PAIRS_MAX, Flow, Found, Names, assemble, plain_name
from penstock.imports.traffic import fit_flows, pair_shares

amounts = st.floats(0.001, 1e9)


def totals(streams: list[tuple[str, str]], flows: list[float], end: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for stream, flow in zip(streams, flows, strict=True):
        found[stream[end]] = found.get(stream[end], 0.0) + flow
    return found


def test_a_tree_of_streams_has_one_answer_and_it_is_found() -> None:
    # a sends 30, of which c reads its 10 and d its 20; b's 5 go to d as well: d reads 25, of which a's are 20.
    streams = [("a", "c"), ("a", "d"), ("b", "d")]
    assert fit_flows(streams, {"a": 30.0, "b": 5.0}, {"c": 10.0, "d": 25.0}) == pytest.approx([10.0, 20.0, 5.0])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), amounts), min_size=1, max_size=9))
def test_totals_are_met_whatever_flowed(drawn: list[tuple[str, str, float]]) -> None:
    flows = {(source, target): flow for source, target, flow in drawn}
    streams, values = list(flows), list(flows.values())
    sent, received = totals(streams, values, 0), totals(streams, values, 1)
    found = fit_flows(streams, sent, received)
    assert totals(streams, found, 1) == pytest.approx(received)
    scale = sum(values)
    assert all(abs(totals(streams, found, 0)[end] - sent[end]) <= 0.02 * scale for end in sent)


def test_what_was_received_holds_where_the_sides_disagree() -> None:
    assert fit_flows([("a", "b")], {"a": 100.0}, {"b": 90.0}) == [90.0]
    assert fit_flows([("a", "b")], {"a": 0.0}, {"b": 90.0}) == [0.0]  # nothing says where the 90 came from
    assert fit_flows([("a", "b")], {"a": 7.0}, {}) == [7.0]


@given(
    st.sampled_from(["shuffle", "fields", "all", "global", "forward"]),
    st.lists(st.floats(0, 1e12), min_size=1, max_size=5),
    st.data(),
)
def test_shares_of_pairs_add_up(grouping: str, sent: list[float], data: st.DataObject) -> None:
    size = len(sent) if grouping == "forward" else data.draw(st.integers(1, 5))
    received = data.draw(st.lists(st.floats(0, 1e12), min_size=size, max_size=size))
    shares = list(pair_shares(grouping, sent, received))
    assert math.fsum(share for *_, share in shares) == pytest.approx(1.0)
    if grouping == "forward":
        assert all(i == j for i, j, _ in shares)
    if grouping == "global":
        assert {j for _, j, _ in shares} == {0}


def test_pairs_by_hand() -> None:
    # 3/4 of what left came from task 0, all of it went to task 1.
    assert list(pair_shares("fields", [3, 1], [0, 5])) == [(0, 1, 0.75), (1, 1, 0.25)]
    assert list(pair_shares("shuffle", [0, 0], [0])) == [(0, 0, 0.5), (1, 0, 0.5)]


def test_names_are_ours_and_used_once() -> None:
    names = Names()
    assert [names.give(text) for text in ("a/b", "a|b", "a|b (2)", "a\nb", "", "")] == [
        *("a|b", "a|b (2)", "a|b (2) (2)", "a b", "unnamed", "unnamed (2)"),
    ]
    assert len(plain_name("x" * 1000)) == 80


def test_streams_between_the_same_operators_are_one_edge_and_too_many_pairs_are_refused() -> None:
    found = [Found("a", (0.5, None), source=True), Found("b", (0.25,), source=False)]
    flow = Flow("a", "b", "shuffle", 8.0, 2.0, (1.0, 1.0), (1.0,))
    imported = assemble("two", found, [flow, flow], ["said"], unknown_load=0.125)
    assert [(edge.source, edge.target, edge.rate, edge.tuples) for edge in imported.profile.edges] == [
        ("a/0", "b/0", 8.0, 2.0),
        ("a/1", "b/0", 8.0, 2.0),
    ]
    assert imported.graph.operators[0].load == (0.5, 0.125)
    assert set(imported.profile.tasks) == {"a/0", "b/0"}
    assert imported.notes[0] == "said"
    assert "nobody measured the load of 'a' (0.125)" in imported.notes[1]
    wide = (1.0,) * 1000
    with pytest.raises(InvalidInput, match=f"1000000 pairs of tasks; the limit of an import is {PAIRS_MAX}"):
        assemble("wide", [], [Flow("a", "b", "shuffle", 1.0, 1.0, wide, wide)], [])
