"""Topology as users have it: a dataflow under construction (`penstock.flow`) that can be run and started.

It stands above both rooms that it joins, because `deploy` reads what `flow` builds. The deployment is imported by the
first job: `import penstock` knows nothing of Spark (tests/unit/test_without_lab.py). Options are spelt out twice, so
that editors show them where they are typed; a name that does not exist is InvalidInput with the nearest one that does,
for callers without a type checker (tests/unit/test_typed_face.py). Rejected: `**options` with a TypedDict, which
Jupyter does not show; a registry into which `deploy` puts its launcher, which leaves the types out. Decision 33.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from penstock.flow.checks import usage
from penstock.flow.topology import Topology as Draft
from penstock.model.constraints import Constraint
from penstock.model.plan import Plan
from penstock.model.profile import Profile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.adapt.contract import AdaptSettings
    from penstock.deploy.driver.job import Job
    from penstock.optimise.fuse.contract import FuseOptions

P = ParamSpec("P")
R = TypeVar("R")


def _with_options(method: Callable[P, R]) -> Callable[P, R]:
    """Have a method refuse options that it does not have, and calls that do not fit, as InvalidInput."""
    fitting = usage(f"{method.__name__}(spark, scheduler='best', workers=2)")(method)

    @functools.wraps(method)
    def call(*args: P.args, **options: P.kwargs) -> R:
        from penstock.deploy import require_known_options

        require_known_options(name for name in options if name != "spark")  # which may be given by its name
        return fitting(*args, **options)

    return call


class Topology(Draft):
    """A dataflow: write it down with `source` and the streams that it returns, then `run` or `start` it.

    >>> import penstock as ps
    >>> top = ps.Topology("words")
    >>> lines = top.source("lines", ps.io.generator(lambda task, tasks: ["a b", "a"], "line string"))
    >>> lines.split("line").key_by("word").count().sink("counts", ps.io.collect())
    """

    @_with_options
    def run(
        self,
        spark: SparkSession,
        *,
        scheduler: str | None = None,
        plan: Plan | None = None,
        fuse: str | None = None,
        fuse_options: FuseOptions | None = None,
        profile: Profile | None = None,
        settings: Mapping[str, object] | None = None,
        constraints: Sequence[Constraint] = (),
        workers: int | None = None,
        tasks_per_worker: int | None = None,
        take_last_slot: bool = False,
        node: str | None = None,
        seed: int = 0,
        theta: float | None = None,
        metrics: str | PathLike[str] | None = None,
        rows_max: int = 4096,
        linger_ms: float = 0.0,
        interval_s: float = 1.0,
        transport: str = "auto",
        frames: Mapping[str, DataFrame] | None = None,
        prometheus_port: int | None = None,
        prometheus_host: str = "127.0.0.1",
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_interval_s: float = 10.0,
        from_savepoint: str | None = None,
        control_port: int | str | None = None,
        data_ports: int | str | None = None,
        tls: str | PathLike[str] | None = None,
        silence_s: float = 10.0,
        adapt: str | AdaptSettings | None = None,
    ) -> DataFrame:
        """Run to the end of bounded input; what the sink that keeps rows (`collect`, `parquet`) received.

        Of a topology with several such sinks the answer is a dict of DataFrames by sink, and None without any; typed
        programs `start` such a topology and ask `job.results`. The options are those of `start`. Ctrl-C cancels.
        """
        from penstock.deploy import JobOptions, run_topology

        options = JobOptions(
            scheduler=scheduler,
            plan=plan,
            fuse=fuse,
            fuse_options=fuse_options,
            profile=profile,
            settings=settings,
            constraints=constraints,
            workers=workers,
            tasks_per_worker=tasks_per_worker,
            take_last_slot=take_last_slot,
            node=node,
            seed=seed,
            theta=theta,
            metrics=metrics,
            rows_max=rows_max,
            linger_ms=linger_ms,
            interval_s=interval_s,
            transport=transport,
            frames=frames,
            prometheus_port=prometheus_port,
            prometheus_host=prometheus_host,
            checkpoint=checkpoint,
            checkpoint_interval_s=checkpoint_interval_s,
            from_savepoint=from_savepoint,
            control_port=control_port,
            data_ports=data_ports,
            tls=tls,
            silence_s=silence_s,
            adapt=adapt,
        )
        return run_topology(self, spark, options)

    @_with_options
    def start(
        self,
        spark: SparkSession,
        *,
        scheduler: str | None = None,
        plan: Plan | None = None,
        fuse: str | None = None,
        fuse_options: FuseOptions | None = None,
        profile: Profile | None = None,
        settings: Mapping[str, object] | None = None,
        constraints: Sequence[Constraint] = (),
        workers: int | None = None,
        tasks_per_worker: int | None = None,
        take_last_slot: bool = False,
        node: str | None = None,
        seed: int = 0,
        theta: float | None = None,
        metrics: str | PathLike[str] | None = None,
        rows_max: int = 4096,
        linger_ms: float = 0.0,
        interval_s: float = 1.0,
        transport: str = "auto",
        frames: Mapping[str, DataFrame] | None = None,
        prometheus_port: int | None = None,
        prometheus_host: str = "127.0.0.1",
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_interval_s: float = 10.0,
        from_savepoint: str | None = None,
        control_port: int | str | None = None,
        data_ports: int | str | None = None,
        tls: str | PathLike[str] | None = None,
        silence_s: float = 10.0,
        adapt: str | AdaptSettings | None = None,
    ) -> Job:
        """Start a job and return it once its workers have been sent to work.

        Where Spark has to shuffle a DataFrame first, such as into the order of its event time, it returns at once: the
        job is `starting` and has no plan yet, and what goes wrong then is raised by `wait`, `result` and `stop`.

        Args:
            spark: the session whose slots the workers take.
            scheduler: the scheduler that places the tasks; left out, `best`. `penstock schedulers` lists the names.
            plan: tasks go where this plan says, instead of asking a scheduler; its workers are those of the job, so
                that `scheduler`, `settings`, `workers`, `tasks_per_worker`, `theta` and `seed` are refused beside it.
            fuse: a fusion method in place of a scheduler: `cola`, `cola-basic`, `fint`, `none` or `best` decides which
                tasks share a worker as well, and uses as many of the free slots as are worth it.
            fuse_options: the method's options, such as ps.FuseOptions(balance=0.2, seed=1); its `theta` and `seed` are
                the job's where they are left out.
            profile: measured loads and rates, for the scheduler to use instead of declared ones.
            settings: the scheduler's own parameters by name, such as {"alfa": 0.5} for `ols`.
            constraints: what the plan must keep beside the topology's own, such as [ps.colocate("parse", "count")].
            workers: processes to run on; left out, one for every `tasks_per_worker` tasks of an executor, as far as
                slots are free.
            tasks_per_worker: most tasks in one worker, as far as slots allow; left out, five, and where `workers` are
                given, as many as use all of them.
            take_last_slot: whether the job may take the slot that is otherwise left for other queries.
            node: what counts as a node for placement, "executor" or "host"; left out, it follows from the session.
            seed: of the scheduler or the fusion method; the same seed gives the same plan.
            theta: seconds that the scheduler or the fusion method may search; left out, 1 for a scheduler and 10 for a
                fusion method.
            metrics: folder for the metric log, which `penstock profile` reads.
            rows_max: most rows of a batch.
            linger_ms: how long small batches wait for others to join them; 0: while their worker is busy anyway.
            interval_s: seconds between two reports of a worker's meters.
            transport: how workers of one machine speak: "auto" uses shared memory where there is some and sockets
                otherwise, "ring" fails where there is none, "socket" never uses it. Two machines always use sockets.
            frames: other DataFrames for sources that were declared with `ps.io.dataframe`, by source.
            prometheus_port: serve metrics to Prometheus while the job runs; 0 picks a port, which `job.prometheus_url`
                tells.
            prometheus_host: the address to serve them at.
            checkpoint: folder (a path, or a URI such as s3://bucket/job) in which the job keeps what it needs to go on.
                After a failure it goes on from there, and so does the next job that is started with the same folder.
            checkpoint_interval_s: seconds from the beginning of one epoch to that of the next, 0.02 to 86,400; for jobs
                with a checkpoint.
            from_savepoint: the name of a savepoint in the checkpoint folder at which the job begins, instead of at its
                last epoch; what came behind it is forgotten, and what sinks showed of that is taken back.
            control_port: where the driver listens for its workers: a port, or a range such as "7000-7009" of which it
                takes the first that is free; left out, the kernel picks one.
            data_ports: where workers listen for each other: a range with a port for each worker of a host.
            tls: a folder, at the same path on all machines, with cert.pem, key.pem and ca.pem: what leaves a machine is
                encrypted by TLS 1.3, and both ends must show a certificate of that authority.
            silence_s: for how long a worker's process may say nothing, 2 to 86,400 s. A thread of its own speaks, so a
                function of yours that takes long is no silence, unless it runs on another machine and lets no other
                thread of Python run. After that time the worker is replaced, or the job fails where it has no
                checkpoints; a note comes before.
            adapt: a scheduler, or ps.AdaptSettings: the job looks at itself every 60 s and goes over to a better plan
                where that pays; needs a checkpoint. Its first plan is that of `even` unless `scheduler` names another.
        """
        from penstock.deploy import JobOptions, start_topology

        options = JobOptions(
            scheduler=scheduler,
            plan=plan,
            fuse=fuse,
            fuse_options=fuse_options,
            profile=profile,
            settings=settings,
            constraints=constraints,
            workers=workers,
            tasks_per_worker=tasks_per_worker,
            take_last_slot=take_last_slot,
            node=node,
            seed=seed,
            theta=theta,
            metrics=metrics,
            rows_max=rows_max,
            linger_ms=linger_ms,
            interval_s=interval_s,
            transport=transport,
            frames=frames,
            prometheus_port=prometheus_port,
            prometheus_host=prometheus_host,
            checkpoint=checkpoint,
            checkpoint_interval_s=checkpoint_interval_s,
            from_savepoint=from_savepoint,
            control_port=control_port,
            data_ports=data_ports,
            tls=tls,
            silence_s=silence_s,
            adapt=adapt,
        )
        return start_topology(self, spark, options)
