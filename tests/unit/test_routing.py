"""Groupings conserve rows, keep equal keys together, and refuse what they cannot route."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.model.topology import GROUPINGS
from penstock.run.dataflow import Grouping
from penstock.run.engine.routing import Router
from penstock.run.transport.wire import codec_of

keys = st.one_of(st.none(), st.text(max_size=3))
tables = st.lists(st.tuples(keys, st.integers(-5, 5)), max_size=120)


def batch_of(rows: list[tuple[str | None, int]]) -> pa.RecordBatch:
    names, numbers = [row[0] for row in rows], [row[1] for row in rows]
    return pa.RecordBatch.from_arrays(
        [pa.array(names, pa.string()), pa.array(numbers, pa.int64())], names=["name", "number"]
    )


def grouping_of(kind: str) -> Grouping:
    columns = ("name",) if kind in {"fields", "partial-key"} else ()
    return Grouping(kind, columns, (lambda row: abs(row["number"]) % 2) if kind == "direct" else None)


def router(kind: str, targets: int, local: list[bool] | None = None, index: int = 0) -> Router:
    return Router(grouping_of(kind), targets=range(targets), local=local or [False] * targets, index=index, tasks=4)


@pytest.mark.parametrize("kind", [kind for kind in GROUPINGS if kind != "all"])
@given(batches=st.lists(tables, max_size=4), targets=st.integers(2, 5), index=st.integers(0, 3))
def test_every_row_goes_to_exactly_one_target(kind: str, batches: list, targets: int, index: int) -> None:
    route = router(kind, targets, index=index)
    sent: Counter = Counter()
    for rows in batches:
        for position, part in route.route(batch_of(rows)):
            assert 0 <= position < targets
            assert part.num_rows
            sent.update(zip(*(column.to_pylist() for column in part.columns), strict=True))
    assert sent == Counter(row for rows in batches for row in rows)


@pytest.mark.parametrize("kind", ["fields", "direct", "partial-key"])
@given(batches=st.lists(tables, max_size=4), targets=st.integers(2, 5))
def test_images_hold_what_the_batches_would(kind: str, batches: list, targets: int) -> None:
    batched, imaged = router(kind, targets), router(kind, targets)
    assert imaged.looks_into_rows
    for rows in batches:
        batch = batch_of(rows)
        codec = codec_of(batch.schema)
        parts = {position: image.open(codec) for position, image in imaged.route_images(batch)}
        expected = dict(batched.route(batch))
        assert parts.keys() == expected.keys()
        assert all(parts[position].equals(expected[position]) for position in parts)


@given(rows=tables.filter(bool), targets=st.integers(1, 5))
def test_all_sends_everything_everywhere(rows: list, targets: int) -> None:
    batch = batch_of(rows)
    assert [(p, b.equals(batch)) for p, b in router("all", targets).route(batch)] == [(p, True) for p in range(targets)]


@given(batches=st.lists(tables, min_size=1, max_size=4), targets=st.integers(1, 6))
def test_fields_sends_equal_keys_to_one_target_whoever_sends(batches: list, targets: int) -> None:
    home: dict[str | None, int] = {}
    for sender, rows in enumerate(batches):
        for position, part in router("fields", targets, index=sender).route(batch_of(rows)):
            for name in part.column("name").to_pylist():
                assert home.setdefault(name, position) == position


@given(batches=st.lists(tables, min_size=1, max_size=6), targets=st.integers(2, 6))
def test_partial_key_gives_a_key_at_most_two_targets(batches: list, targets: int) -> None:
    homes: dict[str | None, set[int]] = {}
    for sender in range(2):
        route = router("partial-key", targets, index=sender)
        for rows in batches:
            for position, part in route.route(batch_of(rows)):
                for name in part.column("name").to_pylist():
                    homes.setdefault(name, set()).add(position)
    assert all(len(found) <= 2 for found in homes.values())


def test_partial_key_shares_one_hot_key_between_two_targets() -> None:
    route = router("partial-key", 4)
    rows: Counter[int] = Counter()
    for _ in range(100):
        for position, part in route.route(batch_of([("hot", 1)] * 10)):
            rows[position] += part.num_rows
    assert sorted(rows.values()) == [500, 500]


def test_shuffle_is_even_and_senders_begin_at_different_targets() -> None:
    rows: Counter[int] = Counter()
    first = set()
    for sender in range(3):
        route = router("shuffle", 3, index=sender)
        for turn in range(30):
            for position, part in route.route(batch_of([("a", 1)])):
                rows[position] += part.num_rows
                if turn == 0:
                    first.add(position)
    assert rows == {0: 30, 1: 30, 2: 30}
    assert first == {0, 1, 2}


def test_shuffle_cuts_a_large_batch_for_everybody() -> None:
    parts = router("shuffle", 4).route(batch_of([("a", i) for i in range(4000)]))
    assert sorted((position, part.num_rows) for position, part in parts) == [(p, 1000) for p in range(4)]


def test_global_goes_to_the_first() -> None:
    assert [p for p, _ in router("global", 3).route(batch_of([("a", 1)]))] == [0]


def test_local_or_shuffle_stays_local_where_it_can_and_follows_new_targets() -> None:
    route = router("local-or-shuffle", 4, [False, True, False, True])
    found = {position for _ in range(8) for position, _ in route.route(batch_of([("a", 1)]))}
    assert found == {1, 3}
    route.retarget(range(4), [False] * 4)
    assert {position for _ in range(8) for position, _ in route.route(batch_of([("a", 1)]))} == {0, 1, 2, 3}


@pytest.mark.parametrize("chosen", [-1, 2, 99])
def test_direct_refuses_a_task_that_is_not_there(chosen: int) -> None:
    route = Router(Grouping("direct", choose=lambda row: chosen), targets=range(2), local=[True] * 2, index=0, tasks=1)
    with pytest.raises(InvalidInput, match=rf"chose task {chosen} .*tasks 0 to 1"):
        route.route(batch_of([("a", 1)]))


def test_an_empty_batch_goes_nowhere() -> None:
    assert [router(kind, 3).route(batch_of([])) for kind in GROUPINGS] == [[]] * len(GROUPINGS)
