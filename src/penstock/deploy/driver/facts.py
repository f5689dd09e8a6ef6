"""Facts about a Spark session, gathered through its context; the thin shell around `preflight`."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.deploy.driver.preflight import Executor, Facts
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.line.power import usable_cores
from penstock.errors import UnfitSession

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

REGISTER_SECONDS = 60.0  # executors of a fresh session arrive within this, on a busy machine
BREAK_SECONDS = 2.0  # from the moment that a JVM's connection breaks until its end can be seen
SETTLE_SECONDS = 4.0  # Spark's count of busy slots is up to 1.5 s old


def gather_facts(spark: SparkSession, workers: int = 1, at_work: Callable[[], Mapping[str, int]] = dict) -> Facts:
    """What the session offers, once its executors have registered or the time for that is over.

    Slots that look taken are looked at again for a while: the figure lags behind, and short queries end. It may also be
    too low for as long as nothing else happens in the session, so the workers of our own jobs (`at_work`) count anyhow.
    """

    def taken() -> int:
        return max(_busy(context), sum(at_work().values()))

    context = spark.sparkContext
    master = str(context.master)
    expected = _expected_slots(master) or workers + 1
    # Each question is a few calls into the JVM, and on a warm session the first answer is the last.
    slots = _slots(context)
    if slots < expected and not _in_one_process(context):
        wait_until(lambda: _slots(context) >= expected, REGISTER_SECONDS)
        slots = _slots(context)
    busy = taken()
    if busy and slots - busy <= workers:
        wait_until(lambda: slots - taken() > workers, SETTLE_SECONDS)
        busy = taken()
    conf = context.getConf()
    return Facts(
        master=master,
        spark_version=context.version,
        slots=slots,
        busy=busy,
        executors=_executors(context),
        dynamic_allocation=conf.get("spark.dynamicAllocation.enabled", "false") == "true",
        speculation=conf.get("spark.speculation", "false") == "true",
        jobs=tuple(at_work()),
        cores=math.ceil(usable_cores()) if is_in_process(master) else None,
    )


def slots_now(spark: SparkSession) -> int:
    """Tasks that can run at once, as Spark counts its executors at this moment."""
    return _slots(spark.sparkContext)


def is_in_process(master: str) -> bool:
    """Whether all slots are threads of the driver's JVM, however many its master says: `local`, `local[8]`."""
    return master == "local" or master.startswith("local[")


def require_classic(spark: SparkSession) -> None:
    """Raise UnfitSession for a session whose driver is elsewhere (Spark Connect) or has been stopped."""
    if not hasattr(spark, "createDataFrame"):
        msg = f"a SparkSession is needed, not {type(spark).__name__}; penstock.deploy.local_session() makes one"
        raise UnfitSession([msg])
    if getattr(spark, "_jsc", None) is None:
        msg = "the session is a Spark Connect client, which has no way to the JVM; run in the driver's own process"
        raise UnfitSession([msg])
    if (ending := jvm_ending(spark)) is not None:
        msg = f"{ending}, and the session with it; start a new process"
        raise UnfitSession([msg])
    if getattr(spark.sparkContext, "_jsc", None) is None:
        msg = "the Spark session has been stopped; make a new one"
        raise UnfitSession([msg])


def jvm_ending(spark: SparkSession, seconds: float = 0.0) -> str | None:
    """How Spark's JVM has ended, or ends within `seconds`; None while it runs, and where it is not our child."""
    return _ending(spark.sparkContext._gateway, seconds)


def jvm_ending_behind(error: Exception) -> str | None:
    """How this process's JVM has ended, where that is why a call of pyspark's has failed."""
    from pyspark import SparkContext

    return _ending(SparkContext._gateway, BREAK_SECONDS) if lost_jvm(error) else None


def _ending(gateway: Any, seconds: float) -> str | None:  # noqa: ANN401 # Py4J's
    process = getattr(gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"Spark's JVM ended (pid {process.pid}, {how})"


def lost_jvm(error: BaseException) -> bool:
    """Whether an error says that the JVM was not there to answer."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    return isinstance(error, Py4JNetworkError | OSError)


def driver_host(context: SparkContext) -> str:
    """The address at which executors reach the driver: loopback where they live in its process."""
    if _in_one_process(context):
        return "127.0.0.1"
    return str(context.getConf().get("spark.driver.host", "127.0.0.1"))


def bind_address(context: SparkContext) -> str:
    """The address at which the driver listens: Spark's own, where executors call an address that is forwarded to it."""
    if _in_one_process(context):
        return "127.0.0.1"
    return str(context.getConf().get("spark.driver.bindAddress", driver_host(context)))


def is_authenticated(context: SparkContext) -> bool:
    """Whether a process that talks to this session must hold its secret."""
    return str(context.getConf().get("spark.authenticate", "false")).lower() == "true"


def _expected_slots(master: str) -> int | None:
    """Slots that a `local-cluster[n,c,m]` will have when all its executors are there."""
    found = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master)
    return int(found[1]) * int(found[2]) if found else None


def _in_one_process(context: SparkContext) -> bool:
    return re.match(r"local(\[|$)", str(context.master)) is not None


def _java(context: SparkContext) -> Any:  # noqa: ANN401 # an object of the JVM
    return context._jsc.sc()


def _slots(context: SparkContext) -> int:
    scala = _java(context)
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def _busy(context: SparkContext) -> int:
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def _executors(context: SparkContext) -> tuple[Executor, ...]:
    listed = _java(context).statusStore().executorList(True)
    entries = [listed.apply(i) for i in range(listed.size())]
    return tuple(
        Executor(str(entry.id()), str(entry.hostPort()).rpartition(":")[0], int(entry.totalCores()))
        for entry in entries
        if int(entry.totalCores()) > 0
    )
