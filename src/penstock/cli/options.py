"""Arguments that several verbs share, and how each becomes a value of the model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import InvalidInput
from penstock.model.topology import OperatorGraph, Placeable
from penstock.optimise.contract import Options

if TYPE_CHECKING:
    from penstock.model.profile import Profile

MASTER_OF_PROGRAMS = "local[2]"  # of a program whose topology reads a DataFrame, where nothing is run
PICTURE_SUFFIXES = (".png", ".svg", ".pdf", ".jpg", ".jpeg")


class Format(StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"


def real(text: str) -> float:
    """A number from the command line; the complaint shows what was given."""
    try:
        return float(text)
    except ValueError:
        msg = f"{text!r} is not a number"
        raise typer.BadParameter(msg) from None


def _whole(text: str | int) -> int:
    """A whole number from the command line; the complaint shows what was given."""
    try:
        return int(text)
    except ValueError:
        msg = f"{text!r} is not a whole number"
        raise typer.BadParameter(msg) from None


TopologyName = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY", help="A file, a name that `penstock topologies` lists, or file.py:name of a program."
    ),
]
TopologyNames = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPOLOGY",
        default_factory=list,
        show_default=False,
        help="Files, names that `penstock topologies` lists, or file.py:name; several share the cluster.",
    ),
]
ClusterName = Annotated[str, typer.Argument(metavar="CLUSTER", help="A file, or a shorthand such as 3x6,3x4,4x2.")]
FormatOption = Annotated[Format, typer.Option("--format", help="A table for people or one JSON document.")]
ProfileOption = Annotated[
    Path | None, typer.Option("--profile", help="Measured loads and rates to use instead of declared ones.")
]
ProfilesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--profile",
        help="Measured loads and rates to use instead of declared ones; of several topologies, one each in order.",
    ),
]
JobOption = Annotated[
    str | None, typer.Option("--job", metavar="ID", help="Which job, where the folder holds several; the latest else.")
]
TopologyOption = Annotated[
    str | None,
    typer.Option(
        "--topology", metavar="NAME", help="Whose jobs, where the folder holds several's: a name, or file.py:name."
    ),
]
ThetaOption = Annotated[
    float | None,
    typer.Option("--theta", parser=real, metavar="SECONDS", help="Time allowed; each method has its own default."),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Folder or URI that keeps what the job needs to go on: after a failure, and when it is run again.",
    ),
]
CheckpointIntervalOption = Annotated[
    float,
    typer.Option(
        "--checkpoint-interval", parser=real, metavar="SECONDS", help="Time between two epochs, 0.02 to 86400."
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="NAME",
        help="Savepoint in --checkpoint at which the job begins; what came behind it is taken back.",
    ),
]
SilenceOption = Annotated[
    float,
    typer.Option(
        "--silence",
        parser=real,
        metavar="SECONDS",
        help="For how long a worker's process may say nothing before it counts as dead.",
    ),
]
AdaptOption = Annotated[
    str | None,
    typer.Option(
        "--adapt",
        metavar="SCHEDULER",
        help="Look at the job every interval and go over to this scheduler's plan where that pays; needs --checkpoint.",
    ),
]
AdaptIntervalOption = Annotated[
    float,
    typer.Option("--adapt-interval", parser=real, metavar="SECONDS", help="Seconds from one look to the next."),
]
GoalOption = Annotated[
    str | None,
    typer.Option("--goal", metavar="GOAL", help="What --adapt aims at: throughput, bytes, or latency=5ms (p99)."),
]
ControlPortOption = Annotated[
    str | None,
    typer.Option("--control-port", metavar="PORTS", help="Where the driver listens, such as 7000 or 7000-7009."),
]
DataPortsOption = Annotated[
    str | None,
    typer.Option("--data-ports", metavar="PORTS", help="Where workers listen for each other, such as 7100-7199."),
]
TlsOption = Annotated[
    Path | None,
    typer.Option("--tls", metavar="DIR", help="Encrypt what leaves a machine; DIR has cert.pem, key.pem and ca.pem."),
]
JobThetaOption = Annotated[
    float | None,
    typer.Option(
        "--theta",
        parser=real,
        metavar="SECONDS",
        help="Time that the scheduler may search, before any row is read; default: 1, or 10 with --fuse.",
    ),
]
AppName = Annotated[str, typer.Argument(metavar="APP", help="A built-in application, or file.py:name.")]
MasterOption = Annotated[
    str, typer.Option("--master", help="local[n], local-cluster[n,c,m], spark://..., yarn or k8s://...")
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", help="Worker processes; default: by the tasks, or free slots where tasks are fused."),
]
TakeLastSlotOption = Annotated[
    bool, typer.Option("--take-last-slot", help="Leave no slot of Spark free, as a plan for all of them needs.")
]
InputOption = Annotated[str | None, typer.Option("--input", help="Parquet files instead of generated data.")]
DurationOption = Annotated[
    float | None,
    typer.Option("--duration", parser=real, metavar="SECONDS", help="Stop (drain) a run after so many seconds."),
]
TasksPerWorkerOption = Annotated[
    int,
    typer.Option(
        "--tasks-per-worker",
        parser=_whole,
        metavar="T",
        help="Most tasks in one worker, as far as slots allow (the papers' T).",
    ),
]
JobTasksPerWorkerOption = Annotated[
    int | None,
    typer.Option(
        "--tasks-per-worker",
        parser=_whole,
        metavar="T",
        help="Most tasks in one worker, as far as slots allow; default 5, or as many as use all --workers.",
    ),
]
ConstraintsOption = Annotated[
    Path | None,
    typer.Option(
        "--constraints",
        metavar="FILE",
        help="Constraints to keep beside the topology's own: a file of them, "
        """{"constraints": [...]} or the list alone, or a topology's or plan's file.""",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", parser=_whole, metavar="N", help="Same seed, same plan.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A scheduler's own parameter; repeatable.")
]


def resolve_topology(name: str, named: Iterable[str] = ()) -> OperatorGraph:
    """A built-in topology, the file of that name, or the one that a program makes; `named` as in `graph_of`."""
    from penstock.apps import find_topology
    from penstock.model.files import read_topology

    if _is_program(name):
        return _from_program(name)[1].placeable(named).validated()
    path = Path(name)
    if name and (path.suffix or path.exists()):
        return read_topology(path)
    return find_topology(name).validated()


def resolve_measured(name: str, profile: Path | None) -> tuple[OperatorGraph, Profile | None]:
    """A topology and its profile, where there is one."""
    from penstock.model.files import read_profile

    if profile is None:
        return resolve_topology(name), None
    # What reads a DataFrame has as many tasks as were measured.
    graph = resolve_topology(name, read_profile(profile).tasks if _is_program(name) else ())
    measured = read_profile(profile, graph)
    tell(measured.notes)
    return graph, measured


def tell(notes: Iterable[str]) -> None:
    """Notes on what was given, on stderr: stdout is the answer's."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def topology_name(given: str | None) -> str | None:
    """The name under which a topology's jobs are logged, given that name or the program that makes it."""
    return _from_program(given)[0] if given is not None and _is_program(given) else given


def _is_program(name: str) -> bool:
    path, _, _ = name.rpartition(":")
    return path.endswith(".py") or name.endswith(".py")


def _from_program(name: str) -> tuple[str, Placeable]:
    """The topology that the program makes, after its name; a Spark session that it asks for is one of ours."""
    from penstock.apps.runnable import find_runnable
    from penstock.deploy import session_on_demand

    if name.endswith(".py"):
        msg = f"{name!r} is a program; name the topology in it, or the function that makes it: {name}:NAME"
        raise InvalidInput(msg)
    with session_on_demand(MASTER_OF_PROGRAMS):
        found = find_runnable(name)
    return found.name, found


def scheduler_options(theta: float | None, tasks_per_worker: int, seed: int, settings: list[str] | None) -> Options:
    """What was asked for; the door checks the numbers."""
    return Options(seed, theta, tasks_per_worker, settings_of(settings))


def settings_of(given: list[str] | None) -> dict[str, object]:
    """A scheduler's own parameters, as `--set` gave them."""
    found: dict[str, object] = {}
    for name, value in map(_setting, given or ()):
        if name in found:
            msg = f"--set gives {name} twice, {found[name]!r} and {value!r}; leave one out"
            raise InvalidInput(msg)
        found[name] = value
    return found


def _setting(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        msg = f"--set {text!r} is not NAME=VALUE, such as alfa=0.5"
        raise InvalidInput(msg)
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def require_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be drawn before any work is done."""
    if path is not None:
        from penstock.observe.looks import checked_picture_path

        checked_picture_path(path)
        require_place(path)


def require_document(path: Path | None) -> None:
    """Refuse a plan or profile under a picture's name: it would be written over one."""
    require_place(path)
    if path is not None and path.suffix.lower() in PICTURE_SUFFIXES:
        msg = f"cannot write {path}: what is written there is JSON, and {path.suffix} is a picture's; end it in .json"
        raise InvalidInput(msg)


def require_place(path: Path | None) -> None:
    """Refuse a file whose folder is not there, or that is a folder itself, before any work is done."""
    if path is None:
        return
    if not path.parent.is_dir():
        msg = f"cannot write {path}: there is no folder {path.parent}; make it first, or name another"
        raise InvalidInput(msg)
    if path.is_dir():
        msg = f"cannot write {path}: it is a folder; name a file in it"
        raise InvalidInput(msg)


def require_folder(path: Path | None) -> None:
    """Refuse a folder that cannot be made, or is a file, before any work is done."""
    if path is None:
        return
    if path.exists() and not path.is_dir():
        msg = f"cannot write to {path}: it is a file; name a folder"
        raise InvalidInput(msg)
    if not path.parent.is_dir():
        msg = f"cannot write to {path}: there is no folder {path.parent}; make it first, or name another"
        raise InvalidInput(msg)
