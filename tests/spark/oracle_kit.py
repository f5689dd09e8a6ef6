"""What the oracle's tests share: random rows, random plans, and a topology whose every sink has its question in SQL."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from penstock.flow import io
from penstock.flow.schema import parse_schema, to_ddl
from penstock.flow.stream import DataStream
from penstock.jobs import Topology
from penstock.model.plan import Plan, Slot
from penstock.run.columns.kernels import Row
from penstock.run.operators.state.keyed_state import KeyState
from penstock.run.operators.state.process import Emit, Stateful, Timers
from penstock_lab.same_rows import row_differences

SCHEMA = parse_schema(
    "n bigint not null, key string, number bigint, amount double, price decimal(10,2), flag boolean, line string, "
    "time timestamp"
)
SLOTS = 8
SECOND_US = 1_000_000
LATENESS_S = 5
AMOUNTS = (0.0, -0.0, float("nan"), float("-inf"), *(quarters / 4 for quarters in range(-9, 10)))
AMOUNT_WEIGHTS = (10, 10, 1, 1, *([4] * 19))
STARTS_US = (-3600 * SECOND_US, 1_356_998_400 * SECOND_US)  # an hour before 1970, and the start of 2013


@dataclass(frozen=True)
class Case:
    """How one question is put: which rows, from how many tasks, on how many workers, in which batches."""

    seed: int
    rows: int
    tasks: int
    source_tasks: int
    workers: int
    rows_max: int
    from_frame: bool = False
    transport: str = "ring"

    def table(self, salt: int = 0) -> pa.RecordBatch:
        """Random rows: nulls everywhere but in `n`, repeated values, NaN and both zeros, times that go back a little.

        Amounts and prices are quarters, so that sums are exact in any order.
        """
        rng = random.Random(self.seed * 31 + salt)
        start = rng.choice(STARTS_US)
        words = ["a", "bb", "", "ccc ", "é"]
        columns: dict[str, list[object]] = {name: [] for name in SCHEMA.names}
        for n in range(self.rows):
            back = rng.randint(0, LATENESS_S * 1000) * 1000
            values = {
                "key": rng.choice(["a", "b", "c", "", "d'é"]),
                "number": rng.randint(-20, 20),
                "amount": rng.choices(AMOUNTS, AMOUNT_WEIGHTS)[0],
                "price": Decimal(25 * rng.randint(-9999, 9999)) / 100,
                "flag": rng.random() < 0.5,
                "line": " ".join(rng.choices(words, k=rng.randint(0, 4))),
                "time": start + n * 500_000 - back,
            }
            columns["n"].append(n)
            for name, value in values.items():
                columns[name].append(None if rng.random() < 0.15 else value)
        return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


cases = st.builds(
    Case,
    seed=st.integers(0, 10**6),
    rows=st.sampled_from([0, 1, 7, 60, 150]),
    tasks=st.integers(1, 3),
    source_tasks=st.integers(1, 3),
    workers=st.integers(1, SLOTS),
    rows_max=st.sampled_from([1, 3, 64, 10_000]),
    from_frame=st.booleans(),
    transport=st.sampled_from(["ring", "socket"]),
)


@dataclass(frozen=True)
class Shares:
    """A generator's function: every task has every so-manieth row, in order, in small batches."""

    batch: pa.RecordBatch
    rows: int = 17

    def __call__(self, task: int, tasks: int) -> Iterator[pa.RecordBatch | None]:
        mine = self.batch.take(pa.array(range(task, self.batch.num_rows, tasks), pa.int64()))
        for at in range(0, mine.num_rows, self.rows):
            yield mine.slice(at, self.rows)
            yield None


@dataclass
class Questions:
    """A topology and, for each of its sinks, the same question in SQL."""

    spark: SparkSession
    case: Case
    topology: Topology = field(default_factory=lambda: Topology("oracle"))
    expected: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)

    def source(
        self,
        view: str,
        salt: int = 0,
        *,
        tasks: int | None = None,
        may_be_frame: bool = False,
    ) -> DataStream:
        """Random rows as a stream, and as a view for SQL."""
        batch = self.case.table(salt)
        frame = self.frame(batch)
        frame.createOrReplaceTempView(view)
        if may_be_frame and self.case.from_frame:
            return self.topology.source(view, io.dataframe(frame))
        tasks = tasks or self.case.source_tasks
        return self.topology.source(view, io.generator(Shares(batch), batch.schema, tasks=tasks))

    def frame(self, batch: pa.RecordBatch) -> DataFrame:
        """The rows for SQL."""
        if batch.num_rows == 0:
            return self.spark.createDataFrame([], to_ddl(batch.schema))
        return self.spark.createDataFrame(pa.Table.from_batches([batch]))

    def ask(self, name: str, stream: DataStream, sql: str, told: str = "") -> None:
        """A sink and its question; `told` is a query over the view `found` where the rows must be looked at first."""
        stream.sink(name, io.collect(), tasks=1 + self.case.seed % 2)
        self.expected[name] = sql
        if told:
            self.told[name] = told

    def check(self) -> None:
        """Run the topology once and compare every sink's rows with Spark SQL's."""
        found = self.topology.run(
            self.spark,
            rows_max=self.case.rows_max,
            transport=self.case.transport,
            take_last_slot=True,
            **placing(self.topology, self.case.workers, self.case.seed),
        )
        faults = {}
        for name, sql in self.expected.items():
            ours = found[name]
            if name in self.told:
                ours.createOrReplaceTempView("found")
                ours = self.spark.sql(self.told[name])
            if differences := row_differences(ours, self.spark.sql(sql)):
                faults[name] = differences
        assert not faults, "\n".join(f"{name}: {line}" for name, lines in faults.items() for line in lines)


def placing(topology: Topology, workers: int, seed: int) -> dict[str, object]:
    """A plan drawn at random; a DataFrame's readers are where Spark put them, so there a scheduler decides."""
    flow = topology.build()
    if any(operator.one_per_worker for operator in flow.operators):
        return {"scheduler": "even", "workers": workers, "seed": seed}
    rng = random.Random(seed)
    ids = [f"{operator.name}/{i}" for operator in flow.operators for i in range(operator.tasks)]
    assignment = {task: Slot("anywhere", rng.randrange(workers)) for task in ids}
    return {"plan": Plan("random", seed, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, assignment)}


GAP = timedelta(seconds=4, microseconds=500)  # never exactly the time between two rows: edges are another question


class Sessions(Stateful):
    """Visits that end when a key has been silent for the gap; rows may come in any order within the lateness."""

    schema = "session_start timestamp, session_end timestamp, key string, rows bigint"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        if row.time is None:
            return
        start, end, rows = row.time, row.time + GAP, 1
        apart = []
        for other_start, other_end, other_rows in state.get("open", []):
            if other_start < end and start < other_end:
                start, end, rows = min(start, other_start), max(end, other_end), rows + other_rows
            else:
                apart.append((other_start, other_end, other_rows))
        state["open"] = [*apart, (start, end, rows)]
        timers.at(end)

    def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        for start, end, rows in state.get("open", []):
            if end <= time:
                emit((start, end, key, rows))
        state["open"] = [session for session in state.get("open", []) if session[1] > time]


SESSIONS_SQL = (
    "select session_window.start as session_start, session_window.end as session_end, key, count(*) as rows "
    "from {} where time is not null group by session_window(time, '4 seconds 500 microseconds'), key"
)

# The rows are few and the questions many: one partition, and no code generated, compiled and used once.
QUICK_SQL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def quick_questions(spark: SparkSession) -> Iterator[None]:
    """The session with settings for small questions, and afterwards as it was."""
    before = {name: spark.conf.get(name, None) for name in QUICK_SQL}
    for name, value in QUICK_SQL.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
