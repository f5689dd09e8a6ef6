"""JSON documents with something wrong in them: one place of a sound document replaced, removed or repeated."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from(
        ["", "NaN", "-1", "1e999", "/", "a/b", "\x00", "\ud800", "__acker", "[9-1]", "FORWARD", "x" * 5000]
    ),
    st.just([]),
    st.just({}),
    st.just([[[]]]),
)


def places(document: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a document."""
    found = [path] if path else []
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inside:
        found += places(value, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn, documents: dict[str, Any], changes_max: int = 3) -> dict[str, Any]:
    """The documents, by name, with one to a few changes."""
    found = copy.deepcopy(documents)
    for _ in range(draw(st.integers(1, changes_max))):
        known = places(found)
        if not known:
            break
        path = draw(st.sampled_from(known))
        holder: Any = found
        for key in path[:-1]:
            holder = holder[key]
        change = draw(st.sampled_from(["replace", "remove", "repeat"]))
        if change == "remove":
            del holder[path[-1]]
        elif change == "repeat" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[path[-1]]))
        else:
            holder[path[-1]] = draw(ODD_VALUES)
    return found
