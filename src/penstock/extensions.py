"""Extensions: what other installed packages add to Penstock, found by entry points.

Groups: `penstock.commands` (a function that adds a verb), `penstock.schedulers` (a `Scheduler`, one row of the
registry) and `penstock.policies` (a `PolicyEntry`). A package names them in its `pyproject.toml`:

    [project.entry-points."penstock.schedulers"]
    mine = "my_package:ROW"

A package that cannot be used is listed with what is wrong with it and refused when it is asked for; names of ours stay
ours (tests/unit/test_extensions.py). Rejected: a setting that lists modules to import, which every job and every
command would have to be told. Decision 33.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.errors import InvalidInput, PenstockError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS, SCHEDULERS, POLICIES = "penstock.commands", "penstock.schedulers", "penstock.policies"
OURS = "penstock"

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Refused:
    """An extension that cannot be used, and why."""

    name: str
    package: str
    reason: str


def extensions_of(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """The entry points of a group by name, in order; nothing is imported yet."""
    from importlib.metadata import entry_points  # 15 ms that `import penstock` need not pay

    found: dict[str, list[EntryPoint]] = {}
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, package_of(point), point.value)):
        found.setdefault(point.name, []).append(point)
    return {name: tuple(points) for name, points in found.items()}


def package_of(point: EntryPoint) -> str:
    """The package that registered an entry point, for messages."""
    return point.dist.name if point.dist is not None else point.value.partition(":")[0]


def why_not_loaded(error: BaseException) -> str:
    """What an extension's import or function raised, in one line."""
    text = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Added(Generic[Row]):
    """A row that another package added."""

    package: str
    row: Row


class Registry(Generic[Row]):
    """Rows of ours by name, and those that other packages add."""

    def __init__(
        self, kind: str, group: str, own: Mapping[str, Row], accept: Callable[[str, str, object], Row]
    ) -> None:
        self.kind, self.group, self.own = kind, group, own
        self._accept = accept  # (name, package, what the entry point names) -> the row, or an error that says why not

    def find(self, name: str) -> Row:
        """The row of that name; InvalidInput where it is not known or, if another package's, cannot be used."""
        if name in self.own:
            return self.own[name]  # without a look at other packages: nothing of theirs can be in the way
        added = extensions_of(self.group)
        if name not in added:
            raise InvalidInput.unknown_name(kind=self.kind, name=name, known=[*self.own, *added])
        found = self._judged(name, added[name])
        if isinstance(found, Added):
            return found.row
        raise InvalidInput(found[0].reason)

    def added(self) -> dict[str, Added[Row]]:
        """Every row of other packages that can be used, by name."""
        judged = ((name, self._judged(name, points)) for name, points in extensions_of(self.group).items())
        return {name: found for name, found in judged if isinstance(found, Added)}

    def refused(self) -> list[Refused]:
        """Every row of other packages that cannot be used."""
        judged = (self._judged(name, points) for name, points in extensions_of(self.group).items())
        return [one for found in judged if not isinstance(found, Added) for one in found]

    def _judged(self, name: str, points: tuple[EntryPoint, ...]) -> Added[Row] | list[Refused]:
        """The row that a name stands for, or for every package that has it why it does not."""
        packages = [package_of(point) for point in points]
        if name in self.own:
            return [Refused(name, package, taken(self.kind, name, (OURS, package))) for package in packages]
        if len(points) > 1:
            return [Refused(name, package, taken(self.kind, name, packages)) for package in packages]
        try:
            return Added(packages[0], self._accept(name, packages[0], points[0].load()))
        except (Exception, SystemExit) as error:
            why = f"{self.kind} {name!r} of package {packages[0]!r} cannot be used: {why_not_loaded(error)}"
            return [Refused(name, packages[0], f"{why}; mend or remove that package")]


def taken(kind: str, name: str, packages: Iterable[str]) -> str:
    """What to say of a name that two packages have: a name of ours stays ours, any other is neither package's."""
    first, *others = map(repr, packages)
    whose = f"; the name stays with {OURS!r}" if first == repr(OURS) else ""
    return f"{kind} {name!r} is in the packages {first} and {' and '.join(others)}{whose}; rename one or remove one"
