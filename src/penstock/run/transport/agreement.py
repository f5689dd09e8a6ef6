"""Whether two workers of one machine speak through rings: both must be able to, or both use the socket between them.

The workers have met over TCP, proved the job's key, and said that both have an inbox. The caller then calls at the
other's local address, where the inboxes change hands. Each end says exactly one byte on the TCP connection: "y", I have
your inbox and my place in it, or "n", sockets after all. So both ends believe the same, and no byte stays behind that
could be taken for a frame (`test_both_ends_come_to_the_same_and_say_one_word_each`). sharing.py carries it out.

Without memory or descriptors, or across the wall of a container, the job runs on sockets. A broken connection is
different: a peer that said "y" and breaks the local one, or that leaves TCP too, has died
(`test_a_worker_that_agreed_and_broke_off_has_gone`, `test_a_worker_that_has_left_both_addresses_has_gone`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

YES, NO = b"y", b"n"


class Outcome(Enum):
    """What the two ends have come to."""

    RING = "ring"
    SOCKET = "socket"
    LOST = "lost"  # the other end agreed and has gone


@dataclass(slots=True)
class Agreement:
    """One end's view; words in, words out."""

    mine: bytes = b""
    theirs: bytes = b""
    has_broken: bool = False  # the local connection has ended

    def conclude(self, *, shared: bool, broken: bool = False) -> bytes:
        """Our end has the peer's inbox, or never will; the word to say, or nothing where it has been said."""
        self.has_broken = self.has_broken or broken
        if self.mine:
            return b""
        self.mine = YES if shared else NO
        return self.mine

    def hear(self, word: bytes) -> bytes:
        """The other end's word; what to say at once, where that has not been said."""
        self.theirs = word
        return b"" if word == YES else self.conclude(shared=False)

    @property
    def outcome(self) -> Outcome | None:
        """None while one of the two has not spoken."""
        if not self.mine or not self.theirs:
            return None
        if self.mine == self.theirs == YES:
            return Outcome.RING
        return Outcome.LOST if self.has_broken and self.theirs == YES else Outcome.SOCKET
