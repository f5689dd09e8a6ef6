"""Names of savepoints: a folder each, and told from the numbers of epochs wherever a user may give either."""

from __future__ import annotations

import re

from penstock.errors import InvalidInput

SAVEPOINT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def require_savepoint_name(name: object) -> None:
    """Refuse what cannot name a savepoint."""
    if not isinstance(name, str):
        why = "cannot name a savepoint; give a text, such as 'before-the-change'"
    elif not SAVEPOINT_NAME.fullmatch(name):
        why = (
            "cannot name a savepoint; use 1 to 100 letters, digits, '.', '_' and '-', the first a letter or digit, "
            "and not digits alone"
        )
    elif name.isdigit():
        why = f"cannot name a savepoint, because it is an epoch's number too; add a letter, as in 'v{name}'"
    else:
        return
    msg = f"{repr(name)[:120]} {why}"
    raise InvalidInput(msg)
