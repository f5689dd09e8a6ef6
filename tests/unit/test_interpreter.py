"""Which Python workers run, and Spark's words about it, decided without Spark."""

from __future__ import annotations

import builtins
import dataclasses
import dis
import platform
import sys
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.deploy.driver.outcome import Reports, judge
from penstock.deploy.driver.spark_words import brief, reason
from penstock.deploy.session import asked_session
from penstock.deploy.session.interpreter import Interpreter, _question, interpreter_faults, unanswered
from penstock.errors import InvalidInput

HERE = Interpreter("/home/me/.venv/bin/python", "3.11.7", "26.0.0", "0.1.0")
JAVA = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier stage.
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/worker.py", line 4197, in invoke_udf
    func, profiler = read_command(pickleSer, infile)
{raised}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


def test_a_python_without_penstock_is_named_with_the_setting_to_write() -> None:
    there = Interpreter("/usr/bin/python3", "3.11.2", "", "", "ModuleNotFoundError: No module named 'penstock'")
    assert interpreter_faults(HERE, there, near=True) == [
        "workers run /usr/bin/python3 (Python 3.11.2), which has no penstock; set "
        "PYSPARK_PYTHON=/home/me/.venv/bin/python before the session is made, or "
        "spark.sparkContext.pythonExec = '/home/me/.venv/bin/python' in this one"
    ]
    far = interpreter_faults(HERE, there, near=False)
    assert "a Python of the executors with penstock 0.1.0" in far[0]
    assert "/home/me" not in far[0], "a path of this machine may mean nothing there"


def test_a_python_that_has_it_is_fit_unless_versions_differ() -> None:
    assert interpreter_faults(HERE, dataclasses.replace(HERE, executable="/elsewhere/python"), near=True) == []
    older = dataclasses.replace(HERE, pyarrow="25.0.0", penstock="0.0.9")
    first, second = interpreter_faults(HERE, older, near=True)
    assert "has penstock 0.0.9 but the driver has 0.1.0" in first
    assert "has pyarrow 25.0.0 but the driver has 26.0.0" in second
    broken = dataclasses.replace(HERE, missing="ImportError: libarrow.so")
    assert "cannot import penstock (ImportError: libarrow.so)" in interpreter_faults(HERE, broken, near=True)[0]


def test_the_question_answers_for_the_process_that_runs_it() -> None:
    executable, python, arrow, _, missing = _question()(0)
    assert (executable, python, arrow, missing) == (sys.executable, platform.python_version(), pa.__version__, "")
    named = {step.argval for step in dis.get_instructions(_question()) if step.opname == "LOAD_GLOBAL"}
    assert named <= set(dir(builtins)), "a name of its module would bring the module along"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'java.io.IOException: Cannot run program "/usr/bin/python99": error=2',
            "workers are to run pythonX but Spark cannot run '/usr/bin/python99' where the workers are; set PYSPARK_",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
            "workers are to run pythonX but workers run Python 3.12 but the driver runs 3.11; set PYSPARK_",
        ),
        (
            "Error while finding module specification (ModuleNotFoundError: No module named 'penstock')",
            "workers are to run pythonX but it has no penstock; set PYSPARK_",
        ),
    ],
)
def test_a_python_that_never_answers_is_told_in_one_line(text: str, said: str) -> None:
    assert unanswered(text, "pythonX", HERE, near=True).startswith(said)


def test_a_missing_module_comes_before_all_words_of_java() -> None:
    text = JAVA.format(raised="ModuleNotFoundError: No module named 'geometry.points'")
    error = judge(Reports("t", {}, {}, [], None, text, cancel_asked=False))
    assert str(error) == (
        "topology 't' failed in Spark: No module named 'geometry.points' where the workers are; ship it with "
        "spark.sparkContext.addPyFile('geometry.py') (a package as .zip), or install it there"
    )


def test_of_a_python_traceback_the_last_line_is_told_and_of_java_what_is_no_frame() -> None:
    assert reason(JAVA.format(raised="pickle.UnpicklingError: odd bytes")) == "pickle.UnpicklingError: odd bytes"
    assert reason("java.lang.Oops: no\n\tat a.b.C(D.scala:1)\n  more") == "java.lang.Oops: no more"
    assert len(brief("x" * 10_000)) == 600


# -- sessions that a user's file asks for ----------------------------------------------------------------------------


def test_a_session_that_a_file_asks_for_is_ours_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, str]]] = []
    plain: Any = lambda builder: "the session"  # noqa: E731
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", plain)
    monkeypatch.setattr(asked_session, "local_session", lambda master, config: made.append((master, config)))
    with asked_session.session_on_demand("local[3]"):
        builder = SparkSession.builder.master("local[*]").config("spark.sql.shuffle.partitions", 3)
        assert [builder.getOrCreate(), builder.getOrCreate()] == ["the session"] * 2
    assert made == [("local[3]", {"spark.sql.shuffle.partitions": "3"})]
    assert SparkSession.Builder.getOrCreate is plain


def test_a_file_that_fails_leaves_sparks_own_way_of_making_sessions() -> None:
    plain = SparkSession.Builder.getOrCreate
    with pytest.raises(ZeroDivisionError), asked_session.session_on_demand("local[3]"):
        _ = 1 / 0
    assert SparkSession.Builder.getOrCreate is plain
    with pytest.raises(InvalidInput, match="master 'mesos'"), asked_session.session_on_demand("mesos"):
        pass
