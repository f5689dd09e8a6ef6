"""Figures out of documents that others wrote: unknown keys pass, numbers may be text, and what cannot be is a fault."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.errors import FAULTS_SHOWN_MAX, InvalidInput
from penstock.model.fields import Faults, Fields, as_number
from penstock.model.topology import MAGNITUDE_MAX, TASKS_MAX


def record(value: object, where: str, faults: Faults) -> Fields:
    """An object of another system's; it may have keys that we do not know, today or after its next release."""
    if isinstance(value, dict):
        return Fields(value, where, faults)
    return Fields.of(value, where, faults, ())


def records(fields: Fields, key: str) -> list[Fields]:
    """A list of objects; empty where the key is absent."""
    return [record(value, f"{fields.at(key)}[{i}]", fields.faults) for i, value in enumerate(fields.items(key))]


def amount(fields: Fields, key: str) -> float | None:
    """A count, rate or time; None where it is absent, null or "NaN", which is how systems say unknown."""
    value = fields.values.get(key)
    if value is None:
        return None
    number = _from_text(value) if isinstance(value, str) else as_number(value, fields.at(key), fields.faults)
    if number is None:
        fields.faults.add(fields.at(key), f"must be a number but is {str(value)[:40]!r}")
        return None
    if math.isnan(number):
        return None
    if not 0 <= number <= MAGNITUDE_MAX:
        fields.faults.add(fields.at(key), f"is {number:g}; it must be 0 or more and at most {MAGNITUDE_MAX:g}")
        return None
    return number


def _from_text(text: str) -> float | None:
    """Storm and Flink write many numbers as text."""
    try:
        return float(text)
    except ValueError:
        return None


def task_count(fields: Fields, key: str) -> int:
    """How many tasks; 1 where the document is wrong about it, which is a fault."""
    count = fields.whole(key)
    if 1 <= count <= TASKS_MAX:
        return count
    fields.faults.add(fields.at(key), f"is {count}; an operator has 1 to {TASKS_MAX} tasks")
    return 1


def raise_faults(faults: Faults) -> None:
    """InvalidInput with the faults, if there are any; a document of the wrong kind has the same one everywhere."""
    hidden = len(faults.found) - FAULTS_SHOWN_MAX
    if hidden > 0:
        raise InvalidInput([*faults.found[: FAULTS_SHOWN_MAX - 1], f"and {hidden + 1} more faults"])
    if faults.found:
        raise InvalidInput(faults.found)


def one_answer(found: Sequence[Fields], wanted: str, unread: Sequence[str]) -> Fields:
    """The only document of a kind; InvalidInput where there is none or several."""
    if len(found) == 1:
        return found[0]
    shown = ", ".join(fields.where for fields in found[:5]) or "none"
    others = f"; not recognised: {', '.join(unread[:5])}" if unread else ""
    msg = f"give one answer of {wanted}; found: {shown}{others}"
    raise InvalidInput(msg)


def unread_note(unread: Sequence[str]) -> list[str]:
    """A note on the documents that are none of the answers that are read."""
    if not unread:
        return []
    more = f" and {len(unread) - 5} more" if len(unread) > 5 else ""
    return [f"not read, because they are none of the known answers: {', '.join(unread[:5])}{more}"]


def evenly(total: float, tasks: int) -> tuple[float, ...]:
    """A total shared out evenly."""
    return (total / tasks,) * tasks


def added(figures: Sequence[float | None]) -> float:
    """The sum of what is known."""
    return sum(figure for figure in figures if figure is not None)
