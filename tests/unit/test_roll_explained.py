"""When the driver knows what a failure came from: peers of a worker that fails are heard before the worker itself."""

from __future__ import annotations

import dataclasses

from penstock.deploy.driver.rendezvous import Roll
from penstock.deploy.line.messages import Fault, Hello

HELLO = Hello(0, 3, "x", "127.0.0.1", 1, 2, 3, "b", "i", "3.11", "26", 1000.0)
LOST = Fault(1, "peer", "worker 0 closed its connection", lost=0)


def roll_of_three() -> Roll:
    roll = Roll()
    for worker in range(3):
        roll.hello(dataclasses.replace(HELLO, worker=worker, pid=worker))
    return roll


def test_a_worker_that_peers_have_lost_may_still_say_what_it_failed_with() -> None:
    roll = roll_of_three()
    roll.fault(LOST)
    roll.done(1, "failed")
    assert not roll.is_explained
    roll.fault(Fault(0, "task", "a function of its user raised", "map/0"))
    assert roll.is_explained


def test_a_worker_whose_line_has_ended_says_nothing_more() -> None:
    roll = roll_of_three()
    roll.fault(LOST)
    assert not roll.is_explained
    roll.lost(roll.hellos[0])
    assert roll.is_explained
    assert roll.faults == [LOST]  # it is known already


def test_nothing_is_explained_while_nobody_has_said_anything() -> None:
    roll = roll_of_three()
    assert not roll.is_explained
    for worker in range(3):
        roll.done(worker, "cancelled")
    assert roll.is_explained


def test_a_line_that_ends_behind_a_goodbye_is_no_loss() -> None:
    roll = roll_of_three()
    roll.done(0, "finished")
    roll.lost(roll.hellos[0])
    assert (roll.gone, roll.faults, roll.ending) == (set(), [], False)


def test_the_line_of_a_process_that_was_replaced_means_nothing() -> None:
    roll = roll_of_three()
    former = roll.hellos[0]
    assert roll.hello(dataclasses.replace(former, pid=99, attempt=1)) == {}
    roll.lost(former)
    assert (roll.gone, roll.faults) == (set(), [])
