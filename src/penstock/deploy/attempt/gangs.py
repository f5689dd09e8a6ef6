"""Several Spark actions that hold the workers of one attempt: those of its start, and those that joined it later.

A stage of Spark's cannot grow, so workers that join come with an action of their own. One that fails has failed the
attempt; one whose workers have all ended is over, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.deploy.driver.stage import Action


class Gangs:
    """Answers for all of them as one action does."""

    waits_for_stages = reads = False  # they read no DataFrame: jobs with checkpoints have them spooled

    def __init__(self, *actions: Action) -> None:
        self.actions = actions

    @classmethod
    def of(cls, held: Action | Gangs, joining: Action) -> Gangs:
        """Those that hold the workers so far, as far as they are not over, and one more."""
        actions = held.actions if isinstance(held, Gangs) else (held,)
        return cls(*(action for action in actions if not action.ended), joining)

    @property
    def groups(self) -> tuple[str, ...]:
        """The job groups of all."""
        return tuple(action.group for action in self.actions)

    def start(self) -> None:
        """They have been submitted one by one."""

    def tell(self, on_change: Callable[[], None]) -> None:
        """Whom to tell from now on."""
        for action in self.actions:
            action.tell(on_change)

    @property
    def launched(self) -> bool:
        """Whether all have been submitted."""
        return all(action.launched for action in self.actions)

    @property
    def ended(self) -> bool:
        """Whether Spark is done with them, or one has failed."""
        return all(action.ended for action in self.actions) or self.error is not None

    @property
    def error(self) -> Exception | None:
        """What the first of them has failed with."""
        return next((action.error for action in self.actions if action.error is not None), None)

    @property
    def reason(self) -> str | None:
        """The same in words."""
        return next((action.reason for action in self.actions if action.error is not None), None)

    @property
    def cancelled(self) -> bool:
        """Whether Spark was told to end one."""
        return any(action.cancelled for action in self.actions)

    def wait(self, seconds: float | None) -> bool:
        """Whether all have ended within `seconds`."""
        latest = None if seconds is None else time.monotonic() + seconds
        return all(
            action.wait(None if latest is None else max(0.0, latest - time.monotonic())) for action in self.actions
        )

    def cancel(self, seconds: float) -> None:
        """Let Spark kill all of their workers."""
        latest = time.monotonic() + seconds
        for action in self.actions:
            action.cancel(max(1.0, latest - time.monotonic()))
