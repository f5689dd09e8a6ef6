"""`file.py:name` wherever a verb takes a topology, and several topologies placed together; no Spark is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import cli
from penstock.deploy import JobOptions
from penstock.errors import NotEnoughSlots
from penstock.model.constraints import Dedicated
from penstock.model.files import read_plan

PROGRAM = """
import penstock as ps

def built():
    top = ps.Topology("mine")
    rows = top.source("rows", ps.io.generator(lambda task, tasks: [(1,)], "n bigint"), tasks=2, load=0.2)
    rows.where("n > 1", name="kept", tasks=2, load=0.2).sink("out", ps.io.discard())
    top.require(ps.separate_nodes("rows/0", "rows/1"))
    return top

def failing():
    return built().source("rows", 3)

made = built()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mine_for_cli.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return "mine_for_cli.py:built"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["penstock", *words])
        status = cli.run_command()
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.mark.parametrize("verb", ["check", "place", "fuse", "compare"])
def test_a_program_is_taken_where_a_topology_is(program: str, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedulers = ["--schedulers", "best"] if verb == "compare" else []
    status, out, err = said(capsys, verb, program, "2x1", "--format", "json", *schedulers)
    assert (status, err) == (0, "")
    told = json.loads(out)
    match verb:
        case "check":
            assert (told["topology"], told["tasks"], told["constraints"], told["sound"]) == ("mine", 4, 1, True)
        case "compare":
            assert [row["scheduler"] for row in told["rows"]] == ["best"]
        case _:
            assert {task: slot["node"] for task, slot in told["assignment"].items()}.keys() == {
                "rows/0", "rows/1", "kept/0", "kept/1",
            }  # fmt: skip
            assert told["assignment"]["rows/0"]["node"] != told["assignment"]["rows/1"]["node"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("failing", "source 'rows' got 3; give ps.io.dataframe"),
        ("absent", "has no 'absent'; name a penstock.Topology in it"),
        ("", "'mine_for_cli.py:'"),
    ],
)
def test_a_mistake_in_a_program_is_one_line(
    program: str, name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("place", "fuse", "compare", "check"):
        status, _, err = said(capsys, verb, f"mine_for_cli.py:{name}", "2x1")
        assert status == 2
        assert err.startswith("penstock: ")
        assert err.count("\n") == 1
        assert told in err or "mine_for_cli.py has no ''" in err
    assert (
        "'mine_for_cli.py' is a program; name the topology in it" in said(capsys, "place", "mine_for_cli.py", "2x1")[2]
    )


def test_a_measured_program_is_placed_by_its_profile(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = {f"{name}/{i}": {"load": 0.5} for name in ("rows", "kept") for i in range(2)}
    Path("profile.json").write_text(json.dumps({"penstock": 1, "tasks": tasks, "edges": []}))
    status, out, _ = said(capsys, "place", program, "2x1", "--profile", "profile.json", "--format", "json")
    assert (status, json.loads(out)["max_utilisation"]) == (0, 1.0)
    Path("profile.json").write_text(json.dumps({"penstock": 1, "tasks": {"other/0": {"load": 0.5}}, "edges": []}))
    status, _, err = said(capsys, "place", program, "2x1", "--profile", "profile.json")
    assert (status, err) == (2, "penstock: profile.json: profile names unknown task 'other/0' of topology 'mine'\n")


def test_a_program_that_reads_no_dataframe_starts_no_spark(program: str) -> None:
    looks = (
        "import sys; from penstock.cli import run_command; from pyspark import SparkContext; "
        f"sys.argv = ['penstock', 'place', {program!r}, '2x1']; run_command(); "
        "print(SparkContext._active_spark_context)"
    )
    done = subprocess.run(
        [sys.executable, "-c", looks],
        env=os.environ, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "None"


def test_several_topologies_are_placed_together_and_each_gets_its_part(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = said(
        capsys, "place", program, "linear:10", "mine_for_cli.py:made", "3x8", "-o", "joint.json", "--split", "parts"
    )
    assert status == 0
    assert [line.partition(":")[0] for line in out.splitlines() if " between nodes, on " in line] == [
        "mine",
        "linear",
        "mine-2",
    ]
    assert sorted(path.name for path in Path("parts").iterdir()) == ["linear-10.json", "mine-2.json", "mine.json"]
    joint, part = read_plan("joint.json"), read_plan("parts/mine-2.json")
    assert {f"mine-2.{task}": slot for task, slot in part.assignment.items()}.items() <= joint.assignment.items()
    assert said(capsys, "check", program, "3x8", "--plan", "parts/mine-2.json")[0] == 0
    status, out, _ = said(capsys, "place", program, "linear:10", "3x8", "--format", "json")
    told = json.loads(out)
    assert told["parts"].keys() == {"mine", "linear:10"}
    assert len(told["assignment"]) == 14
    assert [constraint["operators"] for constraint in told["constraints"]] == [["mine.rows/0", "mine.rows/1"]]


def test_one_topology_is_its_own_part(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (program, "3x8", "-o", "plan.json", "--split", "parts", "--plot", "plan.png")
    status, out, err = said(capsys, "place", *words)
    assert status == 0, err
    assert [line for line in out.splitlines() if line.startswith("plan: ")] == [
        "plan: plan.json",
        "plan: parts/mine.json",
    ]
    assert read_plan("parts/mine.json") == read_plan("plan.json")
    assert said(capsys, "check", program, "3x8", "--plan", "parts/mine.json")[0] == 0


def test_what_cannot_be_placed_together_is_one_line(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (("linear:10", "linear:10", "1x12"), "the tasks need load 20 in all but the cluster offers 12"),
        (
            ("linear:10", "linear:10", "2x16", "--profile", "p.json"),
            "--profile is given 1 time for 2 topologies; give one",
        ),
        (
            ("linear:10", "--profile", "a.json", "--profile", "b.json", "1x12"),
            "--profile is given 2 times for 1 topology",
        ),
        (
            ("linear:10", "linear:10", "2x16", "--plot", "p.png"),
            "--plot draws the plan of one topology and there are 2",
        ),
        (("linear:10", "2x16", "--split", "mine_for_cli.py"), "it is a file; name a folder"),
        (("linear:10", "2x16", "--split", "no/folder"), "there is no folder no; make it first"),
        (("linear:10",), "place takes TOPOLOGY, or several, and then CLUSTER, not 'linear:10' alone"),
    ):
        status, _, err = said(capsys, "place", *words)
        assert (status, err.count("\n")) == (2, 1)
        assert told in err


def test_run_hands_on_what_it_is_told_of_a_plan(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[JobOptions] = []

    def start(topology: object, spark: object, options: JobOptions) -> None:
        heard.append(options)
        msg = "stop here"
        raise NotEnoughSlots(msg)

    monkeypatch.setattr("penstock.deploy.local_session", lambda master: None)
    monkeypatch.setattr("penstock.deploy.start_topology", start)
    Path("kept.json").write_text(json.dumps({"constraints": [{"type": "dedicated-worker", "operator": "kept"}]}))
    Path("profile.json").write_text(json.dumps({"penstock": 1, "tasks": {"kept/0": {"load": 0.5}}, "edges": []}))
    words = ["--scheduler", "ols", "--set", "alfa=0.5", "--theta", "2", "--tasks-per-worker", "3", "--seed", "7"]
    words += ["--constraints", "kept.json", "--profile", "profile.json", "--duration", "1"]
    monkeypatch.setattr(sys, "argv", ["penstock", "run", program, *words])
    assert cli.run_command() == 2
    (options,) = heard
    assert (options.scheduler, options.settings, options.theta) == ("ols", {"alfa": 0.5}, 2.0)
    assert (options.tasks_per_worker, options.seed, options.constraints) == (3, 7, (Dedicated("worker", "kept"),))
    assert options.profile is not None
    assert options.profile.tasks["kept/0"].load == 0.5
    Path("kept.json").write_text(json.dumps({"constraints": [{"type": "dedicated-worker", "operator": "absent"}]}))
    assert cli.run_command() == 2  # refused before a job is started
    assert len(heard) == 1


def test_what_a_program_prints_is_no_answer(tmp_path: Path, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    loud = PROGRAM.replace("def built():", "print('loading')\n\ndef built():\n    print('building')")
    (tmp_path / "loud_for_cli.py").write_text(loud)
    status, out, err = said(capsys, "place", "loud_for_cli.py:built", "2x1", "--format", "json")
    assert (status, json.loads(out)["penstock"]) == (0, 1)
    assert {"loading", "building"} <= set(err.split())


NOISY = """{"penstock": 1, "name": "noisy",
 "operators": [{"name": "a", "tasks": 2, "load": [3.0, 0.4]}, {"name": "b", "tasks": 8, "load": 0.01}],
 "streams": [{"from": "a", "to": "b", "rate": 1.0}]}"""


def test_what_native_code_prints_is_no_part_of_the_answer(tmp_path: Path) -> None:
    (tmp_path / "noisy.json").write_text(NOISY)  # METIS prints of an empty part when it cuts this into workers
    words = ("place", "noisy.json", "1x4", "--tasks-per-worker", "2", "--format", "json")
    done = subprocess.run(
        [sys.executable, "-c", "from penstock.cli import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
    )
    assert (done.returncode, json.loads(done.stdout)["scheduler"]) == (0, "best")
    assert "***" in done.stderr
