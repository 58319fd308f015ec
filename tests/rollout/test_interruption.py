"""Code that never ends is interrupted in any thread."""

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from slimrl.rollout.episode import run_episode
from slimrl.rollout.interruption import Hang, run_bounded, without_alarm
from slimrl.types import Rollout
from tests.rollout.scripted import TOKENIZER, Misbehaves, ScriptedClient, make_attempt, make_context

REPLY = [*TOKENIZER.encode("A", add_special_tokens=False), TOKENIZER.eos_token_id]


def play_in_thread(environment: Misbehaves) -> Rollout:
    """The rollout of an episode in a thread of its own, with what is left behind there checked."""

    def play() -> Rollout:
        context = make_context(ScriptedClient([REPLY]), timeout_s=0.05)
        rollout = asyncio.run(run_episode(make_attempt(lambda task: environment), context))
        assert sys.gettrace() is None
        time.sleep(0.12)  # nothing is raised afterwards
        return rollout

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(play).result(timeout=20)


@pytest.mark.parametrize("ends", ["", " and catches exceptions", " and catches everything"])
def test_an_environment_that_computes_for_ever_is_dropped(ends: str):
    rollout = play_in_thread(Misbehaves(f"computes for ever{ends}"))
    assert rollout.failure == "timeout"
    assert "longer than episode_timeout_s = 0.05 s" in rollout.failure_detail


def test_an_environment_that_is_interrupted_can_tidy_up():
    environment = Misbehaves("tidies up when interrupted")
    assert (play_in_thread(environment).failure, environment.tidy) == ("timeout", [True])


@pytest.mark.parametrize("in_thread", [False, True])
def test_where_slimrl_itself_waits_nothing_is_raised(in_thread: bool):
    def wait() -> str:
        with without_alarm():
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                pass
        return "whole"

    def spin() -> None:
        while True:
            pass

    def check() -> None:
        assert run_bounded(wait, 0.05) == "whole"
        with pytest.raises(Hang):
            run_bounded(spin, 0.05)

    if in_thread:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(check).result(timeout=20)
    else:
        check()


def test_only_the_thread_that_hangs_is_interrupted():
    def spin(until: float) -> bool:
        while time.monotonic() < until:
            pass
        return True

    def count(limit_s: float) -> bool:
        try:
            return run_bounded(lambda: spin(time.monotonic() + 0.3), limit_s)
        except Hang:
            return False

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, [0.05, 5.0, 0.05, 5.0])) == [False, True, False, True]
    assert "watchdog" in {thread.name for thread in threading.enumerate()}
