"""Signals in a worker process: told apart from what users' functions raise, and undone when the job has ended."""

from __future__ import annotations

import signal

import pytest

from penstock.deploy.worker.main import _raise_on_signals
from penstock.run.contract import Interrupted


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_raises_interrupted_and_no_kind_of_exit(number: signal.Signals) -> None:
    known = signal.getsignal(number)
    before = _raise_on_signals()
    try:
        with pytest.raises(Interrupted, match=number.name) as caught:
            signal.raise_signal(number)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert not isinstance(caught.value, Exception | SystemExit | KeyboardInterrupt)
    assert signal.getsignal(number) == known
