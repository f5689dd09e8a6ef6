"""The shipped test kit: random topologies and clusters, and the contracts that schedulers and policies keep.

    # tests/test_mine.py of a package that adds a scheduler and a policy
    from penstock.testing import policy_contract, scheduler_contract

    TestMyScheduler = scheduler_contract("mine")
    TestMyPolicy = policy_contract("mine")

Our own schedulers and policies are held to the same classes (tests/contract). Needs Hypothesis, which
`pip install penstock[dev]` brings; no other part of the package imports this one (tests/unit/test_architecture.py).
"""

try:
    import hypothesis as _  # noqa: F401 # said here once, for everything below needs it
except ImportError as missing:
    _msg = "penstock.testing needs Hypothesis, which is not installed; run: pip install 'penstock[dev]'"
    raise ImportError(_msg) from missing

from penstock.testing.certificate import certificate_faults, cheapest, task_rates
from penstock.testing.instances import (
    clusters,
    counted_profiles,
    instances,
    profiles,
    random_cluster,
    random_topology,
    topologies,
)
from penstock.testing.policy_contract import policy_contract
from penstock.testing.promises import PromiseBroken
from penstock.testing.scheduler_contract import scheduler_contract

__all__ = [
    "PromiseBroken",
    "certificate_faults",
    "cheapest",
    "clusters",
    "counted_profiles",
    "instances",
    "policy_contract",
    "profiles",
    "random_cluster",
    "random_topology",
    "scheduler_contract",
    "task_rates",
    "topologies",
]
