"""The form of a query: its definition in Spark SQL, and how users write it in our API.

Spark SQL over the same rows is the definition of the right answer. A query can have several forms in our API, such as
expressions, a batch function and a function for each row; the first is the one that users should write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import penstock as ps
from penstock.flow.io import Sink, Source


@dataclass(frozen=True)
class Tables:
    """The events as streams of one topology; a table that a query does not ask for is not read."""

    topology: ps.Topology
    source_of: Callable[[str], Source]
    tasks: int
    prefix: str = ""  # of the names of sources, where a topology holds several queries

    def person(self) -> ps.DataStream:
        """Sellers and bidders."""
        return self._source("person")

    def auction(self) -> ps.DataStream:
        """Auctions."""
        return self._source("auction")

    def bid(self) -> ps.DataStream:
        """Bids."""
        return self._source("bid")

    def _source(self, table: str) -> ps.DataStream:
        return self.topology.source(f"{self.prefix}{table}", self.source_of(table))


Build = Callable[[Tables], ps.DataStream]


@dataclass(frozen=True)
class Query:
    """One query of the benchmark."""

    name: str
    title: str
    kind: str  # rows, keyed, window or join
    tables: tuple[str, ...]
    sql: str  # over views named as the tables
    forms: Mapping[str, Build] = field(default_factory=dict)  # in our API, by name; empty: see `note`
    compared: str = "select * from answer"  # the part of an answer that is compared; the rest depends on the clock
    note: str = ""

    def topology(self, form: str, source_of: Callable[[str], Source], sink: Sink, tasks: int = 2) -> ps.Topology:
        """The query in one of its forms, from tables to a sink."""
        topology = ps.Topology(f"nexmark-{self.name}")
        self.forms[form](Tables(topology, source_of, tasks)).sink("answer", sink)
        return topology
