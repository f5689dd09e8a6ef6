"""Nexmark's joins without windows: q3, q4, q6, q9 and q20.

Our joins are over windows, because joins without windows need unbounded state. These queries are written as a union of
both sides in one schema, and an operator with state for each key. It keeps rows of either side that have no partner
yet, and forgets an auction when its time is over. Sources run side by side, so either side may come first.
"""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock.flow.schema import parse_schema, to_ddl, type_name
from penstock_lab.nexmark.events import AUCTION, BID
from penstock_lab.nexmark.query import Query, Tables

WINNERS = parse_schema(
    f"{to_ddl(AUCTION)}, auction bigint, bidder bigint, price bigint, bid_dateTime timestamp, bid_extra string"
)

# -- q3: local item suggestion ---------------------------------------------------------------------------------------


class LocalItems(ps.Stateful):
    """Joins a person with their auctions; rows that come first wait in the state."""

    schema = "name string, city string, state string, id bigint"

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401 - any values
        """A person, or an auction of that person."""
        if row.auction is None:
            state["person"] = (row.name, row.city, row.state)
            for auction in state.pop("waiting", ()):
                emit((*state["person"], auction))
        elif "person" in state:
            emit((*state["person"], row.auction))
        else:
            state.setdefault("waiting", []).append(row.auction)


def q3(tables: Tables) -> ps.DataStream:
    """Sellers in category 10 from three states."""
    people = tables.person().where("state in ('OR', 'ID', 'CA')", tasks=tables.tasks)
    auctions = tables.auction().where("category = 10", tasks=tables.tasks)
    people = people.select("id as person", "name", "city", "state", "bigint(null) as auction", tasks=tables.tasks)
    no_person = ("string(null) as name", "string(null) as city", "string(null) as state")
    auctions = auctions.select("seller as person", *no_person, "id as auction", tasks=tables.tasks)
    return people.union(auctions, tasks=tables.tasks).key_by("person").process(LocalItems, tasks=tables.tasks)


# -- q9, q4, q6: auctions and their bids -----------------------------------------------------------------------------

OF_AUCTION = dict.fromkeys(("itemName", "description"), "string")
OF_AUCTION |= {
    "initialBid": "bigint",
    "reserve": "bigint",
    "expires": "timestamp",
    "seller": "bigint",
    "category": "bigint",
}


def sales(tables: Tables, *of_auction: str, extra: tuple[str, ...] = ()) -> ps.KeyedStream:
    """Auctions and bids as one stream; a bid has null for an auction's columns, and an auction has null for a bid's."""
    auctions = tables.auction().event_time("dateTime")
    bids = tables.bid().event_time("dateTime")
    nothing = [f"{OF_AUCTION[name]}(null) as {name}" for name in of_auction]
    asked = ("bigint(null) as bidder", "bigint(null) as price")
    auctions = auctions.select("id", "dateTime", *extra, *of_auction, *asked, tasks=tables.tasks)
    bids = bids.select("auction as id", "dateTime", *extra, *nothing, "bidder", "price", tasks=tables.tasks)
    return auctions.union(bids, tasks=tables.tasks).key_by("id")


class Closing(ps.Stateful):
    """The best price of an auction when its time is over, if there were bids.

    Rows come in order of time, so an auction comes before every bid that counts. A bid without an auction in the state
    is too early or too late.
    """

    schema = "seller bigint, category bigint, expires timestamp, price bigint"

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401 - any values
        """An auction, or a bid."""
        price = row.price
        if price is None:
            state["auction"] = (row.seller, row.category, row.expires)
            state["price"] = 0
            timers.at(row.expires)
        elif price > state.get("price", price) and row.dateTime <= state["auction"][2]:
            state["price"] = price

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401 - any values
        """Time is over."""
        if state["price"]:
            emit((*state["auction"], state["price"]))
        state.clear()


class Winning(ps.Stateful):
    """The same with the whole auction and the best bid: the highest, of equal ones the first."""

    schema = WINNERS

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401 - any values
        """An auction, or a bid."""
        price = row.price
        if price is None:
            state["auction"] = tuple(getattr(row, name) for name in AUCTION.names)
            state["expires"], state["price"] = row.expires, 0
            timers.at(row.expires)
        elif price > state.get("price", price) and row.dateTime <= state["expires"]:
            state["price"] = price
            state["best"] = (key, row.bidder, price, row.dateTime, row.extra)

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401 - any values
        """Time is over."""
        if state["price"]:
            emit((*state["auction"], *state["best"]))
        state.clear()


def q9(tables: Tables) -> ps.DataStream:
    """Winning bids."""
    both = sales(tables, *OF_AUCTION, extra=("extra",))
    return both.process(Winning, ordered=True, tasks=tables.tasks)


def q4(tables: Tables) -> ps.DataStream:
    """The average closing price of each category."""
    closed = sales(tables, "seller", "category", "expires").process(Closing, ordered=True, tasks=tables.tasks)
    return closed.key_by("category").aggregate(final="avg(price)")


class LastTen(ps.Stateful):
    """The average price of a seller's last sales: this one and up to ten before it."""

    schema = "seller bigint, average double"

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401 - any values
        """One more sale, in order of closing."""
        prices = [*state.get("prices", ()), row.price][-11:]
        state["prices"] = prices
        emit((key, sum(prices) / len(prices)))


def q6(tables: Tables) -> ps.DataStream:
    """The average of each seller's last ten sales."""
    closed = sales(tables, "seller", "category", "expires").process(Closing, ordered=True, tasks=tables.tasks)
    return closed.event_time("expires").key_by("seller").process(LastTen, ordered=True, tasks=tables.tasks)


# -- q20: bids with their auctions -----------------------------------------------------------------------------------

EXPANDED = parse_schema(
    "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string, "
    "itemName string, description string, initialBid bigint, reserve bigint, a_dateTime timestamp, "
    "expires timestamp, seller bigint, category bigint, a_extra string"
)


class Expanded(ps.Stateful):
    """Bids of category 10 beside their auction; bids that came before the auction wait for it."""

    schema = EXPANDED

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401 - any values
        """An auction, or a bid."""
        if row.category is not None:
            state["wanted"] = row.category == 10
            state["auction"] = tuple(row)[len(BID) :] if state["wanted"] else None
            for bid in state.pop("waiting", ()):
                if state["wanted"]:
                    emit((*bid, *state["auction"]))
        elif "wanted" not in state:
            state.setdefault("waiting", []).append(tuple(row)[: len(BID)])
        elif state["wanted"]:
            emit((*tuple(row)[: len(BID)], *state["auction"]))


def q20(tables: Tables) -> ps.DataStream:
    """Bids of category 10 with what is sold."""
    renamed = {"a_dateTime": "dateTime", "a_extra": "extra"}
    of_bid, of_auction = EXPANDED.names[1 : len(BID)], EXPANDED.names[len(BID) :]
    no_bid = [f"{type_name(EXPANDED.field(name).type)}(null) as {name}" for name in of_bid]
    no_auction = [f"{type_name(EXPANDED.field(name).type)}(null) as {name}" for name in of_auction]
    has_auction = [f"{renamed.get(name, name)} as {name}" for name in of_auction]
    auctions = tables.auction().select("id as auction", *no_bid, *has_auction, tasks=tables.tasks)
    bids = tables.bid().select(*BID.names, *no_auction, tasks=tables.tasks)
    return bids.union(auctions, tasks=tables.tasks).key_by("auction").process(Expanded, tasks=tables.tasks)


Q9_SQL = """
    select id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra, auction, bidder,
        price, bid_dateTime, bid_extra
    from (
        select a.*, b.auction, b.bidder, b.price, b.dateTime as bid_dateTime, b.extra as bid_extra,
            row_number() over (partition by a.id order by b.price desc, b.dateTime) as rank
        from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires
    )
    where rank <= 1"""

QUERIES = (
    Query(
        "q3",
        "local item suggestion",
        "join",
        ("person", "auction"),
        """
    select p.name, p.city, p.state, a.id
    from auction a join person p on a.seller = p.id
    where a.category = 10 and p.state in ('OR', 'ID', 'CA')""",
        {"process": q3},
    ),
    Query(
        "q4",
        "average price by category",
        "join",
        ("auction", "bid"),
        """
    select category, avg(final) as final
    from (
        select max(b.price) as final, a.category
        from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires
        group by a.id, a.category
    )
    group by category""",
        {"process": q4},
    ),
    Query(
        "q6",
        "average price by seller",
        "join",
        ("auction", "bid"),
        f"""
    with won as ({Q9_SQL})
    select seller,
        avg(price) over (partition by seller order by expires rows between 10 preceding and current row) as average
    from won""",  # noqa: S608 - our own text
        {"process": q6},
        note="sales in the order in which auctions close; the published query orders by the bid's time",
    ),
    Query("q9", "winning bids", "join", ("auction", "bid"), Q9_SQL, {"process": q9}),
    Query(
        "q20",
        "expand bid with auction",
        "join",
        ("auction", "bid"),
        """
    select b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, b.extra, a.itemName, a.description, a.initialBid,
        a.reserve, a.dateTime as a_dateTime, a.expires, a.seller, a.category, a.extra as a_extra
    from bid b join auction a on b.auction = a.id
    where a.category = 10""",
        {"process": q20},
    ),
)
