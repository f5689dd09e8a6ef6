"""A disk in memory, with what POSIX leaves open: what was not synced may be gone or torn after a loss of power.

A file's bytes last when the file was synced, a name when its folder was. A loss of power keeps what lasts and, of the
rest, what chance decides: the first so many changes of names, as a journal would, or any of them; a file that was not
synced is cut anywhere, or has zeros. A rename may keep both names and never neither, but that of a folder one of them:
every file system with a journal promises that much. Nothing here knows of processes; `system.py` does.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple


class Node:
    """A file or a folder, under whatever names."""

    __slots__ = ("data", "entries", "lasting", "number", "synced")
    numbers = itertools.count(1)

    def __init__(self, *, is_folder: bool = False) -> None:
        self.number = next(self.numbers)
        self.data = bytearray()
        self.synced: bytes | None = None
        self.entries: dict[str, Node] | None = {} if is_folder else None
        self.lasting: dict[str, Node] = {}  # the names that a loss of power leaves


class _Change(NamedTuple):
    """A name that was set, or taken away, and whose folder has not been synced since."""

    folder: Node
    name: str
    node: Node | None
    group: int  # changes of one rename; the new name comes first


class Disk:
    """Folders and files beneath `/`."""

    def __init__(self) -> None:
        self.top = Node(is_folder=True)
        self._changes: list[_Change] = []
        self._groups = 0

    # -- looking -------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Node | None:
        """What is at a path."""
        node: Node | None = self.top
        for step in path.split("/"):
            if step:
                node = None if node is None or node.entries is None else node.entries.get(step)
        return node

    def at(self, path: str) -> Node:
        """The same; FileNotFoundError."""
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return node

    def folder(self, path: str) -> dict[str, Node]:
        """The names in a folder; FileNotFoundError, NotADirectoryError."""
        entries = self.at(path).entries
        if entries is None:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return entries

    def names(self, path: str) -> list[str]:
        """The names in a folder, in order; none where there is no such folder."""
        node = self.find(path)
        return [] if node is None or node.entries is None else sorted(node.entries)

    def files(self, path: str) -> Iterator[tuple[str, Node]]:
        """All files in a folder and below, by their paths."""
        for name in self.names(path):
            node = self.at(f"{path}/{name}")
            if node.entries is None:
                yield f"{path}/{name}", node
            else:
                yield from self.files(f"{path}/{name}")

    # -- changing ------------------------------------------------------------------------------------------------------

    def make_folder(self, path: str) -> None:
        """A folder; FileExistsError."""
        self.name(path, Node(is_folder=True))

    def make_file(self, path: str) -> Node:
        """An empty file; FileExistsError."""
        node = Node()
        self.name(path, node)
        return node

    def link(self, source: str, target: str) -> None:
        """Another name for a file; FileExistsError."""
        self.name(target, self.at(source))

    def rename(self, source: str, target: str) -> None:
        """A new name in place of the old one, and of what has it."""
        node = self.at(source)
        folder, name = self._split(target)
        self._set(folder, name, node)
        self._set(*self._split(source), None, joins=True)

    def remove(self, path: str) -> None:
        """Take a name away; FileNotFoundError, and OSError for a folder with something in it."""
        if self.at(path).entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        self._set(*self._split(path), None)

    def sync_names(self, node: Node) -> None:
        """The names in a folder last, and so do both ends of its renames."""
        groups = {change.group for change in self._changes if change.folder is node}
        for change in self._changes:
            if change.group in groups:
                _apply(change.folder.lasting, change)
        self._changes = [change for change in self._changes if change.group not in groups]

    def name(self, path: str, node: Node) -> None:
        """Give a file or folder a name; FileExistsError."""
        folder, name = self._split(path)
        if folder.entries is not None and name in folder.entries:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self._set(folder, name, node)

    def _set(self, folder: Node, name: str, node: Node | None, *, joins: bool = False) -> None:
        entries = folder.entries
        if entries is None:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", name)
        self._groups += not joins
        change = _Change(folder, name, node, self._groups)
        _apply(entries, change)
        self._changes.append(change)

    def _split(self, path: str) -> tuple[Node, str]:
        folder, _, name = path.rpartition("/")
        return self.at(folder), name

    # -- losing power --------------------------------------------------------------------------------------------------

    def lose_power(self, rng: random.Random) -> None:
        """What was not synced is as chance has it."""
        for change in self._kept(rng):
            _apply(change.folder.lasting, change)
        self._changes = []
        self._go_back(self.top, rng)

    def _kept(self, rng: random.Random) -> list[_Change]:
        groups = sorted({change.group for change in self._changes})
        if rng.random() < 0.5:  # a journal
            kept = set(groups[: rng.randint(0, len(groups))])
            return [change for change in self._changes if change.group in kept]
        found: dict[int, int] = {group: rng.choice((0, 1, 2)) for group in groups}  # of its changes, the first so many
        taken: list[_Change] = []
        whole = {
            change.group for change in self._changes if change.node is not None and change.node.entries is not None
        }
        found.update({group: 2 for group in whole if found[group] == 1})
        for change in self._changes:
            if found[change.group] > 0:
                found[change.group] -= 1
                taken.append(change)
        return taken

    def _go_back(self, node: Node, rng: random.Random) -> None:
        if node.entries is not None:
            node.entries = dict(node.lasting)
            for name in sorted(node.entries):
                self._go_back(node.entries[name], rng)
        elif node.synced is None or bytes(node.data) != node.synced:
            whole = bytes(node.data)
            cut = rng.randint(0, len(whole))
            node.data = bytearray(rng.choice((whole, whole[:cut], whole[:cut] + bytes(len(whole) - cut))))
            node.synced = bytes(node.data)


def _apply(names: dict[str, Node], change: _Change) -> None:
    if change.node is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.node
