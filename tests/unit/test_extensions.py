"""Schedulers, policies and verbs of other packages: real entry points of real folders, good ones and broken ones."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from extension_kit import install, penstock, policy_package, scheduler_package

import penstock as ps
from penstock.errors import InvalidInput, NoPlanFound
from penstock.model.constraints import Apart
from penstock.optimise.place import REGISTRY, SCHEDULERS, find_scheduler
from penstock.run.region.policies import REGISTRY as POLICY_REGISTRY
from penstock.run.region.policies import find_policy

GRAPH = ps.OperatorGraph("t", (ps.Operator("a", 2), ps.Operator("b")), (ps.Stream("a", "b"),))
CLUSTER = ps.Cluster.uniform([(2, 4.0)])


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on `sys.path`, whose modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]
    importlib.invalidate_caches()


def broken(folder: Path, module: str, text: str, name: str = "mine") -> None:
    install(folder, module, "penstock.schedulers", {name: f"{module}:ROW"}, {module: text})


# -- through the command line ------------------------------------------------------------------------------------------


def test_another_packages_scheduler_is_listed_compared_and_used(tmp_path: Path) -> None:
    scheduler_package(tmp_path, "first-node", "first")
    listed = json.loads(penstock("schedulers", "--format", "json", path=tmp_path).stdout)
    assert [row["name"] for row in listed["rows"]] == [*SCHEDULERS, "first"]
    assert listed["rows"][-1] == {
        "name": "first",
        "summary": "everything on the first node",
        "looks_at": "cpu",
        "package": "first-node",
    }
    assert listed["refused"] == []
    assert "first-node" in penstock("schedulers", path=tmp_path).stdout
    plan = json.loads(penstock("place", "linear:4", "2x4", "-s", "first", "--format", "json", path=tmp_path).stdout)
    assert plan["scheduler"] == "first"
    assert {slot["node"] for slot in plan["assignment"].values()} == {"n1"}
    compared = penstock("compare", "linear:4", "2x4", "--theta", "0.1", "--format", "json", path=tmp_path)
    assert "first" in {row["scheduler"] for row in json.loads(compared.stdout)["rows"]}


def test_a_broken_package_costs_its_own_name_and_no_other(tmp_path: Path) -> None:
    broken(tmp_path, "bad_one", "import no_such_module\n")
    done = penstock("place", "linear:4", "2x4", "-s", "even", path=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    refused = penstock("place", "linear:4", "2x4", "-s", "mine", path=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        "penstock: scheduler 'mine' of package 'bad_one' cannot be used: ModuleNotFoundError: No module named "
        "'no_such_module'; mend or remove that package\n"
    )
    listed = penstock("schedulers", path=tmp_path)
    assert listed.returncode == 0
    assert "note: scheduler 'mine' of package 'bad_one' cannot be used" in listed.stdout
    compared = penstock("compare", "linear:4", "2x4", "--theta", "0.1", "--format", "json", path=tmp_path)
    assert [one["scheduler"] for one in json.loads(compared.stdout)["failed"]] == ["mine"]


def test_verbs_of_ours_stay_ours_and_broken_verbs_say_what_is_wrong(tmp_path: Path) -> None:
    text = "def register(app):\n    @app.command('place')\n    def place() -> None:\n        print('theirs')\n"
    points = {"place": "theirs:register", "absent": "theirs:nothing", "other": "theirs:register"}
    install(tmp_path, "theirs", "penstock.commands", points, {"theirs": text})
    done = penstock("place", "linear:4", "2x4", "-s", "even", path=tmp_path)
    assert done.returncode == 0
    assert "theirs" not in done.stdout
    assert (
        "note: verb 'place' is in the packages 'penstock' and 'theirs'; the name stays with 'penstock'" in done.stderr
    )
    assert penstock("topologies", path=tmp_path).stderr == ""
    for name, why in (("absent", "has no attribute 'nothing'"), ("other", "it adds 0 verbs of that name")):
        refused = penstock(name, "--any", "thing", path=tmp_path)
        assert refused.returncode == 2
        assert f"penstock: verb {name!r} of package 'theirs' cannot be used: " in refused.stderr
        assert why in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert penstock("--help", path=tmp_path).returncode == 0


def test_a_verb_of_another_package_works(tmp_path: Path) -> None:
    text = "def register(app):\n    @app.command()\n    def greet() -> None:\n        print('hello')\n"
    install(tmp_path, "greeter", "penstock.commands", {"greet": "greeter:register"}, {"greeter": text})
    assert penstock("greet", path=tmp_path).stdout == "hello\n"


# -- in Python ---------------------------------------------------------------------------------------------------------


def test_a_name_of_ours_is_not_taken_over(packages: Path) -> None:
    scheduler_package(packages, "greedy", "best")
    assert find_scheduler("best") is SCHEDULERS["best"]
    (refused,) = REGISTRY.refused()
    assert (refused.name, refused.package) == ("best", "greedy")
    assert refused.reason == (
        "scheduler 'best' is in the packages 'penstock' and 'greedy'; the name stays with 'penstock'; "
        "rename one or remove one"
    )
    assert REGISTRY.added() == {}


def test_a_name_that_two_packages_have_is_neithers(packages: Path) -> None:
    scheduler_package(packages, "one", "mine")
    scheduler_package(packages, "two", "mine")
    with pytest.raises(InvalidInput, match="scheduler 'mine' is in the packages 'one' and 'two'; rename one or remove"):
        find_scheduler("mine")
    assert [refused.package for refused in REGISTRY.refused()] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ROW = 3", "it names a int; name a penstock.optimise.contract.Scheduler"),
        (
            "from penstock.optimise.contract import Scheduler\nROW = Scheduler('other', '', 'bad')",
            "its row is called 'other'; give both the same name",
        ),
        (
            "from penstock.optimise.contract import Scheduler\nROW = Scheduler('mine', '', 'bad')",
            "AttributeError: module 'bad' has no attribute 'schedule'",
        ),
        (
            "from penstock.optimise.contract import Scheduler\nROW = Scheduler('mine', '', 'bad')\nschedule = 3",
            "schedule of bad is no function",
        ),
        (
            "from penstock.optimise.contract import Scheduler\nROW = Scheduler('mine', '', 'bad', ['cpu'])",
            "its row has looks_at that is no frozenset",
        ),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(packages: Path, text: str, why: str) -> None:
    broken(packages, "bad", text)
    with pytest.raises(InvalidInput) as caught:
        find_scheduler("mine")
    assert str(caught.value).startswith("scheduler 'mine' of package 'bad' cannot be used: ")
    assert why in str(caught.value)
    assert [refused.reason for refused in REGISTRY.refused()] == [str(caught.value)]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise ValueError('two\\nlines')", "raised ValueError: two lines"),
        ("return None", "returned NoneType instead of a Placement"),
        ("return Placement(np.zeros(1, dtype=np.int32))", "gave no array of 3 whole numbers as node"),
        ("return Placement(np.full(3, 2, dtype=np.int32))", "gave a node from 2 to 2 on 2 nodes"),
        ("return Placement(np.zeros(3))", "gave no array of 3 whole numbers as node"),
        (
            "return Placement(np.zeros(3, dtype=np.int32), lower_bound=None)",
            "gave None as its lower bound, which is no",
        ),
        ("return Placement(np.zeros(3, dtype=np.int32), notes='one')", "gave notes that are no tuple of texts"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
    ],
)
def test_what_a_scheduler_of_another_package_does_wrong_is_one_line(packages: Path, body: str, why: str) -> None:
    text = (
        "import numpy as np\nfrom penstock.optimise.contract import Placement, Scheduler\n"
        f"ROW = Scheduler('mine', '', 'wild')\ndef schedule(problem, options):\n    {body}\n"
    )
    broken(packages, "wild", text)
    with pytest.raises(NoPlanFound, match=f"scheduler 'mine' of package 'wild' {why}") as caught:
        ps.place(GRAPH, CLUSTER, "mine")
    assert "\n" not in str(caught.value)
    _, failures = ps.compare(GRAPH, CLUSTER, ["mine", "even"])
    assert set(failures) == {"mine"}


@pytest.mark.parametrize(
    ("graph", "cluster", "why"),
    [
        (replace(GRAPH, constraints=(Apart("node", ("a", "b")),)), CLUSTER, r"breaks constraint 0 \(separate-nodes\)"),
        (
            GRAPH,
            ps.Cluster((ps.Node("n1", 2.0), ps.Node("n2", 4.0))),
            "fails its certificate: node 'n1' carries load 3",
        ),
    ],
)
def test_a_promise_that_another_package_breaks_is_not_ours_to_answer_for(
    packages: Path, graph: ps.OperatorGraph, cluster: ps.Cluster, why: str
) -> None:
    text = (
        "import numpy as np\nfrom penstock.optimise.contract import Placement, Scheduler\n"
        "ROW = Scheduler('mine', '', 'wild', frozenset({'cpu', 'memory', 'bandwidth', 'constraints'}))\n"
        "def schedule(problem, options):\n    return Placement(np.zeros(3, dtype=np.int32))\n"
    )
    broken(packages, "wild", text)
    with pytest.raises(NoPlanFound, match=f"scheduler 'mine' of package 'wild' made a plan that {why}"):
        ps.place(graph, cluster, "mine")
    assert set(ps.compare(graph, cluster, ["mine", "best"])[1]) <= {"mine"}


def test_unknown_names_list_those_of_other_packages_too(packages: Path) -> None:
    scheduler_package(packages, "first-node", "first")
    with pytest.raises(InvalidInput, match=r"unknown scheduler 'frist'; known: even, .*, best, first$"):
        find_scheduler("frist")


def test_a_policy_of_another_package_balances_a_region(packages: Path) -> None:
    policy_package(packages, "evenly", "mine")
    top = ps.Topology("region")
    numbers = top.source("numbers", ps.io.generator(lambda task, tasks: range(3), "n bigint"))
    squares = numbers.parallel(2, balance="mine").map(lambda row: {"n": row.n}, "n bigint").merge()
    squares.sink("out", ps.io.discard())
    assert top.build().regions() == {"parallel1": 2}
    assert find_policy("mine").build().start((0, 1)) == (500, 500)
    assert POLICY_REGISTRY.added()["mine"].package == "evenly"


def test_a_broken_policy_is_refused_where_it_is_asked_for(packages: Path) -> None:
    text = (
        "from penstock.run.region.policies import PolicyEntry\nROW = PolicyEntry('mine', '', 'odd')\n"
        "def build(settings):\n    return 3\n"
    )
    install(packages, "odd", "penstock.policies", {"mine": "odd:ROW"}, {"odd": text})
    top = ps.Topology("region")
    numbers = top.source("numbers", ps.io.generator(lambda task, tasks: range(3), "n bigint"))
    with pytest.raises(InvalidInput, match=r"policy 'mine' of package 'odd' cannot be used: .*build of odd makes 3"):
        numbers.parallel(2, balance="mine")
    assert find_policy("knee").name == "knee"


def test_a_package_holds_its_own_scheduler_and_policy_to_the_shipped_contract(tmp_path: Path) -> None:
    """As its authors would: pytest over two lines, in a process that knows nothing of our tests."""
    scheduler_package(tmp_path, "first-node", "first")
    policy_package(tmp_path, "evenly", "mine")
    (tmp_path / "test_theirs.py").write_text(
        "from penstock.testing import policy_contract, scheduler_contract\n"
        "TestFirst = scheduler_contract('first')\n"
        "TestMine = policy_contract('mine')\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        "-c",
        os.devnull,
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*command, str(tmp_path / "test_theirs.py")], capture_output=True, text=True, env=environment, check=False
    )
    assert "14 passed" in done.stdout, done.stdout
