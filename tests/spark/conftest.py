"""Real Spark sessions, one at a time: a process has one SparkContext, so tests are grouped by master."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession

from penstock.deploy import local_session

ZONE = "ZONE=a"  # a tag of every node: an attribute of its executor
MASTERS = ("local[8]", "local-cluster[2,2,1024]")


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever else runs on this machine has its temporary files elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture(scope="session", params=MASTERS)
def spark(request: pytest.FixtureRequest, own_temporary_folder: None) -> Iterator[SparkSession]:
    """A session with eight or four slots; pytest runs all tests of one master before it makes the next."""
    # Short-lived JVMs: the optimising compiler would cost more than it brings. Slots are a number, cores are not: SQL
    # gets the partitions of a small machine. Without that compiler 48 MB are set aside for code, which these many
    # queries fill.
    session = local_session(
        request.param,
        config={"spark.default.parallelism": "4", "spark.executorEnv.SPARK_EXECUTOR_ATTRIBUTE_ZONE": ZONE[5:]},
        java_options="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
    )
    yield session
    session.stop()


@pytest.fixture
def footprint() -> Footprint:
    """Taken before the test's own job."""
    return Footprint()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under xdist (`--dist loadgroup`) all tests of one master run in one process, where they share its session."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and "spark" in callspec.params:
            item.add_marker(pytest.mark.xdist_group(str(callspec.params["spark"])))
