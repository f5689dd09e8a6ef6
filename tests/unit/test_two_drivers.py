"""Two drivers at one folder, one of which stands still: what the other has done stays, and is there once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.shown_log import ShownLog, file_of
from penstock.checkpoint.store import Store
from penstock.deploy.attempt.epochs import CheckpointOrder, DriverEpochs
from penstock.errors import StaleAttempt
from penstock.run.operators.sinks.folder import Folder
from penstock_lab.simulate.actors import Actors, Process
from penstock_lab.simulate.disk import Disk
from penstock_lab.simulate.system import System, replaced


def numbers(task: int, tasks: int) -> Iterator[dict[str, int]]:
    yield {"n": 1}


def epochs_at(root: Path) -> DriverEpochs:
    top = ps.Topology("two")
    top.source("numbers", ps.io.generator(numbers, "n long")).sink("out", ps.io.collect())
    return DriverEpochs(CheckpointOrder(str(root)), top.build())


def committed(driver: DriverEpochs) -> None:
    driver.store.commit(Manifest(driver.last_epoch + 1, driver.attempt, "two", {"numbers": 1}, ()))


def test_a_driver_that_was_taken_over_takes_nothing_back(tmp_path: Path) -> None:
    first, second = epochs_at(tmp_path), epochs_at(tmp_path)
    first.open()
    second.open()
    committed(second)
    shown = Path(second.collected["out"].folder.path)
    mark = shown / f"part-00000-out-{second.collected['out']._store}-2-00000001.arrow"
    mark.write_bytes(b"rows of epoch 1")
    with pytest.raises(StaleAttempt, match="attempt 2 has taken over"):
        first._resume()
    with pytest.raises(StaleAttempt, match="attempt 2 has taken over"):
        first.again()
    assert mark.exists()
    assert second.store.claim("two", after=second.attempt) == 3


def test_a_commit_waits_for_a_claim(tmp_path: Path) -> None:
    first, second = epochs_at(tmp_path), Store(str(tmp_path))
    first.open()
    found: list[Exception] = []

    def commit() -> None:
        try:
            committed(first)
        except StaleAttempt as error:
            found.append(error)

    with second._files.alone():
        thread = threading.Thread(target=commit)
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        second._files.create("attempts/00000002.json", b"{}")
    thread.join()
    assert len(found) == 1
    assert second.numbers() == []


def test_rows_that_two_drivers_show_are_shown_once(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    first, second = ShownLog(folder), ShownLog(folder)
    first.begin([])
    first.entries()
    folder.write("rows.parquet", b"rows")
    (info,) = folder.visible()
    second.add([second.entry(info)])
    first.add([first.entry(info)])
    assert [file_of(line) for line in first.entries()] == ["rows.parquet"]


# -- what lasts --------------------------------------------------------------------------------------------------------


class Noted:
    """Nobody dies; what is done is noted."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def dies(self, process: Process, what: str, path: str) -> str | None:
        self.done.append(f"{what} {path}")
        return None

    def dead(self, process: Process) -> None:
        raise AssertionError

    def refuses(self, process: Process, what: str, path: str) -> None:
        """Nothing is."""

    def refuses_to_read(self, process: Process, path: str, *, is_object: bool) -> None:
        """Nothing is."""

    def changed(self, process: Process, what: str, path: str) -> None:
        """Noted before."""

    def rests(self) -> bool:
        return False


def test_a_file_is_on_the_disk_before_its_name_is() -> None:
    noted = Noted()
    system = System(Disk(), Actors(lambda: 0), noted, lambda: 0)
    with replaced(system), system.acting(Process("driver", -1)):
        LocalFiles("/store").create("manifests/1.json", b"{}")
        LocalFiles("/store").settle("manifests")
    name = "/store/manifests/1.json"
    made = [f"{what} {name}.00000001.writing" for what in ("make", "write", "sync")]
    begin = noted.done.index(made[0])
    end = [f"link {name}", f"remove {name}.00000001.writing", "sync /store/manifests", "sync /store/manifests"]
    assert noted.done[begin:] == made + end


def test_a_folder_lasts_whoever_has_made_it() -> None:
    """The process that made it may have died before it synced the folder above."""
    noted = Noted()
    system = System(Disk(), Actors(lambda: 0), noted, lambda: 0)
    with replaced(system), system.acting(Process("driver", -1)):
        for folder in ("/store", "/store/manifests"):
            system.disk.make_folder(folder)
        LocalFiles("/store").create("manifests/1.json", b"{}")
    assert noted.done[:2] == ["sync /", "sync /store"]
