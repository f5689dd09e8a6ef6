"""What the script that times Spark's recovery finds to kill is what runs a query's functions."""

from __future__ import annotations

import importlib
import os

import pytest
from pyspark.sql import SparkSession

from penstock_lab.bench.engine import peers


def test_the_processes_that_are_killed_run_the_functions(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(peers.SCRIPTS))
    script = importlib.import_module("spark_recovery")
    ran = set(spark.sparkContext.parallelize(range(2), 2).map(lambda _: os.getpid()).collect())
    daemons = set(spark.sparkContext.parallelize(range(2), 2).map(lambda _: os.getppid()).collect())
    found = set(script.python_workers())
    assert ran & found
    assert not daemons & found
