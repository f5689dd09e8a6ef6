"""Collected rows in files: what fits, what comes back, and what is let go."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.deploy.results import kept_files
from penstock.deploy.results.files import ResultFiles, ResultFolder
from penstock.deploy.results.kept_files import _Kept, _let_go
from penstock.deploy.session.private_folder import PrivateFolder
from penstock.run.operators.sinks import row_groups
from penstock.run.operators.sinks.positional import fits_parquet

STRANGE = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False),
        pa.field("A b,;{}", pa.list_(pa.struct([("x", pa.decimal128(20, 3)), ("m", pa.map_(pa.string(), pa.int8()))]))),
        pa.field("a.b", pa.timestamp("us", tz="UTC")),
    ]
)


def rows(start: int, count: int) -> pa.RecordBatch:
    numbers = range(start, start + count)
    nested = [None if n % 5 == 0 else [{"x": None, "m": [("k", n % 100)]}] * (n % 3) for n in numbers]
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers), pa.array(nested, STRANGE.field(1).type), pa.array(numbers, STRANGE.field(2).type)],
        schema=STRANGE,
    )


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        (pa.timestamp("us"), True),
        (pa.timestamp("ns"), False),  # Spark has no such time
        (pa.null(), False),
        (pa.duration("us"), False),
        (pa.struct([("a", pa.int8()), ("A", pa.int8())]), False),  # Spark looks fields up in either case
        (pa.struct([]), False),
        (pa.list_(pa.null()), False),
        (pa.map_(pa.string(), pa.list_(pa.date32())), True),
    ],
)
def test_only_types_that_spark_reads_as_they_were_go_into_files(kind: pa.DataType, fits: bool) -> None:
    assert fits_parquet(pa.schema([("c", kind)])) is fits


def test_rows_come_back_in_order_under_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "GROUP_ROWS", 100)
    assert fits_parquet(STRANGE)
    folder = ResultFolder(str(tmp_path), {"none": STRANGE, "out": STRANGE})
    for worker, start in ((1, 1000), (0, 0)):
        files = ResultFiles(folder, worker)
        for batch in range(25):
            files.deliver("out", rows(start + batch * 7, 7))
        files.finish()
        files.close()
    expected = pa.Table.from_batches([rows(0, 175), rows(1000, 175)])
    assert folder.table("out").equals(expected)
    assert folder.size("out") > 0
    assert folder.table("none").equals(STRANGE.empty_table())


def test_a_worker_that_fails_leaves_no_half_a_file(tmp_path: Path) -> None:
    files = ResultFiles(ResultFolder(str(tmp_path), {"out": STRANGE}), 0)
    files.deliver("out", rows(0, 5))
    files.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class Reference:
    """A weak reference of the JVM."""

    def __init__(self, found: object) -> None:
        self._found = found

    def get(self) -> object:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def test_results_that_nobody_reads_go_first_come_first_and_only_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    references = [Reference(thing) for thing in (None, object(), RuntimeError("the JVM is gone"), None, None)]
    kept = [_Kept(PrivateFolder("results"), (reference,), 10) for reference in references]
    assert _Kept(kept[0].folder, (None,), 10).read()  # nothing is known about it
    monkeypatch.setattr(kept_files, "_kept", list(kept))
    _let_go(0)
    assert all(one.folder.alive for one in kept)
    _let_go(15)  # the first is not enough, the next two are read for all we know
    assert [one.folder.alive for one in kept] == [False, True, True, False, True]
    assert len(kept_files._kept) == 3
    for one in kept:
        one.folder.remove()
