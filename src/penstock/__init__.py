"""Penstock: streaming dataflows in Python on Spark, which place themselves.

    Topology + Cluster --(measure)--> Profile --optimise--> Plan --check_plan--> certified --deploy--> Job

    >>> import penstock as ps
    >>> operators = (ps.Operator("lines", 2), ps.Operator("count", 2))
    >>> words = ps.OperatorGraph("words", operators, (ps.Stream("lines", "count"),))
    >>> ps.place(words, ps.Cluster.uniform([(2, 3.0)]), "even").nodes_used
    2

ARCHITECTURE.md is the map of the rooms, in the order in which they import each other. This module re-exports and
nothing else; `Job` when it is first asked for, because the deployment is imported then.
"""

from typing import TYPE_CHECKING

from penstock.adapt.contract import AdaptGoals, AdaptSettings
from penstock.errors import (
    CheckpointDamaged,
    Infeasible,
    InternalError,
    InvalidInput,
    JobCancelled,
    JobFailed,
    NoPlanFound,
    NoSuchOperator,
    NotEnoughSlots,
    PenstockError,
    RowError,
    RowsLate,
    StaleAttempt,
    StoreUnusable,
    UnfitSession,
    UnhonouredConstraints,
    UserError,
)
from penstock.flow import io
from penstock.flow.constraints import (
    colocate,
    dedicated,
    on_nodes,
    on_tag,
    replicas,
    separate_nodes,
    separate_workers,
)
from penstock.flow.keyed import KeyedStream
from penstock.flow.stream import DataStream
from penstock.flow.windows import sliding, tumbling
from penstock.jobs import Topology
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart, Dedicated, Replicas, Resource, Together
from penstock.model.files import (
    parse_cluster,
    read_cluster,
    read_constraints,
    read_plan,
    read_profile,
    read_topology,
    write_plan,
)
from penstock.model.plan import Plan, Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options
from penstock.optimise.door import compare, place
from penstock.optimise.fuse.contract import FuseOptions
from penstock.optimise.fuse.door import fuse
from penstock.optimise.joint import Joint, place_together
from penstock.run.columns.kernels import Row
from penstock.run.operators.state.process import Stateful

if TYPE_CHECKING:
    from penstock.deploy.driver.job import Job
else:

    def __getattr__(name: str) -> object:
        """`Job`, and nothing else."""
        if name == "Job":
            from penstock.deploy.driver.job import Job

            return Job
        msg = f"module 'penstock' has no attribute {name!r}"
        raise AttributeError(msg)


__all__ = [
    "AdaptGoals",
    "AdaptSettings",
    "Apart",
    "CheckpointDamaged",
    "Cluster",
    "DataStream",
    "Dedicated",
    "EdgeProfile",
    "FuseOptions",
    "Infeasible",
    "InternalError",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobFailed",
    "Joint",
    "KeyedStream",
    "NoPlanFound",
    "NoSuchOperator",
    "Node",
    "NotEnoughSlots",
    "Operator",
    "OperatorGraph",
    "Options",
    "PenstockError",
    "Plan",
    "Profile",
    "Replicas",
    "Resource",
    "Row",
    "RowError",
    "RowsLate",
    "Slot",
    "StaleAttempt",
    "Stateful",
    "StoreUnusable",
    "Stream",
    "TaskProfile",
    "Together",
    "Topology",
    "UnfitSession",
    "UnhonouredConstraints",
    "UserError",
    "check_plan",
    "colocate",
    "compare",
    "dedicated",
    "fuse",
    "io",
    "on_nodes",
    "on_tag",
    "parse_cluster",
    "place",
    "place_together",
    "read_cluster",
    "read_constraints",
    "read_plan",
    "read_profile",
    "read_topology",
    "replicas",
    "separate_nodes",
    "separate_workers",
    "sliding",
    "tumbling",
    "write_plan",
]
