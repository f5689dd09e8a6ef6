"""One wide frame over all of Spark's types, made from Python values and not from Arrow, and its rows as told by Spark.

Every column has nulls, edge cases and random values; row `n` tells which row it was. The frame is made by Spark from
Python objects, so that an error of Arrow's conversion is not on both sides of the comparison.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

ROWS = 160
BERLIN = "Europe/Berlin"

# A moment must have a year from 1 to 9999 in every zone, else Python's datetime cannot tell it.
MOMENTS = (
    datetime(1, 1, 2, 0, 0, 0, 1, UTC),
    datetime(9999, 12, 30, 23, 59, 59, 999_999, UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(1893, 3, 31, 23, 6, 32, 5, UTC),  # Berlin's own time ends
    *(datetime(2024, 3, 31, hour, 30, 0, 123_456, UTC) for hour in (0, 1)),  # the clocks go forward
    *(datetime(2024, 10, 27, hour, 30, tzinfo=UTC) for hour in (0, 1)),  # the same local time twice
)
LOCALS = (
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
    datetime(2024, 3, 31, 2, 30, 0, 1),  # skipped in Berlin
    datetime(2024, 10, 27, 2, 30),  # twice in Berlin
)
DAYS = (date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 4), date(1582, 10, 15), date(1970, 1, 1))
TEXTS = ("", " ", "é", "日本語", "\U0001f600", "a\x00b", "x" * 300)
DOUBLES = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308)
FLOATS = (0.0, -0.0, float("nan"), float("inf"), 1.401298464324817e-45, 3.4028234663852886e38)

Make = Callable[[random.Random], Any]


def whole(bits: int) -> Make:
    edges = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 0, -1)
    return lambda rng: rng.choice(edges) if rng.random() < 0.3 else rng.randint(edges[0], edges[1])


def decimals(precision: int, scale: int) -> Make:
    largest = 10**precision - 1

    def make(rng: random.Random) -> Decimal:
        digits = rng.choice((0, 1, -1, largest, -largest, rng.randint(-largest, largest)))
        sign = int(digits < 0)
        return Decimal((sign, tuple(map(int, str(abs(digits)))), -scale))

    return make


def moment(rng: random.Random) -> datetime:
    return rng.choice(MOMENTS) if rng.random() < 0.5 else MOMENTS[0] + _some(rng)


def local(rng: random.Random) -> datetime:
    return rng.choice(LOCALS) if rng.random() < 0.5 else LOCALS[0] + _some(rng)


def _some(rng: random.Random) -> timedelta:
    return timedelta(days=rng.randrange(3_652_000), microseconds=rng.randrange(86_400_000_000))


def real(rng: random.Random) -> float:
    return rng.choice(DOUBLES) if rng.random() < 0.4 else rng.uniform(-1e9, 1e9)


def single(rng: random.Random) -> float:
    value = rng.choice(FLOATS) if rng.random() < 0.4 else rng.uniform(-1e9, 1e9)
    return float(struct.unpack("f", struct.pack("f", value))[0])


def text(rng: random.Random) -> str:
    return rng.choice(TEXTS) if rng.random() < 0.5 else "".join(chr(rng.randrange(32, 0xD7FF)) for _ in range(9))


def optional(make: Make, share: float = 0.15) -> Make:
    return lambda rng: None if rng.random() < share else make(rng)


def several(make: Make) -> Make:
    return lambda rng: [make(rng) for _ in range(rng.choice((0, 1, 3)))]


def by(key: Make, value: Make) -> Make:
    return lambda rng: {key(rng): value(rng) for _ in range(rng.choice((0, 1, 3)))}


def parts(*makes: Make) -> Make:
    return lambda rng: tuple(make(rng) for make in makes)


COLUMNS: dict[str, tuple[str, Make]] = {
    "flag": ("boolean", lambda rng: rng.random() < 0.5),
    "i8": ("tinyint", whole(8)),
    "i16": ("smallint", whole(16)),
    "i32": ("int", whole(32)),
    "i64": ("bigint", whole(64)),
    "f32": ("float", single),
    "f64": ("double", real),
    "money": ("decimal(5,2)", decimals(5, 2)),
    "units": ("decimal(18,0)", decimals(18, 0)),
    "large": ("decimal(38,18)", decimals(38, 18)),
    "tiny": ("decimal(38,38)", decimals(38, 38)),
    "word": ("string", text),
    "raw": ("binary", lambda rng: bytearray(rng.randbytes(rng.choice((0, 1, 40))))),
    "day": ("date", lambda rng: rng.choice(DAYS) if rng.random() < 0.5 else DAYS[0] + _some(rng)),
    "at": ("timestamp", moment),
    "told": ("timestamp_ntz", local),
    "moments": ("array<timestamp>", several(optional(moment))),
    "prices": ("array<decimal(20,4)>", several(optional(decimals(20, 4)))),
    "nested": ("array<array<string>>", several(optional(several(optional(text))))),
    "pair": (
        "struct<told: timestamp_ntz, `odd name`: decimal(9,3), deep: struct<days: array<date>>>",
        parts(optional(local), optional(decimals(9, 3)), optional(parts(optional(several(lambda rng: DAYS[0]))))),
    ),
    "by_word": ("map<string, timestamp>", by(text, optional(moment))),
    "by_number": (
        "map<int, struct<a: double, raw: binary>>",
        by(whole(32), optional(parts(optional(real), optional(lambda rng: bytearray(b"\xff\x00"))))),
    ),
}


def wide_frame(spark: SparkSession, seed: int, rows: int = ROWS) -> DataFrame:
    """Random rows over all types, null in each."""
    rng = random.Random(seed)
    ddl = ", ".join(["n bigint not null", *(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())])
    made = [(n, *(optional(make)(rng) for _, make in COLUMNS.values())) for n in range(rows)]
    return spark.createDataFrame(made, ddl)


def told(frames: dict[str, DataFrame]) -> dict[str, list[tuple[Any, ...]]]:
    """Every value as Spark tells it, in UTC, in order of `n`: text that differs wherever values do."""
    spark = next(iter(frames.values())).sparkSession
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in frames}
    with session_zone(spark, "UTC"):
        shown = [_shown(name, frame) for name, frame in frames.items()]
        for row in reduce(lambda a, b: a.unionAll(b), shown).collect():
            found[row[0]].append(tuple(row[1:]))
    return {name: sorted(rows, key=lambda row: int(row[0])) for name, rows in found.items()}


def _shown(name: str, frame: DataFrame) -> DataFrame:
    columns = [f.hex(column) if kind == "binary" else f.col(column).cast("string") for column, kind in frame.dtypes]
    return frame.select(f.lit(name), *columns)


@contextmanager
def session_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """The session in another time zone, and afterwards as it was."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
