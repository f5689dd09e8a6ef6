"""Finding a Java, and folders that outlive nobody; no JVM is started beyond `java -version`."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.accumulators import AccumulatorTCPServer

from penstock.deploy.session import py4j_log
from penstock.deploy.session.local import UNKNOWN_MODULE, find_java_home, java_version, require_master, runs_here
from penstock.deploy.session.private_folder import LOCK, PrivateFolder, reap
from penstock.deploy.session.py4j_log import REPEATED, leave_out, leave_out_lost_accumulators
from penstock.errors import InvalidInput


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("said", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_versions_of_java_are_read(tmp_path: Path, said: str, major: int) -> None:
    assert java_version(fake_java(tmp_path, said)) == major
    assert java_version(tmp_path / "no" / "java") == 0


def test_an_old_java_home_gives_way_to_a_newer_java_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_1"), fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    monkeypatch.setenv("PATH", f"{new.parent}{os.pathsep}{os.environ['PATH']}")
    assert find_java_home(tmp_path) is None
    assert "JAVA_HOME" not in os.environ


def test_the_java_brought_along_ignores_the_module_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    home = find_java_home(tmp_path)
    assert home is not None
    java = home / "bin" / "java"
    assert stat.S_IMODE(java.stat().st_mode) == 0o700
    answer = subprocess.run(
        [str(java), UNKNOWN_MODULE, "-Dx=two words", "-version"],
        capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert "version" in answer.stderr


def test_a_private_folder_is_private_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = PrivateFolder("test")
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    reap()
    assert folder.path.exists(), "a living owner's folder was taken away"
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_dead_process_is_reaped_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = (
        "import os; from penstock.deploy.session.private_folder import PrivateFolder; "
        "kept = PrivateFolder('x'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    held = tmp_path / "penstock-held"
    held.mkdir()
    with (held / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert len(list(tmp_path.iterdir())) == 2
        reap()
        assert list(tmp_path.iterdir()) == [held]


def test_a_folder_that_is_reaped_at_birth_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plain, calls = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            reap()  # as another process would, which finds a lock that nobody holds yet
        plain(descriptor, how)

    monkeypatch.setattr("penstock.deploy.session.private_folder.fcntl.flock", late)
    folder = PrivateFolder("test")
    assert calls == [fcntl.LOCK_EX, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX]
    assert (folder.path / LOCK).exists()
    assert list(tmp_path.iterdir()) == [folder.path]
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_who_writes_into_a_folder_is_ended_before_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[bool] = []
    folder = PrivateFolder("test", lambda: seen.append(folder.path.exists()))
    folder.remove()
    assert seen == [True]
    assert not folder.path.exists()


def test_a_fork_that_ends_leaves_its_parents_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = PrivateFolder("test")
    with monkeypatch.context() as patch:
        patch.setattr("penstock.deploy.session.private_folder.os.getpid", lambda: 1)
        folder.remove()
    assert folder.path.exists()


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[3,2]", True),
        ("local-cluster[3,3,1024]", True),
        ("spark://host:7077", False),
        ("spark://a:7077,b:7077", False),
        ("yarn", False),
        ("k8s://https://10.0.0.1:6443", False),
        ("k8s://cluster", False),
    ],
)
def test_masters_of_every_kind_are_passed_on_and_only_local_ones_see_our_files(master: str, here: bool) -> None:
    require_master(master)
    assert runs_here(master) == here


@pytest.mark.parametrize("master", ["", "yarn-client", "mesos://x:1", "k8s://", "k8s:// a", "local[0]", "spark://x"])
def test_what_is_no_master_is_refused_before_spark_is_asked(master: str) -> None:
    with pytest.raises(InvalidInput, match="Penstock does not know the master"):
        require_master(master)


def test_py4j_says_nothing_twice_and_others_say_all(caplog: pytest.LogCaptureFixture) -> None:
    leave_out()
    leave_out()
    root = logging.getLogger()
    assert sum(type(kept) is type(py4j_log._REPEATED) for kept in root.filters) == 1
    for file, message in (
        ("py4j/java_gateway.py", REPEATED),
        ("py4j/java_gateway.py", "another"),
        ("mine.py", REPEATED),
    ):
        root.handle(logging.LogRecord("root", logging.ERROR, file, 1, message, None, None))
    assert [(record.module, record.msg) for record in caplog.records] == [
        ("java_gateway", "another"),
        ("mine", REPEATED),
    ]


@pytest.mark.parametrize("name", ["py4j.clientserver", "py4j.java_gateway"])
def test_py4j_logs_no_command_that_carries_a_secret(caplog: pytest.LogCaptureFixture, name: str) -> None:
    leave_out()
    with caplog.at_level(logging.DEBUG, name):
        for command in ("setLocalProperty\nspenstock.secret\ns0123", "set\nsspark.authenticate.secret\ns0123", "count"):
            logging.getLogger(name).debug(f"Command to send: {command}")
    assert [record.getMessage() for record in caplog.records] == [
        "A command that names a secret",
        "A command that names a secret",
        "Command to send: count",
    ]


def test_the_end_of_the_jvm_is_no_traceback_of_the_server_of_accumulators(capsys: pytest.CaptureFixture[str]) -> None:
    server: Any = object.__new__(AccumulatorTCPServer)
    context: Any = SimpleNamespace(_accumulatorServer=server)
    leave_out_lost_accumulators(context)
    for error, is_told in ((EOFError(), False), (ConnectionResetError(), False), (ValueError("no token"), True)):
        try:
            raise error
        except type(error):
            server.handle_error(None, ("127.0.0.1", 1))
        assert ("Traceback" in capsys.readouterr().err) == is_told
    leave_out_lost_accumulators(SimpleNamespace(_accumulatorServer=None))  # type: ignore[arg-type]
