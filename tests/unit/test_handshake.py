"""The handshake without a socket: cut anywhere, forged, replayed, reflected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.run.transport.handshake import MAGIC, OPENING, PROOF_BYTES, Handshake
from penstock.run.transport.protocol import PeerGone

KEY = b"k" * 32


def pair(key: bytes = KEY, other_key: bytes = KEY) -> tuple[Handshake, Handshake]:
    return Handshake(3, key, first=True, shares_memory=True), Handshake(7, other_key, first=False)


def feed(end: Handshake, words: bytes, cuts: list[int]) -> bytes:
    """Give bytes in pieces, never more than are wanted; what was answered."""
    answer = b""
    sizes = iter(cuts)
    while words:
        size = min(next(sizes, len(words)), end.wanted, len(words))
        assert size > 0
        answer += end.receive(words[:size])
        words = words[size:]
    return answer


@given(st.lists(st.integers(1, 50), max_size=12), st.lists(st.integers(1, 50), max_size=12))
def test_two_ends_know_each_other_however_their_words_are_cut(cuts: list[int], others: list[int]) -> None:
    one, other = pair()
    assert one.is_silent
    to_one, to_other = feed(other, one.opening, cuts), feed(one, other.opening, others)
    assert not one.is_silent
    assert one.peer is None
    assert feed(one, to_one, cuts) == b""
    assert one.peer is None  # it has not been let in yet
    assert feed(one, feed(other, to_other, others), []) == b""
    assert (one.peer, other.peer) == (7, 3)
    assert (one.peer_shares_memory, other.peer_shares_memory) == (False, True)
    assert one.wanted == other.wanted == 0


def test_one_without_the_key_proves_nothing() -> None:
    one, stranger = pair(other_key=b"another")
    stranger.receive(one.opening)
    one.receive(stranger.opening)
    with pytest.raises(PeerGone, match="does not hold the job's key"):
        one.receive(stranger._proof(b"accept", stranger.opening, one.opening))
    assert one.peer is None


@given(st.binary(min_size=OPENING.size, max_size=OPENING.size).filter(lambda words: not words.startswith(MAGIC)))
def test_rubbish_is_refused_at_its_first_words(words: bytes) -> None:
    one, _ = pair()
    with pytest.raises(PeerGone, match="does not speak our protocol"):
        one.receive(words)


@given(st.binary(min_size=PROOF_BYTES, max_size=PROOF_BYTES))
def test_no_other_bytes_are_a_proof(proof: bytes) -> None:
    one, other = pair()
    one.receive(other.opening)
    with pytest.raises(PeerGone, match="does not hold the job's key"):
        one.receive(proof)


def test_a_caller_that_is_not_welcomed_is_not_in() -> None:
    one, other = pair()
    proof = other.receive(one.opening)
    one.receive(other.opening)
    one.receive(proof)
    with pytest.raises(PeerGone, match="does not speak our protocol"):
        one.receive(b"n")
    assert one.peer is None


def test_our_own_words_sent_back_are_refused() -> None:
    one, _ = pair()
    with pytest.raises(PeerGone, match="does not speak our protocol"):
        one.receive(one.opening)


def test_a_proof_of_the_other_role_or_of_another_meeting_is_refused() -> None:
    one, other = pair()
    recorded = other.receive(one.opening)
    again, _ = pair()
    again.receive(other.opening)
    with pytest.raises(PeerGone, match="does not hold the job's key"):
        again.receive(recorded)  # over another nonce
    twin = Handshake(7, KEY, first=True)
    one.receive(twin.opening)
    with pytest.raises(PeerGone, match="does not hold the job's key"):
        one.receive(twin.receive(one.opening))  # both say that they called
