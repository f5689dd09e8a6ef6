"""Nexmark's windows: q5, q7, q8, q11 and q12."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import penstock as ps
from penstock_lab.nexmark.query import Query, Tables

TEN = ps.tumbling("10 seconds")
GAP = timedelta(seconds=10)


def q5(tables: Tables) -> ps.DataStream:
    """The auctions with most bids in the last ten seconds, every two seconds; several where they are equal."""
    bids = tables.bid().event_time("dateTime")
    counts = bids.key_by("auction").aggregate(
        num="count(*)", window=ps.sliding("10 seconds", "2 seconds"), tasks=tables.tasks
    )
    named = counts.rename({"window_start": "starttime", "window_end": "endtime"}, tasks=tables.tasks)
    every = ps.tumbling("2 seconds")
    most = (
        named.key_by("starttime").aggregate(most="max(num)", window=every).select("window_start", "starttime", "most")
    )
    found = named.key_by("starttime", "num").join(
        most.rename({"window_start": "at"}).key_by("starttime", "most"), window=every
    )
    return found.select("auction", "num", "starttime", "endtime")


def q7(tables: Tables) -> ps.DataStream:
    """The highest bid of every ten seconds: first of each auction, on all workers, then of all."""
    bids = tables.bid().event_time("dateTime")
    best = bids.key_by("auction").aggregate(
        price="max(price)",
        bidder="max_by(bidder, price)",
        dateTime="max_by(dateTime, price)",
        extra="max_by(extra, price)",
        window=TEN,
        tasks=tables.tasks,
    )
    return best.top(1, by="price").select("auction", "price", "bidder", "dateTime", "extra")


def q7_join(tables: Tables) -> ps.DataStream:
    """The highest bids of every ten seconds; all of them where several are as high."""
    bids = tables.bid().event_time("dateTime")
    prices = bids.key_by("auction").aggregate(price="max(price)", window=TEN, tasks=tables.tasks)
    highest = prices.top(1, by="price").rename({"window_start": "at"}).select("at", "price")
    asked = bids.select("auction", "price", "bidder", "dateTime", "extra", tasks=tables.tasks)
    found = asked.key_by("price").join(highest.key_by("price"), window=TEN, tasks=tables.tasks)
    return found.select("auction", "price", "bidder", "dateTime", "extra", tasks=tables.tasks)


def q8(tables: Tables) -> ps.DataStream:
    """People who sold something within the window of ten seconds in which they registered."""
    auctions = tables.auction().event_time("dateTime")
    sellers = auctions.key_by("seller").count(window=TEN, tasks=tables.tasks)
    sold = sellers.rename({"window_start": "at"}, tasks=tables.tasks).select("seller", "at", tasks=tables.tasks)
    people = tables.person().event_time("dateTime").select("id", "name", "dateTime", tasks=tables.tasks)
    found = people.key_by("id").join(sold.key_by("seller"), window=TEN, tasks=tables.tasks)
    return found.select("id", "name", "window_start", tasks=tables.tasks).rename({"window_start": "starttime"})


class Sessions(ps.Stateful):
    """Bids of one bidder with less than ten seconds between them, counted when ten seconds have passed without one."""

    schema = "bidder bigint, bid_count bigint, starttime timestamp, endtime timestamp"

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401 - any values
        """One more bid; a timer that is already set checks again when it fires."""
        at = row.dateTime
        if not state:
            state["start"], state["bids"] = at, 0
            timers.at(at + GAP)
        state["bids"] += 1
        state["last"] = at

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401 - any values
        """Ten seconds after some bid of the session; rows and timers come in order of time."""
        ends = state["last"] + GAP
        if time < ends:
            timers.at(ends)
        else:
            emit((key, state["bids"], state["start"], ends))
            state.clear()


def q11(tables: Tables) -> ps.DataStream:
    """Bids of each user's sessions."""
    # A user's operator may look at every column, so the select decides which columns are read, sent and sorted.
    bids = tables.bid().event_time("dateTime").select("bidder", "dateTime", tasks=tables.tasks)
    return bids.key_by("bidder").process(Sessions, ordered=True, tasks=tables.tasks)


def q12(tables: Tables) -> ps.DataStream:
    """Bids of each user in ten seconds of the worker's clock."""
    clock = ps.tumbling("10 seconds", time="processing")
    return tables.bid().key_by("bidder").aggregate(bid_count="count(*)", window=clock, tasks=tables.tasks)


QUERIES = (
    Query(
        "q5",
        "hot items",
        "window",
        ("bid",),
        """
    with counts as (
        select auction, count(*) as num, window.start as starttime, window.end as endtime
        from bid group by auction, window(dateTime, '10 seconds', '2 seconds')
    )
    select auction, num, c.starttime, c.endtime
    from counts c join (select starttime, max(num) as most from counts group by starttime) m
        on c.starttime = m.starttime and c.num = m.most""",
        {"window": q5},
    ),
    Query(
        "q7",
        "highest bid",
        "window",
        ("bid",),
        """
    select b.auction, b.price, b.bidder, b.dateTime, b.extra
    from bid b join (
        select max(price) as price, window.start as start, window.end as end
        from bid group by window(dateTime, '10 seconds')
    ) m on b.price = m.price and b.dateTime >= m.start and b.dateTime < m.end""",
        {"max_by": q7, "join": q7_join},
        note="max_by takes one of equal bids; a join with the highest price takes all, as the query says",
    ),
    Query(
        "q8",
        "monitor new users",
        "join",
        ("person", "auction"),
        """
    select p.id, p.name, p.starttime
    from (
        select id, name, window.start as starttime from person group by id, name, window(dateTime, '10 seconds')
    ) p join (
        select seller, window.start as starttime from auction group by seller, window(dateTime, '10 seconds')
    ) a on p.id = a.seller and p.starttime = a.starttime""",
        {"window": q8},
    ),
    Query(
        "q11",
        "user sessions",
        "window",
        ("bid",),
        """
    select bidder, count(*) as bid_count, session_window.start as starttime, session_window.end as endtime
    from bid group by bidder, session_window(dateTime, '10 seconds')""",
        {"process": q11},
        note="session windows are written as an operator with state: windows of our own are tumbling or sliding",
    ),
    Query(
        "q12",
        "processing-time windows",
        "window",
        ("bid",),
        """
    select window.start as window_start, window.end as window_end, bidder, count(*) as bid_count
    from bid group by bidder, window(current_timestamp(), '10 seconds')""",
        {"window": q12},
        compared="select bidder, sum(bid_count) as bid_count from answer group by bidder",
        note="windows are the clock's, so each bidder's total is what is compared",
    ),
)
