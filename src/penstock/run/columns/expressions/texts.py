"""Functions of text. Where Arrow differs from Spark, the difference is mended here or `flow/expressions` refuses it.

Upper and lower case: Arrow maps one character to one character, Spark follows Unicode's full rules ("ß" becomes "SS").
Arrow maps ASCII text, which is most text. One pattern finds the few characters on which Arrow and Unicode differ, and
Python, which follows Unicode, maps the texts that hold one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.run.columns.expressions.registry import Function, Values, as_array, kernel, length_of

LETTERS_END = 0x1F000  # no letter with two cases lies beyond


@cache
def _irregular(upper: bool) -> str:
    """A pattern of the characters whose case Arrow maps differently from Unicode's full rules."""
    letters = [chr(code) for code in range(0x80, LETTERS_END) if not 0xD800 <= code < 0xE000]
    ours = pa.array([letter.upper() if upper else letter.lower() for letter in letters])
    arrows = (pc.utf8_upper if upper else pc.utf8_lower)(pa.array(letters))
    odd = pc.filter(pa.array(letters), pc.not_equal(ours, arrows)).to_pylist()
    return "[" + "".join([*odd, "" if upper else "Σ"]) + "]"  # the small sigma depends on its place in the word


def _cased(plain: Function, full: Function, python: Callable[[str], str], upper: bool) -> Function:
    def compute(kind: pa.DataType, a: Values) -> pa.Array:
        if pc.all(pc.string_is_ascii(a)).as_py() is not False:
            return plain(a)
        odd = pc.fill_null(pc.match_substring_regex(a, _irregular(upper)), False)
        found = full(a)
        if not pc.any(odd).as_py():
            return found
        mapped = pa.array([python(text) for text in pc.filter(a, odd).to_pylist()], kind)
        return pc.replace_with_mask(found, odd, mapped)

    return compute


kernel("upper")(_cased(pc.ascii_upper, pc.utf8_upper, str.upper, True))
kernel("lower")(_cased(pc.ascii_lower, pc.utf8_lower, str.lower, False))


@kernel("length")
def length(kind: pa.DataType, a: Values) -> pa.Array:
    """Characters of text, bytes of binary."""
    return (pc.binary_length if pa.types.is_binary(a.type) else pc.utf8_length)(a).cast(kind)


@kernel("slice")
def sliced(kind: pa.DataType, a: Values, start: int, stop: int | None) -> pa.Array:
    """Characters from one place to another; negative places count from the end."""
    return pc.utf8_slice_codeunits(a, start, stop)


@kernel("concat")
def concat(kind: pa.DataType, *values: Values) -> pa.Array:
    """Texts one after another; null where any of them is null."""
    return pc.binary_join_element_wise(*values, pa.scalar("", kind))


@kernel("concat_ws")
def concat_with(kind: pa.DataType, *values: Values) -> pa.Array:
    """Texts with a separator between, nulls left out; the last argument is the separator.

    Rejected: Arrow's own null handling, which loses empty rows.
    """
    *texts, separator = values
    length = length_of(*texts)
    found = as_array(pa.scalar("", kind), length)
    for text in texts:
        part = pc.binary_join_element_wise(pa.scalar(separator, kind), as_array(text, length), "")
        found = pc.binary_join_element_wise(found, pc.fill_null(part, ""), "")
    return pc.utf8_slice_codeunits(found, len(separator))


def _trimmed(trim: Function) -> Function:
    return lambda kind, a, characters: trim(a, characters)


kernel("trim")(_trimmed(pc.utf8_trim))
kernel("ltrim")(_trimmed(pc.utf8_ltrim))
kernel("rtrim")(_trimmed(pc.utf8_rtrim))


@kernel("replace")
def replaced(kind: pa.DataType, a: Values, search: str, by: str) -> pa.Array:
    """Every occurrence of a text replaced by another."""
    return pc.replace_substring(a, search, by)


@kernel("contains")
def contains(kind: pa.DataType, a: Values, part: str) -> pa.Array:
    """Whether a text has a part."""
    return pc.match_substring(a, part)


@kernel("starts_with")
def starts_with(kind: pa.DataType, a: Values, part: str) -> pa.Array:
    """Whether a text begins with the part."""
    return pc.starts_with(a, part)


@kernel("ends_with")
def ends_with(kind: pa.DataType, a: Values, part: str) -> pa.Array:
    """Whether a text ends with the part."""
    return pc.ends_with(a, part)


@kernel("matches")
def matches(kind: pa.DataType, a: Values, pattern: str) -> pa.Array:
    """Whether a pattern is found, in RE2's grammar."""
    return pc.match_substring_regex(a, pattern)


@kernel("extract")
def extracted(kind: pa.DataType, a: Values, pattern: str) -> pa.Array:
    """What the pattern's one group `g` holds, empty where nothing is found."""
    found = pc.struct_field(pc.extract_regex(a, pattern), "g")
    return pc.if_else(pc.is_null(a), pa.scalar(None, kind), pc.fill_null(found, ""))


@kernel("replace_pattern")
def replaced_pattern(kind: pa.DataType, a: Values, pattern: str, by: str) -> pa.Array:
    """Every match of a pattern replaced by a text in RE2's grammar."""
    return pc.replace_substring_regex(a, pattern, by)


@kernel("reverse")
def reverse(kind: pa.DataType, a: Values) -> pa.Array:
    """The characters backwards."""
    return pc.utf8_reverse(a)


@kernel("repeat")
def repeat(kind: pa.DataType, a: Values, times: int) -> pa.Array:
    """The text repeated `times` times."""
    return pc.binary_repeat(a, times)


@kernel("pad")
def padded(kind: pa.DataType, a: Values, width: int, by: str, left: bool) -> pa.Array:
    """Text of exactly this width: cut, or filled up with one character."""
    return (pc.utf8_lpad if left else pc.utf8_rpad)(pc.utf8_slice_codeunits(a, 0, width), width, by)


@kernel("split")
def split(kind: pa.DataType, a: Values, separator: str) -> pa.Array:
    """The pieces between separators, empty ones too."""
    return pc.split_pattern(a, separator).cast(kind)


@kernel("element", fails=True)
def element(kind: pa.DataType, a: Values, index: int) -> pa.Array:
    """One element of a list, counted from 0; a list that is too short is a fault."""
    return pc.list_element(a, index)


@kernel("element_or")
def element_or(kind: pa.DataType, a: Values, index: int, missing: str | None) -> pa.Array:
    """One element, counted from 0 or from the end; `missing` where the list is too short, null for a null list."""
    lists = as_array(a, length_of(a))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    starts = lists.offsets.to_numpy(zero_copy_only=False)[:-1]
    places = np.where(index < 0, sizes, 0) + index
    found = lists.values.take(pa.array(starts + places, pa.int64(), mask=(places < 0) | (places >= sizes)))
    if missing is None:
        return found
    return pc.if_else(pc.is_null(lists), pa.scalar(None, kind), pc.fill_null(found, missing))


@kernel("size")
def size(kind: pa.DataType, a: Values) -> pa.Array:
    """The number of elements of a list; null for a null list."""
    return pc.list_value_length(a).cast(kind)


@kernel("field")
def field(kind: pa.DataType, a: Values, name: str) -> pa.Array:
    """A field of a struct."""
    return pc.struct_field(a, name)
