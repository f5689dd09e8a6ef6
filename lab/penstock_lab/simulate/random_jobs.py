"""Random small jobs for simulated workers: chains, diamonds, keyed shuffles, windows and parallel regions.

Some have a second chain beside that, with a sink of its own: then a worker may have nothing to do with what another
does, and end long before it or behind it.
Rows know where they come from: `source` and `n` name a row, `path` is the tasks through which it has gone. On one path
rows cannot overtake each other, so every task that `Stamp` stands for checks that `n` rises on each path.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

import penstock as ps
from penstock.flow.io import Sink
from penstock.run.contract import MAIN, SETTING_EPOCH, SETTING_STAGING, Outputs, Owns, Staging, Task, TaskContext
from penstock.run.dataflow import FORWARD, Dataflow, Grouping, OperatorSpec
from penstock.run.endpoints import SinkFacts
from penstock.run.operators.sinks.folder import Folder
from penstock.run.operators.sinks.plain import Collect
from penstock.run.operators.sinks.staged import ARROW, EpochFiles

SCHEMA = pa.schema(
    [
        pa.field("source", pa.int64()),
        pa.field("n", pa.int64()),
        pa.field("key", pa.int64()),
        pa.field("path", pa.int64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)
LATENESS_S = 3
WINDOW_S = 10
PATHS = 1 << 60
TASKS_MAX = 4  # of an operator that is given another number of them
BESIDE = "beside"  # a second sink, which collects
ROW = ("source", "n", "key")  # what names a row that was not counted
SETTING_AT_ONCE = "at once"  # rows are handed over as they come, although there are epochs
SETTING_ROWS = "rows"  # where there are epochs: the folder in which files of rows wait
WAYS_OUT = (SinkFacts(collects=True), SinkFacts(folder="/out"), SinkFacts(folder="sim://out"))  # the last by objects
GROUPINGS = ("shuffle", "local-or-shuffle", "fields", "global", "all")

Lengths = tuple[int, int, int, int]
LENGTHS: Lengths = (0, 1, 12, 50)
Row = tuple[int, int, int, int, int]  # as in SCHEMA; `at` in microseconds
Rows = Mapping[str, Sequence[pa.RecordBatch]]  # by sink


class OutOfOrder(AssertionError):
    """A row has overtaken another one."""


@dataclass(frozen=True, slots=True)
class RandomJob:
    """A dataflow and what has to come out of it."""

    text: str
    dataflow: Dataflow
    expected: Counter[tuple[object, ...]]
    columns: tuple[str, ...]  # of the rows that `out` is to have
    beside: Counter[tuple[object, ...]] | None = None  # what is to come out at BESIDE; None: there is no such sink

    def rescaled(self, rng: random.Random) -> RandomJob:
        """The same with other numbers of tasks, where that changes no row: what is to come out stays the same."""
        specs = {spec.name: spec for spec in self.dataflow.operators}
        home = {name: name for name in specs}  # of operators that change together, by the first of them
        for spec in specs.values():
            for read in spec.inputs:
                if read.grouping.kind == FORWARD:
                    home = {name: home[read.operator] if at == home[spec.name] else at for name, at in home.items()}
        fixed = {home[spec.name] for spec in specs.values() if not _can_be_rescaled(spec)}
        tasks = {name: rng.randint(1, TASKS_MAX) for name in home.values() if name not in fixed}
        changed = tuple(replace(spec, tasks=tasks.get(home[name], spec.tasks)) for name, spec in specs.items())
        return replace(self, dataflow=replace(self.dataflow, operators=changed))

    def wrong(self, rows: Rows) -> list[str]:
        """What is wrong with the rows that came out."""
        found = _wrong(rows.get("out", ()), self.expected, self.columns)
        if self.beside is not None:
            found += _wrong(rows.get(BESIDE, ()), self.beside, ROW)
        return found


def _can_be_rescaled(spec: OperatorSpec) -> bool:
    """Not where rows would be others: of sources, which give theirs by task, of regions, and behind "all".

    Nor a union: it leaves no stamp, so the path of a row would not say by which of its tasks it came.
    """
    is_free = spec.role != "source" and spec.kind != "union" and spec.region is None
    return is_free and all(read.grouping.kind not in {"all", "partial-key"} for read in spec.inputs)


class Stamp(Task):
    """Writes itself into each row's path, checks that nothing was overtaken on it, and keeps the rows that it is to."""

    def __init__(self, code: int, keeps: int, in_order: bool) -> None:
        self._code, self._keeps, self._in_order = code, keeps, in_order
        self._last: dict[int, int] = {}

    def take_state(self) -> dict[str, bytes]:
        """The last row of each path: one that comes again after a restore has come twice."""
        return {"last": json.dumps(list(self._last.items())).encode()}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self._last = dict(json.loads(state["last"]))

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """With other tasks paths are others, but no row of an old path may come again where one task has had all."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Look at each row."""
        rows: list[Row] = list(zip(*(column.to_pylist() for column in _numbers(batch).columns), strict=True))
        made = []
        for source, n, key, path, at in rows:
            mine = (path * 1_000_003 + self._code * 64 + self.context.index + 1) % PATHS
            way = 0 if self._in_order else mine
            if self._last.get(way, -1) >= n:
                msg = f"{self.context.id}: row {n} of source {source} came behind row {self._last[way]}"
                raise OutOfOrder(msg)
            self._last[way] = n
            if n % self._keeps == 0:
                made.append((source, n, key, mine, at))
        if made:
            out.emit(_batch(made))


class RowsOut(Collect):
    """Hands rows over at once, or where the job has epochs in the product's files, of the kind that costs least."""

    def __init__(self, schema: pa.Schema, setting: str) -> None:
        """`setting` says where files wait."""
        super().__init__(schema)
        self._setting = setting

    def open(self, context: TaskContext) -> None:
        """Have a folder, or somebody who takes the rows."""
        if SETTING_EPOCH not in context.settings or SETTING_AT_ONCE in context.settings:
            super().open(replace(context, settings={k: v for k, v in context.settings.items() if k != SETTING_EPOCH}))
            return
        Task.open(self, context)
        self._kept = self.schema
        self._staged = EpochFiles(Folder(str(context.settings[self._setting])), context, self.schema, ARROW)

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Hand over, or add to the file of the epoch under way."""
        if self._staged is None:
            super().process(batch, port, out)
        else:
            self._staged.add(batch)

    def stage(self, epoch: int) -> Sequence[Staging]:
        """The file of these rows."""
        return () if self._staged is None else self._staged.stage(epoch)


def random_job(rng: random.Random, lengths: Lengths = LENGTHS) -> RandomJob:
    """A job of one of the shapes, of which each source task gives so many rows."""
    shapes = (_chain, _diamond, _keyed, _windows, _region, _region)
    shape: Callable[[random.Random, Lengths], RandomJob] = rng.choice(shapes)
    return shape(rng, lengths)


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceRows:
    """What the sources of a job give: as many rows from each task, in batches of random lengths, with pauses."""

    seed: int
    tasks: int
    rows: int
    keys: int

    def of(self, task: int) -> list[Row]:
        """The rows of one source task; times go up, and back by no more than LATENESS_S."""
        rng = random.Random(self.seed + task)  # noqa: S311 - a simulation
        return [
            (task, n, rng.randrange(self.keys), task + 1, (1000 + n - rng.randint(0, LATENESS_S)) * 1_000_000)
            for n in range(self.rows)
        ]

    def all(self) -> list[Row]:
        """The rows of all."""
        return [row for task in range(self.tasks) for row in self.of(task)]

    def items(self, task: int, tasks: int) -> Iterator[pa.RecordBatch | None]:
        """As a generator source gives them."""
        rng, rows = random.Random(self.seed - task), self.of(task)  # noqa: S311 - a simulation
        longest = rng.choice((1, 5, 40))
        while rows:
            if rng.random() < 0.2:
                yield None
            length = rng.randint(1, longest)
            yield _batch(rows[:length])
            rows = rows[length:]


def _input(rng: random.Random, lengths: Lengths, tasks: int | None = None) -> SourceRows:
    tasks = tasks or rng.randint(1, 3)
    return SourceRows(rng.randrange(1 << 30), tasks, rows=rng.choice(lengths), keys=rng.choice((1, 3, 9)))


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as microseconds: quicker to make and to compare than what pyarrow makes of them."""
    return pa.record_batch(
        [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns], names=batch.schema.names
    )


def _plain(batch: pa.RecordBatch) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = _numbers(batch).to_pylist()
    return rows


# -- shapes ------------------------------------------------------------------------------------------------------------


def _job(
    top: ps.Topology,
    rng: random.Random,
    lengths: Lengths,
    text: str,
    expected: Counter[tuple[object, ...]],
    columns: tuple[str, ...],
) -> RandomJob:
    """The job of a topology, perhaps with another chain beside it."""
    if rng.random() < 0.6:
        return RandomJob(text, top.build(), expected, columns)
    given = _input(rng, lengths)
    stream = top.source("beside source", ps.io.generator(given.items, SCHEMA, tasks=given.tasks))
    stamped = _stamp(stream, 20, rng.randint(1, 2))
    stamped.sink(BESIDE, Sink("rows", _collected, SinkFacts(collects=True)), rng.choice((None, 1)))
    return RandomJob(f"{text}, a chain beside it", top.build(), expected, columns, _kept(given, 1))


def _start(given: SourceRows, name: str) -> tuple[ps.Topology, ps.DataStream]:
    top = ps.Topology(name)
    return top, top.source("source", ps.io.generator(given.items, SCHEMA, tasks=given.tasks))


def _stamp(
    stream: ps.DataStream,
    code: int,
    tasks: int,
    *,
    keeps: int = 1,
    in_order: bool = False,
    also: ps.DataStream | None = None,
) -> ps.DataStream:
    build = partial(Stamp, code, keeps, in_order)
    second = () if also is None else ((also, also.read(Grouping("shuffle"))),)
    return stream.then("stamp", build, {MAIN: SCHEMA}, name=f"stamp{code}", tasks=tasks, also=second)


def _out(stream: ps.DataStream, rng: random.Random) -> None:
    stream.sink("out", Sink("rows", _rows_out, rng.choice(WAYS_OUT)), rng.choice((None, 1, 2)))


def _rows_out(schema: pa.Schema) -> Task:
    return RowsOut(schema, SETTING_ROWS)


def _collected(schema: pa.Schema) -> Task:
    return RowsOut(schema, SETTING_STAGING)


def _wrong(
    batches: Sequence[pa.RecordBatch], expected: Counter[tuple[object, ...]], columns: Sequence[str]
) -> list[str]:
    found = Counter(tuple(row[c] for c in columns) for batch in batches for row in _plain(batch))
    if found == expected:
        return []
    missing, extra = expected - found, found - expected
    return [
        f"{missing.total()} rows are missing, {extra.total()} are too many, of {expected.total()}; "
        f"missing {list(missing)[:3]}, too many {list(extra)[:3]} ({', '.join(columns)})"
    ]


def _regrouped(stream: ps.DataStream, rng: random.Random) -> tuple[ps.DataStream, str]:
    kind = rng.choice(GROUPINGS)
    return stream.regrouped(Grouping(kind, ("key",) if kind == "fields" else ())), kind


def _kept(given: SourceRows, keeps: int, copies: int = 1) -> Counter[tuple[object, ...]]:
    return Counter({(row[0], row[1], row[2]): copies for row in given.all() if row[1] % keeps == 0})


def _chain(rng: random.Random, lengths: Lengths) -> RandomJob:
    given = _input(rng, lengths)
    top, stream = _start(given, "chain")
    copies, keeps, kinds = 1, rng.choice((1, 1, 3)), []
    for code in range(rng.randint(1, 4)):
        tasks = rng.randint(1, 3)
        stream, kind = _regrouped(stream, rng)
        kinds.append(kind)
        copies *= tasks if kind == "all" else 1
        stream = _stamp(stream, code, tasks, keeps=keeps)
    _out(stream, rng)
    return _job(top, rng, lengths, f"chain of {kinds}", _kept(given, keeps, copies), ROW)


def _diamond(rng: random.Random, lengths: Lengths) -> RandomJob:
    given = _input(rng, lengths)
    top, stream = _start(given, "diamond")
    left = _stamp(_regrouped(stream, rng)[0].regrouped(Grouping("shuffle")), 1, rng.randint(1, 2))
    right = _stamp(stream.regrouped(Grouping("fields", ("key",))), 2, rng.randint(1, 3), keeps=2)
    if rng.random() < 0.5:  # of one task: it leaves no stamp, so the path must say all the same where a row has been
        stream, meet = _stamp(left.union(right, name="union"), 3, rng.randint(1, 2)), "in a union"
    else:
        stream, meet = _stamp(left, 3, rng.randint(1, 3), also=right), "in a task of two inputs"
    _out(stream, rng)
    return _job(top, rng, lengths, f"diamond that meets {meet}", _kept(given, 1) + _kept(given, 2), ROW)


def _keyed(rng: random.Random, lengths: Lengths) -> RandomJob:
    given = _input(rng, lengths)
    top, stream = _start(given, "keyed")
    stream = _stamp(_regrouped(stream, rng)[0].regrouped(Grouping("shuffle")), 1, rng.randint(1, 3))
    _out(stream.key_by("key").count(tasks=rng.randint(1, 3)), rng)
    counts = Counter(row[2] for row in given.all())
    return _job(top, rng, lengths, "keyed count", Counter(list(counts.items())), ("key", "count"))


def _windows(rng: random.Random, lengths: Lengths) -> RandomJob:
    """Windows over event time that is told at the sources, or by the input edges of the operator behind them."""
    given = _input(rng, lengths)
    top, stream = _start(given, "windows")
    at_source = rng.random() < 0.5
    if at_source:
        stream = stream.event_time("at", f"{LATENESS_S} seconds")
    stream = _stamp(stream, 1, rng.randint(1, 3))
    if not at_source:
        stream = stream.event_time("at", f"{LATENESS_S} seconds")
    if rng.random() < 0.5:
        stream = _stamp(stream.regrouped(Grouping("fields", ("key",))), 2, rng.randint(1, 3))
    counted = stream.key_by("key").count(window=ps.tumbling(f"{WINDOW_S} seconds"), tasks=rng.randint(1, 3))
    _out(counted, rng)
    window_us = WINDOW_S * 1_000_000
    counts = Counter((row[4] // window_us * window_us, row[2]) for row in given.all())
    expected: Counter[tuple[object, ...]] = Counter([(*window, count) for window, count in counts.items()])
    where = "sources" if at_source else "input edges"
    return _job(top, rng, lengths, f"windows, time by {where}", expected, ("window_start", "key", "count"))


def _region(rng: random.Random, lengths: Lengths) -> RandomJob:
    given = _input(rng, lengths, tasks=1)
    top, stream = _start(given, "region")
    ordered, replicas = rng.random() < 0.7, rng.randint(1, 4)
    policy = rng.choice(("knee", "adaptive", "round-robin", "reroute", "rebalance"))
    keeps, slice_rows = rng.choice((1, 3)), rng.choice((None, 1, 4, 100))
    inside: ps.DataStream = stream.parallel(
        replicas, ordered=ordered, balance=policy, sample_s=rng.choice((0.001, 0.05)), slice_rows=slice_rows, name="r"
    )
    for code in range(1, rng.randint(2, 4)):
        inside = _stamp(inside, code, replicas, keeps=keeps)
    merged = inside.merge()  # type: ignore[attr-defined] # a stream inside a region
    _out(_stamp(merged, 9, 1, in_order=ordered), rng)
    text = f"{'ordered' if ordered else 'unordered'} region of {replicas}, {policy}, slices of {slice_rows}"
    return _job(top, rng, lengths, text, _kept(given, keeps), ROW)
