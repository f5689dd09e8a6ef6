"""What the words of published statements mean, in one place: "about 30 %" is 22.5 to 37.5 %, for every figure alike.

Papers say "about", "close to", "similar" and give no tolerance. A verdict is worth as much as the tolerance behind it,
so all checks take theirs from here, and `meaning` puts it into the evidence (`test_words_mean_the_same_everywhere`).
A range without such a word ("1.5 to 4 times") is meant as printed, and so are "0", "all", "every" and "above".
"""

from __future__ import annotations

import math

ABOUT, CLOSE, SAME, NOTABLE, HALF = 0.25, 0.15, 0.10, 0.20, 0.50
MEANINGS = {
    "about": ABOUT,  # at most this far from the figure, as a share of it
    "around": ABOUT,
    "close to": CLOSE,
    "similar": CLOSE,  # two of our figures, or ours and a printed one that has no word
    "almost": CLOSE,  # below the figure by at most this, and not above it
    "the same": SAME,
    "near": SAME,
    "even": SAME,
    "stable": SAME,
    "a small variation": SAME,
    "a little": SAME,  # more by at most this
    "marginal": SAME,
    "notably": NOTABLE,  # less by at least this
    "significantly lower": NOTABLE,
    "sharp": NOTABLE,  # a rise of blocking by at least this share of the time
    "far less": HALF,  # less by at least this
    "much more": HALF,  # more by at least this
    "an increase": HALF,
    "high": HALF,
}
SIGNIFICANT_GROWTH = 10.0  # "increases significantly": at least this many times
EXACT = 1e-9  # for sums of floating-point numbers


def meaning(*words: str) -> str:
    """The words' tolerances, for the evidence: `about means within 25 %`."""
    return ", ".join(f"{word} means {_TEXTS.get(word, 'within')} {MEANINGS[word] * 100:.0f} %" for word in words)


_TEXTS = {
    "almost": "below by at most",
    "sharp": "by at least",
    **dict.fromkeys(("a little", "marginal"), "more by at most"),
    **dict.fromkeys(("notably", "significantly lower", "far less"), "less by at least"),
    **dict.fromkeys(("much more", "an increase", "high"), "more by at least"),
}


def about(found: float, said: float) -> bool:
    """Whether a figure is about what was said; never about 0, which needs no word."""
    return _within("about", found, said)


def close_to(found: float, said: float) -> bool:
    """Whether a figure is close to what was said."""
    return _within("close to", found, said)


def similar(found: float, other: float) -> bool:
    """Whether two figures are similar."""
    return _within("similar", found, other)


def the_same(found: float, other: float) -> bool:
    """Whether two figures are the same, as far as a figure in print shows."""
    return _within("the same", found, other)


def almost(found: float, said: float) -> bool:
    """Whether a figure nearly reaches what was said."""
    return (1 - MEANINGS["almost"]) * said * (1 - EXACT) <= found <= said * (1 + EXACT)


def a_little_more(found: float, other: float) -> bool:
    """Whether a figure is at most a little above another; below it is no cost at all."""
    return found <= (1 + MEANINGS["a little"]) * other * (1 + EXACT)


def notably_less(found: float, other: float) -> bool:
    """Whether a figure is notably below another."""
    return found <= (1 - MEANINGS["notably"]) * other * (1 + EXACT)


def far_less(found: float, other: float) -> bool:
    """Whether a figure is far below another."""
    return found <= (1 - MEANINGS["far less"]) * other * (1 + EXACT)


def much_more(found: float, other: float) -> bool:
    """Whether a figure is much above another."""
    return found >= (1 + MEANINGS["much more"]) * other * (1 - EXACT)


def between(found: float, low: float, high: float) -> bool:
    """Whether a figure is inside a printed range, ends included, as they are printed to one digit."""
    return low * (1 - EXACT) <= found <= high * (1 + EXACT)


def _within(word: str, found: float, said: float) -> bool:
    return math.isfinite(found) and abs(found - said) <= MEANINGS[word] * abs(said) * (1 + EXACT)
