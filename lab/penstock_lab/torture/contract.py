"""Lines and rows: what can be tried, and what became of one trial. Pure.

A row is *held* where the line's promise was kept, *broken* where it was not, and *void* where the moment that the line
is about never came, so that nothing was tried. Void trials are told and count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

HELD, BROKEN, VOID = "held", "broken", "void"
VERDICTS = (HELD, BROKEN, VOID)
COUNTS = ("lost", "repeated", "disordered", "strange", "miscounted")
TEXT_MAX = 2_000  # characters of an error or note that a row keeps


@dataclass(frozen=True, slots=True)
class Line:
    """One way to torture."""

    name: str
    about: str
    target: str
    trials: int = 20
    quick: int = 1  # trials of the short form
    limit_s: float = 120.0  # of one trial, after which its process is ended and it counts as broken
    master: str | None = "local[8]"  # None: the trial makes its own processes, or needs no Spark
    processes: int = 1  # side by side
    needs: tuple[str, ...] = ()  # of the machine; `play.lacking` knows what they mean


@dataclass(slots=True)
class Row:
    """What became of one trial."""

    line: str
    seed: int
    verdict: str = VOID
    counts: dict[str, int] = field(default_factory=dict)  # the checker's, where a sink was checked
    figures: dict[str, float] = field(default_factory=dict)
    error: str = ""  # why it is broken or void
    notes: list[str] = field(default_factory=list)  # what the seed chose, what the job said
    version: str = ""
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """As it is kept."""
        found = asdict(self)
        found["error"] = self.error[:TEXT_MAX]
        found["notes"] = [note[:TEXT_MAX] for note in self.notes]
        return found

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Row:
        """What `document` made; ValueError where it is something else."""
        try:
            row = cls(**document)
        except TypeError as error:
            msg = f"this is no row of a trial: {error}"
            raise ValueError(msg) from None
        if row.verdict not in VERDICTS or not isinstance(row.seed, int):
            msg = f"verdict {row.verdict!r} of seed {row.seed!r} is none of {', '.join(VERDICTS)}"
            raise ValueError(msg)
        return row


def is_clean(counts: Mapping[str, int]) -> bool:
    """Whether a checker has found nothing."""
    return not any(counts.get(name, 0) for name in COUNTS)


def percentile(values: Sequence[float], fraction: float) -> float:
    """The value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]
