"""When an inbox grows, and to what size: numbers in, a number out.

The paper's finding (003, section VI) is that a ring should hold 50 to 100 messages. The reader counts messages, since
their sizes are not known before they come. The size that counts is that of the message which a byte comes in, the sum
of squares over the sum: many small credits do not hide the batches (`test_marks_do_not_hide_the_batches`). A ring aims
at 50 messages in at most what the cache holds (4 MB), and beyond that at four whole messages, because a message that is
a single record (a quarter of the ring at most) spares two copies. A ring is left for a larger one when senders found no
space or messages had to be cut. It never shrinks, for the same messages would make it grow again
(`test_a_ring_grows_for_a_reason_to_a_power_of_two_and_never_shrinks`). docs/decisions/0014-ring.md, section "Growing".

Rejected: the mean size, doubling step by step, and growing on the first refusal (a burst at the start says nothing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MESSAGES_HELD_MIN = 50  # the least power of two that holds these holds fewer than 100
MESSAGES_WHOLE = 4  # a record takes at most a quarter of its ring
UNIT = 64  # bytes that the core counts in


@dataclass(frozen=True, slots=True)
class GrowthLimits:
    """How far and how readily an inbox grows."""

    bytes_max: int = 16 * 1024 * 1024
    cached_bytes: int = 4 * 1024 * 1024  # what many messages are worth; more only for messages that would be cut
    growths_max: int = 3
    messages_min: int = 16  # seen before anything is decided
    messages_max: int = 512  # seen without growing, before counting begins anew
    obstacles_min: int = 8  # refusals and parts among them
    looks_between: int = 32  # looks into the ring from one decision to the next


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a ring's reader has counted, since the ring was made or between two moments."""

    messages: int = 0
    bytes: int = 0
    squared_units: int = 0  # sum of the squares of the messages' lengths, in units of 64 bytes
    longest: int = 0  # since the ring was made
    refusals: int = 0  # times that senders waiting for space were told of some
    parts: int = 0

    @classmethod
    def counted(cls, statistics: Mapping[str, int]) -> Traffic:
        """The core's counters by their names here."""
        s = statistics
        return cls(s["messages"], s["bytes"], s["squared_units"], s["longest"], s["space_wakes"], s["parts"])

    def since(self, before: Traffic) -> Traffic:
        """What came after an earlier count."""
        return Traffic(
            self.messages - before.messages,
            self.bytes - before.bytes,
            self.squared_units - before.squared_units,
            self.longest,
            self.refusals - before.refusals,
            self.parts - before.parts,
        )

    @property
    def message_bytes(self) -> int:
        """The size of the message that a byte comes in; 0 where none came."""
        return UNIT * UNIT * self.squared_units // self.bytes if self.bytes else 0


def is_stale(traffic: Traffic, limits: GrowthLimits) -> bool:
    """Whether so much has been seen that its beginning should no longer count."""
    return traffic.messages >= limits.messages_max


def capacity_after(traffic: Traffic, capacity: int, limits: GrowthLimits) -> int:
    """The bytes that a ring of `capacity` should have after this traffic: as many, or a larger power of two."""
    if traffic.messages < limits.messages_min or traffic.refusals + traffic.parts < limits.obstacles_min:
        return capacity
    size = traffic.message_bytes
    many = min(MESSAGES_HELD_MIN * size, limits.cached_bytes)
    # Sizes vary, and those above the middle should not be cut either; but one giant is not what the ring is made for.
    whole = MESSAGES_WHOLE * min(traffic.longest, 2 * size)
    ceiling = 1 << (limits.bytes_max.bit_length() - 1) if limits.bytes_max > 0 else 0
    wanted = max(many, whole if traffic.parts and whole <= ceiling else 0)
    if wanted <= capacity:
        return capacity
    return max(capacity, min(1 << (wanted - 1).bit_length(), ceiling))
