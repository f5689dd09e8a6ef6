"""Nexmark's running figures for each day, channel and auction, last bids and best bids: q15 to q19."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock_lab.nexmark.query import Query, Tables

RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 and price < 1000000", "rank3": "price >= 1000000"}


def bids_by_rank() -> dict[str, Any]:
    """How many bids there are, in all and by price."""
    ranked = {f"{rank}_bids": f"count(*) filter (where {prices})" for rank, prices in RANKS.items()}
    return {"total_bids": "count(*)", **ranked}


def distinct_by_rank(what: str, column: str) -> dict[str, Any]:
    """How many different values there are, in all and by price."""
    counted = f"count(distinct {column})"
    ranked = {f"{rank}_{what}": f"{counted} filter (where {prices})" for rank, prices in RANKS.items()}
    return {f"total_{what}": counted, **ranked}


STATISTICS: dict[str, Any] = {
    **bids_by_rank(),
    **distinct_by_rank("bidders", "bidder"),
    **distinct_by_rank("auctions", "auction"),
}
PRICES: dict[str, Any] = {
    "min_price": "min(price)",
    "max_price": "max(price)",
    "avg_price": "avg(price)",
    "sum_price": "sum(price)",
}
DAY = "date_format(dateTime, 'yyyy-MM-dd') as day"


def q15(tables: Tables) -> ps.DataStream:
    """Bids, bidders and auctions of each day."""
    bids = tables.bid().select("bidder", "auction", "price", DAY, tasks=tables.tasks)
    return bids.key_by("day").aggregate(**STATISTICS)


def q16(tables: Tables) -> ps.DataStream:
    """The same for each channel."""
    minute = "date_format(dateTime, 'HH:mm') as minute"
    bids = tables.bid().select("channel", "bidder", "auction", "price", DAY, minute, tasks=tables.tasks)
    return bids.key_by("channel", "day").aggregate(minute="max(minute)", **STATISTICS, tasks=tables.tasks)


def q17(tables: Tables) -> ps.DataStream:
    """Bids and prices of each auction and day."""
    bids = tables.bid().select("auction", "price", DAY, tasks=tables.tasks)
    return bids.key_by("auction", "day").aggregate(**bids_by_rank(), **PRICES, tasks=tables.tasks)


def q18(tables: Tables) -> ps.DataStream:
    """The last bid of each bidder for each auction."""
    last: dict[str, Any] = {name: f"max_by({name}, dateTime)" for name in ("price", "channel", "url")}
    found = (
        tables.bid()
        .key_by("bidder", "auction")
        .aggregate(**last, dateTime="max(dateTime)", extra="max_by(extra, dateTime)", tasks=tables.tasks)
    )
    return found.select("auction", "bidder", "price", "channel", "url", "dateTime", "extra", tasks=tables.tasks)


def q19(tables: Tables) -> ps.DataStream:
    """The ten best bids of each auction."""
    # Equal prices are ranked by the columns beside them: the earlier bid first.
    bids = tables.bid().select("auction", "price", "dateTime", "bidder", "channel", "url", "extra", tasks=tables.tasks)
    best = bids.key_by("auction").top_per_key(10, by="price", tasks=tables.tasks)
    return best.select("auction", "bidder", "price", "channel", "url", "dateTime", "extra", tasks=tables.tasks)


def _listed(columns: dict[str, Any]) -> str:
    return ",\n        ".join(f"{text} as {name}" for name, text in columns.items())


QUERIES = (
    Query(
        "q15",
        "bidding statistics",
        "keyed",
        ("bid",),
        f"""
    select date_format(dateTime, 'yyyy-MM-dd') as day,
        {_listed(STATISTICS)}
    from bid group by day""",  # noqa: S608 - our own text
        {"expressions": q15},
    ),
    Query(
        "q16",
        "channel statistics",
        "keyed",
        ("bid",),
        f"""
    select channel, date_format(dateTime, 'yyyy-MM-dd') as day, max(date_format(dateTime, 'HH:mm')) as minute,
        {_listed(STATISTICS)}
    from bid group by channel, day""",  # noqa: S608 - our own text
        {"expressions": q16},
    ),
    Query(
        "q17",
        "auction statistics",
        "keyed",
        ("bid",),
        f"""
    select auction, date_format(dateTime, 'yyyy-MM-dd') as day,
        {_listed({**bids_by_rank(), **PRICES})}
    from bid group by auction, day""",  # noqa: S608 - our own text
        {"expressions": q17},
    ),
    Query(
        "q18",
        "find last bid",
        "keyed",
        ("bid",),
        """
    select auction, bidder, price, channel, url, dateTime, extra
    from (select *, row_number() over (partition by bidder, auction order by dateTime desc) as rank from bid)
    where rank <= 1""",
        {"expressions": q18},
    ),
    Query(
        "q19",
        "auction top 10",
        "keyed",
        ("bid",),
        """
    select * from (
        select *, row_number() over (partition by auction order by price desc, dateTime) as rank_number from bid
    )
    where rank_number <= 10""",
        {"top_per_key": q19},
        compared="select auction, bidder, price, channel, url, dateTime, extra from answer",
        note="the best ten come without a column of their ranks",
    ),
)
