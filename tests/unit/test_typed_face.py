"""What a type checker and an editor know of `ps`: mypy, strict, over programs as users write them."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import fields
from pathlib import Path

import pytest
from mypy import api

import penstock as ps
from penstock.deploy import JobOptions
from penstock.errors import InvalidInput
from penstock.model.constraints import Pin
from penstock.model.plan import Plan

ROOT = Path(__file__).parents[2]
PROGRAM = """
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import penstock as ps


def endless(top: ps.Topology, spark: SparkSession) -> dict[str, DataFrame]:
    job: ps.Job = top.start(spark, scheduler="best", workers=2, metrics="metrics", prometheus_port=0)
    job.metrics("tasks")
    plan, profile = job.plan, job.profile()
    gain: float = job.replan("exact").gain
    job.stop()
    return job.results


def sinks(stream: ps.DataStream) -> None:
    def one(row: ps.Row) -> None: ...
    def many(batch: pa.RecordBatch) -> None: ...

    stream.sink("rows", ps.io.callback(one, rows=True))
    stream.sink("batches", ps.io.callback(many))
    stream.sink("files", ps.io.parquet("out", mode="append"))
"""
MISTAKES = """
from pyspark.sql import SparkSession

import penstock as ps

spark = SparkSession.builder.getOrCreate()
top = ps.Topology("words")
top.run(spark, schedular="best")
top.start(spark, worker=2)
top.run(spark, workers="two")
top.run()
ps.Jobs
top.source("lines", ps.io.dataframe(3))
top.source("lines", ps.io.files("x")).sink("out", ps.io.parquet("out", mode="replace"))
reveal_type(top.run(spark))
reveal_type(top.start(spark))
reveal_type(top.start(spark).results)
reveal_type(top.start(spark).stop())
"""


def readme_job() -> str:
    """The first block of code under "A first job" of the README, whether it is fenced or indented."""
    section = (ROOT / "README.md").read_text().partition("## A first job\n")[2]
    fenced = re.search(r"\A\s*```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    indented = re.search(r"\A\n*((?: {4}.*\n|\n)+)", section)
    found = fenced or indented
    assert found is not None
    return textwrap.dedent(found.group(1))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy says in strict mode to programs that use the package as it is installed, one line each, by program."""
    folder = tmp_path_factory.mktemp("typed")
    programs = {"first_job": readme_job(), "program": PROGRAM, "mistakes": MISTAKES}
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
    config = folder / "mypy.ini"  # pyarrow's own types are incomplete, so that its users leave them out
    config.write_text("[mypy]\n[mypy-pyarrow.*]\nignore_missing_imports = True\nfollow_imports = skip\n")
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--no-pretty", "--config-file", str(config)]
    files = [str(folder / f"{name}.py") for name in programs]
    out, err, _ = api.run([*options, "--cache-dir", str(folder / "cache"), *files])
    assert err == ""
    found: dict[str, list[str]] = {name: [] for name in programs}
    for line in out.splitlines():
        name = Path(line.partition(":")[0]).stem
        if name in found:  # and not the package itself, whose own check has other settings
            found[name].append(re.sub(r"^.*?:(\d+): ", r"\1: ", line))
    return found


@pytest.mark.xdist_group("mypy")
def test_users_programs_are_typed(said: dict[str, list[str]]) -> None:
    assert "top.run(spark)" in readme_job()
    assert said["first_job"] == []
    assert said["program"] == []


@pytest.mark.xdist_group("mypy")
def test_mistakes_are_told_and_answers_have_types(said: dict[str, list[str]]) -> None:
    told = {
        int(line.partition(":")[0]): line for line in said["mistakes"] if "note: " not in line or "Revealed" in line
    }
    assert 'Unexpected keyword argument "schedular" for "run"' in told[8]
    assert 'Unexpected keyword argument "worker" for "start"' in told[9]
    assert 'Argument "workers" to "run" of "Topology" has incompatible type "str"' in told[10]
    assert 'Missing positional argument "spark"' in told[11]
    assert 'Module has no attribute "Jobs"' in told[12]
    assert 'Argument 1 to "dataframe" has incompatible type "int"; expected "DataFrame"' in told[13]
    assert 'Argument "mode" to "parquet" has incompatible type' in told[14]
    frame = r'"pyspark\.sql\.(classic\.)?dataframe\.DataFrame"'
    assert re.search(f"Revealed type is {frame}", told[15])
    assert 'Revealed type is "penstock.deploy.driver.job.Job"' in told[16]
    assert re.search(r"dict\[(builtins\.)?str, pyspark\.sql\.dataframe\.DataFrame\]", told[17])
    assert re.search(f"Revealed type is {frame}", told[18])
    assert set(told) == set(range(8, 19))


@pytest.mark.parametrize("method", ["run", "start"])
def test_options_and_their_defaults_are_those_of_the_value_that_carries_them(method: str) -> None:
    parameters = inspect.signature(getattr(ps.Topology, method)).parameters
    shown = {name: given.default for name, given in parameters.items() if given.kind is given.KEYWORD_ONLY}
    assert shown == {option.name: option.default for option in fields(JobOptions)}
    assert list(parameters) == ["self", "spark", *shown]


def test_an_editor_shows_what_every_option_means() -> None:
    shown = inspect.getdoc(ps.Topology.start) or ""
    assert [option.name for option in fields(JobOptions) if f"\n    {option.name}: " not in shown] == []
    assert "options are those of `start`" in (inspect.getdoc(ps.Topology.run) or "")


def test_nothing_of_the_face_is_any() -> None:
    for kind in (ps.Topology, ps.Job, ps.DataStream, ps.KeyedStream):
        for name, member in inspect.getmembers(kind):
            function = member.fget if isinstance(member, property) else member
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            notes = inspect.get_annotations(inspect.unwrap(function))
            assert [what for what, note in notes.items() if re.search(r"\bAny\b", str(note))] == [], f"{kind}.{name}"
    for name in ps.io.__all__:
        notes = inspect.get_annotations(getattr(ps.io, name))
        assert [what for what, note in notes.items() if re.search(r"\bAny\b", str(note))] == [], name


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda top: top.run(None, schedular="best"), "run and start have no option 'schedular'; did you mean"),
        (
            lambda top: top.start(None, colour=3),
            "run and start have no option 'colour'; known: scheduler, ",
        ),
        (lambda top: top.run(), "run: missing a required argument: 'spark'; write for example run(spark"),
        (lambda top: top.start(None, "best"), "start: too many positional arguments; write for example start(spark"),
        (lambda top: top.run(None, transport="shm"), "transport"),
        (lambda top: top.run(spark=None, transport="shm"), "unknown transport 'shm'"),
        (lambda top: top.start(spark=None, transport="shm"), "unknown transport 'shm'"),
        (lambda top: top.run(None, scheduler="bset"), "unknown scheduler 'bset'"),
    ],
)
def test_calls_that_no_checker_sees_are_refused_as_kindly(call: object, said: str) -> None:
    top = ps.Topology("t")
    top.source("s", ps.io.generator(lambda task, tasks: [], "n bigint")).sink("out", ps.io.discard())
    with pytest.raises(InvalidInput, match=re.escape(said)):
        call(top)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": "a"}, "seed is 'a'; give a whole number"),
        ({"seed": True}, "seed is True; give a whole number"),
        ({"theta": "x"}, "theta is 'x'; give a number"),
        ({"take_last_slot": "yes"}, "take_last_slot got 'yes'; give True or False"),
        ({"prometheus_host": 5}, "prometheus_host got 5; give a host name"),
        ({"frames": 3}, "frames got 3; give a dict of DataFrames"),
        ({"settings": 3}, "settings got 3; give a dict"),
        ({"settings": {"alfa": 1}}, "unknown setting 'alfa' of scheduler 'best'; known: effort"),
        ({"scheduler": "ols", "settings": {"alfa": 7}}, "setting 'alfa' is 7; it must be between 0 and 1"),
        ({"scheduler": "ischeduler", "settings": {"phi": "a"}}, "phi is 'a'; it must be a whole number"),
        ({"tasks_per_worker": 0}, "tasks_per_worker is 0; give a whole number from 1"),
        ({"constraints": ps.colocate("a", "b")}, "constraints got Together.*; give a list of constraints"),
        ({"constraints": ["a"]}, "constraints got 'a'; give a list of constraints"),
        ({"constraints": [Pin("a/0", "n1", 0)]}, "constraints got Pin.*; which worker .* is a plan's to say"),
        ({"node": "rack"}, "node is 'rack'; give 'executor' or 'host'"),
    ],
)
def test_options_of_the_wrong_kind_are_refused_before_spark_is_asked(options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        JobOptions(**options).require_sound()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "given"),
    [("scheduler", "best"), ("settings", {}), ("workers", 1), ("tasks_per_worker", 5), ("theta", 1.0), ("seed", 4)],
)
def test_what_a_given_plan_would_leave_unheard_is_refused(name: str, given: object) -> None:
    plan = Plan("by hand", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, {})
    JobOptions(plan=plan).require_sound()
    with pytest.raises(InvalidInput, match=f"{name} is .* beside a plan, .*; leave {name} out, or leave the plan out"):
        JobOptions(plan=plan, **{name: given}).require_sound()  # type: ignore[arg-type]
