"""How long a job waits for its plan: theta of the job, of its fusion's options, or of neither; without Spark."""

from __future__ import annotations

from unittest import mock

import pytest
from test_deploy_decisions import dataflow, hellos

from penstock.deploy.driver import binding
from penstock.deploy.driver.options import JobOptions
from penstock.model.cluster import Cluster
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.fuse.contract import FuseOptions
from penstock.run.engine.worker_share import RunSettings


@pytest.mark.parametrize(
    ("job", "own", "meant"), [(None, None, 10.0), (5.0, None, 5.0), (0.0, None, 0.0), (5.0, 2.0, 2.0), (None, 2.0, 2.0)]
)
def test_the_theta_of_a_job_reaches_its_fusion(job: float | None, own: float | None, meant: float) -> None:
    graph = OperatorGraph("t", (Operator("a", 2, load=0.1), Operator("b", 2, load=0.1)), (Stream("a", "b"),))
    options = None if own is None else FuseOptions(theta=own)
    placing = JobOptions(fuse="none", theta=job, fuse_options=options).placing(5)
    with mock.patch.object(binding, "fuse") as fuse:
        binding.fused(graph, Cluster.uniform([(2, 2.0)]), placing, ())
    assert fuse.call_args.kwargs["options"].theta == meant


@pytest.mark.parametrize(("job", "meant"), [(None, 1.0), (3.0, 3.0), (0.0, 0.0)])
def test_a_scheduler_has_a_second_unless_the_job_says_otherwise(job: float | None, meant: float) -> None:
    placing = JobOptions(scheduler="even", theta=job).placing(5)
    with mock.patch.object(binding, "place", wraps=binding.place) as place:
        binding.bind(dataflow(2, 1), hellos("x"), placing, "job", RunSettings())
    assert place.call_args.kwargs["options"].theta == meant
