"""Every Nexmark query by name, and those that cannot be written in our API."""

from __future__ import annotations

from penstock_lab.nexmark import joins, rows, windows
from penstock_lab.nexmark import keyed_queries as keyed
from penstock_lab.nexmark.query import Query

QUERIES: dict[str, Query] = {
    query.name: query
    for query in sorted(
        (*rows.QUERIES, *keyed.QUERIES, *windows.QUERIES, *joins.QUERIES), key=lambda query: int(query.name[1:])
    )
}
UNSUPPORTED = {"q10": "writes files by day and minute: our Parquet sink does not partition by columns"}
