"""What machines report, what is believed of it, and the cluster and the transports that a job makes of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from penstock.deploy.driver.binding import NODES_NOTE, worker_places
from penstock.deploy.driver.slots import Slots, compared_ms
from penstock.deploy.line import power
from penstock.deploy.line.messages import Hello, decode, encode
from penstock.deploy.line.power import KEPT_SECONDS, SpeedTest, usable_cores, work_ms

HELLO = Hello(0, 1, "h:1", "10.0.0.1", 1, 2, 3, "boot", "ipc", "3.11", "26", 8000.0, cores=4.0, work_ms=2.0)


def hellos(*changes: dict[str, object]) -> list[Hello]:
    """Workers that differ from HELLO."""
    return [
        dataclasses.replace(HELLO, worker=i, workers=len(changes), **changed)  # type: ignore[arg-type]
        for i, changed in enumerate(changes)
    ]


class TestCores:
    def test_a_quota_is_less_than_the_machine(self, tmp_path: Path) -> None:
        (tmp_path / "cpu.max").write_text("50000 100000\n")
        assert usable_cores(tmp_path) == 0.5

    def test_a_quota_of_version_1(self, tmp_path: Path) -> None:
        (tmp_path / "cpu").mkdir()
        (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("25000\n")
        (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
        assert usable_cores(tmp_path) == 0.25

    @pytest.mark.parametrize("said", ["max 100000", "", "50000", "x y", "1000 0", "-1 100000"])
    def test_no_quota_or_nonsense_is_the_machine(self, tmp_path: Path, said: str) -> None:
        (tmp_path / "cpu.max").write_text(said)
        assert usable_cores(tmp_path) == usable_cores(tmp_path / "none") >= 1.0

    def test_the_work_takes_time(self) -> None:
        assert work_ms() > 0.0

    def test_the_speed_test_is_not_repeated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now, done = 100.0, []
        monkeypatch.setattr(power, "_once", lambda column: done.append(len(column)) or 5.0)
        test = SpeedTest(lambda: now)
        assert (test.work_ms(), len(done)) == (5.0, power.TRIES)
        now += KEPT_SECONDS
        assert (test.work_ms(), len(done)) == (5.0, power.TRIES)
        now += 1.0
        assert (test.work_ms(), len(done)) == (5.0, 2 * power.TRIES)


class TestHello:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("cores", 0.0),
            ("cores", -1.0),
            ("cores", float("nan")),
            ("cores", float("inf")),
            ("cores", 1e6),
            ("cores", "4"),
            ("cores", True),
            ("work_ms", -1.0),
            ("work_ms", -0.5),
            ("memory_mb", -0.5),
            ("work_ms", float("nan")),
            ("work_ms", 1e9),
            ("work_ms", [2.0]),
            ("memory_mb", -1.0),
            ("memory_mb", float("nan")),
            ("memory_mb", None),
        ],
    )
    def test_amounts_that_no_machine_has_are_refused(self, name: str, value: object) -> None:
        with pytest.raises(
            ValueError, match=rf"^{name} is .*; it must be a number, (above 0|0 \(not known\) or more), and at most"
        ):
            Hello(**{**dataclasses.asdict(HELLO), name: value})  # type: ignore[arg-type]

    def test_it_comes_through_the_line(self) -> None:
        assert Hello(**decode(encode(dataclasses.asdict(HELLO)))) == HELLO


class TestSlots:
    def test_a_node_has_no_more_cores_than_its_host_and_a_worker_is_one_thread(self) -> None:
        cluster = Slots.of(hellos(*[{"cores": 2.0}] * 8), "host").cluster()
        (node,) = cluster.nodes
        assert (node.capacity, node.slots, node.worker_capacity) == (1.6, 8, 1.0)

    def test_nodes_of_one_host_share_its_cores_and_its_memory(self) -> None:
        # Three workers in two executors of one host of 2 cores: n1 has two thirds of them.
        many = hellos({"cores": 2.0}, {"cores": 2.0}, {"cores": 2.0, "address": "h:2"})
        nodes = Slots.of(many, None).cluster().nodes
        assert [node.capacity for node in nodes] == [pytest.approx(0.8 * 4 / 3), pytest.approx(0.8 * 2 / 3)]
        assert [node.memory_mb for node in nodes] == [pytest.approx(8000 * 2 / 3), pytest.approx(8000 / 3)]

    def test_an_executor_has_no_more_cores_than_its_control_group(self) -> None:
        many = hellos({"cores": 0.5}, {"cores": 4.0, "address": "h:2"})
        assert [node.capacity for node in Slots.of(many, None).cluster().nodes] == [0.4, 0.8]

    @pytest.mark.parametrize(("host_cores", "each", "whole"), [(32.0, 1.6, 4.8), (3.0, 0.8, 2.4), (0.0, 1.6 / 3, 1.6)])
    def test_containers_of_one_host_have_their_own_quotas(self, host_cores: float, each: float, whole: float) -> None:
        """Three of 2 cores, on a host of 32, of 3 and of nobody knows how many."""
        two = [{"cores": 2.0, "address": f"h:{pod}", "ipc": f"pod{pod}", "host_cores": host_cores} for pod in "123"]
        many = hellos(*two, *two)
        assert [n.capacity for n in Slots.of(many, None).cluster().nodes] == [pytest.approx(each)] * 3
        assert [n.capacity for n in Slots.of(many, "host").cluster().nodes] == [pytest.approx(whole)]

    def test_speeds_are_the_driver_s_cores(self) -> None:
        many = hellos({"work_ms": 2.0}, {"work_ms": 1.0, "boot_id": "fast", "address": "f:1"})
        slow, fast = (n for n in sorted(Slots.of(many, "host", 2.0).cluster(2.0).nodes, key=lambda n: n.capacity))
        assert (slow.capacity, slow.worker_capacity) == (1.6, 2.0)  # stretched by 2, workers too
        assert (fast.capacity, fast.worker_capacity) == (3.2, 4.0)

    @pytest.mark.parametrize("theirs", [1.75, 2.0, 2.29])
    def test_speeds_within_noise_are_one(self, theirs: float) -> None:
        (node,) = Slots.of(hellos({"work_ms": theirs}), "host", 2.0).cluster().nodes
        assert node.worker_capacity == 1.0

    @pytest.mark.parametrize(("theirs", "speed"), [(1e-6, 16.0), (50_000.0, 1 / 16), (0.0, 1.0)])
    def test_a_machine_that_boasts_is_believed_within_limits(self, theirs: float, speed: float) -> None:
        (node,) = Slots.of(hellos({"work_ms": theirs}), "host", 2.0).cluster().nodes
        assert node.worker_capacity == speed

    @pytest.mark.parametrize("memory", [0.0, float("inf")])
    def test_memory_that_is_not_known_is_no_limit(self, memory: float) -> None:
        (node,) = Slots.of(hellos({"memory_mb": memory}), "host").cluster().nodes
        assert node.memory_mb is None


def test_workers_on_the_drivers_own_machine_are_as_fast_as_it() -> None:
    """One test is disturbed and the other is not: that says nothing of the machine, which is the same."""
    here, there = hellos({"boot_id": "own", "work_ms": 2.0}), hellos({"boot_id": "other", "work_ms": 2.0})
    assert compared_ms(here, 8.0, "own") is None
    assert compared_ms([*here, *there], 8.0, "own") == 8.0


class TestTransports:
    TWO_EXECUTORS = ({}, {}, {"address": "h:2"})

    def machines(self, transport: str, *changes: dict[str, object], node: str | None = None) -> tuple[list[str], bool]:
        """The places' machines, and whether a note tells of nodes on one machine."""
        many = hellos(*changes)
        places, notes = worker_places(many, Slots.of(many, node), transport)
        return [place.machine for place in places], notes == (NODES_NOTE,)

    def test_workers_of_one_node_share_memory_and_workers_of_two_do_not(self) -> None:
        (first, second, third), told = self.machines("auto", *self.TWO_EXECUTORS)
        assert first == second != third
        assert told

    def test_ring_shares_memory_wherever_it_can_be(self) -> None:
        machines, told = self.machines("ring", *self.TWO_EXECUTORS)
        assert len(set(machines)) == 1
        assert not told

    def test_one_node_of_a_host_shares_memory(self) -> None:
        machines, told = self.machines("auto", *self.TWO_EXECUTORS, node="host")
        assert len(set(machines)) == 1
        assert not told

    def test_where_memory_cannot_be_shared_no_node_makes_it_so(self) -> None:
        machines, told = self.machines("auto", {"ipc": ""}, {"ipc": "", "address": "h:2"})
        assert machines == ["", ""]
        assert not told
