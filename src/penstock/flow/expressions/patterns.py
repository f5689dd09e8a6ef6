r"""LIKE patterns and Java's regular expressions in RE2's grammar, where the two mean the same.

Java's dot stops at five line ends and RE2's at one, \s differs by a character, and Java's `$` also matches before a
last line end: these are written out. Forms that RE2 lacks (look-ahead, back references) or reads differently (classes
within classes, possessive quantifiers, word boundaries) are refused
(`test_patterns_that_mean_something_else_in_java_are_refused`).
"""

from __future__ import annotations

from dataclasses import dataclass

LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_LAST = rf"(?:\r\n|[{LINE_ENDS}])?\z"
_SAME_CLASSES = set("dDwW")
_SPACE, _NO_SPACE = r"[ \t\n\x0B\f\r]", r"[^ \t\n\x0B\f\r]"


class Unlike(ValueError):
    """A pattern that the two grammars read differently, or that only Java knows."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for RE2: its body, whether it must end at the text's end, and how many groups it has."""

    body: str
    at_end: bool
    groups: int

    def found(self) -> str:
        """Matches where Java finds the pattern."""
        return f"(?:{self.body}){_LAST}" if self.at_end else self.body


def like(pattern: str, escape: str = "\\") -> str:
    """A regular expression for LIKE: % is any text, _ one character, and escape takes the meaning of either."""
    found, at = [], 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            if at >= len(pattern) or pattern[at] not in {"%", "_", escape}:
                msg = f"the escape {escape!r} in {pattern!r} stands before neither %, _ nor itself"
                raise Unlike(msg)
            found.append(quoted(pattern[at]))
        else:
            found.append({"%": ".*", "_": "."}.get(character) or quoted(character))
        at += 1
    return rf"(?s)\A{''.join(found)}\z"


def quoted(text: str) -> str:
    """Text that stands for itself."""
    return "".join(c if c.isalnum() or c == "_" or ord(c) > 127 else f"\\x{{{ord(c):X}}}" for c in text)


def translated(pattern: str, named: int | None = None) -> Pattern:
    """Java's pattern for RE2; the group `named` is called g, and all others become non-capturing."""
    found: list[str] = []
    at, groups, depth, at_end, choice = 0, 0, 0, False, False
    if named == 0:
        found.append("(?P<g>")
    while at < len(pattern):
        character = pattern[at]
        size = 1
        if character == "\\":
            size = 2
            found.append(_escaped(pattern[at : at + 2]))
        elif character == "[":
            size, text = _class(pattern[at:])
            found.append(text)
        elif character == ".":
            found.append(f"[^{LINE_ENDS}]")
        elif character == "$":
            if at + 1 < len(pattern) or depth:
                msg = "'$' stands for itself only at the end of a pattern"
                raise Unlike(msg)
            at_end = True
        elif character == "(":
            depth += 1
            size, text, counted = _group(pattern[at:])
            groups += counted
            found.append("(?P<g>" if counted and groups == named else text if named is None else "(?:")
        else:
            depth -= character == ")"
            choice |= character == "|" and depth == 0
            found.append(character)
        at += size
    if choice and at_end:
        msg = "'$' after a choice belongs to its last part only"
        raise Unlike(msg)
    if named == 0:
        found.append(")")
    if named is not None and named > groups:
        msg = f"the pattern has {groups} groups, not {named}"
        raise Unlike(msg)
    return Pattern("".join(found), at_end, groups)


def _escaped(pair: str) -> str:
    if len(pair) < 2:
        msg = "the pattern ends with a backslash"
        raise Unlike(msg)
    letter = pair[1]
    if letter == "s":
        return _SPACE
    if letter == "S":
        return _NO_SPACE
    if letter in _SAME_CLASSES or letter in "tnrf" or not letter.isalnum():
        return pair
    msg = f"'{pair}' has no counterpart"
    raise Unlike(msg)


def _class(rest: str) -> tuple[int, str]:
    """A class in brackets: its length and its text."""
    at = 2 if rest.startswith("[^") else 1
    found = rest[:at]
    while at < len(rest) and rest[at] != "]":
        if rest[at] == "[" or rest.startswith("&&", at):
            msg = "classes within classes have no counterpart"
            raise Unlike(msg)
        size = 2 if rest[at] == "\\" else 1
        text = _escaped(rest[at : at + 2]) if size == 2 else rest[at]
        found += text[1:-1] if text == _SPACE else text
        if text == _NO_SPACE:
            msg = "'\\S' within a class has no counterpart"
            raise Unlike(msg)
        at += size
    if at >= len(rest) or found in {"[", "[^"}:
        msg = "a class is empty or does not end"
        raise Unlike(msg)
    return at + 1, found + "]"


def _group(rest: str) -> tuple[int, str, bool]:
    """The beginning of a group: its length, its text, and whether it counts."""
    if not rest.startswith("(?"):
        return 1, "(", True
    if rest.startswith("(?:"):
        return 3, "(?:", False
    msg = f"'{rest[:4]}' has no counterpart"
    raise Unlike(msg)
