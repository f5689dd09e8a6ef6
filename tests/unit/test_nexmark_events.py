"""Nexmark's events: the published proportions, schema and hot ratios, times in order, one seed one set of events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.errors import InvalidInput
from penstock_lab.nexmark.events import BLOCK_EVENTS, SCHEMAS, START_US, Events
from penstock_lab.nexmark.queries import QUERIES, UNSUPPORTED
from penstock_lab.nexmark.tables import TABLES, write_tables

EVENTS = Events(60_000)
BLOCKS = [EVENTS.block(number) for number in range(EVENTS.blocks)]
TABLE = {name: pa.Table.from_batches([block[name] for block in BLOCKS]) for name in TABLES}


def micros(column: pa.ChunkedArray) -> np.ndarray:
    return column.cast(pa.int64()).to_numpy()


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_46_are_bids() -> None:
    assert {name: table.num_rows for name, table in TABLE.items()} == {"person": 1200, "auction": 3600, "bid": 55_200}
    assert EVENTS.rows() == {"person": 1200, "auction": 3600, "bid": 55_200}
    # Event 0 is a person, 1 to 3 are auctions, 4 is the first bid.
    assert Events(3).rows() == {"person": 1, "auction": 2, "bid": 0}
    assert Events(57).rows() == {"person": 2, "auction": 6, "bid": 49}


def test_columns_are_the_published_ones_and_none_is_null() -> None:
    assert TABLE["bid"].column_names == ["auction", "bidder", "price", "channel", "url", "dateTime", "extra"]
    auction = "id itemName description initialBid reserve dateTime expires seller category extra"
    assert " ".join(TABLE["auction"].column_names) == auction
    assert " ".join(TABLE["person"].column_names) == "id name emailAddress creditCard city state dateTime extra"
    for name, table in TABLE.items():
        table.validate(full=True)
        assert table.schema.equals(SCHEMAS[name])
        assert all(column.null_count == 0 for column in table.columns)


def test_events_come_in_order_of_time_at_the_rate() -> None:
    times = np.sort(np.concatenate([micros(table["dateTime"]) for table in TABLE.values()]))
    assert np.array_equal(times, START_US + np.arange(60_000) * 100)
    for table in TABLE.values():
        assert (np.diff(micros(table["dateTime"])) > 0).all()
    auctions = TABLE["auction"]
    assert (micros(auctions["expires"]) > micros(auctions["dateTime"])).all()
    assert len(pc.unique(auctions["expires"])) == auctions.num_rows


def test_numbers_are_given_once_and_in_order() -> None:
    assert TABLE["person"]["id"].to_pylist() == list(range(1000, 2200))
    assert TABLE["auction"]["id"].to_pylist() == list(range(1000, 4600))


def test_half_of_the_bids_and_three_quarters_of_people_are_hot() -> None:
    bids, auctions = TABLE["bid"], TABLE["auction"]
    share = {
        "auction": pc.mean(pc.equal(_rest(bids["auction"]), 0)).as_py(),
        "bidder": pc.mean(pc.equal(_rest(bids["bidder"]), 1)).as_py(),
        "seller": pc.mean(pc.equal(_rest(auctions["seller"]), 0)).as_py(),
    }
    assert share == pytest.approx({"auction": 0.505, "bidder": 0.7525, "seller": 0.7525}, abs=0.03)
    hot = pc.is_in(bids["channel"], pa.array(["Google", "Facebook", "Baidu", "Apple"]))
    assert pc.mean(hot).as_py() == pytest.approx(0.5, abs=0.02)


def _rest(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, 100), 100))


def test_bids_are_for_auctions_that_are_open_or_about_to_be() -> None:
    bids = TABLE["bid"]
    event = (micros(bids["dateTime"]) - START_US) // 100
    newest = 1000 + 3 * (event // 50) + 2
    ahead = bids["auction"].to_numpy() - newest
    assert ahead.max() <= 10
    assert ahead.min() >= -100


def test_prices_spread_over_six_orders_of_magnitude() -> None:
    prices = TABLE["bid"]["price"].to_numpy()
    assert prices.min() >= 100
    assert prices.max() <= 100_000_000
    assert np.median(prices) == pytest.approx(100_000, rel=0.1)


def test_a_seed_always_makes_the_same_events_and_another_makes_others() -> None:
    assert Events(500).block(0)["bid"].equals(Events(500).block(0)["bid"])
    assert not Events(500, seed=1).block(0)["bid"].equals(Events(500).block(0)["bid"])
    # Event n does not depend on how many there are.
    assert Events(BLOCK_EVENTS + 1000).block(0)["bid"].slice(0, 460).equals(Events(500).block(0)["bid"])
    assert Events(60_000).block(1)["auction"].equals(Events(60_000).block(1)["auction"])


@pytest.mark.parametrize("files", [1, 3, 7])
def test_files_hold_every_row_once_in_order(tmp_path: Path, files: int) -> None:
    paths = write_tables(EVENTS, tmp_path, files)
    for name, path in paths.items():
        parts = sorted(path.iterdir())
        assert len(parts) == files
        assert pa.concat_tables(pq.read_table(part) for part in parts).equals(TABLE[name])


def test_files_of_all_tables_cover_the_same_time(tmp_path: Path) -> None:
    paths = write_tables(Events(1000), tmp_path, 2)
    ends = {name: micros(pq.read_table(path / "00000.parquet")["dateTime"]).max() for name, path in paths.items()}
    assert max(ends.values()) < START_US + 500 * 100
    assert min(ends.values()) >= START_US + 450 * 100


@pytest.mark.parametrize("wrong", [Events, lambda count: Events(10, per_second=count)])
def test_numbers_out_of_range_are_refused(wrong: type[Events]) -> None:
    with pytest.raises(InvalidInput, match="-1 events"):
        wrong(-1)


def test_no_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="0 files"):
        write_tables(EVENTS, tmp_path, 0)


def test_every_query_of_the_benchmark_is_there_or_told() -> None:
    assert [*QUERIES] == sorted(QUERIES, key=lambda name: int(name[1:]))
    assert {*QUERIES, *UNSUPPORTED} == {f"q{number}" for number in range(23)}
    for query in QUERIES.values():
        assert query.forms or query.note, f"{query.name} neither can be said nor says why"
