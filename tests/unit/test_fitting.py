"""What a driver does before its workers begin: it compares its topology with the store's, and a store with itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from flow_kit import Recorder
from store_kit import TOPOLOGY, committed

import penstock as ps
from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.inspection import verified
from penstock.checkpoint.store import Store
from penstock.deploy.attempt.epochs import CheckpointOrder, DriverEpochs
from penstock.deploy.attempt.recovery import cause_of
from penstock.deploy.driver.outcome import Reports, judge
from penstock.deploy.line.messages import Fault
from penstock.deploy.worker import main
from penstock.errors import CheckpointDamaged, InvalidInput, JobFailed
from penstock.flow.schema import parse_schema
from penstock.run.columns.kernels import Aggregate
from penstock.run.columns.unwritten import in_bytes
from penstock.run.contract import TaskContext
from penstock.run.engine.faults import StateRefused, TaskFault
from penstock.run.operators.keyed.unwindowed import AggregateFold


def numbers(task: int, tasks: int) -> Iterator[dict[str, int]]:
    yield {"n": 1}


def driver(root: Path, aggregate: str = "count(*)", savepoint: str | None = None) -> DriverEpochs:
    top = ps.Topology("one")
    rows = top.source("numbers", ps.io.generator(numbers, "n long"))
    rows.key_by("n").aggregate(x=aggregate, name="counts").sink("out", ps.io.collect())
    return DriverEpochs(CheckpointOrder(str(root), savepoint=savepoint), top.build())


def commit(at: DriverEpochs) -> Manifest:
    manifest = Manifest(at.last_epoch + 1, at.attempt, "one", {"numbers": 1, "counts": 1}, ())
    at.store.commit(manifest)
    at.committed = manifest
    return manifest


def test_a_topology_that_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    first = driver(tmp_path)
    first.open()
    commit(first)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    said = r"^topology 'one' cannot go on from epoch 1: operator 'counts' has aggregates x=sum\(n\) now, and had"
    with pytest.raises(InvalidInput, match=said):
        driver(tmp_path, "sum(n)").open()
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
    first.store.require_current(first.attempt)  # a job that runs there goes on
    driver(tmp_path).open()


def test_an_epoch_is_compared_with_the_topology_that_committed_it(tmp_path: Path) -> None:
    first = driver(tmp_path)
    first.open()
    first.store.savepoint("before", commit(first))
    shutil.rmtree(tmp_path / "manifests")
    (tmp_path / "committed.json").unlink()  # as if nothing had been committed, so that another topology may begin
    second = driver(tmp_path, "sum(n)")
    second.open()
    commit(second)
    driver(tmp_path, "sum(n)").open()
    with pytest.raises(InvalidInput, match="has aggregates x=sum"):
        driver(tmp_path, "sum(n)", savepoint="before").open()
    driver(tmp_path, savepoint="before").open()
    assert len(list((tmp_path / "shapes").iterdir())) == 3  # one where the topology changed, none where it stayed


def test_a_job_that_has_kept_no_shape_is_compared_by_its_operators(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.commit(Manifest(1, store.claim("one"), "one", {"numbers": 1, "other": 1}, ()))
    with pytest.raises(InvalidInput, match="epoch 1 holds the state of operator 'other', which topology 'one' does"):
        driver(tmp_path).open()


def test_a_shape_that_is_damaged_is_told(tmp_path: Path) -> None:
    first = driver(tmp_path)
    first.open()
    commit(first)
    (path,) = (tmp_path / "shapes").iterdir()
    path.write_bytes(path.read_bytes().replace(b"count(*)", b"count(n)"))
    said = (
        r"shapes/00000001.json is damaged: .*; put it back from a copy of the folder; or, where the topology is what it"
    )
    with pytest.raises(CheckpointDamaged, match=said):
        driver(tmp_path).open()
    assert "shapes/00000001.json: its " in verified(first.store).damaged[0][1]
    shutil.rmtree(tmp_path / "shapes")  # as the error says
    again = driver(tmp_path)
    again.open()
    assert again.last_epoch == 1
    assert [path.name for path in (tmp_path / "shapes").iterdir()] == ["00000002.json"]


def test_manifests_that_are_all_gone_are_no_new_job(tmp_path: Path) -> None:
    first = driver(tmp_path)
    first.open()
    commit(first)
    first.store.savepoint("kept", commit(first))
    shutil.rmtree(tmp_path / "manifests")
    said = "manifests is damaged: epochs were committed, and none is there; restore the folder from a backup"
    with pytest.raises(CheckpointDamaged, match=said):
        driver(tmp_path).open()
    with pytest.raises(CheckpointDamaged, match=said):
        verified(Store(str(tmp_path)))
    again = driver(tmp_path, savepoint="kept")  # which the advice names
    again.open()
    assert again.last_epoch == 2


def test_a_store_of_an_earlier_version_notes_its_next_commit(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    committed(store, store.claim(TOPOLOGY), 1)
    (tmp_path / "committed.json").unlink()
    later = Store(str(tmp_path))
    committed(later, later.claim(TOPOLOGY), 2)
    assert later.record.has_committed


def written(root: Path, out: str) -> DriverEpochs:
    top = ps.Topology("one")
    top.source("numbers", ps.io.generator(numbers, "n long")).sink("out", ps.io.parquet(root / out))
    return DriverEpochs(CheckpointOrder(str(root / "kept")), top.build())


def test_a_sink_may_write_elsewhere_when_its_files_have_come_along(tmp_path: Path) -> None:
    first = written(tmp_path, "here")
    first.open()
    commit(first)
    with pytest.raises(InvalidInput, match=f"sink 'out' has place {tmp_path}/there now, and had place {tmp_path}/here"):
        written(tmp_path, "there").open()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / f"part-00000-out-{first.store.token()}-1-00000001.parquet").write_bytes(b"rows")
    written(tmp_path, "there").open()


def test_files_that_another_job_has_shown_are_none_of_a_sinks_own(tmp_path: Path) -> None:
    """A sink of the same name, in a folder where the rows of this one are not."""
    first = written(tmp_path, "here")
    first.open()
    commit(first)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "part-00000-out-0123456789abcdef-1-00000001.parquet").write_bytes(b"rows of another job")
    with pytest.raises(InvalidInput, match=f"sink 'out' has place {tmp_path}/there now"):
        written(tmp_path, "there").open()


# -- the last line: a worker that cannot go on -------------------------------------------------------------------------


def test_a_state_that_a_task_refuses_ends_the_job_as_a_mistake_of_its_user() -> None:
    refused = str(StateRefused("counts", KeyError("watermark")))
    assert refused == (
        "operator 'counts' cannot go on from the state that was kept of it: KeyError: 'watermark'; make the operator "
        "as it was, or begin in another checkpoint folder"
    )
    faults = [Fault(0, "peer", "gone"), Fault(1, "worker", "StateRefused: ...", refused=refused)]
    error = judge(Reports("t", {}, {0: "failed"}, faults, None, "aborted", cancel_asked=False))
    assert isinstance(error, InvalidInput)
    assert (str(error), error.exit_code) == (f"topology 't': {refused}", 2)
    assert cause_of(error, faults) is None  # no other attempt
    assert isinstance(judge(Reports("t", {}, {}, faults[:1], None, None, cancel_asked=False)), JobFailed)


def test_a_generator_that_has_fewer_items_now_is_not_asked_again() -> None:
    source = ps.io.generator(lambda task, tasks: iter(()), "n long").build()
    source.open(TaskContext("numbers", 0, 1))
    source.put_state({"taken": b"6"})
    with pytest.raises(StateRefused) as told:
        source.poll(0, Recorder())
    fault = TaskFault("numbers/0", 1, "n1", told.value)
    fault.__cause__ = told.value  # as the worker's loop raises it
    found = main._fault(fault, 1, "n1")
    assert (found.kind, found.refused) == ("task", str(told.value))
    error = judge(Reports("t", {}, {1: "failed"}, [found], None, "aborted", cancel_asked=False))
    assert isinstance(error, InvalidInput)
    assert "source 'numbers/0' cannot continue at item 6: it has fewer now; make the operator as it was, or" in str(
        error
    )
    assert cause_of(error, [found]) is None


def test_who_says_what_does_not_fit_is_heard_alone() -> None:
    said = InvalidInput("source 'rows' is a generator that was read by 2 tasks and has 3 now")
    assert str(StateRefused("rows", said)) == str(said)


def test_aggregates_of_another_kind_are_told_in_words() -> None:
    schema = parse_schema("k bigint, n bigint")
    kinds = Aggregate("count", None, "x"), Aggregate("sum", "n", "x")
    count, total = (AggregateFold(schema, ("k",), [kind])() for kind in kinds)
    count.update(pa.RecordBatch.from_pydict({"k": [1], "n": [2]}, schema))
    state = in_bytes({"all": count.take_state()})["all"]
    with pytest.raises(InvalidInput, match=r"it is of other aggregates: x=count\(\*\) as .*; here are x=sum\(n\) as"):
        total.put_state(state)
