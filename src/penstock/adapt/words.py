"""Decisions in one sentence each, with their amounts in units that people read."""

from __future__ import annotations

from penstock.adapt.contract import AdaptSettings, Look
from penstock.adapt.price import Price
from penstock.adapt.speeds import slow_workers
from penstock.optimise.contract import BYTES

NAMED_MAX = 3  # of workers and tasks in a sentence
SCALES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(amount: float) -> str:
    """Bytes."""
    for scale, unit in SCALES:
        if abs(amount) >= scale:
            return f"{amount / scale:.3g} {unit}"
    return f"{amount:.3g} B"


def worth(amount: float, settings: AdaptSettings) -> str:
    """An amount of what the goal counts, over the horizon."""
    return size(amount) if settings.goals.what == BYTES else f"{amount:.3g} s of CPU"


def change(now: Price, then: Price) -> str:
    """What a plan would change, the figures that differ."""
    parts = [f"bytes between nodes from {size(now.between_nodes)}/s to {size(then.between_nodes)}/s"]
    parts.append(f"the busiest worker or node from {now.pressure:.2g} to {then.pressure:.2g} of what it can do")
    if then.latency_us != now.latency_us:
        parts.append(f"latency from {now.latency_us:.3g} us to perhaps {then.latency_us:.3g} us")
    return ", ".join(parts)


def troubles(look: Look, now: Price, settings: AdaptSettings) -> str:
    """What is wrong with the present plan apart from its price, to be added to a sentence; empty where nothing is."""
    found = [
        f"worker {slot.worker} of {slot.node!r} runs at {v:.2g} of its speed" for slot, v in slow_workers(look).items()
    ]
    if now.pressure > settings.busy:
        found.append(f"the busiest worker or node is at {now.pressure:.2g} of what it can do, above {settings.busy:g}")
    if look.done < 1.0:
        found.append(f"the job does {look.done:.2g} of what it did when nothing held it back")
    bound = settings.goals.latency_us
    if bound is not None and now.latency_us > bound:
        found.append(f"latency is {now.latency_us:.4g} us, above {bound:g}")
    if look.starved:
        found.append(f"{', '.join(sorted(look.starved)[:NAMED_MAX])} would do more if its worker let it")
    return "; ".join(found[: 2 * NAMED_MAX])


def tasks(count: int) -> str:
    """So many tasks."""
    return f"{count} task{'' if count == 1 else 's'}"
