"""What workers are told over the control line: commands once each, of epochs the last, and the word to end."""

from __future__ import annotations

from penstock.deploy.driver.rendezvous import COMMANDS_MAX, Roll


def test_of_many_epochs_a_worker_hears_the_last_and_each_command_once() -> None:
    roll = Roll()
    roll.command("stop")
    for epoch in range(1, 2 * COMMANDS_MAX):
        roll.begin_epoch(epoch)
    roll.scale("region", 2)  # epochs take none of the room for commands
    answer = roll.commands(0, 0, 0, 0.0)
    last = 2 * COMMANDS_MAX - 1
    assert answer == {"commands": ["stop", "scale 2 region", f"epoch {last}"], "seen": 2, "epoch": last, "end": False}
    assert roll.commands(0, 2, last, 0.0)["commands"] == []
    roll.begin_epoch(last + 1)
    assert roll.commands(0, 2, last, 0.0)["commands"] == [f"epoch {last + 1}"]


def test_whoever_asks_after_a_cancel_is_told_to_end() -> None:
    roll = Roll()
    roll.cancel()
    assert roll.ending
    assert roll.commands(0, 0, 0, 60.0)["commands"] == ["cancel"]
    assert roll.commands(1, 0, 0, 60.0) == {"commands": ["cancel"], "seen": 0, "epoch": 0, "end": False}
    roll.close()
    assert roll.commands(1, 0, 0, 60.0)["end"]


def test_a_worker_that_is_done_is_told_nothing_more() -> None:
    roll = Roll()
    roll.done(0, "finished")
    roll.cancel()
    assert roll.commands(0, 0, 0, 60.0) == {"commands": [], "seen": 0, "epoch": 0, "end": True}
