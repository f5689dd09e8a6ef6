"""Fields: typed access to a plain document that collects faults instead of stopping at the first.

Every getter returns a usable value even when it recorded a fault, so that one pass over a file names all its faults
(`test_all_faults_are_named_at_once`). The caller raises once, at the end.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from dataclasses import dataclass, field

FAULTS_MAX = 1000  # enough for any reader; a hostile file must not fill the memory with complaints


@dataclass
class Faults:
    """The faults of one document."""

    found: list[str] = field(default_factory=list)

    def add(self, where: str, what: str) -> None:
        """Record one fault at a place such as `operators[2].tasks`."""
        if len(self.found) < FAULTS_MAX:
            self.found.append(f"{where}: {what}" if where else what)


@dataclass(frozen=True)
class Fields:
    """One object of a document and its path there."""

    values: dict[str, object]
    where: str
    faults: Faults

    @classmethod
    def of(cls, value: object, where: str, faults: Faults, known: Collection[str]) -> Fields:
        """The object's fields; a fault when it is no object or has keys beyond the known ones."""
        if not isinstance(value, dict):
            faults.add(where, f"must be an object but is {_show(value)}")
            return cls({}, where, faults)
        for key in value:
            if key not in known:
                faults.add(where, f"unknown key {key!r}; known: {', '.join(known)}")
        return cls(value, where, faults)

    def at(self, key: str) -> str:
        """The path of a field."""
        return f"{self.where}.{key}" if self.where else key

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if isinstance(value, str):
            return value
        if value is not None:
            self.faults.add(self.at(key), f"must be text but is {_show(value)}")
        return default or ""

    def number(self, key: str, default: float | None = None) -> float:
        """A number; the model judges whether it may be infinite or negative."""
        return as_number(self._get(key, default), self.at(key), self.faults)

    def optional_number(self, key: str) -> float | None:
        """A number, or None when the field is absent or null."""
        return None if self.values.get(key) is None else self.number(key)

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        value = self._get(key, default)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if value is not None:
            self.faults.add(self.at(key), f"must be a whole number but is {_show(value)}")
        return default if default is not None else 1

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if isinstance(value, bool):
            return value
        self.faults.add(self.at(key), f"must be true or false but is {_show(value)}")
        return default

    def items(self, key: str, *, required: bool = False, count_max: int = 1_000_000) -> list[object]:
        """A list."""
        value = self._get(key, None if required else [])
        if isinstance(value, list):
            if len(value) <= count_max:
                return value
            self.faults.add(self.at(key), f"has {len(value)} entries; the limit is {count_max}")
        elif value is not None:
            self.faults.add(self.at(key), f"must be a list but is {_show(value)}")
        return []

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        return as_texts(self.items(key, required=True), self.at(key), self.faults)

    def mapping(self, key: str) -> dict[str, object]:
        """An object whose keys are names."""
        value = self._get(key, {})
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            return value
        self.faults.add(self.at(key), f"must be an object keyed by names but is {_show(value)}")
        return {}

    def _get(self, key: str, default: object) -> object:
        if key in self.values:
            value = self.values[key]
            if value is None and default is None:
                self.faults.add(self.at(key), "must not be null")
            return default if value is None else value
        if default is None and isinstance(self.values, dict):
            self.faults.add(self.at(key), "is missing")
        return default


def as_number(value: object, where: str, faults: Faults) -> float:
    """The value as a float; a fault when it is anything but a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            faults.add(where, "is too large a number")
    elif value is not None:
        faults.add(where, f"must be a number but is {_show(value)}")
    return 0.0


def as_texts(value: object, where: str, faults: Faults) -> tuple[str, ...]:
    """The value as strings; a fault for each entry that is not a string."""
    if not isinstance(value, list):
        faults.add(where, f"must be a list of names but is {_show(value)}")
        return ()
    for i, entry in enumerate(value):
        if not isinstance(entry, str):
            faults.add(f"{where}[{i}]", f"must be a name but is {_show(entry)}")
    return tuple(entry for entry in value if isinstance(entry, str))


def as_numbers(value: object, where: str, faults: Faults) -> tuple[float, ...]:
    """A list of numbers."""
    if not isinstance(value, list):
        faults.add(where, f"must be a list but is {_show(value)}")
        return ()
    return tuple(as_number(entry, f"{where}[{i}]", faults) for i, entry in enumerate(value))


def _show(value: object) -> str:
    """A value short enough for one line."""
    return reprlib.repr(value)
