"""Penstock decides where the tasks of a streaming topology run.

    Topology + Cluster --(measure)--> Profile --optimise--> Plan --check_plan--> certified

    >>> import penstock as ps
    >>> operators = (ps.Operator("lines", 2), ps.Operator("count", 2))
    >>> words = ps.OperatorGraph("words", operators, (ps.Stream("lines", "count"),))
    >>> ps.place(words, ps.Cluster.uniform([(2, 3.0)]), "even").nodes_used
    2

Rooms, each of which imports only what stands above it:

    errors      one tree, a class for each situation that a caller handles differently
    model       what there is: topology, cluster, constraints, profile, plan, certificate, files
    apps        the papers' layouts and applications
    optimise    (Topology, Profile, Cluster) -> Plan: contract, schedulers, METIS and HiGHS behind doors
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
    NoPlanFound,
    PenstockError,
    UnhonouredConstraints,
    UserError,
)
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart, Dedicated, Replicas, Resource, Together
from penstock.model.files import parse_cluster, read_cluster, read_plan, read_profile, read_topology, write_plan
from penstock.model.plan import Plan, Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options
from penstock.optimise.door import compare, place

__all__ = [
    "Apart",
    "Cluster",
    "Dedicated",
    "EdgeProfile",
    "Infeasible",
    "InternalError",
    "InvalidInput",
    "NoPlanFound",
    "Node",
    "Operator",
    "OperatorGraph",
    "Options",
    "PenstockError",
    "Plan",
    "Profile",
    "Replicas",
    "Resource",
    "Slot",
    "Stream",
    "TaskProfile",
    "Together",
    "UnhonouredConstraints",
    "UserError",
    "check_plan",
    "compare",
    "parse_cluster",
    "place",
    "read_cluster",
    "read_plan",
    "read_profile",
    "read_topology",
    "write_plan",
]
