"""Ports: where a process may listen, as its user says: one port, or a range that is tried in order.

    >>> Ports.read("7000-7100", "data_ports")
    Ports(name='data_ports', first=7000, last=7100)

Without one the kernel picks. A port may be taken by another job, so a range should be as wide as there are listeners
on one host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import InvalidInput

PORT_MAX = 65_535


class NoPortLeft(OSError):
    """Every port of a range is taken."""


@dataclass(frozen=True, slots=True)
class Ports:
    """A range of ports and the option that gave it."""

    name: str
    first: int
    last: int

    @classmethod
    def read(cls, given: object, name: str) -> Ports:
        """What a user gave: 7000, "7000" or "7000-7100"."""
        told = given if isinstance(given, int | str) and not isinstance(given, bool) else ""
        found = re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?", str(told))
        first = int(found[1]) if found else 0
        last = int(found[2] or first) if found else 0
        if not 1 <= first <= last <= PORT_MAX:
            msg = f"{name} is {given!r}; give a port from 1 to {PORT_MAX} or a range of them, such as '7000-7100'"
            raise InvalidInput(msg)
        return cls(name, first, last)

    @property
    def numbers(self) -> range:
        """In the order in which they are tried."""
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
