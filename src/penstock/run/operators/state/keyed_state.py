"""Keyed state of a user's stateful operator: a dict per key whose values can be written without pickle.

Values are None, bool, int, float, str, bytes, datetime, date, timedelta, Decimal, and lists, tuples and dicts of them.
The core writes most of them; rarer ones go as JSON, tagged. A value of another type, or of a subclass of these, is
refused when it is put in, not when a checkpoint is taken an hour later. Of a list or tuple the first 8 and the last 8
elements are checked at that time, of a dict the first 16 and the last 8, and likewise inside these. So a put costs the
same for a long list as for a short one. Elements in between, and changes made later inside a list or dict, are checked
when the state is written. Rejected: checking everything at each put, which made appending quadratic; and remembering
what was checked, because a list that was changed in the middle looks the same.
"""

from __future__ import annotations

import base64
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from penstock import _core
from penstock.errors import InvalidInput
from penstock.run.operators.convert import shown

DEPTH_MAX = 50
_TAG = "$"
_SAVED = frozenset(
    (type(None), bool, int, float, str, bytes, datetime, date, timedelta, Decimal, list, tuple, dict)
)  # these and no subclasses


class KeyState(_core.StateDict):
    """What the operator knows about one key: a dict with text names that checks what is put in."""

    __slots__ = ()

    def _refused(self, name: object, value: object) -> None:
        """Called by the core with a value that its quick check does not know; returns if the value can be saved."""
        if type(name) is not str:
            msg = f"state has text names but got {shown(name)}; use state[str(name)] or keep a dict under one name"
            raise InvalidInput(msg)
        encode(value, f"state {name!r}")

    def setdefault(self, name: str, value: Any = None) -> Any:  # noqa: ANN401 - whatever the user keeps
        """The value of a name; where there is none, `value` is put in first."""
        if name not in self:
            self[name] = value
        return self[name]

    def update(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - as dict's own
        """Put several in."""
        for name, value in dict(*given, **named).items():
            self[name] = value

    def __ior__(self, given: Any) -> KeyState:  # type: ignore[misc, override] # noqa: ANN401 - as dict's own
        self.update(given)
        return self


def encode(value: object, who: str, depth: int = 0) -> Any:  # noqa: ANN401, PLR0911 - JSON, by type
    """The value as JSON knows it."""
    if depth > DEPTH_MAX:
        msg = f"{who} nests more than {DEPTH_MAX} deep; flatten it"
        raise InvalidInput(msg)
    if type(value) not in _SAVED:
        raise InvalidInput(_refusal(value, who))
    match value:
        case bytes():
            return {_TAG: "bytes", "is": base64.b64encode(value).decode()}
        case datetime():
            return _zoned(value, who)
        case date():
            return {_TAG: "date", "is": value.isoformat()}
        case timedelta():
            return {_TAG: "timedelta", "is": [value.days, value.seconds, value.microseconds]}
        case Decimal():
            return {_TAG: "Decimal", "is": str(value)}
        case list():
            return [encode(item, who, depth + 1) for item in value]
        case tuple():
            return {_TAG: "tuple", "is": [encode(item, who, depth + 1) for item in value]}
        case dict():
            pairs = [[encode(k, who, depth + 1), encode(v, who, depth + 1)] for k, v in value.items()]
            return {_TAG: "dict", "is": pairs}
    return value


def _zoned(value: datetime, who: str) -> dict[str, object]:
    """A time of no zone, of a fixed offset, or of a zone that has a name."""
    zone = value.tzinfo
    if zone is None or type(zone) is timezone:
        return {_TAG: "datetime", "is": value.isoformat()}
    if type(zone) is ZoneInfo and zone.key is not None:
        return {_TAG: "zoned", "is": [value.replace(tzinfo=None).isoformat(), value.fold, zone.key]}
    msg = (
        f"{who} is {value.isoformat()} in a time zone of type {type(zone).__name__}, which cannot be saved; keep it in "
        "a datetime.timezone, or in a zoneinfo.ZoneInfo that has a name"
    )
    raise InvalidInput(msg)


def _refusal(value: object, who: str) -> str:
    found = f"{who} is {shown(value)} of type {type(value).__name__}, which cannot be saved"
    plain = next((base.__name__ for base in type(value).__mro__ if base in _SAVED), None)
    if plain is not None:
        return f"{found}: it would come back as a plain {plain}; put a plain {plain} in"
    return (
        f"{found}; keep None, bool, int, float, str, bytes, datetime, date, timedelta, Decimal, or lists, tuples and "
        "dicts of them"
    )


def decode(value: Any) -> Any:  # noqa: ANN401, PLR0911 - the way back from encode
    """The value again."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = value["is"]
    match value[_TAG]:
        case "bytes":
            return base64.b64decode(inner)
        case "datetime":
            return datetime.fromisoformat(inner)
        case "zoned":
            text, fold, zone = inner
            return datetime.fromisoformat(text).replace(fold=fold, tzinfo=ZoneInfo(zone))
        case "date":
            return date.fromisoformat(inner)
        case "timedelta":
            return timedelta(*inner)
        case "Decimal":
            return Decimal(inner)
        case "tuple":
            return tuple(decode(item) for item in inner)
        case "dict":
            return {decode(k): decode(v) for k, v in inner}
    msg = f"state holds a value of unknown kind {value[_TAG]!r}; it was written by a newer version"
    raise InvalidInput(msg)
