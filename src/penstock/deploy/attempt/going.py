"""Where the workers of an attempt go from it: to the next one, each with its number there, or home.

A number is given anew because the next attempt counts its workers from 0, and some of the present ones may not come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.deploy.line.sealed import derive, veiled


@dataclass(frozen=True, slots=True)
class Going:
    """What workers that stand still are told, each for itself."""

    location: str  # of the next attempt
    ticket: bytes = field(repr=False)
    numbers: Mapping[int, int]  # of those that come: what each is called there; the others end

    def answer(self, worker: int, key: bytes) -> dict[str, object]:
        """To one worker, veiled by its own key."""
        if worker not in self.numbers:
            return {"home": True}
        pad = derive(key, "next ticket")
        return {"next": self.location, "ticket": veiled(self.ticket, pad).hex(), "worker": self.numbers[worker]}
