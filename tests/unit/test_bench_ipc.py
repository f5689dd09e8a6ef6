"""The transport benchmark: schedules, counting, targets, and each transport that needs nothing installed, in small.

No assertion is about how fast anything is.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lab.bench.ipc import install as ipc_install
from penstock_lab.bench.ipc import measure as ipc
from penstock_lab.bench.ipc import netty_link as ipc_netty
from penstock_lab.bench.ipc import rig as ipc_rig
from penstock_lab.bench.ipc import targets as ipc_targets
from penstock_lab.bench.ipc import transports as names
from penstock_lab.bench.ipc.cases import KB, STAMP_END, Case, Outcome, at_share, median_of, outcome_of

PACED = Case("paced", 10 * KB, rate=2000, seconds=0.02)
FLAT = Case("flat", 10 * KB, seconds=0.02)
IDLE = Case("idle", KB, seconds=0.02)
AT_HAND = [name for name, transport in names.TRANSPORTS.items() if not transport.needs]


class Clock:
    """Time that passes only by sleeping or when told, as `time` looks to the sender."""

    def __init__(self, oversleeps: Sequence[float] = ()) -> None:
        self.now = 1_000_000_000
        self.oversleeps = list(oversleeps)

    def monotonic_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        late = self.oversleeps.pop(0) if self.oversleeps else 0.0
        self.now += round((seconds + late) * 1e9)


def stamps_of(clock: Clock, holds: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stamps of messages at 1,000/s over a transport that holds the sender for so long at each."""
    monkeypatch.setattr(ipc_rig, "time", clock)
    payload, sent, waits = ipc_rig.Bytes(64), [], iter(holds)

    def send(message: bytearray) -> None:
        sent.append(ipc_rig.read_bytes(message))
        clock.now += round(next(waits) * 1e9)

    ipc_rig.send_paced(send, payload, 1000.0, len(holds))
    return sent


def test_an_undisturbed_schedule_is_even(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = stamps_of(Clock(), [0.0] * 5, monkeypatch)
    assert [b - a for a, b in itertools.pairwise(sent)] == [1_000_000] * 4


def test_waiting_inside_a_transport_counts_against_the_messages_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = stamps_of(Clock(), [0.0035, 0.0, 0.0, 0.0, 0.0], monkeypatch)
    assert [b - a for a, b in itertools.pairwise(sent)] == [1_000_000] * 4  # due times, though sent later


def test_the_timers_lateness_does_not_count_and_no_burst_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = stamps_of(Clock(oversleeps=[0.0, 0.005]), [0.0] * 4, monkeypatch)
    assert [b - a for a, b in itertools.pairwise(sent)] == [6_000_000, 1_000_000, 1_000_000]


def test_flat_out_counts_until_every_producer_has_ended() -> None:
    stamps: Iterator[int] = iter([0, 0, STAMP_END, 0, 0, STAMP_END])
    found = ipc_rig.consume_flat(lambda: struct.pack("<q", next(stamps)), ipc_rig.read_bytes, producers=2)
    assert found["messages"] == 5  # the first starts the clock


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.floats(0, 1))
def test_a_share_is_one_of_the_values_with_that_many_below(values: list[float], share: float) -> None:
    found = at_share(sorted(values), share)
    assert found in values
    assert sum(value < found for value in values) <= share * len(values)


def test_outcomes_come_from_raw_counts() -> None:
    raw = {"latency_ns": [3000, 1000, 2000], "seconds": 2.0, "cpu_seconds": 0.5}
    assert outcome_of(PACED, raw) == Outcome(2.0, 2.0, 3.0, None, 0.25)
    flat = outcome_of(FLAT, {"messages": 1000, "seconds": 0.5, "cpu_seconds": 0.5})
    assert flat.mb_per_second == pytest.approx(20.48)
    assert outcome_of(IDLE, {"failure": "broken"}) == Outcome(failure="broken")


def test_the_median_leaves_failed_rounds_out() -> None:
    rounds = [Outcome(p50_us=5.0), Outcome(failure="lost"), Outcome(p50_us=1.0), Outcome(p50_us=3.0)]
    assert median_of(rounds).p50_us == 3.0
    assert median_of([Outcome(failure="lost")]).failure == "lost"


def test_cases_survive_their_journey() -> None:
    case = Case("flat", 5, 7.5, 0.25, producers=4, read=False, ring_bytes=99)
    assert Case.from_line(case.to_line()) == case


@pytest.mark.parametrize("name", AT_HAND)
def test_every_transport_at_hand_carries_every_kind_of_case(name: str) -> None:
    bench = ipc_rig.PythonBench(name)
    try:
        paced, flat = bench.run(PACED), bench.run(FLAT)
        assert (paced.failure, flat.failure) == ("", "")
        assert paced.p50_us is not None
        assert flat.mb_per_second is not None
        assert 0 < paced.p50_us <= (paced.p99_us or 0)
        assert flat.mb_per_second > 0
        if not names.is_arrow(name):
            assert bench.run(IDLE).failure == ""
        if names.TRANSPORTS[name].many_producers:
            assert bench.run(Case("flat", KB, seconds=0.02, producers=3)).failure == ""
    finally:
        bench.close()


def test_a_producer_that_fails_ends_the_case_and_not_the_bench() -> None:
    bench = ipc_rig.PythonBench(names.ARROW_RING)
    try:
        # An image of 256 KB does not fit the quarter of this ring that one record may take.
        refused = bench.run(Case("paced", 256 * KB, rate=100, seconds=0.02, ring_bytes=64 * KB))
        assert "a producer ended with status 1" in refused.failure
        assert bench.run(PACED).failure == ""
    finally:
        bench.close()


def test_a_transport_whose_process_dies_is_a_failure_with_its_last_words() -> None:
    bench = ipc_rig.PythonBench("no such transport")
    try:
        assert "KeyError" in bench.run(PACED).failure
    finally:
        bench.close()


class Scripted:
    """A bench that notes who was asked for what."""

    def __init__(self, name: str, asked: list[tuple[str, Case]], failure: str = "") -> None:
        self.name, self.asked, self.failure, self.closed = name, asked, failure, False

    def run(self, case: Case) -> Outcome:
        self.asked.append((self.name, case))
        return Outcome(p50_us=1.0, failure=self.failure)

    def close(self) -> None:
        self.closed = True


def test_transports_take_turns_and_the_first_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Case]] = []
    benches = {"a": Scripted("a", asked), "b": Scripted("b", asked, failure="lost")}
    monkeypatch.setattr(ipc, "open_bench", lambda name, skipped: benches[name])
    results = ipc.measure(benches, lambda name: [PACED, FLAT], 2, lambda text: None)
    assert [name for name, _ in asked] == ["a", "b", "a", "b", "b", "a", "b", "a"]
    assert [case for _, case in asked] == [PACED, PACED, FLAT, FLAT] * 2
    assert results.at("a", PACED) == Outcome(p50_us=1.0)
    assert results.at("b", PACED) is None
    assert "lost" in results.skipped["b"]
    assert all(bench.closed for bench in benches.values())


def test_targets_are_met_missed_or_not_measured() -> None:
    results = ipc.Results({("ring", PACED): [Outcome(p50_us=6.0)], ("unix socket", PACED): [Outcome(p50_us=10.0)]})
    met = ipc_targets.Target("t", "p50_us", PACED, 0.7, names.UNIX).row(results)
    missed = ipc_targets.Target("t", "p50_us", PACED, 0.5, names.UNIX).row(results)
    absent = ipc_targets.Target("t", "p50_us", PACED, 0.5, names.ICEORYX).row(results)
    more = ipc_targets.Target("t", "p50_us", PACED, 0.5, names.UNIX, at_least=True).row(results)
    assert [row["verdict"] for row in (met, missed, absent, more)] == ["met", "missed", "not measured", "met"]
    assert met["ratio"] == pytest.approx(0.6)


def test_every_target_of_the_table_can_be_met_by_what_the_table_measures() -> None:
    cases = ipc.Cases(ipc.QUICK)
    for target in ipc_targets.targets(cases):
        assert target.case in cases.of(target.ours)
        assert not target.other or (target.other_case or target.case) in cases.of(target.other)


def test_missing_peers_are_named_with_the_way_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ipc_install.importlib.util, "find_spec", lambda name: None)
    skipped: dict[str, str] = {}
    assert ipc.open_bench("pyzmq", skipped) is None
    assert skipped == {"pyzmq": "pyzmq is not installed; run penstock bench ipc --install-peers"}


def test_an_interrupted_installation_of_peers_counts_as_none_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Install, break in the middle, look, install again: only what came to its end is used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ipc_install.importlib.util, "find_spec", lambda name: None)
    packages = ipc_install.folder() / "lib" / "python3.11" / "site-packages"
    commands: list[list[str]] = []

    def run(command: list[str]) -> None:
        commands.append(command)
        (packages / "zmq").mkdir(parents=True, exist_ok=True)
        (packages / "zmq" / "__init__.py").touch()
        (ipc_install.folder() / "bin").mkdir(exist_ok=True)
        (ipc_install.folder() / "bin" / "python").touch()
        if "pip" in command and interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(ipc_install, "_run", run)
    interrupted = True
    with pytest.raises(KeyboardInterrupt):
        ipc_install.install()
    assert ipc_install.python_for("pyzmq") is None
    interrupted = False
    ipc_install.install()
    assert ipc_install.python_for("pyzmq") == str(ipc_install.folder() / "bin" / "python")
    assert [command[3] for command in commands if "venv" in command] == ["--clear", "--clear"]
    ipc_install.install()
    assert len(commands) == 4  # what is complete is kept


def test_without_a_jdk_netty_is_skipped_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    skipped: dict[str, str] = {}
    assert ipc.open_bench(ipc_netty.NETTY_NIO, skipped) is None
    assert "no javac" in skipped[ipc_netty.NETTY_NIO]
    assert "install a JDK" in skipped[ipc_netty.NETTY_NIO]


@pytest.mark.skipif(bool(ipc_netty.why_missing()), reason="needs a JDK and pyspark's netty jars")
def test_netty_carries_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ipc_netty, "WARM_CASES", ())
    bench = ipc_netty.NettyBench(ipc_netty.NETTY_NIO)
    try:
        paced, flat = bench.run(PACED), bench.run(FLAT)
        assert (paced.failure, flat.failure) == ("", "")
        assert paced.p50_us is not None
        assert paced.p50_us > 0
        assert flat.mb_per_second is not None
        assert flat.mb_per_second > 0
    finally:
        bench.close()
