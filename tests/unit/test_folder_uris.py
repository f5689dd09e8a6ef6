"""Folders by URI: what Spark calls them, and that nobody reads a key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs
from store_kit import Memory, committed

from penstock.checkpoint.inspection import find, list_kept, opened
from penstock.checkpoint.publication import ParquetPublication
from penstock.checkpoint.shown_log import ShownLog
from penstock.checkpoint.store import Store
from penstock.deploy.worker.keeper import Keeper
from penstock.deploy.worker.reachable import sink_probes
from penstock.errors import PenstockError
from penstock.run.contract import SETTING_EPOCH, TaskContext
from penstock.run.engine.worker import Checkpoint
from penstock.run.operators.sinks.folder import Folder
from penstock.run.operators.sinks.plain import Parquet
from penstock.run.operators.sinks.staged import PARQUET, EpochFiles
from penstock.run.operators.sinks.uris import hadoop_path, hadoop_uri, shown

KEYS = ("AKIA", "K3Y", "s3cret")
WITH_KEY = "s3://AKIA:K3Y/s3cret@bucket/job?region=eu-west-1"
NUMBERS = pa.schema([("n", pa.int64())])

TABLE = [  # as given; as people read it; a file "a b" in it, in Spark's log
    ("hdfs://namenode:8020/out", "hdfs://namenode:8020/out", "hdfs://namenode:8020/out/a%20b"),
    ("hdfs://namenode:8020/of@me", "hdfs://namenode:8020/of@me", "hdfs://namenode:8020/of%40me/a%20b"),
    ("hdfs://me@namenode/out", "hdfs://namenode/out", "hdfs://namenode/out/a%20b"),
    ("abfss://c@acc.dfs.core.windows.net/out", "abfss://c@acc.dfs.core.windows.net/out", None),
    ("abfss://c:K3Y@acc.dfs.core.windows.net/out?client_secret=K3Y", "abfss://c@acc.dfs.core.windows.net/out", None),
    ("s3://bucket/deep/out", "s3://bucket/deep/out", "s3a://bucket/deep/out/a%20b"),
    ("s3://bucket/out/", "s3://bucket/out/", "s3a://bucket/out/a%20b"),
    ("s3://bucket", "s3://bucket", "s3a://bucket/a%20b"),
    ("s3://bucket/50%25%20more", "s3://bucket/50%25%20more", "s3a://bucket/50%25%20more/a%20b"),
    ("s3://bucket/x:y@z/out", "s3://bucket/x:y@z/out", "s3a://bucket/x%3Ay%40z/out/a%20b"),
    ("s3://AKIA:K3Y@bucket/out", "s3://bucket/out", "s3a://bucket/out/a%20b"),
    ("s3://AKIA:K3Y%2Fx@bucket/out", "s3://bucket/out", "s3a://bucket/out/a%20b"),
    ("s3://AKIA:K3Y/x@bucket/out", "s3://bucket/out", "s3a://bucket/out/a%20b"),
    ("s3://AKIA:K3Y@bucket/out?region=x", "s3://bucket/out", "s3a://bucket/out/a%20b"),
    ("gs://anonymous@bucket/out", "gs://bucket/out", "gs://bucket/out/a%20b"),
    ("gcs://bucket/out", "gcs://bucket/out", "gs://bucket/out/a%20b"),
]


@pytest.mark.parametrize(("given", "read", "logged"), TABLE, ids=[row[0] for row in TABLE])
def test_a_folder_has_a_name_for_people_and_one_for_spark(given: str, read: str, logged: str | None) -> None:
    logged = logged or f"{read}/a%20b"
    assert shown(given) == read
    assert hadoop_uri(given, "a b") == hadoop_uri(shown(given), "a b") == logged
    assert Folder(given, fs.LocalFileSystem()).given == read.rstrip("/")
    folder = Folder(given, fs.PyFileSystem(Memory()))
    assert folder.hadoop_uri("a b") == logged
    assert folder.inner("_staging").named("x") == f"{read.rstrip('/')}/_staging/x"


def test_paths_stay_as_they_are(tmp_path: Path) -> None:
    for path in ("/a b/c?d@e:f", "relative", "file:///a%20b"):
        assert shown(path) == path
    assert hadoop_path("/a b/c?d@e:f") == "/a b/c?d@e:f"
    assert hadoop_path("s3://AKIA:K3Y@bucket/a%20b?region=x") == "s3a://bucket/a b"
    assert Folder(str(tmp_path)).hadoop_uri("a b") == f"file://{tmp_path}/a%20b"


def test_nothing_is_put_into_a_uri_to_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sink_probes([("out", WITH_KEY)], "job", 1) == []
    assert list(tmp_path.iterdir()) == []


def memory_store() -> Store:
    return Store(WITH_KEY, fs.PyFileSystem(Memory()))


def written() -> Store:
    store = memory_store()
    committed(store, store.claim("counts"), 1)
    return store


def stale(store: Store) -> None:
    store.claim("counts", after=store.claim("counts") - 1)


def unreadable() -> None:
    store = written()
    store._files.replace("manifests/00000001.json", b"{")
    store.latest()


class Full(Memory):
    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        raise OSError(28, "no space left")


def sink_without_checkpoint() -> None:
    Parquet(WITH_KEY, NUMBERS).open(TaskContext("out", 0, 1))


FAILING: dict[str, Callable[[], Any]] = {
    "a store that cannot be read": lambda: Store(WITH_KEY.replace("region", "regio")),
    "a store that is no URI": lambda: Store("s3://AKIA:K3Y/s3cret@bucket/a b"),
    "another topology's": lambda: written().claim("other"),
    "taken over": lambda: stale(written()),
    "removed": lambda: written().require_current(9),
    "no such savepoint": lambda: written().saved("none"),
    "a savepoint twice": lambda: [(s := written()).savepoint("a", s.manifest(1)), s.savepoint("a", s.manifest(1))],
    "committed again": lambda: (s := written()).commit(s.manifest(1)),
    "not seen by a worker": lambda: memory_store().write_part(3, 1, 0, []),
    "damaged": unreadable,
    "no room": lambda: Store(WITH_KEY, fs.PyFileSystem(Full())).claim("counts"),
    "no checkpoints": lambda: opened(WITH_KEY),
    "no epoch of that name": lambda: find(written(), "none"),
    "no epoch": lambda: find(memory_store(), None),
    "a folder that cannot be read": lambda: Folder(WITH_KEY.replace("region", "regio")),
    "a sink that is no URI": lambda: ParquetPublication("s3://AKIA:K3Y/s3cret@bucket/a b", "out", "/staging"),
    "a sink without checkpoints": sink_without_checkpoint,
    "a log that cannot be read": lambda: unsound_log().entries(),
}


def unsound_log() -> ShownLog:
    memory = Memory()
    folder = Folder(WITH_KEY, fs.PyFileSystem(memory))
    log = ShownLog(folder)
    log.begin([])
    memory.files = {path: b"v9" if path.endswith("/0") else data for path, data in memory.files.items()}
    return log


@pytest.mark.parametrize("fails", list(FAILING))
def test_no_text_shows_a_key(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fails == "no checkpoints":
        monkeypatch.setattr("penstock.checkpoint.inspection.Store", lambda _: memory_store())
    with pytest.raises(PenstockError) as caught:
        FAILING[fails]()
    for part in KEYS:
        assert part not in str(caught.value)
    assert "s3://bucket" in str(caught.value)
    assert caught.value.__suppress_context__ or "AKIA" not in str(caught.value.__cause__)


def test_no_file_shows_a_key(tmp_path: Path) -> None:
    store = written()
    assert [str(kept) for kept in list_kept(store)] == ["epoch 1"]
    memory = Memory()
    folder = Folder(WITH_KEY, fs.PyFileSystem(memory))
    assert repr(folder) == "Folder('s3://bucket/job')"
    folder.make()
    folder.write("part 1", b"rows")
    (info,) = folder.files()
    assert json.loads(ShownLog(folder).entry(info))["path"] == "s3a://bucket/job/part%201"
    # What a sink has staged is named in the manifest, by the name in which texts have it.
    staging = Folder(str(tmp_path))
    staging.given = folder.given
    files = EpochFiles(staging, TaskContext("out", 0, 1, settings={SETTING_EPOCH: 1}), NUMBERS, PARQUET)
    files.add(pa.record_batch([[1]], schema=NUMBERS))
    (staged,) = files.stage(1)
    assert staged.finish().path.startswith("s3://bucket/job/part-00000-out-")
    keeper = Keeper(Checkpoint(str(tmp_path), 1, 1, None), 0, print, print, lambda: False)
    keeper._store = store
    assert (
        str(keeper._unkept(OSError("full"))) == "worker 0 could not keep its part of an epoch in s3://bucket/job: full"
    )
