"""All lines, in the order in which they are tried and told: cheap and telling ones first, long ones last."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.deploy.line.sealed import LANES
from penstock.errors import InvalidInput
from penstock_lab.torture.contract import Line
from penstock_lab.torture.killed_moves import PHASES

COMPLETE = "complete; 0 lost, 0 repeated, 0 out of order"
ONE_PLACE = f"{COMPLETE}; each task in one place"
FLAT = f"{COMPLETE}; memory at most 10 % above"
TYPED = "typed error or recovery within 10 s; then complete, 0 / 0 / 0"
TOLD = "typed error, recovery, or a note that it tries again, within 10 s; then error or recovery; then 0 / 0 / 0"
NO_GROWTH = "memory, descriptors, threads, segments grow at most 1 %; 0 / 0 / 0"
READABLE = "typed errors or a batch that can be read; no crash"
ONLY_TYPED = "typed errors only, none accepted"
FLOODED = "10x overload for 60 s of an operator that takes 25,000 rows a second"
OVERLOAD = "memory at most 10 % above, nothing dropped, latency back within 5 s"
RIGHT_OR_NAMED = "0 / 0 / 0, or a typed error that names the file"
CLUSTER = "local-cluster[3,2,1024]"

CLOCK_LIBRARIES = ("/usr/lib", "/usr/local/lib", "/lib")

LINES = (
    Line("killed-starting", "worker killed -9 while it starts", COMPLETE),
    Line("killed-rendezvous", "worker killed -9 in the rendezvous", COMPLETE),
    Line("killed-steady", "worker killed -9 at work", COMPLETE),
    Line("killed-checkpoint", "worker killed -9 while an epoch is under way", COMPLETE),
    Line("killed-recovery", "worker killed -9, and another while the job recovers", COMPLETE),
    Line("killed-rebalance", "worker of a parallel region killed -9 while replicas leave and join", COMPLETE),
    Line("killed-closing", "worker killed -9 when its sources have ended", COMPLETE),
    Line("killed-both-ends", "both ends of a channel killed -9 at once", COMPLETE),
    Line("moved", "tasks moved eight times while rows come", COMPLETE),
    Line("moved-often", "100 moves a minute under 10,000 rows a second", FLAT, trials=1, limit_s=300.0),
    *(
        Line(f"killed-move-{name}", f"worker killed -9 in a move: {each.about}", ONE_PLACE)
        for name, each in PHASES.items()
    ),
    Line("killed-move-driver", "driver killed -9 in a move, each phase in turn; started again", COMPLETE, master=None),
    Line("part-truncated", "a part of the newest epoch truncated", TYPED),
    Line("part-flipped", "one bit of a part flipped", TYPED),
    Line("part-removed", "a part removed", TYPED),
    Line("manifest-torn", "the newest manifest torn", TYPED),
    Line("staged-damaged", "a sink's file damaged behind its commit, before it is shown", RIGHT_OR_NAMED, trials=10),
    Line("input-damaged", "the rows of a DataFrame damaged that were written down", RIGHT_OR_NAMED, trials=10),
    Line("results-damaged", "collected rows damaged", RIGHT_OR_NAMED, trials=10),
    Line("disk-full", "the disk of the checkpoints or of the sink full", TOLD, needs=("mount",)),
    Line("descriptors", "a worker may open no further file", TYPED),
    Line("memory-files", "no files in memory for rings", TYPED),
    Line("socket-cut", "a connection of two workers cut in the middle of a frame", TYPED),
    Line("line-cut", "one of a worker's lines to its driver cut: " + ", ".join(LANES), TYPED),
    Line("clock-1h", "the workers' clocks jump by an hour, forward or back", COMPLETE, needs=("libfaketime",)),
    Line("killed-executor", "an executor's JVM killed -9", COMPLETE, master=CLUSTER, limit_s=180.0),
    Line("killed-driver", "the driver killed -9 and the same program started again", COMPLETE, master=None),
    Line(
        "stopped-10s",
        "a worker stopped for 10 s and woken, and replaced meanwhile with even seeds",
        COMPLETE,
        limit_s=180.0,
    ),
    Line(
        "strangers", "1,000 connections of strangers while a job runs", "none accepted, the job undisturbed", trials=10
    ),
    Line(
        "mutated-frames",
        "50,000 mutated frames",
        "typed errors only, nothing read beyond their bytes",
        master=None,
        processes=2,
    ),
    Line("mutated-files", "5,000 mutated parts and manifests", ONLY_TYPED, master=None, processes=2),
    Line(
        "simulation",
        "250 simulated jobs with crashes, moves and rescales",
        COMPLETE,
        trials=40,
        master=None,
        processes=2,
        limit_s=900.0,
    ),
    Line(
        "overload",
        FLOODED,
        OVERLOAD,
        trials=1,
        master="local[4]",
        limit_s=300.0,
    ),
    Line("soak", "70 % of the maximum for as long as asked", NO_GROWTH, trials=1, master="local[4]", limit_s=900.0),
)


def find_line(name: str) -> Line:
    """The line of this name."""
    for line in LINES:
        if line.name == name:
            return line
    raise InvalidInput.unknown_name(kind="line", name=name, known=[line.name for line in LINES])


def lacking(line: Line) -> str:
    """What this machine lacks for a line; empty where it can be tried."""
    if "mount" in line.needs and os.geteuid() != 0:
        return "a small disk can be mounted by root alone"
    if "libfaketime" in line.needs and clock_library() is None:
        return "libfaketime is not installed"
    return ""


def clock_library() -> Path | None:
    """libfaketime, where it is installed."""
    found = (path for root in CLOCK_LIBRARIES for path in Path(root).glob("**/faketime/libfaketimeMT.so.1"))
    return next(found, None)
