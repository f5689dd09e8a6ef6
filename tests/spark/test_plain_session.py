"""Sessions as people make them: plain ones, whose workers run a Python without Penstock, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

SECONDS_MAX = 240  # of a program that hangs
PROGRAM = """
import json, os, sys
from pathlib import Path

from penstock.deploy.session.local import find_java_home

home = find_java_home(Path("private"))
if home is not None:
    os.environ["JAVA_HOME"] = str(home)
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
import penstock as ps
sys.path.insert(0, "modules")
import doubling

top = ps.Topology("plain")
rows = top.source("numbers", ps.io.generator(lambda task, tasks: [(1,), (2,)], "i bigint"))
rows.map(doubling.double, "i bigint").sink("out", ps.io.collect())

def told():
    try:
        return [row.i for row in top.run(spark).collect()]
    except ps.PenstockError as error:
        return [type(error).__name__, str(error)]

answers = [told()]
spark.sparkContext.pythonExec = sys.executable
answers.append(told())
spark.sparkContext.addPyFile("modules/doubling.py")
answers.append(told())
print(json.dumps(answers))
spark.stop()
"""


def test_a_plain_session_is_told_what_it_lacks_and_runs_once_it_has_it(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    bare = tmp_path / "bare" / "bin" / "python"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "doubling.py").write_text("def double(row):\n    return (2 * row.i,)\n")
    quick = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "PYSPARK_PYTHON": str(bare)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env={**os.environ, **quick}, capture_output=True, text=True,
        timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    without, unshipped, whole = json.loads(done.stdout)
    assert without[0] == "UnfitSession"
    assert f"workers run {bare} (Python " in without[1]
    assert f"which has no penstock; set PYSPARK_PYTHON={sys.executable} before" in without[1]
    assert unshipped[0] == "JobFailed"
    assert "failed in Spark: No module named 'doubling'" in unshipped[1]
    assert "addPyFile('doubling.py')" in unshipped[1]
    assert whole == [2, 4]
