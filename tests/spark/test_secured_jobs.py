"""Jobs on real sessions under TLS and at given ports."""

from __future__ import annotations

from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import answer, await_epoch, await_recoveries, counts, kill, numbers, rows_of

import penstock as ps
from certificates import NOW, folder
from penstock.run.transport.socket import listen


def free_port() -> int:
    """A port that nobody listens at, and whose neighbours are likely to be free as well."""
    with listen("127.0.0.1") as listener:
        return int(listener.getsockname()[1])


def test_a_job_under_tls_survives_a_worker_and_listens_where_it_was_told(
    spark: SparkSession, footprint: Footprint, tmp_path: Path
) -> None:
    first = free_port()
    job = counts(numbers(tmp_path / "gate")).start(
        spark,
        workers=2,
        tls=folder(tmp_path / "tls"),
        transport="socket",
        control_port=f"{first}-{min(65_535, first + 50)}",
        data_ports=f"{first}-{min(65_535, first + 50)}",
        checkpoint=tmp_path / "checkpoint",
        checkpoint_interval_s=0.1,
        interval_s=0.1,
    )
    with job:
        ports = {worker.port for worker in job.workers} | {job._attempts.now._server.port}
        assert len(ports) == 3
        assert ports <= set(range(first, first + 51))
        await_epoch(job, 1)
        kill(job, 1)
        await_recoveries(job, 1)
        (tmp_path / "gate").touch()
        assert rows_of(job) == answer()
        assert set(job.metrics("links")["transport"].to_pylist()) == {"tls"}
    footprint.assert_gone()


def test_ports_that_are_all_taken_end_a_job_in_one_line(spark: SparkSession, footprint: Footprint) -> None:
    port = free_port()
    with pytest.raises(ps.UnfitSession, match=f"worker . on executor .* every port of data_ports {port} is taken at"):
        counts(numbers()).run(spark, workers=2, data_ports=port)
    with listen("127.0.0.1") as taken:
        there = taken.getsockname()[1]
        with pytest.raises(ps.InvalidInput, match=f"every port of control_port {there} is taken at 127.0.0.1"):
            counts(numbers()).run(spark, workers=2, control_port=there)
    footprint.assert_gone()


def test_a_certificate_that_does_not_do_ends_a_job_before_it_begins(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ps.InvalidInput, match="certificate has expired"):
        counts(numbers()).run(spark, tls=folder(tmp_path, not_after=NOW))


def test_workers_of_another_build_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.deploy.attempt.attempt.own_build", lambda: "0.0 (core x, package y)")
    with pytest.raises(ps.UnfitSession, match=r"penstock is 0\.0 \(core x, package y\) on the driver but .*same wheel"):
        counts(numbers()).run(spark, workers=2)
