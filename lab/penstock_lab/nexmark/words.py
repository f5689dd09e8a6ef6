"""Texts of Nexmark events, many at a time: random letters, choices from a list, channels with their addresses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
WITH_ID = 0.9  # the share of other channels whose address names the channel


def letters(lengths: NDArray[np.int64], random: np.random.Generator) -> pa.Array:
    """Texts of random small letters, of these lengths."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = random.integers(ord("a"), ord("z") + 1, int(offsets[-1]), dtype=np.uint8)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(data))


def choices(words: tuple[str, ...], count: int, random: np.random.Generator) -> pa.Array:
    """One of the words for each row."""
    return pa.array(words).take(pa.array(random.integers(0, len(words), count)))


def numbered(values: NDArray[np.int64]) -> pa.Array:
    """Numbers as text."""
    return pc.cast(pa.array(values), pa.string())


@dataclass(frozen=True)
class Channels:
    """Where bids come from: four hot channels, then many others; each has one address."""

    names: pa.Array
    urls: pa.Array

    @staticmethod
    @cache
    def of_seed(seed: int) -> Channels:
        """The channels of a seed, whatever events are made."""
        random = np.random.default_rng([seed, 0, 3])
        count = len(HOT_CHANNELS) + CHANNELS
        parts = [letters(np.full(count, 5), random) for _ in range(3)]
        folders = pc.binary_join_element_wise("https://www.nexmark.com", *parts, "item.htm?query=1", "/")
        numbers = np.arange(CHANNELS)
        named = random.random(CHANNELS) < WITH_ID
        ids = pc.binary_join_element_wise("&channel_id=", numbered(random.integers(0, 2**31, CHANNELS)), "")
        tails = pa.concat_arrays(
            [pa.array([""] * len(HOT_CHANNELS)), pc.if_else(pa.array(named), ids, "")],
        )
        names = pa.concat_arrays(
            [pa.array(HOT_CHANNELS), pc.binary_join_element_wise("channel-", numbered(numbers), "")]
        )
        return Channels(names, pc.binary_join_element_wise(folders, tails, ""))

    def draw(self, count: int, random: np.random.Generator) -> tuple[pa.Array, pa.Array]:
        """A channel and its address for each row, half of them hot."""
        hot = random.integers(0, 2, count) > 0
        others = random.integers(len(HOT_CHANNELS), len(self.names), count)
        chosen = pa.array(np.where(hot, random.integers(0, len(HOT_CHANNELS), count), others))
        return self.names.take(chosen), self.urls.take(chosen)
