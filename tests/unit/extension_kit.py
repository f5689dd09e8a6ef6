"""Packages of other people, made in a folder: modules and a dist-info with entry points, as pip would install them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SCHEDULER = """
import numpy as np
from penstock.optimise.contract import Placement, Scheduler

ROW = Scheduler({name!r}, "everything on the first node", "{module}")

def schedule(problem, options):
    return Placement(np.zeros(problem.task_count, dtype=np.int32))
"""
POLICY = """
from penstock.run.region.policies import PolicyEntry
from penstock.run.region.policies.round_robin import EvenWeights
from penstock.run.region.contract import checked_settings

ROW = PolicyEntry({name!r}, "even weights of another package", "{module}")

def build(settings):
    checked_settings({name!r}, {{}}, settings)
    return EvenWeights()
"""


def install(folder: Path, package: str, group: str, points: Mapping[str, str], modules: Mapping[str, str]) -> Path:
    """A package in a folder that can stand on `sys.path`; modules by name, entry points as `name: module:object`."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    return folder


def scheduler_package(folder: Path, package: str, name: str) -> Path:
    """A package with a scheduler that puts every task on the first node."""
    module = package.replace("-", "_")
    text = SCHEDULER.format(name=name, module=module)
    return install(folder, package, "penstock.schedulers", {name: f"{module}:ROW"}, {module: text})


def policy_package(folder: Path, package: str, name: str) -> Path:
    """A package with a policy of even weights."""
    module = package.replace("-", "_")
    text = POLICY.format(name=name, module=module)
    return install(folder, package, "penstock.policies", {name: f"{module}:ROW"}, {module: text})


def penstock(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with a folder of packages beside those that are installed."""
    environment = {**os.environ, "PYTHONPATH": "" if path is None else str(path)}
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
