"""The command line as its users meet it: exit statuses, one-line complaints, JSON documents, files written or not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock import cli
from penstock.deploy.driver.options import JobOptions
from penstock.deploy.driver.preflight import Facts, decide_workers
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import NotEnoughSlots
from penstock_lab import reproduce

TOPOLOGY = {
    "penstock": 1,
    "name": "words",
    "operators": [{"name": "a", "tasks": 2, "load": 1.0}, {"name": "b", "tasks": 3, "load": 0.5}],
    "streams": [{"from": "a", "to": "b", "rate": 2.0}],
}


@dataclass
class Outcome:
    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, object]:
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def invoke(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, arguments)])
        status = cli.run_command()
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return invoke


def topology_file(folder: Path, **changes: object) -> Path:
    path = folder / "topology.json"
    path.write_text(json.dumps({**TOPOLOGY, **changes}))
    return path


def assert_one_line(outcome: Outcome, *parts: str) -> None:
    assert outcome.status == 2, outcome
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("penstock: ")
    for part in parts:
        assert part in lines[0]


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("place", "diamond:30", "3x6,3x4,4x2", "-o"), "plan.json"),
        (("place", "diamond:30", "3x6,3x4,4x2", "--plot"), "plan.png"),
        (("compare", "diamond:30", "3x6,3x4,4x2", "--plot"), "plans.png"),
        (("fuse", "diamond:30", "10x9", "-o"), "plan.json"),
        (("profile", "log", "-o"), "profile.json"),
        (("balance", "log", "-o"), "region.png"),
    ],
)
def test_a_file_in_a_folder_that_is_not_there_is_refused_alike_by_all_before_the_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_line(run(*words, f"nodir/{file}"), f"cannot write nodir/{file}: there is no folder nodir; make it first")
    (tmp_path / file).mkdir()
    assert_one_line(run(*words, file), f"cannot write {file}: it is a folder; name a file in it")
    assert list(tmp_path.iterdir()) == [tmp_path / file]


@pytest.mark.parametrize("verb", ["profile", "balance"])
def test_a_metric_log_that_is_not_there_is_named(run: Run, tmp_path: Path, verb: str) -> None:
    out = tmp_path / ("out.json" if verb == "profile" else "out.png")
    assert_one_line(run(verb, tmp_path / "absent", "-o", out), f"there is no folder {tmp_path / 'absent'}; give the")
    assert_one_line(run(verb, tmp_path, "-o", out), f"{tmp_path} has no folder 'tasks'; give the folder that penstock")


def test_reproduce_without_a_wish_lists_what_there_is_and_runs_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("reproduce")
    assert outcome.status == 2
    assert {line.split()[0] for line in outcome.out.splitlines()} >= {*reproduce.ITEMS}
    assert outcome.err == "penstock: reproduce needs items; name some of these, or --all (about 16 min)\n"
    assert list(tmp_path.iterdir()) == []
    assert_one_line(run("reproduce", "t3-fig5", "--all"), "--all beside t3-fig5; leave one of them out")
    assert reproduce.ABOUT_SECONDS.keys() == reproduce.ITEMS.keys()


@pytest.mark.parametrize("words", [("--all",), ("--out", "figures")])
def test_reproduce_says_first_what_will_run_when_all_are_asked_for(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    asked: list[object] = []

    def record(names: list[str], folder: Path, _: object) -> list[object]:
        asked.extend([names, folder])
        return []

    monkeypatch.setattr(reproduce, "reproduce", record)
    outcome = run("reproduce", *words)
    folder = "figures" if words[0] == "--out" else "out"
    assert outcome.status == 0
    assert asked == [list(reproduce.ITEMS), Path(folder)]
    assert outcome.err.startswith(f"reproducing {len(reproduce.ITEMS)} items into {folder}, about 16 min: t3-fig5, ")


def test_run_refuses_an_unknown_transport_before_spark_starts(run: Run) -> None:
    assert_one_line(run("run", "routes", "--transport", "shm"), "unknown transport 'shm'", "auto, socket, ring")


def test_place_prints_the_plan_itself_as_json(run: Run, tmp_path: Path) -> None:
    outcome = run("place", topology_file(tmp_path), "2x4", "--scheduler", "even", "--format", "json")
    assert outcome.status == 0
    plan = outcome.document
    assert plan["scheduler"] == "even"
    assert set(plan["assignment"]) == {"a/0", "a/1", "b/0", "b/1", "b/2"}  # type: ignore[call-overload]
    for key in ("penstock", "seed", "seconds", "cost", "inter_worker_cost", "lower_bound", "proved_optimal"):
        assert key in plan


def test_place_prints_a_table_that_names_every_task(run: Run, tmp_path: Path) -> None:
    outcome = run("place", topology_file(tmp_path), "2x4", "--scheduler", "even")
    assert outcome.status == 0
    for task in ("a/0", "a/1", "b/0", "b/1", "b/2"):
        assert task in outcome.out


def test_place_writes_the_plan_and_check_certifies_it(run: Run, tmp_path: Path) -> None:
    topology, plan = topology_file(tmp_path), tmp_path / "plan.json"
    assert run("place", topology, "2x4", "--scheduler", "even", "-o", plan).status == 0
    sound = run("check", topology, "2x4", "--plan", plan)
    assert (sound.status, sound.err) == (0, "")
    assert sound.out.startswith("sound: topology words")
    document = json.loads(plan.read_text())
    document["cost"] += 1
    plan.write_text(json.dumps(document))
    broken = run("check", topology, "2x4", "--plan", plan)
    assert broken.status == 2
    assert "the plan states cost" in broken.err


def test_check_holds_a_plan_to_the_constraints_that_it_records(run: Run, tmp_path: Path) -> None:
    topology, plan = topology_file(tmp_path), tmp_path / "plan.json"
    assert run("place", topology, "2x4", "--scheduler", "even", "-o", plan).status == 0
    document = json.loads(plan.read_text())
    away = "n2" if document["assignment"]["a/0"]["node"] == "n1" else "n1"
    document["constraints"] = [{"type": "resource", "operator": "a/0", "nodes": [away]}]
    plan.write_text(json.dumps(document))
    broken = run("check", topology, "2x4", "--plan", plan)
    assert broken.status == 2
    assert "constraint 0 (resource)" in broken.err


def test_check_names_every_fault_on_a_line_of_its_own(run: Run, tmp_path: Path) -> None:
    streams = [{"from": "a", "to": "z", "rate": -1}]
    path = topology_file(tmp_path, operators=[{"name": "a", "tasks": 0}, {"name": "a", "load": -1}], streams=streams)
    outcome = run("check", path)
    assert outcome.status == 2
    assert len(outcome.err.splitlines()) == 5


def test_check_json_lists_the_faults(run: Run, tmp_path: Path) -> None:
    outcome = run(
        "check", topology_file(tmp_path, operators=[{"name": "a", "load": 9}], streams=[]), "2x4", "--format", "json"
    )
    assert outcome.status == 2
    assert outcome.document["sound"] is False
    assert len(outcome.document["faults"]) == 2  # type: ignore[arg-type] # larger than every node, and than all together


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("place", "TOPOLOGY", "0x4"), ("no nodes",)),
        (("place", "TOPOLOGY", "3x0.9"), ("'a/0'", "load 1", "0.9", "split the operator")),
        (("place", "TOPOLOGY", "1x2"), ("3.5", "offers 2", "1.5 short")),
        (("place", "TOPOLOGY", "2x4", "--scheduler", "magic"), ("unknown scheduler 'magic'", "known: even")),
        (("place", "TOPOLOGY", "2x4", "--theta", "-1"), ("theta is -1",)),
        (("place", "TOPOLOGY", "2x4", "--theta", "nan"), ("theta is nan",)),
        (("place", "TOPOLOGY", "2x4", "--theta", "soon"), ("--theta", "soon")),
        (("place", "TOPOLOGY", "2x4", "--seed", "-1"), ("seed is -1",)),
        (("place", "TOPOLOGY", "2x4", "--tasks-per-worker", "0"), ("tasks_per_worker is 0",)),
        (("place", "TOPOLOGY", "2x4", "--set", "alfa"), ("NAME=VALUE",)),
        (
            ("place", "TOPOLOGY", "2x4", "--set", "rounds=2", "--set", "rounds=3"),
            ("--set gives rounds twice, 2 and 3",),
        ),
        (
            ("place", "TOPOLOGY", "2x4", "--scheduler", "ischeduler", "--set", "phi=4", "--set", "budget=300"),
            ("budget is 300 beside phi 4", "leave one of them out"),
        ),
        (("place", "TOPOLOGY", "2x4", "--set", "colour=red", "--scheduler", "even"), ("unknown setting 'colour'",)),
        (("place", "TOPOLOGY", "2x4", "--profile", "none.json"), ("cannot read none.json",)),
        (("place", "TOPOLOGY", "2x4", "--format", "xml"), ("xml",)),
        (("place", "none.json", "2x4"), ("cannot read none.json",)),
        (("place", "linear:7", "2x4"), ("linear:7", "even")),
        (("place", "circle:8", "2x4"), ("circle:8", "linear")),
        (("place", "TOPOLOGY"), ("CLUSTER",)),
        (("plaice", "TOPOLOGY"), ("plaice",)),
        (("compare", "TOPOLOGY", "2x4", "--schedulers", "even,magic"), ("unknown scheduler 'magic'",)),
        (("check", "TOPOLOGY", "--plan", "p.json"), ("--plan needs a CLUSTER",)),
        (("place", "TOPOLOGY", "2x4", "--scheduler", "even", "-o", "no/such/folder/plan.json"), ("cannot write",)),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    path = topology_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert_one_line(run(*(path if a == "TOPOLOGY" else a for a in arguments)), *parts)
    assert [entry.name for entry in tmp_path.iterdir()] == ["topology.json"]


def test_an_overloading_plan_is_refused_unless_asked_for(run: Run, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    cluster.write_text(
        json.dumps(
            {
                "nodes": [
                    {"name": "big", "capacity": 9, "slots": 1, "worker_capacity": None},
                    {"name": "small", "capacity": 1},
                ]
            }
        )
    )
    topology = topology_file(tmp_path)
    assert_one_line(run("place", topology, cluster, "--scheduler", "even"), "'even'", "'small'", "capacity is 1")
    outcome = run("place", topology, cluster, "--scheduler", "even", "--allow-overload", "--format", "json")
    assert outcome.status == 0
    assert float(str(outcome.document["max_utilisation"])) > 1


def test_constraints_that_a_scheduler_ignores_are_not_broken_in_silence(run: Run, tmp_path: Path) -> None:
    constraints = [{"type": "colocate-node", "operators": ["a", "b"]}]
    outcome = run("place", topology_file(tmp_path, constraints=constraints), "3x4", "--scheduler", "even")
    assert_one_line(outcome, "'even' does not honour constraints", "colocate-node")
    nowhere = [{"type": "resource", "operator": "a", "nodes": ["gpu7"]}]
    assert_one_line(run("place", topology_file(tmp_path, constraints=nowhere), "3x4"), "'gpu7'", "the cluster lacks")


def test_compare_prints_a_row_for_each_scheduler(run: Run, tmp_path: Path) -> None:
    outcome = run("compare", topology_file(tmp_path), "2x4", "--format", "json")
    assert outcome.status == 0
    rows = outcome.document["rows"]
    assert isinstance(rows, list)
    assert "assignment" not in rows[0]
    from penstock.optimise.place import SCHEDULERS

    assert {row["scheduler"] for row in rows} == set(SCHEDULERS)
    table = run("compare", topology_file(tmp_path), "2x4", "--schedulers", "even,best")
    assert [line.split()[0] for line in table.out.splitlines()[2:4]] == ["best", "even"]


def test_compare_draws_a_picture(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "placement.png"
    assert run("compare", topology_file(tmp_path), "2x4", "--schedulers", "even,t3", "--plot", picture).status == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("verb", ["topologies", "schedulers"])
def test_lists(run: Run, verb: str) -> None:
    names = [row["name"] for row in run(verb, "--format", "json").document["rows"]]  # type: ignore[attr-defined]
    table = run(verb).out
    assert len(names) >= 6
    assert all(name in table for name in names)


def test_every_verb_has_help(run: Run) -> None:
    for verb in ("check", "place", "compare", "topologies", "schedulers", "reproduce", "bench"):
        outcome = run(verb, "--help")
        assert outcome.status == 0
        assert "Usage" in outcome.out


def test_names_that_look_like_markup_are_printed_as_they_are(run: Run, tmp_path: Path) -> None:
    operators = [{"name": "[bold]evil", "tasks": 1}, {"name": ":smile:", "tasks": 1}, {"name": "[link=x]y", "tasks": 1}]
    path = topology_file(tmp_path, name="[/x]", operators=operators, streams=[])
    for verb in (("place", path, "2x4", "-s", "even"), ("compare", path, "2x4", "--schedulers", "even")):
        outcome = run(*verb)
        assert (outcome.status, outcome.err) == (0, "")
    for operator in operators:
        assert str(operator["name"]) in run("place", path, "2x4", "-s", "even").out


def test_what_is_no_file_is_not_written_over(run: Run, tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    assert run("place", topology_file(tmp_path), "2x4", "-s", "even", "-o", link).status == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["scheduler"] == "even"
    os.mkfifo(tmp_path / "fifo")
    assert_one_line(
        run("place", topology_file(tmp_path), "2x4", "-s", "even", "-o", tmp_path / "fifo"), "not a regular"
    )
    outcome = run("place", topology_file(tmp_path), "2x4", "-s", "even", "-o", tmp_path / "p.json", "--plot", "bad.txt")
    assert_one_line(outcome, "bad.txt", ".png")
    assert not (tmp_path / "p.json").exists()


def test_plans_short_of_memory_are_not_ranked_among_those_that_hold(run: Run, tmp_path: Path) -> None:
    operators = [{"name": "a", "tasks": 2, "memory_mb": 600}, {"name": "b", "tasks": 2, "memory_mb": 600}]
    path = topology_file(tmp_path, operators=operators)
    cluster = tmp_path / "c.json"
    nodes = [{"name": f"n{i}", "capacity": 4, "memory_mb": 1300} for i in range(3)]
    cluster.write_text(json.dumps({"nodes": nodes}))
    outcome = run("compare", path, cluster, "--schedulers", "t3,best", "--format", "json")
    rows = {row["scheduler"]: row for row in outcome.document["rows"]}  # type: ignore[attr-defined]
    assert "holds 2400 MB" in rows["t3"]["faults"][0]
    assert rows["best"]["faults"] == []
    assert run("compare", path, cluster, "--schedulers", "t3,best").out.splitlines()[2].startswith("best")


def test_best_searches_under_constraints(run: Run, tmp_path: Path) -> None:
    constraints = [{"type": "separate-nodes", "operators": ["b/0", "b/1"]}]
    outcome = run("place", topology_file(tmp_path, constraints=constraints), "2x4", "--format", "json")
    assert outcome.status == 0
    at = outcome.document["assignment"]
    assert at["b/0"]["node"] != at["b/1"]["node"]  # type: ignore[index]


def interruptible(pid: int) -> bool:
    """Whether the command has got as far as opening its pipe."""
    try:
        return any("pipe:" in os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").glob("[3-9]"))
    except FileNotFoundError:  # it closed one between the two looks
        return False


def test_an_interrupt_ends_a_native_search_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "place", "star:2000", "300x8", "--theta", "600", "--set", "effort=1e6"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True)
    assert wait_until(lambda: interruptible(process.pid), seconds=60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "penstock: stopped\n")


def test_the_installed_command_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "penstock",
        "place",
        "diamond:30",
        "3x6,3x4,4x2",
        "-s",
        "exact",
        "--format",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert (plan["cost"], plan["proved_optimal"]) == (146, True)


@pytest.mark.parametrize("verb", [("place", "diamond:30", "3x6,3x4,4x2"), ("fuse", "diamond:30", "3x6,3x4,4x2")])
def test_a_plan_is_not_written_over_a_picture(run: Run, verb: tuple[str, ...], tmp_path: Path) -> None:
    picture = tmp_path / "region.PNG"
    picture.write_bytes(b"a picture")
    assert_one_line(run(*verb, "-o", picture), "region.PNG", "what is written there is JSON")
    assert picture.read_bytes() == b"a picture"


def test_run_takes_the_last_slot_when_asked_to(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that place made for every slot of a master can be run there, by the way that the refusal names."""
    given: list[object] = []

    def start(topology: object, spark: object, options: JobOptions) -> None:
        given.append(options.take_last_slot)
        msg = "stop here"
        raise NotEnoughSlots(msg)

    monkeypatch.setattr("penstock.deploy.local_session", lambda master: None)
    monkeypatch.setattr("penstock.deploy.start_topology", start)
    for words in ([], ["--take-last-slot"]):
        assert_one_line(run("run", "routes", *words), "stop here")
    assert given == [False, True]
    with pytest.raises(NotEnoughSlots, match="--take-last-slot of the command"):
        decide_workers(Facts("local[2]", "4.0.0", 2, 0, ()), "routes", 45, wanted=2)


def test_complaints_name_what_was_given_in_one_line(run: Run, tmp_path: Path) -> None:
    topology, plan = topology_file(tmp_path), tmp_path / "plan.json"
    assert run("place", topology, "2x4", "-o", plan).status == 0
    assert_one_line(run("check", topology, plan), "plan.json is a plan, not a cluster")
    assert_one_line(run("check", topology, topology), "topology.json is a topology, not a cluster")
    assert_one_line(
        run("check", topology, "3x-1"), "cluster '3x-1' has '3x-1', whose capacity is -1; it must be finite"
    )
    wrong = run("check", topology, "--format", "xml")
    assert_one_line(wrong, "Invalid value for '--format': 'xml' is not one of 'table', 'json'")
    helped = run("place", "--help")
    assert "<class" not in helped.out
    (tmp_path / "profile.json").write_text('{"penstock": 1, "seconds": 0.04, "tasks": {"a/0": {"load": 0.1}}}')
    brief = run("place", topology, "2x4", "--profile", tmp_path / "profile.json")
    assert brief.status == 0
    assert brief.err.startswith("note: the profile covers 0.04 s: too short to say what a second takes")


def test_an_overload_that_is_asked_for_is_printed_with_its_faults_by_schedulers_that_do_not_look_at_load(
    run: Run,
) -> None:
    for scheduler in ("even", "flink"):
        made = run("place", "linear:8", "4x1", "-s", scheduler, "--allow-overload")
        assert made.status == 0, made.err
        assert "note: not deployable: node 'n1' carries load" in made.out
    together = run("place", "linear:8", "linear:4", "4x1", "-s", "even", "--allow-overload")
    assert "not deployable" in together.out, together.err
    assert_one_line(
        run("place", "linear:8", "4x1", "--allow-overload"),
        "it is 4 short",
        "schedulers that do not look at load (even, flink",
        "and 'best' does",
    )
    assert "schedulers that" not in run("place", "linear:8", "4x1").err
    assert_one_line(run("compare", "linear:8", "4x1"), "it is 4 short")
