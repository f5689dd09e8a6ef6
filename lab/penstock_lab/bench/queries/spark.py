"""Nexmark's queries on Spark: SQL in one batch, Structured Streaming, and Python functions; peers of our own.

Structured Streaming reads the same files with the trigger availableNow, without a limit on a micro-batch: it is fastest
with one large batch. Most queries have the same text as in a batch. Queries that it does not support (rankings,
distinct counts, aggregates of aggregates) are written as its users work around it, or left out with the reason. Windows
come out when the watermark has passed them, so an answer may lack the last windows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.deploy.driver.stage import map_in_arrow
from penstock.flow.schema import to_ddl
from penstock_lab.nexmark import rows
from penstock_lab.nexmark.keyed_queries import PRICES, RANKS, bids_by_rank
from penstock_lab.nexmark.queries import QUERIES
from penstock_lab.nexmark.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "4g",  # states of streams that have ended stay in the JVM, and 1 GB was too little
    # Plain UDFs: Arrow UDFs need pandas. mapInArrow is measured beside them.
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
}


@dataclass(frozen=True)
class Streaming:
    """One query as Structured Streaming says it."""

    sql: str
    mode: str = "append"
    note: str = ""


def _as_sets(column: str, what: str) -> str:
    """Distinct counts, which streams cannot have, as sizes of sets."""
    ranked = [f"size(collect_set({column}) filter (where {prices})) as {rank}_{what}" for rank, prices in RANKS.items()]
    return ", ".join([f"size(collect_set({column})) as total_{what}", *ranked])


def _statistics(keys: str, more: str = "") -> Streaming:
    counted = ", ".join(f"{text} as {name}" for name, text in bids_by_rank().items())
    sets = f"{_as_sets('bidder', 'bidders')}, {_as_sets('auction', 'auctions')}"
    sql = f"select {keys}, date_format(dateTime, 'yyyy-MM-dd') as day, {more} {counted}, {sets} from bid"  # noqa: S608
    grouped = f"{sql} group by {keys}, day" if keys else f"{sql.replace('select ,', 'select')} group by day"
    return Streaming(grouped, "update", "distinct counts as sizes of sets")


_PRICED = ", ".join(f"{text} as {name}" for name, text in {**bids_by_rank(), **PRICES}.items())
_BID = "struct(auction, bidder, price, channel, url, dateTime, extra)"
STREAMING = {
    **{
        name: Streaming(QUERIES[name].sql)
        for name in ("q0", "q1", "q2", "q3", "q11", "q13", "q14", "q20", "q21", "q22")
    },
    "q5": Streaming(
        """
    select each.auction, most as num, window.start as starttime, window.end as endtime from (
        select window, most, explode(filter(counted, c -> c.num = most)) as each from (
            select window, max(num) as most, collect_list(struct(auction, num)) as counted from (
                select auction, window, count(*) as num
                from bid group by auction, window(dateTime, '10 seconds', '2 seconds')
            ) group by window
        )
    )"""
    ),
    "q7": Streaming(
        """
    select b.* from (
        select max_by(struct(auction, price, bidder, dateTime, extra), price) as b
        from bid group by window(dateTime, '10 seconds')
    )""",
        note="one of equal bids",
    ),
    "q8": Streaming(
        """
    select p.id, p.name, p.window.start as starttime
    from (select id, name, window from person group by id, name, window(dateTime, '10 seconds')) p
        join (select seller, window from auction group by seller, window(dateTime, '10 seconds')) a
        on p.id = a.seller and p.window = a.window"""
    ),
    "q12": Streaming(QUERIES["q12"].sql, "update"),
    "q15": _statistics(""),
    "q16": _statistics("channel", "max(date_format(dateTime, 'HH:mm')) as minute,"),
    "q17": Streaming(
        f"select auction, date_format(dateTime, 'yyyy-MM-dd') as day, {_PRICED} from bid group by auction, day",  # noqa: S608
        "update",
    ),
    "q18": Streaming(
        f"select b.* from (select max_by({_BID}, dateTime) as b from bid group by bidder, auction)",  # noqa: S608
        "update",
        "max_by, for streams have no row_number",
    ),
    "q19": Streaming(
        f"""
    select b.bid.*, b.place + 1 as rank_number from (
        select explode(transform(slice(array_sort(collect_list({_BID}), (a, b) ->
            case when a.price > b.price or a.price = b.price and a.dateTime < b.dateTime then -1 else 1 end
        ), 1, 10), (bid, place) -> struct(bid, place))) as b
        from bid group by auction
    )""",  # noqa: S608 - our own text
        "update",
        "lists of all bids, for streams have no row_number",
    ),
}
NO_STREAMING = {
    "q4": "an aggregate of an aggregate, and neither has a watermark",
    "q6": "row_number is not for streams",
    "q9": "row_number is not for streams, and an aggregate behind the join has no watermark",
}


class Spark:
    """The tables in one session, as views for batches and as streams."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session = session
        self.paths = {name: folder / name for name in TABLES}
        self.schemas = {name: session.read.parquet(str(path)).schema for name, path in self.paths.items()}
        self._numbers = count()
        self._work = folder / "checkpoints"

    def frame(self, table: str) -> DataFrame:
        """A table to be read whole."""
        return self.session.read.parquet(str(self.paths[table]))

    def batch(self, name: str) -> DataFrame:
        """The query's answer from one batch."""
        for table in TABLES:
            self.frame(table).createOrReplaceTempView(table)
        return self.session.sql(QUERIES[name].sql)

    def stream(self, name: str, sink: str = "noop") -> str:
        """Run the query as a stream to its end; the name under which a memory sink keeps the answer."""
        for table, path in self.paths.items():
            read = self.session.readStream.schema(self.schemas[table]).parquet(str(path))
            read.withWatermark("dateTime", "0 seconds").createOrReplaceTempView(table)
        said = STREAMING[name]
        answer = f"{name}_{next(self._numbers)}"
        query = (
            self.session.sql(said.sql)
            .writeStream.format(sink)
            .queryName(answer)
            .outputMode(said.mode)
            .option("checkpointLocation", str(self._work / answer))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return answer

    def compared(self, name: str, answer: DataFrame) -> DataFrame:
        """The part of an answer that is compared."""
        answer.createOrReplaceTempView("answer")
        return self.session.sql(QUERIES[name].compared)


def discard(frame: DataFrame) -> None:
    """Compute every row and keep none."""
    frame.write.format("noop").mode("overwrite").save()


# -- Python functions ------------------------------------------------------------------------------------------------

PythonForm = Callable[["DataFrame"], "DataFrame"]


def _batches(function: Callable[[pa.RecordBatch], pa.RecordBatch], batches: Iterator[Any]) -> Iterator[Any]:
    return map(function, batches)


def _in_arrow(function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema) -> PythonForm:
    """The same batch function as in our own form, as mapInArrow."""
    return lambda bids: map_in_arrow(bids, partial(_batches, function), to_ddl(schema))


def _udf_q1(bids: DataFrame) -> DataFrame:
    from pyspark.sql.functions import udf

    euros = udf(lambda price: rows.RATE * price, "decimal(24,3)")
    return bids.select("auction", "bidder", euros("price").alias("price"), "dateTime", "extra")


def _udf_q2(bids: DataFrame) -> DataFrame:
    from pyspark.sql.functions import udf

    return bids.where(udf(lambda auction: auction % 123 == 0, "boolean")("auction")).select("auction", "price")


def _udf_q14(bids: DataFrame) -> DataFrame:
    """A UDF just for the part that the query calls a user's function."""
    from pyspark.sql.functions import udf

    count_c = udf(lambda text: text.count("c"), "int")
    bids.createOrReplaceTempView("bid")
    told = bids.sparkSession.sql(QUERIES["q14"].sql)
    return told.withColumn("c_counts", count_c("extra"))


def _udf_q21(bids: DataFrame) -> DataFrame:
    from pyspark.sql.functions import struct, udf

    known = udf(lambda bid: next((row[-1] for row in rows.channel_id(bid)), None), "string")
    columns = ["auction", "bidder", "price", "channel", "url"]
    told = bids.select(*columns[:4], known(struct(*columns)).alias("channel_id"))
    return told.where("channel_id is not null")


def _udf_q22(bids: DataFrame) -> DataFrame:
    from pyspark.sql.functions import udf

    parts = udf(lambda url: url.split("/")[3:6], "array<string>")
    told = bids.select("auction", "bidder", "price", "channel", parts("url").alias("d"))
    return told.selectExpr("auction", "bidder", "price", "channel", "d[0] as dir1", "d[1] as dir2", "d[2] as dir3")


def _pandas_q1(bids: DataFrame) -> DataFrame:
    def euros(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            frame["price"] = [rows.RATE * price for price in frame["price"].tolist()]
            yield frame[rows.EUROS.names]

    return bids.mapInPandas(euros, to_ddl(rows.EUROS))


def _pandas_q2(bids: DataFrame) -> DataFrame:
    def chosen(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame[frame["auction"] % 123 == 0][["auction", "price"]]

    return bids.mapInPandas(chosen, "auction bigint, price bigint")


def _pandas_q22(bids: DataFrame) -> DataFrame:
    def parts(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            for place in (1, 2, 3):
                frame[f"dir{place}"] = frame["url"].str.split("/").str[2 + place]
            yield frame[rows.FOLDERS.names]

    return bids.mapInPandas(parts, to_ddl(rows.FOLDERS))


PAIRS = pa.schema([("auction", pa.int64()), ("price", pa.int64())])
# What stands beside which of our forms: a function for each row beside a UDF, one for a batch beside mapInArrow.
PYTHON: dict[str, dict[str, tuple[str, PythonForm]]] = {
    "q1": {
        "UDF": ("row", _udf_q1),
        "mapInArrow": ("batch", _in_arrow(rows.to_euros, rows.EUROS)),
        "mapInPandas": ("batch", _pandas_q1),
    },
    "q2": {
        "UDF": ("row", _udf_q2),
        "mapInArrow": ("batch", _in_arrow(rows.every_123rd, PAIRS)),
        "mapInPandas": ("batch", _pandas_q2),
    },
    "q13": {"mapInArrow": ("batch", _in_arrow(rows.SideTable(), rows.WITH_SIDE))},
    "q14": {"UDF": ("row", _udf_q14), "mapInArrow": ("batch", _in_arrow(rows.calculate, rows.TIMED))},
    "q21": {"UDF": ("row", _udf_q21), "mapInArrow": ("batch", _in_arrow(rows.channel_ids, rows.CHANNELLED))},
    "q22": {
        "UDF": ("row", _udf_q22),
        "mapInArrow": ("batch", _in_arrow(rows.batch_folders, rows.FOLDERS)),
        "mapInPandas": ("batch", _pandas_q22),
    },
}


def missing_python() -> dict[str, str]:
    """Which of Spark's Python forms cannot run here, and why."""
    lacks = importlib.util.find_spec("pandas") is None
    return {"mapInPandas": "pandas is not installed in this environment"} if lacks else {}
