"""An environment that holds the thread of the episodes in the run's own process is named, and Ctrl-C ends the run."""

import asyncio
import threading
import time
from typing import Any

import pytest

from slimrl.errors import UserError
from slimrl.inference import engine
from slimrl.io.loop_thread import LoopThread
from slimrl.rollout.loop import run_episodes


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimrl.rollout.loop.HELD_S", 0.0)
    monkeypatch.setattr("slimrl.io.loop_thread.CHECK_S", 0.02)
    monkeypatch.setattr("slimrl.io.loop_thread.CLOSE_S", 0.05)


def test_a_thread_that_is_held_is_reported_once_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def hold() -> None:
        time.sleep(0.5)

    run_episodes(hold())
    (line,) = capsys.readouterr().err.splitlines()
    assert "held the run for 1 s (test_loop.py:" in line and 'worker = "process"' in line


def test_a_long_step_of_the_sampler_is_not_an_environments(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(compile("import time\nasync def sample(): time.sleep(0.3)", engine.__file__, "exec"), names)
    run_episodes(names["sample"]())
    assert capsys.readouterr().err == ""


def test_a_loop_that_runs_is_not_held_however_long_its_episodes_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("slimrl.rollout.loop.HELD_S", 10.0)  # ten checks
    run_episodes(asyncio.sleep(0.4))
    assert capsys.readouterr().err == ""


def test_an_environment_that_stops_the_loop_ends_the_run_and_the_next_episodes_get_another() -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(100)

    with pytest.raises(UserError, match="stopped the event loop of episodes"):
        run_episodes(stop())
    assert run_episodes(asyncio.sleep(0, "played")) == "played"


def test_after_an_interrupt_of_a_thread_that_is_held_the_next_episodes_get_another() -> None:
    over = threading.Event()

    async def hold() -> None:
        over.wait(20)

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop = LoopThread("held")
    with pytest.raises(KeyboardInterrupt):
        loop.wait(hold(), interrupt)
    assert loop.wait(asyncio.sleep(0, "played")) == "played"
    over.set()
