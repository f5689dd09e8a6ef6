"""Errors in users' functions: their own line, their row, their traceback, and none of ours."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import typer
from worker_kit import LocalJob

import penstock as ps
from penstock import cli
from penstock.deploy.driver.outcome import Reports, judge
from penstock.deploy.line.messages import Fault
from penstock.errors import JobFailed
from penstock.run.engine.user_errors import user_fault, with_source
from penstock.run.engine.worker import TaskFault

ROWS = [(1, "a"), (2, "b"), (0, "c")]


def number_of(row: Any) -> int:  # noqa: ANN401
    """Every failing function below fails in here, two lines on."""
    if row is None or row["n"] == 0:
        msg = "no zeroes"
        raise ValueError(msg)
    return int(row["n"])


LINE = number_of.__code__.co_firstlineno + 4


class Counts(ps.Stateful):
    schema = "n bigint"

    def on_row(self, key: object, row: ps.Row, state: object, timers: object, emit: Callable[[object], None]) -> None:
        emit((number_of(row),))


class Closes(Counts):
    def on_row(self, key: object, row: ps.Row, state: Any, timers: Any, emit: Callable[[object], None]) -> None:  # noqa: ANN401
        timers.after("0 seconds")

    def on_timer(self, key: object, time: object, state: Any, timers: Any, emit: Callable[[object], None]) -> None:  # noqa: ANN401
        number_of(None)


def batches(batch: pa.RecordBatch) -> pa.RecordBatch:
    for row in batch.to_pylist():
        number_of(row)
    return batch


def failing_rows(task: int, tasks: int) -> Iterator[tuple[int, str]]:
    for n, s in ROWS:
        number_of({"n": n})
        yield n, s


Stream = Any
FAILING: dict[str, Callable[[Stream], object]] = {
    "map": lambda rows: rows.map(lambda row: (number_of(row),), "n bigint"),
    "filter": lambda rows: rows.filter(number_of),
    "flat_map": lambda rows: rows.flat_map(lambda row: [(number_of(row),)], "n bigint"),
    "map_batches": lambda rows: rows.map_batches(batches),
    "reduce": lambda rows: rows.map(lambda row: ("k", row.n), "k string, n bigint").key_by("k").reduce(
        lambda a, b: ("k", number_of(b))
    ),
    "process": lambda rows: rows.key_by("s").process(Counts),
    "timer": lambda rows: rows.key_by("s").process(Closes),
    "direct": lambda rows: rows.direct(number_of).map(lambda row: (row.n,), "n bigint", tasks=3),
}  # fmt: skip
WITHOUT_A_ROW = {"map_batches", "timer", "batches", "generator"}


def fault_of(top: ps.Topology) -> TaskFault:
    with pytest.raises(TaskFault) as caught:
        LocalJob(top.build(), 1).run()
    return caught.value


def source(top: ps.Topology, function: Any = None) -> Stream:  # noqa: ANN401
    return top.source("rows", ps.io.generator(function or (lambda task, tasks: iter(ROWS)), "n bigint, s string"))


@pytest.mark.parametrize("kind", [*FAILING, "rows", "batches", "generator"])
def test_a_failing_function_shows_its_own_line_and_row_and_no_frame_of_ours(kind: str) -> None:
    top = ps.Topology("fails")
    if kind == "generator":
        source(top, failing_rows).sink("out", ps.io.discard())
    elif kind in {"rows", "batches"}:
        function: Any = number_of if kind == "rows" else batches
        source(top).sink("out", ps.io.callback(function, rows=kind == "rows"))
    else:
        FAILING[kind](source(top)).sink("out", ps.io.discard())  # type: ignore[attr-defined]
    fault = fault_of(top)
    assert f"failed: {'in sink ' if kind in {'rows', 'batches'} else 'ValueError: no zeroes'}" in str(fault)
    assert f"ValueError: no zeroes (test_user_errors.py:{LINE} in number_of)" in str(fault)
    assert ("n=0" in str(fault)) == (kind not in WITHOUT_A_ROW), str(fault)
    told = r"in on_timer of key 'a' at \S+\n" if kind == "timer" else ""
    assert re.search(rf"ValueError: no zeroes\n{told}\Z", fault.trace), fault.trace
    assert fault.trace.count("Traceback") == 1
    files = set(re.findall(r'File "([^"]+)"', fault.trace))
    assert files == {__file__}, fault.trace


def test_a_failing_expression_is_told_with_its_text_and_row() -> None:
    for text in ("10 div n as q", "where"):
        top = ps.Topology("fails")
        rows = source(top)
        (rows.where("10 div n > 1") if text == "where" else rows.select("s", text)).sink("out", ps.io.discard())
        fault = fault_of(top)
        assert "expression '10 div n" in str(fault)
        assert "division by zero" in str(fault)
        assert "on row 2, {'n': 0}" in str(fault)
        assert "Traceback" not in fault.trace, "no line of the user's raised it"


def test_a_result_that_does_not_fit_is_told_where_its_function_is_written() -> None:
    def misfit(row: ps.Row) -> tuple[str]:
        return ("text",)

    here = f"(test_user_errors.py:{misfit.__code__.co_firstlineno} in misfit)"
    tops = [ps.Topology("rows"), ps.Topology("batches"), ps.Topology("direct"), ps.Topology("generator")]
    source(tops[0]).map(misfit, "n bigint").sink("out", ps.io.discard())
    source(tops[1]).map_batches(misfit).sink("out", ps.io.discard())
    twice = source(tops[2]).map(lambda row: (row.n,), "n bigint").direct(misfit)
    twice.map(lambda row: (row.n,), "n bigint", tasks=2).sink("out", ps.io.discard())
    source(tops[3], lambda task, tasks: [("text",)]).sink("out", ps.io.discard())
    for top in tops[:3]:
        assert here in str(fault_of(top)), str(fault_of(top))
    assert "in <lambda>)" in str(fault_of(tops[3]))


def test_what_a_user_raised_from_stays_and_code_of_others_is_told_where_it_was_called() -> None:
    def parse(row: ps.Row) -> tuple[int]:
        try:
            return (json.loads("{" + row.s)["n"],)
        except ValueError as error:
            msg = f"bad text {row.s!r}"
            raise LookupError(msg) from error

    def plain(row: ps.Row) -> tuple[int]:
        return (json.loads("{" + row.s)["n"],)

    top = ps.Topology("chain")
    source(top).map(parse, "n bigint").sink("out", ps.io.discard())
    trace = fault_of(top).trace
    assert "JSONDecodeError" in trace
    assert "direct cause of the following exception" in trace
    assert trace.endswith("LookupError: bad text 'a'\n")
    other = ps.Topology("library")
    source(other).map(plain, "n bigint").sink("out", ps.io.discard())
    fault = fault_of(other)
    assert f"(test_user_errors.py:{plain.__code__.co_firstlineno + 1} in plain) on row 0, Row(n=1" in str(fault)
    assert "json/decoder.py" in fault.trace.replace("\\", "/"), "what the library did stays in the traceback"


def test_a_long_row_is_shortened() -> None:
    top = ps.Topology("long")
    rows = top.source("rows", ps.io.generator(lambda task, tasks: [(0, "x" * 5000)], "n bigint, s string"))
    rows.map(lambda row: (number_of(row),), "n bigint").sink("out", ps.io.discard())
    text = str(fault_of(top))
    assert len(text) < 500
    assert text.endswith("...")


# -- on the driver ---------------------------------------------------------------------------------------------------


def failed() -> JobFailed:
    try:
        number_of(None)
    except ValueError as error:
        fault = TaskFault("parse/0", 1, "n1", error)
    told = Fault(1, "task", str(fault), "parse/0", "n1", fault.trace)
    error = judge(Reports("words", {}, {}, [told], None, "py4j.Py4JJavaError: at org.apache", cancel_asked=False))
    assert isinstance(error, JobFailed)
    return error


def test_a_failed_job_prints_the_users_traceback_and_nothing_of_java() -> None:
    error = failed()
    with pytest.raises(JobFailed) as caught:
        raise error
    printed = "".join(traceback.format_exception(caught.value))
    assert f"{error}\nTraceback (most recent call last):" in printed
    assert printed.rstrip().endswith("ValueError: no zeroes")
    assert "raise ValueError(msg)" in printed
    assert not re.search("Py4J|org.apache", printed)
    assert (error.__cause__, error.__context__) == (None, None)


def test_the_command_prints_it_too_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fails(typer.Typer):
        def __call__(self, **_: object) -> None:
            raise failed()

    monkeypatch.setattr(cli, "command_line", Fails)
    assert cli.run_command() == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2] == "ValueError: no zeroes"
    assert lines[-1].startswith("penstock: topology 'words': operator 'parse' (task 0, worker 1, node 'n1') failed: ")


def test_lines_of_a_notebooks_cell_come_from_the_driver() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/tmp/ipykernel_9/77.py", line 2, in parse\n'
        '  File "/mine.py", line 3, in helper\n    return 1 / 0\n           ^^^^^\n'
        "ZeroDivisionError: division by zero\n"
    )
    lines = {("/tmp/ipykernel_9/77.py", 2): "    return helper(row)\n"}  # noqa: S108 - a name, not a file
    whole = with_source(trace, lambda file, line: lines.get((file, line), ""))
    assert '77.py", line 2, in parse\n    return helper(row)\n  File' in whole
    assert with_source(whole, lambda file, line: "twice") == whole
    assert with_source("") == "", "a lost connection has no traceback"


def test_a_cell_is_called_a_cell_and_groups_and_notes_stay() -> None:
    cell = compile("def parse(row):\n    return 1 / 0\n", "/tmp/ipykernel_9/77.py", "exec")  # noqa: S108
    names: dict[str, Any] = {}
    exec(cell, names)  # noqa: S102 - as a notebook does
    with pytest.raises(ZeroDivisionError) as caught:
        names["parse"](None)
    assert user_fault(caught.value).where == "notebook cell:2 in parse"
    group = ExceptionGroup("two", [ValueError("first"), KeyError("second")])
    group.add_note("a note of the user's")
    fault = user_fault(group)
    assert all(part in fault.trace for part in ("ValueError: first", "KeyError: 'second'", "a note of the user's"))
