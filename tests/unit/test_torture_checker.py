"""The checker of tortured jobs catches what it is there for: faults planted in real Parquet folders."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock_lab.torture import checker

SOURCES, ROWS, FILES = 3, 600, 4
Rows = list[tuple[int, int, int]]  # source, number, how many of the source there had been


def sound() -> list[Rows]:
    """The rows of each file: sources by turns, each in order."""
    rows = [(source, n, n + 1) for n in range(ROWS) for source in range(SOURCES)]
    size = len(rows) // FILES
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def written(folder: Path, files: list[Rows]) -> Path:
    """Real Parquet files, one for each epoch, as a sink's single task would leave them."""
    folder.mkdir()
    for epoch, rows in enumerate(files):
        source, n, seen = (pa.array([row[i] for row in rows], pa.int64()) for i in range(3))
        table = pa.table({"source": source.cast(pa.int32()), "n": n, "seen": seen})
        pq.write_table(table, folder / f"part-00000-out-0a1b2c3d-{9 + epoch}-{epoch:08d}.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".part-00000-out.parquet").write_bytes(b"hidden, and no Parquet")
    return folder


def verdict(folder: Path) -> checker.Verdict:
    return checker.judge(folder, [ROWS] * SOURCES, "seen")


def test_a_sound_folder_passes(tmp_path: Path) -> None:
    found = verdict(written(tmp_path / "out", sound()))
    assert found == checker.Verdict(files=FILES, rows=SOURCES * ROWS)
    assert found.is_sound


@pytest.mark.parametrize("seed", range(20))
def test_loss_is_caught(tmp_path: Path, seed: int) -> None:
    files, choose = sound(), random.Random(seed)
    gone = choose.randint(1, 5)
    for _ in range(gone):
        rows = files[choose.randrange(FILES)]
        rows.pop(choose.randrange(len(rows)))
    found = verdict(written(tmp_path / "out", files))
    assert (found.lost, found.repeated, found.disordered) == (gone, 0, 0)
    assert not found.is_sound


@pytest.mark.parametrize("seed", range(20))
def test_repetition_is_caught(tmp_path: Path, seed: int) -> None:
    files, choose = sound(), random.Random(seed)
    again = choose.randint(1, 5)
    for row in choose.sample(files[0], again):
        files[choose.randrange(FILES)].append(row)
    found = verdict(written(tmp_path / "out", files))
    assert (found.lost, found.repeated, found.disordered) == (0, again, 0)
    assert not found.is_sound


@pytest.mark.parametrize("seed", range(20))
def test_disorder_is_caught(tmp_path: Path, seed: int) -> None:
    files, choose = sound(), random.Random(seed)
    rows = files[choose.randrange(FILES)]
    at = choose.randrange(len(rows) - SOURCES)
    rows[at], rows[at + SOURCES] = rows[at + SOURCES], rows[at]  # neighbours of one source
    found = verdict(written(tmp_path / "out", files))
    assert (found.lost, found.repeated, found.disordered) == (0, 0, 1)
    assert not found.is_sound


def test_files_out_of_order_are_disorder(tmp_path: Path) -> None:
    files = sound()
    files[1], files[2] = files[2], files[1]
    assert verdict(written(tmp_path / "out", files)).disordered == len(files[1])


def test_a_lost_file_and_a_file_twice_are_caught(tmp_path: Path) -> None:
    files = sound()
    found = verdict(written(tmp_path / "out", [files[0], files[0], *files[2:]]))
    assert (found.lost, found.repeated) == (len(files[1]), len(files[0]))


def test_state_that_went_back_is_caught(tmp_path: Path) -> None:
    files = sound()
    files[2] = [(source, n, seen - 7) for source, n, seen in files[2]]
    found = verdict(written(tmp_path / "out", files))
    assert (found.miscounted, found.lost, found.repeated) == (len(files[2]), 0, 0)
    assert not found.is_sound


@pytest.mark.parametrize("row", [(SOURCES, 0, 1), (0, ROWS, ROWS + 1), (-1, 5, 6)])
def test_rows_that_nobody_gave_are_caught(tmp_path: Path, row: tuple[int, int, int]) -> None:
    files = sound()
    files[1].insert(3, row)
    found = verdict(written(tmp_path / "out", files))
    assert found.strange == 1
    assert not found.is_sound


def test_numbers_in_names_count_as_numbers() -> None:
    names = ["part-1-9-00000002", "part-1-10-00000003", "part-1-10-00000011"]
    assert sorted([names[2], names[1], names[0]], key=checker.numbers_in) == names


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """The program, in a Python that sees nothing of this repository."""
    words = [str(folder), "--rows", ",".join([str(ROWS)] * SOURCES), "--counted", "seen"]
    return subprocess.run(
        [sys.executable, "-I", checker.__file__, *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_it_is_a_program_of_its_own(tmp_path: Path) -> None:
    done = run(written(tmp_path / "out", sound()))
    assert (done.returncode, json.loads(done.stdout)["rows"]) == (0, SOURCES * ROWS)
    lost = run(written(tmp_path / "lost", sound()[1:]))
    assert (lost.returncode, json.loads(lost.stdout)["lost"]) == (1, SOURCES * ROWS // FILES)
    assert "penstock" not in Path(checker.__file__).read_text().replace("Penstock", "")


def test_it_does_not_judge_a_folder_that_is_still_written(tmp_path: Path) -> None:
    folder = written(tmp_path / "out", sound())
    (folder / checker.LOG).mkdir()
    done = run(folder)
    assert done.returncode == 1
    assert "has not ended" in done.stderr
