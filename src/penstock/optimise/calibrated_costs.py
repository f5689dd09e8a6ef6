"""Which costs of streams apply: a profile's own, else what `penstock calibrate` kept for this machine, else defaults.

CPU that a profile measured of an edge at the same distance comes before all of them (`TaskGraph.ends`). The file is one
for each machine, because a home directory may be shared. One that is missing or damaged counts as not there.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from penstock.errors import InvalidInput
from penstock.model.costs import DEFAULT_COSTS, StreamCosts
from penstock.model.files import read_costs, write_costs
from penstock.model.profile import Profile
from penstock.optimise.steps.calibrate import cache_folder, machine


def known_costs(profile: Profile | None = None) -> StreamCosts:
    """The costs that apply; their `origin` says which they are."""
    if profile is not None and profile.costs is not None:
        return profile.costs
    file = costs_file()
    try:
        return read_costs(file) if file.exists() else DEFAULT_COSTS
    except (InvalidInput, OSError):
        return DEFAULT_COSTS


def keep_costs(costs: StreamCosts) -> Path:
    """Use these on this machine from now on; answers where they are kept."""
    file = costs_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make {file.parent}: {error.strerror or error}; write the costs elsewhere with -o FILE"
        raise InvalidInput(msg) from None
    write_costs(costs, file)
    return file


def forget_costs() -> Path | None:
    """Use default costs again; answers the file that is gone, where there was one."""
    file = costs_file()
    try:
        file.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"cannot delete {file}: {error.strerror or error}; delete it yourself"
        raise InvalidInput(msg) from None
    return file


def costs_file() -> Path:
    """A file in the user's cache directory, by machine."""
    return cache_folder() / f"costs-{hashlib.sha256(machine().encode()).hexdigest()[:12]}.json"
