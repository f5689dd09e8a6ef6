"""Several jobs in one metric log: told apart, chosen by name, and files that are damaged named."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.deploy.metrics.logged_jobs import LoggedJob, choose_job, logged_jobs
from penstock.deploy.metrics.metric_log import MetricLog, read_metric_table
from penstock.deploy.metrics.profile_builder import logged_job
from penstock.errors import InvalidInput
from penstock.run.engine.meters import TABLES

WORDS, LATER, ROUTES = (LoggedJob(i, t, at) for i, t, at in (("a", "words", 1), ("c", "words", 3), ("b", "routes", 2)))


def write_log(folder: Path, job: str, topology: str, task: str = "lines/0", at: float = 1.0, **changes: int) -> None:
    log = MetricLog(job, folder, topology)
    for name in ("tasks", "edges"):
        row: dict[str, object] = dict.fromkeys(TABLES[name].names, 1)
        row |= (
            {"node": "n1", "task": task, "idle": False, "ended": False}
            if name == "tasks"
            else {"source": task, "target": "count/0", "distance": "call"}
        )
        log.take(0, name, pa.RecordBatch.from_pylist([row | changes if name == "tasks" else row], TABLES[name]))
    log.close()
    for path in folder.glob(f"*/{job}-*.parquet"):
        os.utime(path, (at, at))


def test_a_folders_jobs_are_known_with_their_topologies_the_latest_last(tmp_path: Path) -> None:
    write_log(tmp_path, "aa", "words", at=5)
    write_log(tmp_path, "bb", "routes", at=3)
    assert [(job.id, job.topology) for job in logged_jobs(tmp_path)] == [("bb", "routes"), ("aa", "words")]
    assert [row["task"] for row in read_metric_table(tmp_path, "tasks")] == ["lines/0"] * 2
    assert len(read_metric_table(tmp_path, "tasks", "bb")) == 1


def test_of_one_topology_the_latest_job_is_taken_and_told() -> None:
    chosen, note = choose_job("log", [WORDS, LATER])
    assert chosen is LATER
    assert note.startswith("the latest of 2 jobs: c (words, 1970-")
    assert note.endswith("--job takes another")
    assert choose_job("log", [WORDS, LATER], job="a") == (WORDS, "")
    assert choose_job("log", [WORDS]) == (WORDS, "")


def test_of_several_topologies_somebody_has_to_say_which() -> None:
    jobs = [WORDS, ROUTES, LATER]
    with pytest.raises(
        InvalidInput, match=r"log holds jobs of several topologies, routes, words; say which with --top"
    ):
        choose_job("log", jobs)
    assert choose_job("log", jobs, topology="routes") == (ROUTES, "")
    assert choose_job("log", jobs, topology="words")[0] is LATER
    with pytest.raises(InvalidInput, match=r"log has no topology 'word'; it holds a \(words, .*, b \(routes, .*, c"):
        choose_job("log", jobs, topology="word")
    with pytest.raises(InvalidInput, match="log has no job 'a' and topology 'routes'"):
        choose_job("log", jobs, job="a", topology="routes")
    with pytest.raises(InvalidInput, match="holds no job yet"):
        choose_job("log", [])


@pytest.mark.parametrize("content", [b"", b"PAR1 torn off", b"\x00" * 100_000])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    write_log(tmp_path, "aa", "words")
    bad = tmp_path / "tasks" / "aa-00000.parquet"
    bad.write_bytes(content)
    for look in (lambda: logged_job(tmp_path), lambda: read_metric_table(tmp_path, "tasks")):
        with pytest.raises(
            InvalidInput, match=r"the metric log is damaged: .*aa-00000.parquet cannot be read"
        ) as caught:
            look()
        assert len(str(caught.value)) < 600
        assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_told_before_a_job_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"metrics cannot be written to '.*/file/log': Not a directory; give a fol"):
        MetricLog("aa", tmp_path / "file" / "log")

    def refuses(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuses)
    with pytest.raises(InvalidInput, match="Permission denied"):
        MetricLog("aa", tmp_path / "log")
