"""Shapes: which topologies go on from a checkpoint, which are refused, and in which words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.checkpoint.shape import FILES_MAX, is_shape, misfit, reopened, shape_of, without_keys
from penstock.flow.stream import DataStream
from penstock.flow.topology import Topology

COLUMNS = "k bigint, n bigint, word string, ts timestamp"
ELSE = "or begin in another checkpoint folder"
Write = Callable[[DataStream], DataStream]


def rows(task: int, tasks: int) -> list[tuple[object, ...]]:
    return []


def source(columns: str = COLUMNS, tasks: int = 1) -> tuple[Topology, DataStream]:
    top = ps.Topology("t")
    return top, top.source("rows", ps.io.generator(rows, columns), tasks=tasks)


def shape(
    write: Write, columns: str = COLUMNS, tasks: int = 1, sink: ps.io.Sink | None = None, out: str = "out"
) -> dict:
    top, stream = source(columns, tasks)
    write(stream).sink(out, sink or ps.io.collect())
    return shape_of(top.build(), len)


def counted(aggregate: str = "count(*)", key: str = "k", **options: object) -> Write:
    return lambda stream: stream.key_by(key).aggregate(name="counts", x=aggregate, **options)


def windowed(size: str, lateness: str = "1 second") -> Write:
    return lambda stream: stream.event_time("ts", lateness).key_by("k").count(window=ps.tumbling(size), name="counts")


def top(count: int, by: str, *, ascending: bool = False) -> Write:
    return lambda stream: stream.key_by("k").top(count, by, ascending=ascending, name="best")


def joined(other_key: str = "k", size: str = "1 minute", columns: tuple[str, ...] = ("k", "n", "ts")) -> Write:
    def write(stream: DataStream) -> DataStream:
        timed = stream.event_time("ts")
        other = timed.select(f"{other_key} as key", "ts as at", "word as said", name="other")
        left = timed.select(*columns, name="left")
        return left.key_by("k").join(other.key_by("key"), window=ps.tumbling(size), name="both")

    return write


class Seen(ps.Stateful):
    schema = "k bigint"

    def on_row(self, key: object, row: object, state: object, timers: object, emit: object) -> None:
        pass


def processed(key: str = "k", *, ordered: bool = True) -> Write:
    return lambda stream: stream.event_time("ts").key_by(key).process(Seen, ordered=ordered, name="seen")


REFUSED = {
    "key column": (counted(), counted(key="n"), "operator 'counts' has keys n bigint now, and had keys k bigint when"),
    "window": (
        windowed("10 seconds"),
        windowed("20 seconds"),
        "has window 0:00:20 long, every 0:00:20, by column 'ts' now",
    ),
    "window gone": (counted(window=None), windowed("10 seconds"), "source 'rows' has event time 'ts' now"),
    "aggregates": (counted(), counted("sum(n)"), "has aggregates x=sum(n) now, and had aggregates x=count(*) when"),
    "distinct": (counted(), counted("count(distinct word)"), "aggregates x=count(distinct word) now"),
    "rank count": (
        top(3, "n"),
        top(4, "n"),
        "has ranking the greatest 4 by 'n' now, and had ranking the greatest 3 by",
    ),
    "rank order": (top(3, "n"), top(3, "n", ascending=True), "has ranking the least 3 by 'n' now"),
    "join key": (joined(), joined("n"), None),  # under the same name and type: what a projection computes is free
    "join window": (joined(), joined(size="2 minutes"), "operator 'both' has window 0:02:00"),
    "join rows": (joined(), joined(columns=("k", "ts")), "operator 'both' has rows (k bigint, ts timestamp) and (key"),
    "process key": (processed(), processed("n"), "operator 'seen' has keys n bigint now"),
    "process order": (processed(), processed(ordered=False), "operator 'seen' has order as rows come now, and had"),
    "reduce": (
        lambda stream: stream.key_by("k").reduce(lambda a, b: a, name="last"),
        lambda stream: stream.drop("n").key_by("k").reduce(lambda a, b: a, name="last"),
        "operator 'last' has rows (k bigint, word string, ts timestamp) now",
    ),
    "another kind": (
        counted(),
        lambda stream: stream.map(lambda row: row, COLUMNS, name="counts"),
        "operator 'counts' has kind map now, and had kind aggregate when",
    ),
    "state where none was": (
        lambda stream: stream.map(lambda row: row, COLUMNS, name="counts"),
        counted(),
        "operator 'counts' has kind aggregate now, and had kind map when",
    ),
    "renamed": (
        counted(),
        lambda stream: stream.key_by("k").aggregate(name="numbers", x="count(*)"),
        "operator 'counts', of which a checkpoint is kept, is gone, and its state with it; if 'numbers' is the same, "
        f"call it 'counts' again, {ELSE}",
    ),
    "gone": (counted(), lambda stream: stream, f"is gone, and its state with it; give it back, {ELSE}"),
    "partial keys": (
        lambda stream: stream.key_by("k").partial_key().count(name="counts", tasks=2),
        lambda stream: stream.key_by("k").partial_key().count(name="counts", tasks=3),
        "has tasks 3 now, and had tasks 2 when",
    ),
    "a lateness": (windowed("10 seconds"), windowed("10 seconds", "2 seconds"), None),
    "tasks": (counted(tasks=2), counted(tasks=5), None),
    "what comes out when": (counted(emit="end"), counted(emit="changes"), None),
    "a map between": (
        counted(),
        lambda stream: counted()(stream.map(lambda row: row, COLUMNS, name="m")),
        None,
    ),
    "no map between": (
        lambda stream: counted()(stream.map(lambda row: row, COLUMNS, name="m")),
        counted(),
        None,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_state_depends_on_must_be_as_it_was(name: str) -> None:
    before, after, text = REFUSED[name]
    was, now = shape(before, sink=ps.io.discard()), shape(after, sink=ps.io.discard())
    assert misfit(was, json.loads(json.dumps(was))) is None  # as it is read from a file
    found = misfit(was, now)
    assert text in found if text else found is None, found
    if found:
        assert found.endswith(ELSE)


def test_a_type_of_a_key_is_compared() -> None:
    other = COLUMNS.replace("k bigint", "k string")
    found = misfit(shape(counted()), shape(counted(), other))
    assert found == (
        "operator 'counts' has keys k string now, and had keys k bigint when the checkpoint was made; make it as it "
        f"was, {ELSE}"
    )


def test_a_type_behind_an_aggregate_is_compared() -> None:
    other = COLUMNS.replace("word string", "word bigint")
    found = misfit(shape(counted("count(distinct word)")), shape(counted("count(distinct word)"), other))
    assert found is not None
    assert "has columns word bigint now, and had columns word string" in found


# -- sinks -------------------------------------------------------------------------------------------------------------


def test_a_sink_under_another_name_is_refused_and_told() -> None:
    found = misfit(shape(counted()), shape(counted(), out="answer"))
    assert found == (
        "sink 'out', of which a checkpoint is kept, is gone, and its rows with it; if 'answer' is the same, call it "
        f"'out' again, {ELSE}"
    )


def test_a_sink_with_other_columns_is_refused() -> None:
    def selected(text: str) -> Write:
        return lambda stream: stream.select(text, name="s")

    found = misfit(shape(selected("n")), shape(selected("cast(n as string) as n")))
    assert found is not None
    assert found.startswith("sink 'out' has columns n string now, and had columns n bigint when")


def test_a_sink_of_another_kind_or_place_is_refused(tmp_path: Path) -> None:
    collected = shape(counted())
    here, there = (shape(counted(), sink=ps.io.parquet(tmp_path / name)) for name in ("here", "there"))
    assert "sink 'out' has kind parquet now, and had kind collect when" in (misfit(collected, here) or "")
    assert f"has place {tmp_path}/there now, and had place {tmp_path}/here when" in (misfit(here, there) or "")
    assert misfit(here, there, moved={"out"}) is None


def test_a_callback_keeps_the_numbers_of_its_rows_and_a_sink_that_keeps_nothing_may_go() -> None:
    called = shape(counted(), sink=ps.io.callback(print))
    assert "is gone, and the numbers of its rows with it" in (misfit(called, shape(counted(), out="x")) or "")
    dropped = shape(counted(), sink=ps.io.discard())
    assert misfit(dropped, shape(counted(), out="x")) is None


def test_keys_to_a_place_are_not_kept() -> None:
    assert without_keys("s3://ME:SECRET@bucket/out?secret_key=SECRET&region=eu") == "s3://bucket/out"
    assert without_keys("/a/b@c?d") == "/a/b@c?d"
    found = shape(counted(), sink=ps.io.parquet("s3://ME:SECRET@bucket/out?secret_key=SECRET"))
    assert "SECRET" not in json.dumps(found)


# -- sources -----------------------------------------------------------------------------------------------------------


def read(folder: Path, **sizes: int) -> dict:
    folder.mkdir(exist_ok=True, parents=True)
    for name in sizes:
        (folder / f"{name}.csv").write_text("n\n1\n")
    made = ps.Topology("t")
    made.source("rows", ps.io.files(folder, "csv", "n bigint")).sink("out", ps.io.discard())
    return shape_of(made.build(), lambda path: sizes[Path(path).stem])


def test_files_of_other_sizes_or_names_are_refused_and_a_copy_elsewhere_is_not(tmp_path: Path) -> None:
    was = read(tmp_path / "a", one=10, two=20)
    assert misfit(was, read(tmp_path / "b", one=10, two=20)) is None
    found = misfit(was, read(tmp_path / "c", one=10, two=30))
    assert found == (
        "source 'rows' has 2 files of 40 bytes now, and had 2 of 30 when the checkpoint was made: 'two.csv' is 30 "
        f"bytes, and was 20 bytes; its positions would mean other rows: give the same files back, {ELSE}"
    )
    assert "'three.csv' is 5 bytes, and was not there" in (
        misfit(was, read(tmp_path / "d", one=10, two=20, three=5)) or ""
    )


def test_many_files_are_compared_by_a_digest(tmp_path: Path) -> None:
    sizes = {f"f{n:04}": 1 for n in range(FILES_MAX + 1)}
    was = read(tmp_path / "a", **sizes)
    assert len(json.dumps(was)) < 1000
    now = read(tmp_path / "a", **{**sizes, "f0007": 2})
    assert "has 1,001 files of 1,002 bytes now, and had 1,001 of 1,001 when" in (misfit(was, now) or "")


def test_tasks_of_a_generator_count_until_it_has_ended() -> None:
    was, now = shape(counted(), tasks=2), shape(counted(), tasks=3)
    assert (misfit(was, now) or "").startswith("source 'rows' has tasks 3 now, and had tasks 2 when")
    assert misfit(was, now, {"rows"}) is None


def test_a_source_may_go_when_it_is_at_its_end() -> None:
    def both(*names: str) -> dict:
        made = ps.Topology("t")
        for name in names:
            made.source(name, ps.io.rate(5)).sink(f"out {name}", ps.io.discard())
        return shape_of(made.build(), len)

    was, now = both("a", "b"), both("a")
    assert "source 'b', of which a checkpoint is kept, is gone, and where it stands with it" in (misfit(was, now) or "")
    assert misfit(was, now, {"b"}) is None


# -- what had finished -------------------------------------------------------------------------------------------------


def grown(
    stream: str = "few", *, past: str = "few m out", sink: str = "out", name: str = "m", state: bool = False
) -> str:
    """Why a topology is refused that reads a stream as `name`, where operators had finished."""
    top = ps.Topology("t")
    few, ticks = (top.source(each, ps.io.generator(rows, "n bigint")) for each in ("few", "ticks"))
    streams = {"few": few, "ticks": ticks}
    if stream == "both":
        streams["both"] = few.union(top.source("more", ps.io.generator(rows, "n bigint")), name="new")
    elif stream == "between":
        streams["between"] = few.where("n > 0", name="between")
    read = streams[stream]
    kept = read.key_by("n").aggregate(name=name, x="count(*)") if state else read.select("n", name=name)
    kept.sink(sink, ps.io.collect(), tasks=2)
    for each in (few, ticks):
        each.sink(f"of {each.operator}", ps.io.discard())
    tasks = {"few": 1, "ticks": 1, "m": 1, "out": 2}
    return reopened(top.build(), tasks, {each: set(range(tasks[each])) for each in past.split()}) or ""


def test_an_operator_that_had_finished_reads_nothing_that_still_gives_rows() -> None:
    """Its tasks are not run any more: rows for them were dropped, or filled their edges and held the job up."""
    when = "had finished when the checkpoint was made"
    anew = f"give it another name, under which it begins anew, {ELSE}"
    lost = "its rows would be lost"
    assert grown() == ""
    assert grown("both") == f"operator 'm' {when}, and reads operator 'new' now, which is new: {lost}; {anew}"
    assert grown("both", past="few") == ""
    assert grown("ticks") == f"operator 'm' {when}, and reads source 'ticks' now, which had not: {lost}; {anew}"
    assert grown("both", state=True).endswith(f"{lost}; let another operator read them, {ELSE}")


def test_under_another_name_an_operator_begins_anew_and_a_sink_that_had_finished_takes_no_rows_of_it() -> None:
    assert grown("both", name="again") == (
        "sink 'out' had finished when the checkpoint was made, and reads operator 'again' now, which is new: its rows "
        f"would be lost; let another sink read them, {ELSE}"
    )
    assert grown("both", name="again", sink="other") == ""
    assert grown("both", name="again", past="few") == ""


def test_of_an_operator_whose_tasks_read_their_like_alone_some_may_have_finished() -> None:
    top = ps.Topology("t")
    pair = top.source("ticks", ps.io.generator(rows, "n bigint")).parallel(2)
    pair.where("n > 0", name="one").where("n > 0", name="two").merge().sink("out", ps.io.collect())
    flow = top.build()
    assert [read.grouping.kind for read in flow.operator("two").inputs] == ["forward"]
    tasks = {spec.name: spec.tasks for spec in flow.operators}
    past = {"ticks": {0}, "parallel1.split": {0}}
    assert reopened(flow, tasks, {**past, "one": {1}, "two": {1}}) is None
    assert "operator 'two' had finished" in (reopened(flow, tasks, {**past, "one": {0}, "two": {1}}) or "")


def test_what_is_new_behind_operators_that_had_finished_gives_no_rows() -> None:
    assert grown("between") == ""
    assert grown(sink="new") == ""


def test_the_schedule_of_a_rate_is_compared() -> None:
    def rate(rows_per_second: float) -> dict:
        made = ps.Topology("t")
        made.source("ticks", ps.io.rate(rows_per_second, rows=7)).sink("out", ps.io.discard())
        return shape_of(made.build(), len)

    found = misfit(rate(5), rate(6)) or ""
    assert "has schedule 6 rows a second, 7 in all now, and had schedule 5 rows a second, 7 in all when" in found


def test_what_is_no_shape_is_told_apart() -> None:
    assert is_shape(json.loads(json.dumps(shape(counted()))))
    entry = {"kind": "map", "facts": {}}
    for found in (None, {}, {"operators": {}, "sinks": []}, {"operators": {"a": 1}, "sinks": {}}):
        assert not is_shape(found)
    for wrong in (
        {"kind": 1},
        {"facts": {"a": 1}},
        {"files": 1},
        {"files": {"digest": "d", "count": 1, "bytes": None}},
    ):
        assert not is_shape({"operators": {"a": {**entry, **wrong}}, "sinks": {}})
