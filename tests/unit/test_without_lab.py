"""The product without the laboratory: installed alone it works, and says how to get what the laboratory has."""

from __future__ import annotations

import json
import site
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = Path(sysconfig.get_paths()["purelib"])
IMPORT_ALL = """
import importlib, json, pkgutil, sys
import penstock
names = [found.name for found in pkgutil.walk_packages(penstock.__path__, "penstock.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(json.dumps([len(names), sorted(name for name in sys.modules if name.startswith("penstock_lab"))]))
"""
IMPORT_FACE = "import json, sys, penstock; print(json.dumps(sorted(sys.modules)))"
MAIN = "import sys; from penstock.cli import main; sys.argv = ['penstock', *{arguments!r}]; main()"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed here, apart from the laboratory."""
    folder = tmp_path_factory.mktemp("alone")
    for entry in SITE.iterdir():
        if not entry.name.startswith(("penstock_lab", "_editable_skbc_penstock_lab", "_penstock_lab")):
            (folder / entry.name).symlink_to(entry)
    return folder


def run(alone: Path, code: str) -> subprocess.CompletedProcess[str]:
    start = f"import site; site.addsitedir({str(alone)!r})\n"
    return subprocess.run([sys.executable, "-I", "-S", "-c", start + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("verb", ["bench", "reproduce"])
def test_verbs_of_the_laboratory_say_how_to_get_it(alone: Path, verb: str) -> None:
    done = run(alone, MAIN.format(arguments=[verb, "engine", "--quick"]))
    assert done.returncode == 2
    assert done.stderr == f"penstock: {verb!r} is part of the package 'penstock-lab'; run: pip install penstock-lab\n"
    assert done.stdout == ""


def test_the_command_line_works(alone: Path) -> None:
    done = run(alone, MAIN.format(arguments=["--help"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "place " in done.stdout
    assert "bench" not in done.stdout
    placed = run(alone, MAIN.format(arguments=["place", "linear:4", "2x4", "-s", "even", "--format", "json"]))
    assert json.loads(placed.stdout)["scheduler"] == "even"


def test_no_module_of_the_product_needs_the_laboratory(alone: Path) -> None:
    done = run(alone, IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    count, theirs = json.loads(done.stdout)
    assert count > 100
    assert theirs == []


def test_importing_the_package_imports_neither_spark_nor_what_jobs_alone_need() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_FACE], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    heavy = {"pyspark", "typer", "matplotlib", "highspy", "pymetis", "hypothesis", "penstock.deploy", "penstock_lab"}
    assert heavy & set(loaded) == set()


def test_the_fixture_hides_the_laboratory(alone: Path) -> None:
    assert site.ENABLE_USER_SITE is not None
    done = run(alone, "import penstock_lab")
    assert "No module named 'penstock_lab'" in done.stderr


# -- what is packed ----------------------------------------------------------------------------------------------------


def packed(root: Path, out: Path, *settings: str) -> set[str]:
    """The files of a wheel, without what a compiler would add."""
    options = [f"--config-settings={setting}" for setting in ("wheel.cmake=false", f"build-dir={out}/build", *settings)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, *options, "-w", str(out), str(root)], capture_output=True, check=True)
    (wheel,) = out.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def sources(folder: Path) -> set[str]:
    return {str(path.relative_to(folder.parent)) for path in folder.rglob("*.py")}


def test_the_laboratorys_wheel_has_its_modules_and_what_they_read(tmp_path: Path) -> None:
    files = packed(ROOT / "lab", tmp_path)
    assert sources(ROOT / "lab" / "penstock_lab") <= files
    assert {
        "penstock_lab/bench/ipc/netty/NettyPair.java",
        "penstock_lab/bench/place/references.json",
    } <= files
    assert any(name.endswith(".dist-info/entry_points.txt") for name in files)
    assert not any(name.startswith("penstock/") for name in files)


def test_the_products_wheel_has_its_own_modules_and_types_and_nothing_else(tmp_path: Path) -> None:
    files = packed(ROOT, tmp_path)
    assert sources(ROOT / "src" / "penstock") <= files
    assert {"penstock/py.typed", "penstock/_core.pyi"} <= files
    assert {name.partition("/")[0].partition("-")[0] for name in files} == {"penstock"}


def test_the_products_source_archive_is_without_the_laboratory(tmp_path: Path) -> None:
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        tops = {name.split("/")[1] for name in opened.getnames()}
    assert {"src", "core", "CMakeLists.txt", "pyproject.toml", "LICENSE"} <= tops
    assert "lab" not in tops
