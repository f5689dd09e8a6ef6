"""Several Spark actions that answer as one, and where workers that stand still are sent."""

from __future__ import annotations

from typing import Any, cast

from penstock.deploy.attempt.gangs import Gangs
from penstock.deploy.attempt.going import Going
from penstock.deploy.driver.stage import Action
from penstock.deploy.line.sealed import derive, veiled


class Fake:
    """An action as far as `Gangs` sees it."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.ended = self.cancelled = False
        self.launched = True
        self.error: Exception | None = None
        self.reason: str | None = None
        self.told: list[object] = []

    def tell(self, on_change: object) -> None:
        self.told.append(on_change)

    def wait(self, _: float | None) -> bool:
        return self.ended

    def cancel(self, _: float) -> None:
        self.cancelled = self.ended = True


def made(*names: str) -> tuple[list[Fake], Gangs]:
    fakes = [Fake(name) for name in names]
    return fakes, Gangs(*cast("list[Action]", fakes))


def test_one_that_is_over_is_no_end_and_one_that_has_failed_is() -> None:
    (first, second), both = made("a", "b")
    assert both.groups == ("a", "b")
    first.ended = True
    assert not both.ended
    assert not both.wait(0.0)
    second.error, second.reason = ValueError("gone"), "gone"
    assert both.ended
    assert (both.error, both.reason) == (second.error, "gone")
    second.error, second.ended = None, True
    assert both.ended
    assert both.wait(0.0)


def test_all_are_told_and_all_are_cancelled() -> None:
    fakes, both = made("a", "b")

    def on_change() -> None: ...

    both.tell(on_change)
    assert [fake.told for fake in fakes] == [[on_change]] * 2
    both.cancel(0.0)
    assert all(fake.cancelled for fake in fakes)
    assert both.cancelled


def test_what_is_over_is_left_out_when_others_join() -> None:
    (first, _), both = made("a", "b")
    first.ended = True
    assert Gangs.of(both, cast("Action", Fake("c"))).groups == ("b", "c")
    alone: Any = Fake("d")
    assert Gangs.of(alone, cast("Action", Fake("e"))).groups == ("d", "e")


def test_workers_are_numbered_anew_or_sent_home() -> None:
    key, ticket = b"k" * 32, b"t" * 32
    going = Going("tcp://here:1", ticket, {0: 0, 2: 1})
    assert going.answer(1, key) == {"home": True}
    told = going.answer(2, key)
    assert (told["next"], told["worker"]) == ("tcp://here:1", 1)
    assert veiled(bytes.fromhex(str(told["ticket"])), derive(key, "next ticket")) == ticket
    assert "t" * 8 not in repr(going)
