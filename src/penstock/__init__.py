"""Penstock: streaming dataflows in Python on Spark, which place themselves.

    Topology + Cluster --(measure)--> Profile --optimise--> Plan --check_plan--> certified --deploy--> Job

    >>> import penstock as ps
    >>> operators = (ps.Operator("lines", 2), ps.Operator("count", 2))
    >>> words = ps.OperatorGraph("words", operators, (ps.Stream("lines", "count"),))
    >>> ps.place(words, ps.Cluster.uniform([(2, 3.0)]), "even").nodes_used
    2

Rooms, each of which imports only what stands above it:

    errors      one tree, a class for each situation that a caller handles differently
    model       what there is: topology, cluster, constraints, profile, plan, certificate, files
    run         inside one worker: machine, loop, tasks, routing, channels, meters
    flow        the API in which users write dataflows
    apps        the papers' layouts and applications
    optimise    (Topology, Profile, Cluster) -> Plan: contract, schedulers, METIS and HiGHS behind doors
    deploy      jobs on Spark; the only room that knows pyspark
    observe     pictures of plans and figures
    testing     the shipped test kit: random topologies, clusters and profiles
    reproduce   one item per published figure or table
    bench       measured figures, with peers in the same run
    cli         thin verbs over all of these
    _core       the native parts (C++), private

This module re-exports and nothing else.
"""

from penstock.errors import (
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
    UnfitSession,
    UnhonouredConstraints,
    UserError,
)
from penstock.flow import io
from penstock.flow.keyed import KeyedStream
from penstock.flow.stream import DataStream
from penstock.flow.topology import Topology
from penstock.flow.windows import sliding, tumbling
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart, Dedicated, Replicas, Resource, Together
from penstock.model.files import parse_cluster, read_cluster, read_plan, read_profile, read_topology, write_plan
from penstock.model.plan import Plan, Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options
from penstock.optimise.door import compare, place
from penstock.optimise.fuse.contract import FuseOptions
from penstock.optimise.fuse.door import fuse
from penstock.run.kernels import Row
from penstock.run.operators.process import Stateful

__all__ = [
    "Apart",
    "Cluster",
    "DataStream",
    "Dedicated",
    "EdgeProfile",
    "FuseOptions",
    "Infeasible",
    "InternalError",
    "InvalidInput",
    "JobCancelled",
    "JobFailed",
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
    "Slot",
    "Stateful",
    "Stream",
    "TaskProfile",
    "Together",
    "Topology",
    "UnfitSession",
    "UnhonouredConstraints",
    "UserError",
    "check_plan",
    "compare",
    "fuse",
    "io",
    "parse_cluster",
    "place",
    "read_cluster",
    "read_plan",
    "read_profile",
    "read_topology",
    "sliding",
    "tumbling",
    "write_plan",
]
