"""Nexmark's queries that look at one bid at a time: q0, q1, q2, q13, q14, q21 and q22."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock.flow.schema import parse_schema
from penstock_lab.nexmark.query import Query, Tables

EUROS = parse_schema("auction bigint, bidder bigint, price decimal(24,3), dateTime timestamp, extra string")
RATE = Decimal("0.908")
SIDE = 10_000  # keys of q13's table
SIDE_SQL = f"select id as key, concat('value-', id) as value from range({SIDE})"  # noqa: S608 - our own text
WITH_SIDE = parse_schema("auction bigint, bidder bigint, price bigint, dateTime timestamp, value string")
TIMED = parse_schema(
    "auction bigint, bidder bigint, price decimal(24,3), bidTimeType string, dateTime timestamp, extra string, "
    "c_counts int"
)
CHANNELLED = parse_schema("auction bigint, bidder bigint, price bigint, channel string, channel_id string")
FOLDERS = parse_schema(
    "auction bigint, bidder bigint, price bigint, channel string, dir1 string, dir2 string, dir3 string"
)
CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
TIME_TYPE = """case when hour(dateTime) >= 8 and hour(dateTime) <= 18 then 'dayTime'
    when hour(dateTime) <= 6 or hour(dateTime) >= 20 then 'nightTime' else 'otherTime' end"""
CHANNEL_ID_SQL = """case lower(channel)
    when 'apple' then '0' when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
    else regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) end as channel_id"""
CHANNEL_ID = re.compile("(&|^)channel_id=([^&]*)")


def q0(tables: Tables) -> ps.DataStream:
    """Everything passes through."""
    return tables.bid().select("auction", "bidder", "price", "dateTime", "extra", tasks=tables.tasks)


def q1(tables: Tables) -> ps.DataStream:
    """Prices in euros."""
    euros = "0.908 * price as price"
    return tables.bid().select("auction", "bidder", euros, "dateTime", "extra", tasks=tables.tasks)


def q2(tables: Tables) -> ps.DataStream:
    """Bids for some auctions."""
    return (
        tables.bid().where("mod(auction, 123) = 0", tasks=tables.tasks).select("auction", "price", tasks=tables.tasks)
    )


def q14(tables: Tables) -> ps.DataStream:
    """A calculation for bids in a range."""
    bids = tables.bid().where("0.908 * price > 1000000 and 0.908 * price < 50000000", tasks=tables.tasks)
    counted = "length(extra) - length(replace(extra, 'c', '')) as c_counts"
    columns = (
        "auction",
        "bidder",
        "0.908 * price as price",
        f"{TIME_TYPE} as bidTimeType",
        "dateTime",
        "extra",
        counted,
    )
    return bids.select(*columns, tasks=tables.tasks)


def q21(tables: Tables) -> ps.DataStream:
    """Bids with the numbers of their channels."""
    bids = tables.bid().select("auction", "bidder", "price", "channel", CHANNEL_ID_SQL, tasks=tables.tasks)
    return bids.where("channel_id <> ''", tasks=tables.tasks)


def q22(tables: Tables) -> ps.DataStream:
    """Bids with the folders of their addresses."""
    folders = [f"split_part(url, '/', {place}) as dir{place - 3}" for place in (4, 5, 6)]
    return tables.bid().select("auction", "bidder", "price", "channel", *folders, tasks=tables.tasks)


# -- q1: currency ----------------------------------------------------------------------------------------------------


def in_euros(prices: pa.Array) -> pa.Array:
    """Dollars as euros, exactly."""
    return pc.multiply(pc.cast(prices, pa.decimal128(20, 0)), pa.scalar(RATE, pa.decimal128(3, 3)))


def to_euros(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of bids."""
    columns = [batch["auction"], batch["bidder"], in_euros(batch["price"]), batch["dateTime"], batch["extra"]]
    return pa.RecordBatch.from_arrays(columns, schema=EUROS)


def bid_to_euros(bid: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a row
    """One bid."""
    return bid.auction, bid.bidder, RATE * bid.price, bid.dateTime, bid.extra


def q1_batch(tables: Tables) -> ps.DataStream:
    """Prices in euros."""
    return tables.bid().map_batches(to_euros, EUROS, tasks=tables.tasks)


def q1_row(tables: Tables) -> ps.DataStream:
    """Prices in euros."""
    return tables.bid().map(bid_to_euros, EUROS, tasks=tables.tasks)


# -- q2: selection ---------------------------------------------------------------------------------------------------


def every_123rd(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Bids for auctions that 123 divides."""
    auctions = batch["auction"]
    whole = pc.multiply(pc.divide(auctions, 123), 123)
    return batch.select(["auction", "price"]).filter(pc.equal(whole, auctions))


def q2_batch(tables: Tables) -> ps.DataStream:
    """Bids for some auctions."""
    return tables.bid().map_batches(every_123rd, "auction bigint, price bigint", tasks=tables.tasks)


def q2_row(tables: Tables) -> ps.DataStream:
    """Bids for some auctions."""
    found = tables.bid().filter(lambda bid: bid.auction % 123 == 0, tasks=tables.tasks)
    return found.select("auction", "price", tasks=tables.tasks)


# -- q13: a table at the side ----------------------------------------------------------------------------------------


class SideTable:
    """The table at the side, looked up for a batch at a time."""

    def __init__(self) -> None:
        self.keys = pa.array(range(SIDE), pa.int64())
        self.values = pa.array([f"value-{key}" for key in range(SIDE)])

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bids with the value that belongs to them."""
        auctions = batch["auction"]
        key = pc.subtract(auctions, pc.multiply(pc.divide(auctions, SIDE), SIDE))
        place = pc.index_in(key, self.keys)
        columns = [batch["auction"], batch["bidder"], batch["price"], batch["dateTime"], self.values.take(place)]
        return pa.RecordBatch.from_arrays(columns, schema=WITH_SIDE).filter(pc.is_valid(place))


def q13(tables: Tables) -> ps.DataStream:
    """Bids with a value from a table that does not change."""
    return tables.bid().map_batches(SideTable(), WITH_SIDE, tasks=tables.tasks)


# -- q14: calculation ------------------------------------------------------------------------------------------------


def time_type(hour: int) -> str:
    """The time of day as the query names it."""
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


def calculated(bid: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - a row
    """One bid, if its price is in range."""
    price = RATE * bid.price
    if not 1_000_000 < price < 50_000_000:
        return []
    kind = time_type(bid.dateTime.hour)
    return [(bid.auction, bid.bidder, price, kind, bid.dateTime, bid.extra, bid.extra.count("c"))]


def calculate(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of bids."""
    price = in_euros(batch["price"])
    kept = batch.append_column("euros", price).filter(
        pc.and_(pc.greater(price, Decimal(1_000_000)), pc.less(price, Decimal(50_000_000)))
    )
    hour = pc.hour(kept["dateTime"])
    day = pc.and_(pc.greater_equal(hour, 8), pc.less_equal(hour, 18))
    night = pc.or_(pc.less_equal(hour, 6), pc.greater_equal(hour, 20))
    kind = pc.if_else(day, "dayTime", pc.if_else(night, "nightTime", "otherTime"))
    counted = pc.count_substring(kept["extra"], "c")
    columns = [kept["auction"], kept["bidder"], kept["euros"], kind, kept["dateTime"], kept["extra"], counted]
    return pa.RecordBatch.from_arrays(columns, schema=TIMED)


def q14_batch(tables: Tables) -> ps.DataStream:
    """A calculation with a function of the user's."""
    return tables.bid().map_batches(calculate, TIMED, tasks=tables.tasks)


def q14_row(tables: Tables) -> ps.DataStream:
    """A calculation with a function of the user's."""
    return tables.bid().flat_map(calculated, TIMED, tasks=tables.tasks)


# -- q21, q22: addresses ---------------------------------------------------------------------------------------------


def channel_id(bid: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - a row
    """A bid with the number of its channel, if that is known."""
    known = CHANNEL_IDS.get(bid.channel.lower())
    if known is None:
        match = CHANNEL_ID.search(bid.url)
        known = match.group(2) if match else None
    return [(bid.auction, bid.bidder, bid.price, bid.channel, known)] if known else []


def channel_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of bids with the numbers of their channels."""
    names = pa.array(list(CHANNEL_IDS))
    hot = pa.array(list(CHANNEL_IDS.values())).take(pc.index_in(pc.utf8_lower(batch["channel"]), names))
    found = pc.struct_field(pc.extract_regex(batch["url"], "(?:&|^)channel_id=(?P<id>[^&]*)"), "id")
    known = pc.coalesce(hot, found)
    columns = [batch["auction"], batch["bidder"], batch["price"], batch["channel"], known]
    return pa.RecordBatch.from_arrays(columns, schema=CHANNELLED).filter(pc.greater(pc.utf8_length(known), 0))


def q21_batch(tables: Tables) -> ps.DataStream:
    """Bids with the numbers of their channels."""
    return tables.bid().map_batches(channel_ids, CHANNELLED, tasks=tables.tasks)


def q21_row(tables: Tables) -> ps.DataStream:
    """Bids with the numbers of their channels."""
    return tables.bid().flat_map(channel_id, CHANNELLED, tasks=tables.tasks)


def folders(bid: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a row
    """A bid with the folders of its address."""
    return bid.auction, bid.bidder, bid.price, bid.channel, *bid.url.split("/")[3:6]


def batch_folders(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of bids with the folders of their addresses."""
    parts = pc.split_pattern(batch["url"], "/")
    columns = [batch[name] for name in ("auction", "bidder", "price", "channel")]
    columns += [pc.list_element(parts, place) for place in (3, 4, 5)]
    return pa.RecordBatch.from_arrays(columns, schema=FOLDERS)


def q22_batch(tables: Tables) -> ps.DataStream:
    """Bids with the folders of their addresses."""
    return tables.bid().map_batches(batch_folders, FOLDERS, tasks=tables.tasks)


def q22_row(tables: Tables) -> ps.DataStream:
    """Bids with the folders of their addresses."""
    return tables.bid().map(folders, FOLDERS, tasks=tables.tasks)


def _bids(name: str, title: str, sql: str, **forms: Any) -> Query:  # noqa: ANN401 - builders
    return Query(name, title, "rows", ("bid",), sql, forms)


QUERIES = (
    _bids("q0", "pass through", "select auction, bidder, price, dateTime, extra from bid", select=q0),
    _bids(
        "q1",
        "currency conversion",
        "select auction, bidder, 0.908 * price as price, dateTime, extra from bid",
        expressions=q1,
        batch=q1_batch,
        row=q1_row,
    ),
    _bids(
        "q2",
        "selection",
        "select auction, price from bid where mod(auction, 123) = 0",
        expressions=q2,
        batch=q2_batch,
        row=q2_row,
    ),
    _bids(
        "q13",
        "bounded side input join",
        f"select auction, bidder, price, dateTime, value from bid join ({SIDE_SQL}) on mod(auction, {SIDE}) = key",  # noqa: S608
        batch=q13,
    ),
    _bids(
        "q14",
        "calculation",
        """
    select auction, bidder, 0.908 * price as price,
        case when hour(dateTime) >= 8 and hour(dateTime) <= 18 then 'dayTime'
            when hour(dateTime) <= 6 or hour(dateTime) >= 20 then 'nightTime' else 'otherTime' end as bidTimeType,
        dateTime, extra, length(extra) - length(replace(extra, 'c', '')) as c_counts
    from bid where 0.908 * price > 1000000 and 0.908 * price < 50000000""",
        expressions=q14,
        batch=q14_batch,
        row=q14_row,
    ),
    _bids(
        "q21",
        "add channel id",
        r"""
    select auction, bidder, price, channel,
        case lower(channel) when 'apple' then '0' when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
            else regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) end as channel_id
    from bid
    where regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
        or lower(channel) in ('apple', 'google', 'facebook', 'baidu')""",
        expressions=q21,
        batch=q21_batch,
        row=q21_row,
    ),
    _bids(
        "q22",
        "get url directories",
        """
    select auction, bidder, price, channel, split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2,
        split_part(url, '/', 6) as dir3
    from bid""",
        expressions=q22,
        batch=q22_batch,
        row=q22_row,
    ),
)
