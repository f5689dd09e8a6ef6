"""Checkpoints that are damaged, between two runs of a job and while it runs; and disks that are full.

Between two runs the job has to say which epoch is damaged and go on from the one before. While it runs, a worker dies
and the job has to go on from what is damaged: it may end with a typed error then, and must go on when it is started
again. Rows that lie beside the epochs (of sinks, collected ones, a DataFrame's) have no copy: where they are damaged
the answer is right all the same, or an error names the file.
"""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.store import Store
from penstock.errors import InternalError, PenstockError
from penstock.flow import io
from penstock_lab.torture.jobs import Numbered, of_frame
from penstock_lab.torture.trial import END_SECONDS, Broken, Trial, Unmet

SMALL_DISK = "16m"
BALLAST_BLOCK = bytes(64 << 10)
MOUNT_SECONDS = 30.0
EPOCHS_BEFORE = 4  # more than one is kept by then
FRAME_ROWS_PER_S = 12_000.0


def truncated(trial: Trial, path: Path) -> None:
    """The file loses its end."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(trial.choose.randrange(size))


def flipped(trial: Trial, path: Path) -> None:
    """One bit of the file turns over."""
    data = bytearray(path.read_bytes())
    place = trial.choose.randrange(len(data))
    data[place] ^= 1 << trial.choose.randrange(8)
    with path.open("r+b") as file:
        file.write(data)


def removed(trial: Trial, path: Path) -> None:
    """The file goes away."""
    path.unlink()


def newest_part(trial: Trial) -> Path:
    """A part of the newest epoch."""
    return trial.choose.choice(sorted(trial.kept.glob(f"parts/*/{newest_epoch(trial):08d}-*.part")))


def newest_manifest(trial: Trial) -> Path:
    """The manifest of the newest epoch."""
    return trial.kept / "manifests" / f"{newest_epoch(trial):08d}.json"


def newest_epoch(trial: Trial) -> int:
    """As the store tells."""
    return max(int(path.stem) for path in trial.kept.glob("manifests/*.json"))


def damaged(find: Callable[[Trial], Path], harm: Callable[[Trial, Path], None], trial: Trial) -> None:
    """A job meets a damaged file of its newest epoch, by the seed between two runs or at a recovery."""
    (between_runs if trial.choose.random() < 0.5 else at_a_recovery)(find, harm, trial)


def between_runs(find: Callable[[Trial], Path], harm: Callable[[Trial, Path], None], trial: Trial) -> None:
    """The job was ended, a file is damaged, the job is started again."""
    trial.note("between two runs")
    trial.begin()
    trial.await_epoch(EPOCHS_BEFORE)
    trial.job.cancel()
    epoch = newest_epoch(trial)
    harm(trial, find(trial))
    trial.begin()
    if not any(f"epoch {epoch} is damaged" in note for note in trial.job.notes):
        msg = f"epoch {epoch} was damaged and no note of the job says so: {trial.job.notes}"
        raise Broken(msg)
    trial.finish()


def at_a_recovery(find: Callable[[Trial], Path], harm: Callable[[Trial, Path], None], trial: Trial) -> None:
    """A file of the epoch from which the job has to go on is damaged while it runs."""
    trial.note("at a recovery")
    trial.begin()
    trial.await_epoch(EPOCHS_BEFORE)
    trial.gates.set(Numbered.HOLD)
    trial.await_(lambda: bool(trial.gates.standing(Numbered.HOLD)), "a source that stands")
    trial.await_(lambda: trial.epoch_under_way is not None, "an epoch that waits")
    harm(trial, find(trial))
    trial.kill(trial.choose.choice(trial.pids()))
    trial.gates.lift(Numbered.HOLD)
    if not trial.ends_or_says_why():
        trial.begin()
    trial.finish()


# -- rows beside the epochs --------------------------------------------------------------------------------------------


def staged(trial: Trial) -> None:
    """A sink's file is damaged when its epoch is committed and nobody has been shown it."""
    commit, hit = Store.commit, list[Path]()

    def harmed(store: Store, manifest: Manifest) -> None:
        commit(store, manifest)
        if manifest.staged and manifest.epoch >= EPOCHS_BEFORE and not hit:
            hit.append(Path(trial.choose.choice(manifest.staged).path.removeprefix("file://")))
            harm_somehow(trial, hit[0])

    with mock.patch.object(Store, "commit", harmed):
        trial.begin()
        trial.await_(lambda: bool(hit), "an epoch with rows of the sink")
        answers_or_names(trial, hit[0])


def spooled(trial: Trial) -> None:
    """The rows of a DataFrame as they were written down, by the seed between two runs or at a recovery."""
    trial.sink = "parquet"
    top = of_frame(trial.gates, frame(trial), FRAME_ROWS_PER_S, io.parquet(trial.out))
    is_between = trial.choose.random() < 0.5
    trial.note("between two runs" if is_between else "at a recovery")
    trial.begin_topology(top, 1)
    trial.await_epoch(EPOCHS_BEFORE)
    path = trial.choose.choice(sorted(trial.kept.glob("input/**/*.parquet")))
    if is_between:
        trial.job.cancel()
        harm_somehow(trial, path)
        try:
            trial.begin_topology(top, 1)
        except PenstockError as error:
            return require_named(trial, error, path)
    else:
        harm_somehow(trial, path)
        trial.kill(*trial.pids())
    return answers_or_names(trial, path)


def frame(trial: Trial) -> Any:  # noqa: ANN401 # a DataFrame
    """The numbers of all sources, and the time that gives their order."""
    each, sources = trial.shape.rows_each, trial.shape.sources
    rows = trial.spark.range(each * sources)
    return rows.selectExpr(
        f"cast(id % {sources} as int) as source", f"id div {sources} as n", "timestamp_micros(id * 1000) as at"
    )


def collected(trial: Trial) -> None:
    """Rows that an ended job has kept for its result; by the seed it is run again before they are read."""
    trial.sink = "collect"
    trial.begin()
    trial.at_work()
    trial.gates.set(Numbered.GO)
    trial.ended()
    path = trial.choose.choice([path for path in sorted(trial.kept.glob("results/**/*")) if path.is_file()])
    harm_somehow(trial, path)
    if trial.choose.random() < 0.5:
        trial.note("run again")
        try:
            trial.begin()
        except PenstockError as error:
            return require_named(trial, error, path)
    return answers_or_names(trial, path)


def harm_somehow(trial: Trial, path: Path) -> None:
    """One of the ways to damage a file."""
    harm = trial.choose.choice((truncated, flipped, removed))
    harm(trial, path)
    trial.note(f"{path.name} {harm.__name__}")


def answers_or_names(trial: Trial, path: Path) -> None:
    """The job ends with the right answer, or with a typed error that names the file."""
    trial.gates.set(Numbered.GO)
    try:
        if not trial.job.wait(END_SECONDS):
            msg = f"the job did not end within {END_SECONDS:g} s: {trial.job!r}"
            raise Broken(msg)
        trial.check()
    except Broken:
        raise
    except Exception as error:
        require_named(trial, error, path)


def require_named(trial: Trial, error: Exception, path: Path) -> None:
    """Broken where an error is a bug of ours, is of no type of ours or Spark's, or does not name the damaged file.

    Of collected files that are gone the job knows how many there were and names their folder.
    """
    is_typed = isinstance(error, PenstockError) or type(error).__module__.startswith("pyspark.")
    named = path.name if path.exists() or "results" not in path.parts else f"{path.parent} "
    if not is_typed or isinstance(error, InternalError) or named not in str(error):
        msg = f"{path.name} was damaged, and what came is {type(error).__name__}: {error}"
        raise Broken(msg)
    trial.note(f"{type(error).__name__}: {error}")


# -- disks -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of a few megabytes at a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False, timeout=MOUNT_SECONDS)  # noqa: S603
    if done.returncode:
        msg = f"no disk could be mounted: {done.stderr.strip()}"
        raise Unmet(msg)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, timeout=MOUNT_SECONDS)  # noqa: S603, S607


def filled(folder: Path) -> Path:
    """A file that takes all the room that is left."""
    ballast = folder / ".ballast"
    with ballast.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(BALLAST_BLOCK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return ballast


def disk_full(trial: Trial) -> None:
    """The disk of the checkpoints or of the sink is full, by the seed for a second or for good."""
    trial.sink = "parquet"
    place = trial.choose.choice((trial.kept, trial.out))
    is_short = trial.choose.random() < 0.5
    trial.note(f"the disk of {place.name} is full {'for a while' if is_short else 'until the job has said so'}")
    with small_disk(place):
        trial.begin()
        trial.at_work()
        ballast = filled(place)
        if is_short:
            trial.linger(2.0)
            ballast.unlink()
            goes_on = trial.ends_or_says_why()
        else:
            trial.says_why()
            ballast.unlink()
            goes_on = trial.job.error is None
        if not goes_on:
            trial.begin()
        trial.finish()


TRIALS: Mapping[str, Callable[[Trial], None]] = {
    "part-truncated": partial(damaged, newest_part, truncated),
    "part-flipped": partial(damaged, newest_part, flipped),
    "part-removed": partial(damaged, newest_part, removed),
    "manifest-torn": partial(damaged, newest_manifest, truncated),
    "staged-damaged": staged,
    "input-damaged": spooled,
    "results-damaged": collected,
    "disk-full": disk_full,
}
