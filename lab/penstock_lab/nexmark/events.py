"""Synthetic Nexmark events: persons, auctions and bids, in the published schema, proportions and hot ratios.

The data are synthetic. Of every 50 events one is a person, three are auctions and 46 are bids; half of the bids go to a
hot auction, three quarters of bidders and sellers are hot ones, as in the published generator (Tucker et al.,
"NEXMark", and the configuration that Beam and Flink use). Blocks of events are drawn whole, from the seed and the
number of the block, so that event n does not depend on the other blocks.

Unlike the published generator, event n happens at n / rate to the microsecond: no two bids share a time, and "the last
bid" or "the first of equal prices" is one row, not a choice of the engine. Rejected: events one by one, as published,
which takes a minute for a million.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import InvalidInput
from penstock.flow.schema import parse_schema
from penstock_lab.nexmark.words import Channels, choices, letters, numbered

PERSON = parse_schema(
    "id bigint, name string, emailAddress string, creditCard string, city string, state string, dateTime timestamp, "
    "extra string"
)
AUCTION = parse_schema(
    "id bigint, itemName string, description string, initialBid bigint, reserve bigint, dateTime timestamp, "
    "expires timestamp, seller bigint, category bigint, extra string"
)
BID = parse_schema(
    "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string"
)
SCHEMAS = {"person": PERSON, "auction": AUCTION, "bid": BID}

EPOCH_EVENTS = 50  # one person, then three auctions, then 46 bids
AUCTIONS_AN_EPOCH = 3
BLOCK_EVENTS = 50_000  # drawn together; whole epochs
EVENTS_MAX = 1_000_000_000
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT_STRIDE = 100  # the hot auction, bidder and seller change with every 100 that were made
HOT_AUCTION_ODDS, HOT_BIDDER_ODDS, HOT_SELLER_ODDS = 2, 4, 4  # all but one in 2 (4) choose the hot one
AUCTIONS_IN_FLIGHT, PEOPLE_ACTIVE, LEAD = 100, 1000, 10  # bids run ahead of auctions and people by up to LEAD
APART_US = 1000  # more than there are auctions open at any time
START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1e6)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """How many events, how close in time, and from which seed."""

    count: int = 1_000_000
    per_second: int = 10_000  # of event time, the published rate
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.count <= EVENTS_MAX:
            msg = f"nexmark has {self.count} events; give a number from 0 to {EVENTS_MAX}"
            raise InvalidInput(msg)
        if not 1 <= self.per_second <= 1_000_000:
            msg = f"nexmark has {self.per_second} events a second; give 1 to 1000000, for times are microseconds"
            raise InvalidInput(msg)

    @property
    def blocks(self) -> int:
        """How many blocks hold them."""
        return -(-self.count // BLOCK_EVENTS)

    def block(self, number: int) -> dict[str, pa.RecordBatch]:
        """One block's persons, auctions and bids, each in order of time; the last block is cut to the count."""
        first = number * BLOCK_EVENTS
        events = np.arange(first, first + BLOCK_EVENTS, dtype=np.int64)
        place = events % EPOCH_EVENTS
        whole = {
            "person": self._persons(events[place == 0], np.random.default_rng([self.seed, number, 0])),
            "auction": self._auctions(
                events[(place >= 1) & (place <= AUCTIONS_AN_EPOCH)], np.random.default_rng([self.seed, number, 1])
            ),
            "bid": self._bids(events[place > AUCTIONS_AN_EPOCH], np.random.default_rng([self.seed, number, 2])),
        }
        rows = self.rows(min(self.count, first + BLOCK_EVENTS) - first)
        return {name: batch.slice(0, rows[name]) for name, batch in whole.items()}

    def rows(self, count: int | None = None) -> dict[str, int]:
        """How many of each kind the first events are, by default all."""
        epochs, rest = divmod(self.count if count is None else count, EPOCH_EVENTS)
        persons = min(rest, 1)
        auctions = min(max(rest - 1, 0), AUCTIONS_AN_EPOCH)
        return {
            "person": epochs + persons,
            "auction": AUCTIONS_AN_EPOCH * epochs + auctions,
            "bid": (EPOCH_EVENTS - 1 - AUCTIONS_AN_EPOCH) * epochs + rest - persons - auctions,
        }

    def _times(self, events: Ints) -> Ints:
        return START_US + events * 1_000_000 // self.per_second

    def _persons(self, events: Ints, random: np.random.Generator) -> pa.RecordBatch:
        count = len(events)
        first, last = choices(FIRST_NAMES, count, random), choices(LAST_NAMES, count, random)
        mailbox, host = (letters(_about(length, count, random), random) for length in (7, 5))
        return _batch(
            PERSON,
            id=FIRST_ID + events // EPOCH_EVENTS,
            name=_joined(first, " ", last),
            emailAddress=_joined(mailbox, "@", host),
            creditCard=numbered(random.integers(10**15, 10**16, count)),
            city=choices(CITIES, count, random),
            state=choices(STATES, count, random),
            dateTime=self._times(events),
            extra=letters(_about(110, count, random), random),
        )

    def _auctions(self, events: Ints, random: np.random.Generator) -> pa.RecordBatch:
        count = len(events)
        times = self._times(events)
        initial = _prices(count, random)
        auctions = FIRST_ID + _last_auction(events)
        horizon_us = AUCTIONS_IN_FLIGHT * EPOCH_EVENTS // AUCTIONS_AN_EPOCH * 1_000_000 // self.per_second
        return _batch(
            AUCTION,
            id=auctions,
            itemName=letters(_about(20, count, random), random),
            description=letters(_about(100, count, random), random),
            initialBid=initial,
            reserve=initial + _prices(count, random),
            dateTime=times,
            expires=_apart(times + 1 + random.integers(0, max(2 * horizon_us, 1), count), auctions),
            seller=FIRST_ID + _people(events, HOT_SELLER_ODDS, 0, random),
            category=FIRST_CATEGORY + random.integers(0, CATEGORIES, count),
            extra=letters(_about(300, count, random), random),
        )

    def _bids(self, events: Ints, random: np.random.Generator) -> pa.RecordBatch:
        count = len(events)
        last = _last_auction(events)
        oldest = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
        any_auction = oldest + random.integers(0, last - oldest + 1 + LEAD)
        hot = random.integers(0, HOT_AUCTION_ODDS, count) > 0
        channel, url = Channels.of_seed(self.seed).draw(count, random)
        return _batch(
            BID,
            auction=FIRST_ID + np.where(hot, last // HOT_STRIDE * HOT_STRIDE, any_auction),
            bidder=FIRST_ID + _people(events, HOT_BIDDER_ODDS, 1, random),
            price=_prices(count, random),
            channel=channel,
            url=url,
            dateTime=self._times(events),
            extra=letters(_about(20, count, random), random),
        )


def _last_auction(events: Ints) -> Ints:
    """The number of the newest auction at each event, from 0; itself where the event is one."""
    epoch, place = events // EPOCH_EVENTS, events % EPOCH_EVENTS
    return np.maximum(AUCTIONS_AN_EPOCH * epoch + np.minimum(place, AUCTIONS_AN_EPOCH) - 1, 0)


def _people(events: Ints, odds: int, beside: int, random: np.random.Generator) -> Ints:
    """A person for each event: mostly the hot one (hot bidders stand beside hot sellers), else an active one."""
    made = events // EPOCH_EVENTS + 1
    active = np.minimum(made, PEOPLE_ACTIVE)
    anyone = made - active + random.integers(0, active + LEAD)
    hot = random.integers(0, odds, len(events)) > 0
    return np.where(hot, (made - 1) // HOT_STRIDE * HOT_STRIDE + beside, anyone)


def _apart(times: Ints, auctions: Ints) -> Ints:
    """The next microsecond that ends in the auction's number: no two that are open together close together."""
    return times + (auctions - times) % APART_US


def _prices(count: int, random: np.random.Generator) -> Ints:
    """From 100 to 100,000,000, evenly over the orders of magnitude."""
    return np.round(np.power(10.0, random.random(count) * 6.0) * 100.0).astype(np.int64)


def _about(length: int, count: int, random: np.random.Generator) -> Ints:
    """Lengths of a fifth more or less."""
    return random.integers(length - length // 5, length + length // 5 + 1, count)


def _joined(left: pa.Array, between: str, right: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(left, right, between)


def _batch(schema: pa.Schema, **columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
