"""JobOptions: how a job is to run, as `Topology.run`, `Topology.start` and `penstock run` hand it on; and JobOrder.

One value instead of keywords that are passed along: what is asked of an option is asked here, once, before Spark is.
`penstock.jobs` tells what each option means; tests/unit/test_typed_face.py holds names and defaults equal. From the
options `submit` makes the order, which is everything that a job is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.adapt.contract import AdaptSettings
from penstock.deploy.attempt.epochs import CheckpointOrder, DriverEpochs
from penstock.deploy.driver.binding import Placing
from penstock.deploy.driver.folders import require_apart
from penstock.deploy.driver.given_plan import require_own_plan
from penstock.deploy.driver.preflight import WORKERS_MAX
from penstock.deploy.line.network import Network
from penstock.errors import InvalidInput
from penstock.flow.checks import require_count, require_number
from penstock.flow.constraints import require_constraints
from penstock.model.constraints import Constraint
from penstock.model.kinds import require_kind
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.topology import TASKS_MAX
from penstock.optimise.contract import SEED_LIMIT, THETA_MAX
from penstock.optimise.door import require_settings
from penstock.optimise.fuse.contract import FuseOptions, find_method
from penstock.optimise.place import find_scheduler
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker_share import RunSettings
from penstock.run.operators.summed import SummedFile
from penstock.run.transport.ports import PORT_MAX, Ports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_MAX = 1 << 20  # of a batch
LINGER_MS_MAX = 60_000.0
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.01, 3600.0
CHECKPOINT_INTERVAL_S_MIN, CHECKPOINT_INTERVAL_S_MAX = 0.02, 86_400.0
CHECKPOINT_INTERVAL_S = 10.0  # where none is given
SILENCE_S_MIN, SILENCE_S_MAX = 2.0, 86_400.0
SCHEDULER = "best"  # where none is named
FIRST_SCHEDULER = "even"  # of a job that adapts, as in the papers: round robin until something is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Everything that can be said about a job beside its topology and its Spark session."""

    scheduler: str | None = None
    plan: Plan | None = None
    fuse: str | None = None
    fuse_options: FuseOptions | None = None
    profile: Profile | None = None
    settings: Mapping[str, object] | None = None
    constraints: Sequence[Constraint] = ()
    workers: int | None = None
    tasks_per_worker: int | None = None
    take_last_slot: bool = False
    node: str | None = None
    seed: int = 0
    theta: float | None = None  # 1 s for schedulers, 10 s for fusion methods
    metrics: str | PathLike[str] | None = None
    rows_max: int = 4096
    linger_ms: float = 0.0
    interval_s: float = 1.0
    transport: str = "auto"
    frames: Mapping[str, DataFrame] | None = None
    prometheus_port: int | None = None
    prometheus_host: str = "127.0.0.1"
    checkpoint: str | PathLike[str] | None = None
    checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S
    from_savepoint: str | None = None
    control_port: int | str | None = None
    data_ports: int | str | None = None
    tls: str | PathLike[str] | None = None
    silence_s: float = 10.0
    adapt: str | AdaptSettings | None = None

    def require_sound(self) -> None:
        """Refuse values that an option cannot have: unknown names, and numbers that make workers wait for ever."""
        require_count(self.rows_max, 1, ROWS_MAX, "rows_max")
        require_count(self.seed, 0, SEED_LIMIT - 1, "seed")
        if self.theta is not None:
            require_number(self.theta, 0.0, THETA_MAX, "theta")
        require_number(self.linger_ms, 0.0, LINGER_MS_MAX, "linger_ms")
        require_number(self.interval_s, INTERVAL_S_MIN, INTERVAL_S_MAX, "interval_s")
        require_number(self.silence_s, SILENCE_S_MIN, SILENCE_S_MAX, "silence_s")
        require_kind(self.plan, Plan | None, "plan", "a penstock.Plan, such as penstock.read_plan('plan.json') returns")
        wanted = "a penstock.Profile, such as penstock.read_profile(...) returns"
        require_kind(self.profile, Profile | None, "profile", wanted)
        require_kind(self.settings, Mapping | None, "settings", "a dict of the scheduler's own parameters by name")
        require_kind(self.metrics, str | PathLike | None, "metrics", "the path of a folder")
        require_kind(self.take_last_slot, bool, "take_last_slot", "True or False")
        require_kind(self.prometheus_host, str, "prometheus_host", "a host name or an address")
        require_kind(self.frames, Mapping | None, "frames", "a dict of DataFrames by the names of their sources")
        self._require_sound_checkpoint()
        self._require_sound_adaptation()
        self._require_sound_network()
        if self.workers is not None:
            require_count(self.workers, 1, WORKERS_MAX, "workers")
        if self.prometheus_port is not None:
            require_count(self.prometheus_port, 0, 65535, "prometheus_port")
        if (folder := self.metrics_folder) is not None and folder.exists() and not folder.is_dir():
            msg = f"metrics is {str(self.metrics)!r}, which is a file; give a folder for the metric log"
            raise InvalidInput(msg)
        if self.tasks_per_worker is not None:
            require_count(self.tasks_per_worker, 1, TASKS_MAX, "tasks_per_worker")
        require_constraints(self.constraints, "constraints")
        self._require_one_way()
        self.run_settings()
        self.placing(1)
        require_settings(self.scheduler or SCHEDULER, self.settings or {})
        self._require_sound_fusion()

    def _require_sound_checkpoint(self) -> None:
        require_kind(self.checkpoint, str | PathLike | None, "checkpoint", "the path or URI of a folder")
        if self.checkpoint is not None and not os.fspath(self.checkpoint):
            msg = "checkpoint is ''; give the path or URI of a folder"  # and not the one in which one happens to be
            raise InvalidInput(msg)
        least, most = CHECKPOINT_INTERVAL_S_MIN, CHECKPOINT_INTERVAL_S_MAX
        require_number(self.checkpoint_interval_s, least, most, "checkpoint_interval_s")
        require_kind(self.from_savepoint, str | None, "from_savepoint", "the name of a savepoint")
        if self.from_savepoint is not None and self.checkpoint is None:
            msg = f"from_savepoint is {self.from_savepoint!r}, and no checkpoint folder is given that it could lie in"
            raise InvalidInput(msg)
        if self.checkpoint is None and self.checkpoint_interval_s != CHECKPOINT_INTERVAL_S:
            msg = (
                f"checkpoint_interval_s is {self.checkpoint_interval_s!r}, and no checkpoint folder is given, so that "
                "no epochs are kept; give checkpoint=FOLDER (--checkpoint DIR) as well"
            )
            raise InvalidInput(msg)

    def _require_sound_adaptation(self) -> None:
        wanted = "the name of a scheduler, or a penstock.AdaptSettings"
        require_kind(self.adapt, str | AdaptSettings | None, "adapt", wanted)
        if (settings := self.adaptation) is None:
            return
        find_scheduler(settings.scheduler).require_known(settings.scheduler_settings)
        if self.checkpoint is None:
            msg = "adapt is given and checkpoint is not: tasks move at epochs; give checkpoint=FOLDER, --checkpoint DIR"
            raise InvalidInput(msg)

    @property
    def adaptation(self) -> AdaptSettings | None:
        """How the job moves by itself; None: it does not. A scheduler's name alone searches as the job does."""
        if not isinstance(self.adapt, str):
            return self.adapt
        named = AdaptSettings(scheduler=self.adapt, seed=self.seed)
        theta, per_worker = self.theta, self.tasks_per_worker
        return replace(
            named,
            theta=named.theta if theta is None else theta,
            tasks_per_worker=named.tasks_per_worker if per_worker is None else per_worker,
        )

    def _require_sound_network(self) -> None:
        require_kind(self.tls, str | PathLike | None, "tls", "the path of a folder with cert.pem, key.pem and ca.pem")
        self.network.credentials()
        control = self.network.control
        if self.checkpoint is not None and control is not None and control.first == control.last:
            msg = (
                f"control_port is {control} beside a checkpoint, and a recovery listens before its forerunner has "
                f"left its port; give a range, such as '{control}-{min(PORT_MAX, control.first + 9)}'"
            )
            raise InvalidInput(msg)

    @property
    def network(self) -> Network:
        """How the job's processes listen; InvalidInput for ports that there are not."""
        control, data = self.control_port, self.data_ports
        return Network(
            None if control is None else Ports.read(control, "control_port"),
            None if data is None else Ports.read(data, "data_ports"),
            None if self.tls is None else os.path.abspath(os.fspath(self.tls)),
        )

    @property
    def checkpoint_order(self) -> CheckpointOrder | None:
        """Where epochs go and how often they come; None: the job keeps none."""
        if self.checkpoint is None:
            return None
        root = os.fspath(self.checkpoint)
        if "://" not in root:
            root = os.path.abspath(os.path.expanduser(root))  # as the driver means it, wherever workers are
        return CheckpointOrder(root, self.checkpoint_interval_s, savepoint=self.from_savepoint)

    @property
    def metrics_folder(self) -> Path | None:
        """The folder of the metric log as the driver means it, wherever the driver goes later."""
        return None if self.metrics is None else Path(self.metrics).absolute()

    def _require_one_way(self) -> None:
        """Refuse what a given plan would leave unheard: it has its places and its number of workers."""
        if self.fuse is not None and self.plan is None:
            self._require_no_scheduler()
        if self.plan is None:
            return
        names = ("scheduler", "fuse", "fuse_options", "settings", "workers", "tasks_per_worker", "theta", "seed")
        for name in names:
            given = getattr(self, name)
            if given is not None and (name, given) != ("seed", 0):  # 0 is what a seed is where none is given
                msg = (
                    f"{name} is {given!r} beside a plan, which says itself where tasks run and in how many workers; "
                    f"leave {name} out, or leave the plan out"
                )
                raise InvalidInput(msg)

    def _require_no_scheduler(self) -> None:
        """Refuse what fusion would leave unheard: it decides itself which tasks share a worker, and where."""
        for name in ("scheduler", "settings", "tasks_per_worker"):
            if (given := getattr(self, name)) is not None:
                msg = (
                    f"{name} is {given!r} beside fuse {self.fuse!r}, which itself decides which tasks share a worker "
                    f"and where it runs; leave {name} out, or leave fuse out"
                )
                raise InvalidInput(msg)

    def _require_sound_fusion(self) -> None:
        """Refuse an unknown method, and options that are out of range or have no method."""
        wanted = "a penstock.FuseOptions, such as penstock.FuseOptions(balance=0.2)"
        require_kind(self.fuse_options, FuseOptions | None, "fuse_options", wanted)
        if self.fuse is not None:
            require_kind(self.fuse, str, "fuse", "the name of a fusion method, such as 'cola'")
            find_method(self.fuse)
        elif self.fuse_options is not None:
            msg = "fuse_options are given but fuse is not; name a fusion method as well, such as fuse='cola'"
            raise InvalidInput(msg)
        if self.fuse is None or self.fuse_options is None:
            return
        if faults := self.fuse_options.faults():
            raise InvalidInput(faults)
        find_method(self.fuse).require_read(self.fuse_options)

    def require_fitting(self, dataflow: Dataflow) -> None:
        """Refuse a plan, a profile or constraints of another topology, and folders that several would write into.

        That is, as far as it is seen without workers.
        """
        order = self.checkpoint_order
        sinks = [(name, sink) for name, (sink, _) in dataflow.sinks().items()]
        require_apart(sinks, None if order is None else order.root)
        if self.plan is not None:
            require_own_plan(dataflow, self.plan)
        graph = dataflow.placeable(() if self.profile is None else self.profile.tasks).validated()
        if self.profile is not None:
            self.profile.validated(graph)

    def constrained(self, dataflow: Dataflow) -> Dataflow:
        """The dataflow under these constraints beside its own."""
        return replace(dataflow, constraints=tuple(dict.fromkeys((*dataflow.constraints, *self.constraints))))

    def placing(self, tasks_per_worker: int) -> Placing:
        """How tasks are to be placed; InvalidInput for an unknown kind of node."""
        placing = Placing(
            scheduler=self.scheduler or (SCHEDULER if self.adapt is None else FIRST_SCHEDULER),
            plan=self.plan,
            profile=self.profile,
            node=self.node,
            seed=self.seed,
            theta=self.theta,
            tasks_per_worker=tasks_per_worker,
            settings=self.settings or {},
            fuse=self.fuse,
            fuse_options=self.fuse_options,
        )
        if faults := placing.faults():
            raise InvalidInput(faults)
        return placing

    def run_settings(self) -> RunSettings:
        """What workers are told; InvalidInput for an unknown transport."""
        return RunSettings(
            rows_max=self.rows_max, linger_ms=self.linger_ms, interval_s=self.interval_s, transport=self.transport
        )


OPTION_NAMES = tuple(option.name for option in fields(JobOptions))


def require_known_options(names: Iterable[str]) -> None:
    """Refuse names that `run` and `start` do not know; Python would name a function of ours."""
    for name in names:
        if name not in OPTION_NAMES:
            near = get_close_matches(name, OPTION_NAMES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(OPTION_NAMES)}"
            msg = f"run and start have no option {name!r}; {hint}"
            raise InvalidInput(msg)


@dataclass(frozen=True)
class JobOrder:
    """What to run and how; made by `submit`."""

    dataflow: Dataflow
    workers: int
    placing: Placing
    settings: RunSettings
    host: str  # as executors reach the driver
    bind: str  # as the driver listens: the same, unless something stands between
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    metrics: str | None = None
    notes: tuple[str, ...] = ()
    prometheus: tuple[str, int] | None = None  # host and port of the page; port 0 lets the kernel pick
    reads: tuple[tuple[str, str], ...] = ()  # sources and a file of each, that every worker must see
    writes: tuple[tuple[str, str], ...] = ()  # sinks and the folder of each
    epochs: DriverEpochs | None = None  # where the job keeps its epochs, opened
    spooled: Mapping[str, tuple[SummedFile, ...]] = field(default_factory=dict)  # by source: rows of DataFrames
    network: Network = field(default_factory=Network)
    silence_s: float = 10.0  # for how long a worker's process may say nothing
    adapt: AdaptSettings | None = None  # how the job moves by itself

    def input(self) -> DataFrame | None:
        """What Spark hands to the workers, if anything."""
        if not self.frames:
            return None
        from penstock.deploy.driver.frames import frame_inputs, handed  # imports all of Spark's SQL

        return handed(frame_inputs(self.dataflow, self.frames), self.workers)
