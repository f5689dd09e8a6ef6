"""Whose plan a job follows, for tests on machines that may be busy."""

from __future__ import annotations

from penstock.deploy.driver.binding import INSTEAD_NOTE
from penstock.model.plan import Plan


def made_by(plan: Plan, asked: str) -> bool:
    """Whether it is the asked one's, or says that the loads measured were too much for it, and is best's."""
    instead = any(repr(asked) in note and INSTEAD_NOTE in note for note in plan.notes)
    return plan.scheduler == ("best" if instead else asked)
