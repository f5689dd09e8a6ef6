"""Whether executors see the folders that a topology reads and writes, checked before rows go into the wrong folder.

Paths mean the driver's folders. Host names say nothing about shared disks, and one path may be two folders on two
machines. So the driver puts a file with a unique name into every sink's folder, and each worker reports at hello
whether it sees that file. For sources, workers look for the files to be read. A folder into which the driver cannot
write is not checked (`test_a_folder_that_the_driver_cannot_make_is_taken_at_its_word`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.deploy.line.messages import Hello


@dataclass(frozen=True, slots=True)
class Probe:
    """A file that every worker must see, and its purpose."""

    file: str
    purpose: str  # "sink 'out' writes into /data/out"
    ours: bool  # put there to be seen, and removed


def sink_probes(folders: Iterable[tuple[str, str]], job: str, attempt: int) -> list[Probe]:
    """Put a file into the folder of each sink, given by name and path; a URI is looked at by who writes there.

    The attempt's number is in its name, because what is left of an attempt is removed beside the next one
    (`test_what_an_attempt_leaves_behind_hides_nothing_from_the_next`).
    """
    probes = []
    for name, path in folders:
        if "://" in path:
            continue
        file = Path(path) / f".penstock-{job}-{attempt}.seen"
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            probes.append(Probe(str(file), f"sink {name!r} writes into {path}", ours=True))
    return probes


def source_probes(files: Iterable[tuple[str, str]]) -> list[Probe]:
    """Look for one file of each source, given by name and path."""
    return [Probe(path, f"source {name!r} reads {path}", ours=False) for name, path in files]


def remove_probes(probes: Iterable[Probe]) -> None:
    """Take away what `sink_probes` has put there."""
    for probe in probes:
        if probe.ours:
            with contextlib.suppress(OSError):
                Path(probe.file).unlink(missing_ok=True)


def unseen(probes: Sequence[Probe]) -> tuple[int, ...]:
    """The numbers of the probes that this process does not see."""
    return tuple(number for number, probe in enumerate(probes) if not Path(probe.file).exists())


def unseen_faults(probes: Sequence[Probe], hellos: Sequence[Hello]) -> list[str]:
    """What the workers' answers mean for the job; one line for each path."""
    faults = []
    for number, probe in enumerate(probes):
        blind = [hello.address for hello in hellos if number in hello.unseen]
        if blind:
            faults.append(
                f"{probe.purpose}, which executor {blind[0]} does not see as the driver does "
                f"({len(blind)} of {len(hellos)} workers); give a path that every node reaches"
            )
    return faults
