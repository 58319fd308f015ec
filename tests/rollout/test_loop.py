"""An environment that holds the thread of the episodes in the run's own process is named, and Ctrl-C ends the run."""

import asyncio
import threading
import time

import pytest

from slimrl.io.loop_thread import CHECK_S, LoopThread
from slimrl.rollout.loop import hold_s, hold_thread, run_episodes


def test_the_time_in_an_environments_code_is_measured_but_not_slimrls_own_waits() -> None:
    thread = threading.get_ident()
    assert hold_s(thread) == 0.0
    with hold_thread():
        time.sleep(0.02)
        assert hold_s(thread) >= 0.02
        with hold_thread(by_environment=False):
            assert hold_s(thread) == 0.0
        assert hold_s(thread) < 0.02
    assert hold_s(thread) == 0.0


@pytest.mark.slow
def test_a_thread_that_is_held_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def hold() -> None:
        with hold_thread():
            time.sleep(2.3 * CHECK_S)

    monkeypatch.setattr("slimrl.rollout.loop.HELD_S", 0.0)
    run_episodes(hold())
    (line,) = capsys.readouterr().err.splitlines()
    assert "held the run for 1 s (test_loop.py:" in line and 'worker = "process"' in line


def test_after_an_interrupt_of_a_thread_that_is_held_the_next_episodes_get_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    async def hold() -> None:
        over.wait(20)

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("slimrl.io.loop_thread.CHECK_S", 0.01)
    monkeypatch.setattr("slimrl.io.loop_thread.CLOSE_S", 0.05)
    loop = LoopThread("held")
    with pytest.raises(KeyboardInterrupt):
        loop.wait(hold(), interrupt)
    assert loop.wait(asyncio.sleep(0, "played")) == "played"
    over.set()
