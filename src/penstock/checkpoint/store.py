"""Where the epochs of one job are kept: any folder that pyarrow reaches, local or by URI.

    job.json                        which topology's, and the token by which sinks tell its files from those of others
    attempts/00000002.json          claimed by the second attempt; the highest number is the current attempt
    parts/00000002/00000007-00003.part, ended-00003.part     worker 3 of attempt 2, at epoch 7 and at its end
    manifests/00000007.json         epoch 7 is committed: written last, and only once
    savepoints/NAME/manifest.json   an epoch that is kept until somebody removes the folder
    staged/ results/ input/         for sinks, collected rows, spooled DataFrames; committed.json shapes/: `record.py`

On a local file system a claim and a commit exclude each other, so no attempt commits behind the back of a later one
(`test_a_commit_waits_for_a_claim`). On object stores an attempt looks before it commits; two drivers in one moment are
not told apart there. Decision: docs/decisions/0043-epochs.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import fs

from penstock.checkpoint import manifests, parts
from penstock.checkpoint.contract import Branch, Manifest, Part
from penstock.checkpoint.files import UNFINISHED, advice_on, files_at, folder_beneath, is_lost, reason_of
from penstock.checkpoint.names import (
    FOLDER,
    JOB,
    NUMBERED,
    PARTS,
    TOKEN,
    TOKEN_BYTES,
    attempt_path,
    is_left,
    manifest_path,
    part_path,
    savepoint_path,
    shortly,
)
from penstock.checkpoint.record import Record
from penstock.checkpoint.saved_parts import SavedParts
from penstock.checkpoint.savepoint_names import SAVEPOINT_NAME, require_savepoint_name
from penstock.errors import CheckpointDamaged, InvalidInput, StaleAttempt, StoreUnusable
from penstock.run.engine.epochs import TaskSnapshot
from penstock.run.operators.sinks.uris import shown

JOB_ADVICE = "put it back from a copy of the folder: the job does not start without it, and its epochs wait meanwhile"
SMALL_BYTES_MAX = 64 << 10  # of job.json and claims
PART_BYTES_MAX = 1 << 40
ATTEMPTS_KEPT = 16  # files of earlier claims
CLAIMS_MAX = 100  # times that somebody else may be first
READERS_MAX = 8  # threads that check parts
CHUNK_BYTES = 1 << 20
ADVICE = "restore the folder from a backup, start from a savepoint, or give an empty folder to begin anew"


class Store:
    """The epochs of one job."""

    def __init__(self, root: str, filesystem: fs.FileSystem | None = None) -> None:
        self.root, self.shown = root, shown(root)
        self.notes: tuple[str, ...] = ()
        self.removed = 0  # files: who waits for `keep` sees by it that it goes forward
        self._claims_seen: set[int] = set()
        self._token: str | None = None
        try:
            self._files = files_at(root, filesystem)
        except (OSError, ValueError, pa.ArrowException) as error:
            reason = reason_of(ValueError(str(error).replace(root, self.shown)))
            msg = (
                f"cannot use {self.shown!r} for checkpoints: {reason}; "
                f"give a path, or a URI that pyarrow knows, such as s3://BUCKET/PATH"
            )
            raise StoreUnusable(msg) from None
        self.root, self.shown = self._files.root, shown(self._files.root)  # the second for texts: it shows no key
        self.record = Record(self._files, self._using)
        self.saved_parts = SavedParts(self._files, self._manifest)

    # -- attempts ------------------------------------------------------------------------------------------------------

    def claim(self, topology: str, after: int | None = None) -> int:
        """The number of a new attempt at this topology's job; from now on earlier attempts are stale.

        `after` is the attempt whose driver goes on; StaleAttempt where somebody else has come in between.
        """
        if not 0 < len(topology) <= manifests.TEXT_MAX:
            most = manifests.TEXT_MAX
            msg = f"topology {topology[:80]!r} has a name of {len(topology):,} characters, not 1 to {most:,}"
            raise InvalidInput(msg)
        with self._using(""), self._files.alone():
            if after is not None:
                self.require_current(after)
            self._require_topology(topology)
            last = max([0, *self._attempts(), *map(int, filter(FOLDER.fullmatch, self._files.names(PARTS)))])
            for attempt in range(last + 1, last + 1 + CLAIMS_MAX):
                claim = {"penstock": manifests.FORMAT, "attempt": attempt, "claimed_us": time.time_ns() // 1000}
                try:
                    self._files.create(attempt_path(attempt), manifests.sealed(claim))
                except FileExistsError:
                    continue  # only where nobody can be kept out
                self._swept([attempt_path(old) for old in self._attempts()[:-ATTEMPTS_KEPT]])
                return attempt
        msg = f"{self.shown} has been claimed by {CLAIMS_MAX} others just now; let one driver at a time use it"
        raise StoreUnusable(msg)

    def require_current(self, attempt: int) -> None:
        """StaleAttempt if a later attempt has claimed the store; CheckpointDamaged where it does not know this one."""
        with self._using("attempts"):
            latest = max(self._attempts(), default=0)
        if latest > attempt:
            msg = f"attempt {latest} has taken over the checkpoints in {self.shown}; attempt {attempt} ends here"
            raise StaleAttempt(msg)
        if latest < attempt:
            raise CheckpointDamaged(
                self.shown,
                f"it does not know attempt {attempt}: the folder was removed or replaced while the job ran",
                "start the job anew in a folder that stays",
            )

    @contextlib.contextmanager
    def held(self, attempt: int) -> Iterator[None]:
        """This attempt is the current one meanwhile, and nobody claims or commits; StaleAttempt.

        Sinks show and take back in here alone (`test_a_driver_that_was_taken_over_takes_nothing_back`).
        Others wait so long, and give up in the end (`files.LOCK_WAIT_S`): what can be read before is read before.
        """
        with contextlib.ExitStack() as stack:
            with self._using(""):
                stack.enter_context(self._files.alone())
            self.require_current(attempt)
            yield

    # -- epochs --------------------------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """All epochs that have a manifest, sound or not, in order."""
        return self._numbered("manifests")

    def manifest(self, epoch: int) -> Manifest:
        """The manifest of an epoch, whose parts may be damaged; CheckpointDamaged."""
        return self._manifest(manifest_path(epoch))

    def latest(self) -> Manifest | None:
        """The newest committed epoch that is sound, and notes on those that were left out.

        None where nothing has been committed. CheckpointDamaged where all that was committed is damaged: to begin anew
        then would take back what sinks have shown, which is for a person to decide.
        """
        notes: list[str] = []
        with self._using("manifests"):
            self._files.settle("manifests")  # what is shown of an epoch must not outlast it
        for epoch in reversed(self.numbers()):
            try:
                manifest = self.manifest(epoch)
                faults = self.verify(manifest)
            except CheckpointDamaged as damaged:
                faults = [f"{damaged.path} is damaged: {damaged.fault}"]
            if not faults:
                self.notes = tuple(f"{note}; epoch {epoch} is used" for note in notes)
                return manifest
            notes.append(f"epoch {epoch} is damaged: {shortly(faults)}")
        self.notes = tuple(notes)
        if notes:
            raise CheckpointDamaged(self.shown, f"none of its {len(notes)} epochs is sound; {notes[0]}", ADVICE)
        self.require_none_lost()
        return None

    def require_none_lost(self) -> None:
        """CheckpointDamaged where epochs were committed and no manifest is left: sinks have shown their rows."""
        if not self.numbers() and self.record.has_committed:
            raise CheckpointDamaged(self._named("manifests"), "epochs were committed, and none is there", ADVICE)

    def epochs(self) -> list[Manifest]:
        """Committed epochs whose manifests can be read, the newest last."""
        return self._readable([manifest_path(epoch) for epoch in self.numbers()])

    def savepoints(self) -> list[Manifest]:
        """Savepoints whose manifests can be read, by name."""
        return self._readable([savepoint_path(name) for name in self.savepoint_names()])

    def savepoint_names(self) -> list[str]:
        """All savepoints, sound or not."""
        with self._using("savepoints"):
            return [name for name in self._files.names("savepoints") if SAVEPOINT_NAME.fullmatch(name)]

    def saved(self, name: str) -> Manifest:
        """A savepoint by its name."""
        if name not in self.savepoint_names():
            known = ", ".join(self.savepoint_names()) or "none"
            msg = f"{self.shown} has no savepoint {name!r}; known: {known}"
            raise InvalidInput(msg)
        return self._manifest(savepoint_path(name))

    def verify(self, manifest: Manifest) -> list[str]:
        """What is wrong with the parts of an epoch: each is read from beginning to end."""
        if not manifest.parts:
            return []
        with ThreadPoolExecutor(min(READERS_MAX, len(manifest.parts))) as readers:
            return [fault for fault in readers.map(self._fault, manifest.parts) if fault is not None]

    def commit(self, manifest: Manifest) -> None:
        """Make it count, once its parts are all written; StaleAttempt where a later attempt, or the epoch, is there."""
        path, data = manifest_path(manifest.epoch), manifests.encode(manifest)
        with self._using(path), self._files.alone():
            self.require_current(manifest.attempt)
            try:
                self._files.create(path, data)
            except FileExistsError:
                if self._writer_of(manifest.epoch) >= manifest.attempt:
                    msg = f"{self._named(path)} is there already; attempt {manifest.attempt} cannot commit it again"
                    raise StaleAttempt(msg) from None
                self._files.replace(path, data)  # an earlier attempt's, which came behind the beginning of this one
            self.record.note_committed()

    def keep(self, count: int) -> None:
        """Remove all epochs but the newest, and the parts that nothing names and nobody can name any more."""
        if count < 1:
            msg = f"{count} epochs cannot be kept; keep 1 or more"
            raise InvalidInput(msg)
        with self._using(""), self._files.alone():  # so that no savepoint or commit comes in between
            attempt = max(self._attempts(), default=0)
            written = {folder: self._files.names(f"{PARTS}/{folder}") for folder in self._part_folders()}
            kept = self.epochs()[-count:]
            if not kept:
                return
            paths = [(folder, name) for folder in written for name in written[folder]]
            named = self.saved_parts.of(self.savepoint_names(), frozenset(part_path(*path) for path in paths))
            named |= {part.path for manifest in kept for part in manifest.parts}
            old = [manifest_path(epoch) for epoch in self.numbers() if epoch < kept[0].epoch]
            left = [part_path(*path) for path in paths if is_left(*path, attempt, kept[-1].epoch)]
            begun = [f"{folder}/{name}" for folder in ("attempts", "manifests") for name in self._files.names(folder)]
            unfinished = [name for name in begun if name.endswith(UNFINISHED)]
            if (fault := self._swept(old)) is not None:  # an epoch that stays keeps its parts
                named |= {part.path for manifest in self.epochs() for part in manifest.parts}
            rest = self._swept([path for path in left + unfinished if path not in named])
            for folder in (folder for folder in written if int(folder) < attempt):
                self._files.remove_folder(f"{PARTS}/{folder}")
            if (first := fault or rest) is not None:
                raise first

    def savepoint(self, name: str, manifest: Manifest, attempt: int | None = None) -> None:
        """Keep an epoch under a name until its folder is removed; InvalidInput where there is one, StaleAttempt."""
        require_savepoint_name(name)
        path, data = savepoint_path(name), manifests.encode(replace(manifest, name=name))
        with self._using(path), self._files.alone():  # so that no part goes meanwhile
            if attempt is not None:
                self.require_current(attempt)
            for part in manifest.parts:
                if self._files.size(part.path) != part.size:
                    raise CheckpointDamaged(self._named(part.path), "it is not there as it was written")
            try:
                self._files.create(path, data)
            except FileExistsError:
                msg = f"savepoint {name!r} is there already in {self.shown}; choose another name or remove its folder"
                raise InvalidInput(msg) from None

    def begin(self, attempt: int, manifest: Manifest) -> Manifest:
        """Make an epoch the last one, before sinks take back what they show behind it; the epoch, as it is from now on.

        What was committed behind it, damaged or not, is given up for good: rows that are taken back must not count
        again, and the epochs to come need the numbers. That the job has left there is written first. Then the newest
        goes first, so that what a crash leaves ends in an epoch that was the last one once
        (`test_a_rewind_that_is_cut_short_leaves_an_epoch_that_was_the_last_one_once`).
        """
        path = manifest_path(manifest.epoch)
        with self.held(attempt), self._using(path):
            later = [epoch for epoch in self.numbers() if epoch > manifest.epoch]
            there = {found.epoch: found for found in self.epochs() if found.epoch <= manifest.epoch}
            astray = [epoch for epoch in there if epoch < manifest.epoch and not there[epoch].leads_to(manifest)]
            if later or astray or there.get(manifest.epoch) != manifest:
                line = (*manifest.line, Branch(attempt, manifest.epoch))
                manifest = replace(manifest, name=None, line=line)
                self._files.replace(path, manifests.encode(manifest))
                for epoch in [*reversed(later), *astray]:
                    self._files.remove(manifest_path(epoch))
                self._files.settle("manifests")  # what is given up must not come back with the power
        return manifest

    def require_on_line(self, saved: Manifest) -> None:
        """InvalidInput where the job has left the history of a savepoint: sinks have taken back what led to it."""
        known = self.epochs()
        if not known or saved.leads_to(replace(known[-1], epoch=self.numbers()[-1])):
            return
        msg = (
            f"savepoint {saved.name!r}, epoch {saved.epoch}, is of a history that the job has left: it went back to an "
            f"earlier epoch, and sinks took back what they had shown behind that; choose another savepoint, or leave "
            f"it out to go on from epoch {known[-1].epoch}"
        )
        raise InvalidInput(msg)

    def require_sound(self, saved: Manifest) -> None:
        """CheckpointDamaged where a savepoint is not as it was written; reads all of it."""
        if faults := self.verify(saved):
            raise CheckpointDamaged(self._named(savepoint_path(saved.name or "")), shortly(faults))

    def rewind(self, attempt: int, saved: Manifest) -> tuple[Manifest, str]:
        """Make a sound savepoint the last epoch, and say what is forgotten by that; StaleAttempt, as `begin`."""
        name = saved.name or ""
        self.require_on_line(saved)
        later = [epoch for epoch in self.numbers() if epoch > saved.epoch]
        manifest = self.begin(attempt, replace(saved, name=None))
        what = f"epoch {later[0]}" if len(later) == 1 else f"epochs {later[0]} to {later[-1]}" if later else ""
        forgotten = f"; {what}, and what sinks had shown behind it, are taken back" if later else ""
        return manifest, f"the job begins at savepoint {name!r}, epoch {manifest.epoch}{forgotten}"

    # -- parts ---------------------------------------------------------------------------------------------------------

    def write_part(self, attempt: int, epoch: int | None, worker: int, snapshots: Sequence[TaskSnapshot]) -> Part:
        """Finish what sinks have staged and keep a worker's states; durable when it returns."""
        self._require_shared(attempt)
        staged = tuple(each.finish() for snapshot in snapshots for each in snapshot.staged)
        place = "ended" if epoch is None else f"{epoch:08d}"
        path = part_path(f"{attempt:08d}", f"{place}-{worker:05d}.part")
        digest, size = hashlib.sha256(), 0

        def pieces() -> Iterator[bytes | pa.Buffer]:
            nonlocal size
            for piece in parts.encode(snapshots):
                digest.update(piece)
                size += len(piece)
                yield piece

        with self._using(path):
            self._files.write(path, pieces())
        tasks = tuple(snapshot.task for snapshot in snapshots)
        finished = tuple(snapshot.task for snapshot in snapshots if snapshot.finished)
        return Part(worker, path, size, digest.hexdigest(), tasks, finished, staged)

    def read_part(self, part: Part) -> list[TaskSnapshot]:
        """The states that a part holds, without what was staged; CheckpointDamaged."""
        path = self._named(part.path)
        if part.size > PART_BYTES_MAX:
            raise CheckpointDamaged(path, f"it would have {part.size:,} bytes, more than {PART_BYTES_MAX:,}")
        data = self._read(part.path, part.size)
        if len(data) != part.size:
            raise CheckpointDamaged(path, f"it has {len(data):,} bytes where {part.size:,} were written")
        if hashlib.sha256(data).hexdigest() != part.checksum:
            raise CheckpointDamaged(path, f"its {part.size:,} bytes do not match their checksum")
        return parts.decode(data, path)

    # -- folders -------------------------------------------------------------------------------------------------------

    def staging(self) -> str:
        """For rows of sinks that have no folder of their own."""
        return folder_beneath(self.root, "staged")

    def results(self) -> str:
        """For collected rows of committed epochs."""
        return folder_beneath(self.root, "results")

    def inputs(self) -> str:
        """For DataFrames that are read from the store, so that a later attempt meets the same rows."""
        return folder_beneath(self.root, "input")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _require_topology(self, topology: str) -> None:
        if self._files.size(JOB) is None:
            token = secrets.token_hex(TOKEN_BYTES)
            job = manifests.sealed({"penstock": manifests.FORMAT, "topology": topology, "token": token})
            with contextlib.suppress(FileExistsError):
                self._files.create(JOB, job)
        self.require_of(topology)

    def require_of(self, topology: str) -> None:
        """InvalidInput where there are checkpoints of another topology."""
        if (was := self.topology()) not in {None, topology}:
            msg = f"{self.shown} has checkpoints of topology {was!r}, not of {topology!r}; give each job its own folder"
            raise InvalidInput(msg)

    def topology(self) -> str | None:
        """Whose checkpoints these are; None: nobody's, there are none."""
        with self._using(JOB):
            if self._files.size(JOB) is None:
                return None
        return str(self._job().get("topology"))

    def _job(self) -> dict[str, Any]:
        try:
            return manifests.unsealed(self._read(JOB, SMALL_BYTES_MAX), self._named(JOB))
        except CheckpointDamaged as damaged:
            raise CheckpointDamaged(damaged.path, damaged.fault, JOB_ADVICE) from None

    def token(self) -> str:
        """What marks the files of this job's sinks: made by chance with the store, so it goes where the folder goes.

        A name made of the folder's path would be another job's as well, on another machine
        (`test_a_job_leaves_alone_what_another_with_a_folder_of_the_same_path_has_shown`).
        """
        if self._token is None:
            token = str(self._job().get("token"))
            if not TOKEN.fullmatch(token):
                raise CheckpointDamaged(self._named(JOB), f"its token is {token[:80]!r}, not {2 * TOKEN_BYTES} digits")
            self._token = token
        return self._token

    def _swept(self, paths: Sequence[str]) -> OSError | pa.ArrowException | None:
        """Remove files; what cannot be removed keeps no other file, and the first such fault is the answer."""
        fault = None
        for path in paths:
            try:
                self._files.remove(path)
                self.removed += 1
            except (OSError, pa.ArrowException) as error:
                fault = fault or error
        return fault

    def _require_shared(self, attempt: int) -> None:
        """The worker sees the same folder as the driver that has claimed it."""
        if attempt in self._claims_seen:
            return
        with self._using("attempts"):
            if self._files.size(attempt_path(attempt)) is None:
                msg = (
                    f"{self.shown} does not show the claim of attempt {attempt} here; "
                    f"give a folder for checkpoints that the driver and all workers reach"
                )
                raise StoreUnusable(msg)
        self._claims_seen.add(attempt)

    def _attempts(self) -> list[int]:
        return self._numbered("attempts")

    def _part_folders(self) -> list[str]:
        return [name for name in self._files.names(PARTS) if FOLDER.fullmatch(name)]

    def _numbered(self, folder: str) -> list[int]:
        with self._using(folder):
            found = [NUMBERED.fullmatch(name) for name in self._files.names(folder)]
        return sorted(int(name[1]) for name in found if name is not None)

    def _readable(self, paths: Sequence[str]) -> list[Manifest]:
        found = []
        for path in paths:
            with contextlib.suppress(CheckpointDamaged):
                found.append(self._manifest(path))
        return found

    def _manifest(self, path: str) -> Manifest:
        found = manifests.decode(self._read(path, manifests.MANIFEST_BYTES_MAX), self._named(path))
        is_own = path in {manifest_path(found.epoch), savepoint_path(found.name or "")}
        if not is_own:
            raise CheckpointDamaged(self._named(path), f"it is the manifest of epoch {found.epoch}, under another name")
        return found

    def _writer_of(self, epoch: int) -> int:
        """The attempt that has committed an epoch; 0 where nobody can tell."""
        try:
            return self.manifest(epoch).attempt
        except CheckpointDamaged:
            return 0

    def _fault(self, part: Part) -> str | None:
        """What is wrong with one file."""
        try:
            with self._using(part.path, reads=True):
                size = self._files.size(part.path)
                if size != part.size:
                    found = "is not there" if size is None else f"has {size:,} bytes where {part.size:,} were written"
                    return f"{self._named(part.path)} {found}"
                digest = hashlib.sha256()
                with self._files.reader(part.path) as file:
                    while chunk := file.read(CHUNK_BYTES):
                        digest.update(chunk)
        except StoreUnusable as unusable:
            if not is_lost(unusable.__cause__):
                raise
            return f"{self._named(part.path)} cannot be read: {reason_of(unusable.__cause__)}"
        return None if digest.hexdigest() == part.checksum else f"{self._named(part.path)} does not match its checksum"

    def _read(self, path: str, size_max: int) -> bytes:
        """All bytes of a file that is there and no larger than this."""
        try:
            with self._using(path, reads=True):
                return self._files.read(path, size_max)
        except StoreUnusable as unusable:
            if not is_lost(unusable.__cause__):
                raise
            raise CheckpointDamaged(self._named(path), reason_of(unusable.__cause__)) from None

    def _named(self, path: str) -> str:
        return folder_beneath(self.shown, path) if path else self.shown

    @contextlib.contextmanager
    def _using(self, path: str, *, reads: bool = False) -> Iterator[None]:
        """What a file system complains of, as an error that says what to do."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            why = f"{reason_of(error)}; {advice_on(error, reads=reads)}"
            msg = f"cannot use {self._named(path)} for checkpoints: {why}"
            raise StoreUnusable(msg) from error
