"""Ask a job that runs in another process, with the card that its user can read."""

from __future__ import annotations

from typing import Any

from penstock.deploy.desk.cards import Card
from penstock.deploy.desk.desk import LANE
from penstock.deploy.line.messages import TEXT_BYTES_MAX, decode, encode
from penstock.deploy.line.sealed import WORDS, open_line
from penstock.errors import InvalidInput, JobFailed

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 180.0  # an epoch, and workers that stand still


def ask(card: Card, call: str, /, *, patience_s: float = ANSWER_SECONDS, **words: object) -> dict[str, Any]:
    """The job's answer; InvalidInput or JobFailed in its own words where it refuses or is not there."""
    connect_s = min(CONNECT_SECONDS, patience_s)
    where = f"job {card.id} ({card.name}, process {card.pid})"
    try:
        line = open_line((card.host, card.port), bytes.fromhex(card.key), 0, LANE, connect_s)
    except OSError as error:
        msg = f"{where} does not answer at {card.host}:{card.port}: {error}; it may have ended just now"
        raise JobFailed(msg) from error
    try:
        line.connection.settimeout(patience_s)
        line.send(WORDS, encode({**words, "call": call}))
        _, body = line.receive({WORDS: TEXT_BYTES_MAX})
    except OSError as error:
        msg = f"{where} did not answer {call!r} within {patience_s:g} s, or has ended: {error}"
        raise JobFailed(msg) from error
    finally:
        line.close()
    try:
        answer = decode(body)
        if "refused" not in answer:
            found: dict[str, Any] = answer["answer"]
            return found
        refused, exit_code = str(answer["refused"]), answer.get("exit_code")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        msg = f"{where} gives an answer to {call!r} that is none; it may run another version of Penstock"
        raise JobFailed(msg) from error
    raise (InvalidInput if exit_code == InvalidInput.exit_code else JobFailed)(refused)
